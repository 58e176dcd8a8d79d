"""A call of every capability that is right: what load is made of, and what bad input departs from.

It is the first example of the contract, ids put in where it lacks them. Where that is not enough, it stands
in `_OWN`; a test holds that complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final, NamedTuple

from hearthnet.contracts.contract import Contract
from hearthnet.contracts.registry import contracts
from hearthnet.core.ids import new_ulid

Body = dict[str, Any]
CORPUS: Final = "waterworks"
DOCUMENT: Final = "# Water\n\n" + "\n\n".join(
    f"Barrel {number} holds rain. Boil it for a minute, let it cool, and keep the lid on."
    for number in range(40)
)


class Stock(NamedTuple):
    """What a node has that calls are about."""

    document: str
    """CID of a document that every member may read."""
    node: str
    token: str


def _input(**given: Any) -> Body:
    return {"params": {}, "input": given}


def _keyed(**given: Any) -> Body:
    return _input(client_id=new_ulid(), **given)


_OWN: Final[dict[str, Callable[[Stock], Body]]] = {
    "auth.token.introspect@1.0": lambda stock: _input(token=stock.token),
    "auth.token.issue@1.0": lambda stock: _keyed(
        subject=stock.node, scope={"capabilities": ["market.list@1.0"]}, ttl_seconds=60
    ),
    "community.join@1.0": lambda stock: _input(event=_joined(stock.node), heads={}),
    "file.read@1.0": lambda stock: _input(cid=stock.document),
    "file.remove@1.0": lambda stock: _input(cid="blake3:" + "0" * 64),
    "llm.models.check@1.0": lambda stock: _input(url="http://127.0.0.1:9/v1"),
    "llm.tools.call@1.0": lambda stock: _input(
        tool_call_id="tc_1", target_capability="market.list@1.0", target_body=_input(limit=5)
    ),
    "market.search@1.0": lambda stock: _input(query="water filter"),
    "rag.share@1.0": lambda _stock: {"params": {"corpus": CORPUS}, "input": {"shared": True}},
    "rag.query@1.0": lambda stock: {
        "params": {"corpus": CORPUS},
        "input": {"query": "How long do I boil rain from a barrel?", "k": 3},
    },
}


def _joined(node: str) -> Body:
    """An event of the right form that nobody signed."""
    return {
        "schema_version": 1,
        "event_id": new_ulid(),
        "lamport": 1,
        "wall_clock": "2026-01-01T00:00:00Z",
        "community_id": node,
        "author": node,
        "sequence": 1,
        "previous": "",
        "event_type": "community.member.joined",
        "data": {},
        "signature": "ed25519:" + "A" * 86,
    }


def sample(contract: Contract, stock: Stock) -> Body:
    """A body that the contract takes; each time another client id."""
    own = _OWN.get(contract.id)
    if own is not None:
        return own(stock)
    examples = [example for example in contract.examples if "error" not in example]
    examples.sort(key=lambda example: "insert" in example)
    body: Body = deepcopy(examples[0]["request"]) if examples else {}
    _complete(contract.request_schema, body, stock)
    if "client_id" in body["input"]:
        body["input"]["client_id"] = new_ulid()
    return body


def _complete(schema: Body, body: Body, stock: Stock) -> None:
    """Puts in what `schema` demands and `body` lacks, as where an example says that it is known later."""
    properties: dict[str, Body] = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in body:
            body[name] = _some(properties.get(name, {}), stock)
    for name, inner in properties.items():
        if isinstance(body.get(name), dict):
            _complete(inner, body[name], stock)


def _some(schema: Body, stock: Stock) -> Any:
    """A value for a field of an id, a number, a word of a list; else a text."""
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            return {}
        case "array":
            return [_some(schema["items"], stock)] * schema.get("minItems", 0)
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
    texts = (new_ulid(), stock.node, stock.document, stock.token, CORPUS)
    pattern = schema.get("pattern")
    return next((text for text in texts if pattern and re.search(pattern, text)), "water")


def documents() -> set[str]:
    """The documents that examples take for given."""
    examples = (example for contract in contracts() for example in contract.examples)
    given = (example.get("given", {}).get("document") for example in examples)
    return {text for text in given if isinstance(text, str)}
