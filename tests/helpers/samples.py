"""A call of every capability that is right: what load is made of, and what bad input departs from.

The first example of a contract that needs nothing put in is one. What has none stands in `_OWN`; a test holds
that complete.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final, NamedTuple

from hearthnet.contracts import Contract, contracts
from hearthnet.ids import new_ulid

Body = dict[str, Any]
CORPUS: Final = "waterworks"
DOCUMENT: Final = "# Water\n\n" + "\n\n".join(
    f"Barrel {number} holds rain. Boil it for a minute, let it cool, and keep the lid on."
    for number in range(40)
)
_NOBODY: Final = "ed25519:" + "A" * 43


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
    "auth.token.revoke@1.0": lambda stock: _keyed(token_id=new_ulid(), reason="manual"),
    "community.demote@1.0": lambda stock: _keyed(target_node_id=_NOBODY, new_level="member"),
    "community.join@1.0": lambda stock: _input(event=_joined(stock.node), heads={}),
    "community.promote@1.0": lambda stock: _keyed(target_node_id=_NOBODY, new_level="trusted"),
    "community.revoke@1.0": lambda stock: _keyed(target_node_id=_NOBODY, reason="other"),
    "community.withdraw@1.0": lambda stock: _keyed(invite_event_id=new_ulid()),
    "file.read@1.0": lambda stock: _input(cid=stock.document),
    "file.remove@1.0": lambda stock: _input(cid="blake3:" + "0" * 64),
    "llm.models.check@1.0": lambda stock: _input(url="http://127.0.0.1:9/v1"),
    "llm.tools.call@1.0": lambda stock: _input(
        tool_call_id="tc_1", target_capability="market.list@1.0", target_body=_input(limit=5)
    ),
    "market.expire@1.0": lambda stock: _keyed(event_id=new_ulid(), reason="withdrawn"),
    "market.search@1.0": lambda stock: _input(query="water filter"),
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


def sample(contract: Contract, stock: Stock) -> Body | None:
    """A body that the contract takes; each time another client id. None where nobody has written one."""
    own = _OWN.get(contract.id)
    if own is not None:
        return own(stock)
    for example in contract.examples:
        if "error" not in example and "insert" not in example:
            body: Body = deepcopy(example["request"])
            if "client_id" in body["input"]:
                body["input"]["client_id"] = new_ulid()
            return body
    return None


def documents() -> set[str]:
    """The documents that examples take for given."""
    examples = (example for contract in contracts() for example in contract.examples)
    given = (example.get("given", {}).get("document") for example in examples)
    return {text for text in given if isinstance(text, str)}
