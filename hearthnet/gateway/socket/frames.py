"""The frames of `hearthnet-bus.v2` as bytes and values.

A client's frames are a closed union, distinguished by `type`; the server's are `{event, data, seq}`. A
client's frame is parsed here once, at the border: any other text raises `BadFrame`.

See: docs/protocol/gateway.md#client-frames, docs/protocol/gateway.md#server-frames, docs/gateway.md.
"""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

import msgspec

from hearthnet.core.canonical_json import read_json, refuse_repeated_keys
from hearthnet.core.capability_name import Count
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.runs.run import DecisionBody

SUBPROTOCOL: Final = "hearthnet-bus.v2"

Topic = Literal["runs", "mesh", "market.post"]


class _First(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", rename={"sender": "from"}):
    """The members of a first frame that identify its sender.

    A client with a key sends `sender` (on the wire `from`), `community`, `timestamp`, `request_id` and
    `signature`. `token` is a program's bearer, or the token of a member that is no client of the book.

    See: docs/protocol/gateway.md#signed-first-frames.
    """

    request_id: str = ""
    sender: str = ""
    community: str = ""
    timestamp: str = ""
    token: str = ""
    signature: str = ""

    def envelope(self) -> dict[str, Any]:
        """Return the members that are present, for the check of the signature."""
        said = {name: getattr(self, name) for name in _First.__struct_fields__}
        return {"from" if name == "sender" else name: value for name, value in said.items() if value}


class CallFrame(_First, frozen=True, kw_only=True, tag="call"):
    """The first frame of a call; with `timeout_ms` 0 the contract's time limit applies."""

    capability: str
    body: dict[str, Any]
    version: str = ""
    timeout_ms: Count = 0

    def envelope(self) -> dict[str, Any]:
        """Return the call envelope, as received."""
        called = {"capability": self.capability, "version": self.version, "body": self.body}
        return {**called, **super().envelope()}


class Resume(_First, frozen=True, kw_only=True, tag="resume"):
    """The first frame of a continuation.

    It names a broken `stream` with the last received frame `after`, or a saved `run`.
    """

    stream: str = ""
    after: Count = 0
    run: str = ""

    def __post_init__(self) -> None:
        if bool(self.stream) == bool(self.run):
            raise ValueError("resume names either a stream or a run")

    def envelope(self) -> dict[str, Any]:
        """Return the envelope of a call of `stream.resume`, whose input this frame holds."""
        given = {"stream": self.stream, "after": self.after, "run": self.run}
        return {**_called("stream.resume", given), **super().envelope()}


class Subscribe(_First, frozen=True, kw_only=True, tag="subscribe"):
    """The first frame of a follower of a topic, after the frame `since_seq` if given."""

    topic: Topic
    since_seq: Count | None = None

    def envelope(self) -> dict[str, Any]:
        """Return the envelope of a call of `topic.subscribe`, whose input this frame holds."""
        given = {"topic": self.topic, "since_seq": self.since_seq}
        return {**_called("topic.subscribe", given), **super().envelope()}


def _called(name: str, given: dict[str, Any]) -> dict[str, Any]:
    members = {member: value for member, value in given.items() if value not in ("", None)}
    return {"capability": name, "version": "2.0", "body": {"params": {}, "input": members}}


class Ack(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="ack"):
    """The receipt of all frames up to and including `upto`; also a sign of life."""

    upto: Count


class ToolResult(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="tool_result"):
    """The result of a client tool."""

    tool_call_id: str
    content: Any
    is_error: bool = False


class Confirm(
    DecisionBody, frozen=True, kw_only=True, tag_field="type", tag="confirm", forbid_unknown_fields=False
):
    """The person's decision about one call."""

    confirmation_id: str

    def __post_init__(self) -> None:
        if (self.decision == "edit") != (self.arguments is not None):
            raise ValueError("arguments belong to an edit, and to nothing else")


class Cancel(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="cancel"):
    """The request to end the stream."""


First = CallFrame | Resume | Subscribe
ClientFrame = First | Ack | ToolResult | Confirm | Cancel


class BadFrame(Exception):
    """Raised for text that is none of the frames, with a short reason."""


class _Type(msgspec.Struct):
    type: str


_TYPE: Final = msgspec.json.Decoder(_Type)
_FRAME: Final = msgspec.json.Decoder(ClientFrame)
_ENCODE: Final = msgspec.json.Encoder().encode


def read(text: str | bytes) -> ClientFrame:
    """Return the frame in a client's message.

    A signed frame must be unambiguous: one with a repeated key is refused.

    Raises:
        BadFrame: The message is none of the frames.
    """
    data = text if isinstance(text, bytes) else _utf8(text)
    try:
        frame: ClientFrame = read_json(data, _FRAME)
        if isinstance(frame, CallFrame | Confirm):
            refuse_repeated_keys(data)
    except HearthNetError as error:
        raise BadFrame(_reason(data, error)) from error
    return frame


def write(event: str, data: Any, seq: int) -> bytes:
    """Return the bytes of a frame of the server."""
    return _ENCODE({"event": event, "data": data, "seq": seq})


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadFrame("no UTF-8") from error


def _reason(data: bytes, error: HearthNetError) -> str:
    """Return the reason, in a text of bounded length."""
    try:
        kind = read_json(data, _TYPE).type
    except HearthNetError:
        return "no JSON object with a type"
    if kind not in _KINDS:
        return f"unknown type; known: {', '.join(sorted(_KINDS))}"
    return f"{kind}: {error.message.removeprefix('unreadable JSON: ')}"[:100]


_KINDS: Final = frozenset(str(kind.__struct_config__.tag) for kind in get_args(ClientFrame))
