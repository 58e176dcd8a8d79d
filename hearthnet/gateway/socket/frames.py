"""The frames of `hearthnet-bus.v2` as bytes and values.

A client's frames are a closed union, told apart by `type`; the server's are `{event, data, seq}`. What a
client sends is read here once, at the border: whatever is none of these raises `BadFrame`.

See: docs/protocol/gateway.md#client-frames, docs/protocol/gateway.md#server-frames, docs/gateway.md.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from hearthnet.canonical import read_json, refuse_repeated_keys
from hearthnet.errors import HearthNetError
from hearthnet.types import Count

SUBPROTOCOL: Final = "hearthnet-bus.v2"

Topic = Literal["runs", "mesh", "market.post"]


class _First(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", rename={"sender": "from"}):
    """What the first frame may carry of who sends it: `sender` (on the wire `from`), `community`,
    `timestamp`, `request_id` and `signature` where the client has a key, and as `token` what a program shows
    as its bearer, or the token of a member that is no client of the book.

    See: docs/protocol/gateway.md#signed-first-frames.
    """

    request_id: str = ""
    sender: str = ""
    community: str = ""
    timestamp: str = ""
    token: str = ""
    signature: str = ""

    def envelope(self) -> dict[str, Any]:
        """What is signed and who signs it; of the latter what is there."""
        said = {
            "request_id": self.request_id,
            "from": self.sender,
            "community": self.community,
            "timestamp": self.timestamp,
            "token": self.token,
            "signature": self.signature,
        }
        return {name: value for name, value in said.items() if value}


class Call(_First, frozen=True, kw_only=True, tag="call"):
    """The first frame of a call; `timeout_ms` 0 stands for what the contract says."""

    capability: str
    body: dict[str, Any]
    version: str = ""
    timeout_ms: Count = 0

    def envelope(self) -> dict[str, Any]:
        """The call envelope, as it came."""
        called = {"capability": self.capability, "version": self.version, "body": self.body}
        return {**called, **super().envelope()}


class Resume(_First, frozen=True, kw_only=True, tag="resume"):
    """The first frame of whoever goes on: with a `stream` that broke, after frame `after`, or with a saved
    `run`.
    """

    stream: str = ""
    after: Count = 0
    run: str = ""

    def __post_init__(self) -> None:
        if bool(self.stream) == bool(self.run):
            raise ValueError("resume names either a stream or a run")

    def envelope(self) -> dict[str, Any]:
        """As that of a call of `stream.resume`, whose input this frame holds."""
        given = {"stream": self.stream, "after": self.after, "run": self.run}
        return {**_called("stream.resume", given), **super().envelope()}


class Subscribe(_First, frozen=True, kw_only=True, tag="subscribe"):
    """The first frame of whoever follows a topic; with `since_seq` what came after that frame is sent."""

    topic: Topic
    since_seq: Count | None = None

    def envelope(self) -> dict[str, Any]:
        """As that of a call of `topic.subscribe`, whose input this frame holds."""
        given = {"topic": self.topic, "since_seq": self.since_seq}
        return {**_called("topic.subscribe", given), **super().envelope()}


def _called(name: str, given: dict[str, Any]) -> dict[str, Any]:
    members = {member: value for member, value in given.items() if value not in ("", None)}
    return {"capability": name, "version": "2.0", "body": {"params": {}, "input": members}}


class Ack(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="ack"):
    """All frames up to and including `upto` have come; also a sign of life."""

    upto: Count


class ToolResult(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="tool_result"):
    """What a tool of the client's own gave back."""

    tool_call_id: str
    content: Any
    is_error: bool = False


class Confirm(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="confirm"):
    """What the person said to one question; `shown` is the digest of what they saw.

    `approval` is the signed yes of a client with a key.
    """

    confirmation_id: str
    decision: Literal["approve", "deny", "edit"]
    shown: str = ""
    arguments: dict[str, Any] | None = None
    reason: str = ""
    approval: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if (self.decision == "edit") != (self.arguments is not None):
            raise ValueError("arguments belong to an edit, and to nothing else")


class Cancel(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="cancel"):
    """Nobody wants the rest."""


First = Call | Resume | Subscribe
ClientFrame = First | Ack | ToolResult | Confirm | Cancel


class BadFrame(Exception):
    """What came is none of the frames; the text says why, in a few words."""


class _Type(msgspec.Struct):
    type: str


_TYPE: Final = msgspec.json.Decoder(_Type)
_FRAME: Final = msgspec.json.Decoder(ClientFrame)
_ENCODE: Final = msgspec.json.Encoder().encode


def read(text: str | bytes) -> ClientFrame:
    """The frame that a client sent; raises `BadFrame`.

    Signed frames have one meaning: one that names a key twice is refused.
    """
    data = text if isinstance(text, bytes) else _utf8(text)
    try:
        frame: ClientFrame = read_json(data, _FRAME)
        if isinstance(frame, Call | Confirm):
            refuse_repeated_keys(data)
    except HearthNetError as error:
        raise BadFrame(_reason(data, error)) from error
    return frame


def write(event: str, data: Any, seq: int) -> bytes:
    """The bytes of a frame of the server."""
    return _ENCODE({"event": event, "data": data, "seq": seq})


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadFrame("no UTF-8") from error


def _reason(data: bytes, error: HearthNetError) -> str:
    """Why, in words that do not grow with what was sent."""
    try:
        kind = read_json(data, _TYPE).type
    except HearthNetError:
        return "no JSON object with a type"
    known = sorted(_KINDS)
    if kind not in known:
        return f"unknown type; known: {', '.join(known)}"
    return f"{kind}: {error.message.removeprefix('unreadable JSON: ')}"[:100]


_KINDS: Final = frozenset(
    str(kind.__struct_config__.tag) for kind in (Call, Resume, Subscribe, Ack, ToolResult, Confirm, Cancel)
)
