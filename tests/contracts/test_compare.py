"""Telling a change that callers survive from one that they do not."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec
import pytest

from hearthnet.contracts.compare import compare
from hearthnet.contracts.contract import Contract
from hearthnet.contracts.registry import contracts

QUERY = contracts().get("rag.query@1.0")
CHAT = contracts().get("llm.chat@2.0")
POST = contracts().get("market.post@1.0")


def changed(contract: Contract, path: str, value: Any) -> Contract:
    """`contract` with the value at a dotted path replaced, or removed where `value` is ..."""
    parts = msgspec.to_builtins(contract)
    *parents, last = path.split(".")
    place = parts
    for step in parents:
        place = place[step]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return msgspec.convert(parts, Contract)


INPUT = "request_schema.properties.input"
QUERY_FIELDS = f"{INPUT}.properties"
REPLY = "response_schema.properties.output"


@pytest.mark.req("CONTRACT-3")
@pytest.mark.parametrize(
    ("contract", "path", "value", "reason"),
    [
        (QUERY, f"{INPUT}.required", ["query", "k"], "request/input/k is now required"),
        (QUERY, f"{QUERY_FIELDS}.k", ..., "request/input/k is gone"),
        (QUERY, f"{QUERY_FIELDS}.k.maximum", 10, "request/input/k has a lower maximum"),
        (QUERY, f"{QUERY_FIELDS}.k.minimum", 2, "request/input/k has a higher minimum"),
        (QUERY, f"{QUERY_FIELDS}.k.type", "string", "request/input/k may no longer be integer"),
        (
            QUERY,
            "request_schema.properties.params.properties.corpus.pattern",
            "^a$",
            "request/params/corpus has another pattern",
        ),
        (QUERY, f"{QUERY_FIELDS}.filter.properties.min_year", ..., "request/input/filter/min_year is gone"),
        (
            POST,
            f"{QUERY_FIELDS}.category.enum",
            ["offer"],
            "request/input/category may no longer be ['request', 'info', 'emergency']",
        ),
        (POST, f"{QUERY_FIELDS}.tags.items.maxLength", 4, "request/input/tags/items has a lower maxLength"),
        (
            POST,
            f"{QUERY_FIELDS}.location.properties.lat.type",
            "integer",
            "request/input/location/lat may no longer be number",
        ),
        (
            QUERY,
            f"{REPLY}.properties.chunks.items.properties.text",
            ...,
            "reply/output/chunks/items/text is gone",
        ),
        (QUERY, f"{REPLY}.required", [], "reply/output/chunks is no longer promised"),
        (
            QUERY,
            f"{REPLY}.properties.chunks.items.properties.text.type",
            ["string", "null"],
            "reply/output/chunks/items/text may now be null",
        ),
        (CHAT, "stream_schema.notice", ..., "frame notice is gone"),
        (CHAT, "stream_schema.token.required", [], "frame token/text is no longer promised"),
    ],
)
def test_a_change_that_breaks_somebody_says_whom(
    contract: Contract, path: str, value: Any, reason: str
) -> None:
    found = compare(contract, changed(contract, path, value))
    assert (found.kind, found.reasons) == ("breaking", [reason])


@pytest.mark.req("CONTRACT-3")
@pytest.mark.parametrize(
    ("contract", "path", "value"),
    [
        (QUERY, f"{QUERY_FIELDS}.rerank", {"type": "boolean", "default": False}),
        (QUERY, f"{QUERY_FIELDS}.k.maximum", 50),
        (QUERY, f"{QUERY_FIELDS}.k.type", "number"),
        (QUERY, f"{QUERY_FIELDS}.query.pattern", ...),
        (QUERY, f"{QUERY_FIELDS}.query.description", "Words"),
        (POST, f"{QUERY_FIELDS}.category.enum", ["offer", "request", "info", "emergency", "thanks"]),
        (POST, f"{QUERY_FIELDS}.tags.items", ...),
        (QUERY, f"{REPLY}.properties.total", {"type": "integer"}),
        (QUERY, f"{REPLY}.properties.chunks.items.properties.score.type", "integer"),
        (CHAT, "stream_schema.guess", {"type": "object"}),
    ],
)
def test_a_change_that_only_adds_needs_a_new_minor(contract: Contract, path: str, value: Any) -> None:
    if path.endswith("pattern"):
        contract = changed(contract, path, "^.")
    found = compare(contract, changed(contract, path, value))
    assert (found.kind, found.reasons) == ("additive", [])


@pytest.mark.req("CONTRACT-3")
def test_what_is_not_on_the_wire_does_not_count() -> None:
    assert compare(QUERY, changed(QUERY, "timeout_seconds", 20)).kind == "equal"
    assert compare(QUERY, changed(QUERY, "version", "1.1")).kind == "equal"
    assert compare(CHAT, deepcopy(CHAT)).kind == "equal"


@pytest.mark.req("CONTRACT-3")
def test_a_stream_that_becomes_unary_breaks_and_the_other_way_adds() -> None:
    assert compare(CHAT, changed(CHAT, "stream_schema", None)).kind == "breaking"
    assert compare(changed(CHAT, "stream_schema", None), CHAT).kind == "additive"
