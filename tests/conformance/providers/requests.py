"""A recorded request into the canonical form, through the contract as JSON, and back."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any
from urllib.parse import unquote

import msgspec

from hearthnet.contracts.registry import contracts
from hearthnet.contracts.schema import SchemaCheck, compile_schema
from hearthnet.core.errors import HearthNetError
from hearthnet_llm.interface.request import ChatRequest
from hearthnet_llm.vendors import ollama, wire
from hearthnet_llm.vendors.wire import HttpRequest, Target, Wire
from tests.conformance.providers.compare import differences
from tests.conformance.providers.differences import allowed
from tests.conformance.providers.recording import Recording
from tests.conformance.providers.wires import facts

CONTRACT = contracts().get("llm.chat@2.0")
UNREADABLE = (400, 422)
"""What a vendor answers to a body that is no request of its wire."""


def problems(recording: Recording) -> tuple[str, list[str]]:
    """How it went ("ok", "failed", "absent", "refused") and why it failed.

    "refused": our reader found a field that is none of this wire's, and so did the vendor at the time. Such
    cases are counted apart and shown.
    """
    sent = recording.request
    if sent is None or sent.json is None:
        return "absent", []
    known, vendor = wire(recording.wire), recording.vendor
    native = HttpRequest(sent.method or "POST", sent.path or "", sent.json)
    if recording.wire == "ollama" and not sent.json.get("messages"):
        return _verdict(rebuilt(native, ollama.loading(_named(native)), recording))
    try:
        request, target = known.read(native, vendor)
        body = {"params": {"model": target.model}, "input": msgspec.to_builtins(request)}
        carried = json.loads(json.dumps(body))
        CONTRACT.check_request(carried)
    except HearthNetError as error:
        refused = error.code == "bad_request" and recording.response.status in UNREADABLE
        return ("refused" if refused else "failed"), [f"not read: {error.message}"]
    found = [*undeclared(carried), *misspelled(target, known), *overloaded(target, native)]
    again = msgspec.convert(carried["input"], ChatRequest)
    if again != request:
        found.append("the canonical request does not survive JSON")
    found += rebuilt(native, known.encode(again, target), recording)
    return _verdict(found)


def _verdict(found: list[str]) -> tuple[str, list[str]]:
    return ("failed" if found else "ok"), found


def _named(native: HttpRequest) -> Target:
    """The target of a request that asks a model nothing: it is there to have it loaded, or let go."""
    return Target(native.body["model"], native.url.removesuffix("/api/chat"))


def rebuilt(native: HttpRequest, made: HttpRequest, recording: Recording) -> list[str]:
    """What of the rebuilt request differs and may not."""
    known = facts(recording.wire)
    may = allowed(known.DIFFER, recording.vendor)
    found = [
        line
        for line in differences(native.body, json.loads(json.dumps(made.body)), known.JSON_TEXTS)
        if not any(one.covers(line.partition(": ")[0]) for one in may)
    ]
    if (made.method, made.url) != (native.method, native.url):
        found.append(f"goes to {made.method} {made.url}, recorded {native.method} {native.url}")
    return found


def misspelled(target: Target, known: Wire) -> list[str]:
    """What of the target is no choice that the wire declares: nothing else may travel in it."""
    return [
        f"spelling {choice}={value!r} is not declared"
        for choice, value in target.spelling.items()
        if value not in known.SPELLINGS.get(choice, ())
    ]


def overloaded(target: Target, native: HttpRequest) -> list[str]:
    """What of the target is neither address, nor the name of the model, nor a version."""
    address = native.url + unquote(native.url)
    fits = {
        "base": target.base in address,
        "model": target.model in address or target.model == native.body.get("model"),
        "api_version": re.fullmatch(r"[\w.&=-]{0,40}", target.api_version) is not None,
    }
    return [f"the target's {name} holds {getattr(target, name)!r}" for name, fit in fits.items() if not fit]


def undeclared(body: Any) -> list[str]:
    """Fields of the canonical form that the contract does not know: none may be carried along unseen."""
    return [f"not in the contract: {problem.path} {problem.message}" for problem in _closed().errors(body)]


_OPEN = ("const", "enum", "default", "contains", "if", "then", "required")
"""Keywords whose schemas say something about an object without listing its fields."""


@cache
def _closed() -> SchemaCheck:
    return compile_schema(_close(CONTRACT.request_schema))


def _close(schema: Any) -> Any:
    """The schema with every object closed whose fields it lists."""
    if isinstance(schema, list):
        return [_close(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: value if key in _OPEN else _close(value) for key, value in schema.items()}
    lists_fields = schema.get("type") == "object" and isinstance(schema.get("properties"), dict)
    return {**made, "additionalProperties": False} if lists_fields else made
