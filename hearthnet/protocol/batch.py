"""Batches: several calls or answers to one process in one frame (docs/decisions/0062).

    calls      header: sender, receiver, capability, time    body: [{id, body, deadline, token, ...}, ...]
    replies    header: sender, receiver, time                body: [{id, body, code, seq, event}, ...]

A batch is a plain frame whose body is a list of 1 to 64 items. Each item is checked by itself, exactly as if
it had arrived alone. A malformed item becomes a call or answer without a body, which is refused at that
check; an item without an id belongs to no call and is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Final, TypeVar

import msgspec

from hearthnet.core import ids
from hearthnet.core.canonical_json import read_json
from hearthnet.core.capability_name import Count
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol.frame import Frame, FrameError
from hearthnet.protocol.header import LONGEST, Header

MOST: Final = 64
"""Maximum number of items of a batch; one with more is refused."""
_NOTHING: Final = msgspec.Raw(b"")


class BatchedCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One call of a batch, with the header fields that differ from call to call.

    `body` is JSON not yet parsed.
    """

    id: str
    body: msgspec.Raw = _NOTHING
    deadline: Count = 0
    token: str = ""
    run: str = ""
    hops: Count = 0
    traceparent: str = ""
    session: str = ""
    waits: bool = False


class Answered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One answer of a batch.

    A frame of a stream if it has an `event`, otherwise the reply to the call `id`.
    """

    id: str
    body: msgspec.Raw = _NOTHING
    seq: Count = 0
    event: str = ""
    code: str = ""


class _Named(msgspec.Struct, frozen=True):
    id: str


Item = TypeVar("Item", BatchedCall, Answered)
_Few = msgspec.Meta(min_length=1, max_length=MOST)
_ENCODER: Final = msgspec.json.Encoder()
_CALLS: Final = msgspec.json.Decoder(Annotated[list[BatchedCall], _Few])
_REPLIES: Final = msgspec.json.Decoder(Annotated[list[Answered], _Few])
_EACH: Final = msgspec.json.Decoder(Annotated[list[msgspec.Raw], _Few])
_CALL: Final = msgspec.json.Decoder(BatchedCall)
_ANSWER: Final = msgspec.json.Decoder(Answered)
_NAMED: Final = msgspec.json.Decoder(_Named)


def encode(items: Sequence[BatchedCall] | Sequence[Answered]) -> bytes:
    """Return the body of a batch."""
    return _ENCODER.encode(items)


def calls(frame: Frame, on_fault: Callable[[], None] = lambda: None) -> list[Frame]:
    """Split a frame of kind `calls` into its calls, each as if it had arrived alone.

    `on_fault` is called if the body is not a batch or an item is malformed: reading the items one by one
    takes ten times as long.

    Raises:
        FrameError: The body is not a batch.
    """
    return [
        Frame(call_header(frame.header, item), bytes(item.body), None)
        for item in _items(frame.body, _CALLS, _CALL, BatchedCall, on_fault)
    ]


def call_header(shared: Header, item: BatchedCall) -> Header:
    """Return the header of one call, from the fields of its batch and its own."""
    return Header(
        kind="call",
        id=item.id,
        sender=shared.sender,
        community=shared.community,
        time=shared.time,
        from_instance=shared.from_instance,
        to=shared.to,
        to_instance=shared.to_instance,
        capability=shared.capability,
        deadline=item.deadline,
        token=item.token,
        run=item.run,
        hops=item.hops,
        traceparent=item.traceparent,
        session=item.session,
        waits=item.waits,
    )


def answers(frame: Frame, on_fault: Callable[[], None] = lambda: None) -> list[Frame]:
    """Split a frame of kind `replies` into its replies and stream frames; `on_fault` as with `calls`.

    Raises:
        FrameError: The body is not a batch.
    """
    shared = frame.header
    return [
        Frame(answer_header(shared, item), bytes(item.body), None)
        for item in _items(frame.body, _REPLIES, _ANSWER, Answered, on_fault)
    ]


def answer_header(shared: Header, item: Answered) -> Header:
    """Return the header of one reply, or of one frame of a stream."""
    return Header(
        kind="frame" if item.event else "reply",
        id=item.id,
        sender=shared.sender,
        community=shared.community,
        time=shared.time,
        from_instance=shared.from_instance,
        to=shared.to,
        to_instance=shared.to_instance,
        seq=item.seq,
        event=item.event,
        code=item.code,
    )


def _items(
    data: bytes,
    decoder: msgspec.json.Decoder[list[Item]],
    each: msgspec.json.Decoder[Item],
    kind: type[Item],
    on_fault: Callable[[], None],
) -> list[Item]:
    try:
        items = decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        on_fault()
        return _kept(_one_by_one(data, each, kind), len(data))
    kept = _kept(items, len(data))
    if len(kept) < len(items):
        on_fault()
    return kept


def _kept(items: list[Item], size: int) -> list[Item]:
    """Return the items that a header would hold, of a body of `size` bytes."""
    is_ulid = ids.is_ulid
    return [
        item for item in items if is_ulid(item.id) and (size <= LONGEST or _header_length(item) <= LONGEST)
    ]


def _header_length(item: BatchedCall | Answered) -> int:
    """Return the characters that `item` adds to a header.

    An item with more than a header may have is dropped, as it would be alone.
    """
    if isinstance(item, BatchedCall):
        return len(item.token) + len(item.run) + len(item.traceparent) + len(item.session)
    return len(item.event) + len(item.code)


def _one_by_one(data: bytes, decoder: msgspec.json.Decoder[Item], kind: type[Item]) -> list[Item]:
    """Read the items one by one; used if the list does not decode as a whole."""
    try:
        each = read_json(data, _EACH)
    except HearthNetError as error:
        raise FrameError(f"malformed pack: {error.message}") from error
    found = (_item(raw, decoder, kind) for raw in each)
    return [item for item in found if item is not None]


def _item(raw: msgspec.Raw, decoder: msgspec.json.Decoder[Item], kind: type[Item]) -> Item | None:
    try:
        return read_json(memoryview(raw), decoder)
    except HearthNetError:
        pass
    try:
        return kind(id=read_json(memoryview(raw), _NAMED).id)
    except HearthNetError:
        return None
