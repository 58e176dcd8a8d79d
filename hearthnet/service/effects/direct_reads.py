"""Many messages of a stream by one request: those of an interval, of known numbers, or of known subjects.

See: docs/protocol/subjects.md#stored-subjects.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from itertools import groupby
from typing import Any, Final

from hearthnet.bus.store import Store
from hearthnet.core.errors import HearthNetError, Unavailable
from hearthnet.service.effects.jetstream_records import Message, answering

_API: Final = "$JS.API.DIRECT.GET"
_BATCH: Final = 2000
_BATCH_BYTES: Final = 16 * 1024 * 1024
_END: Final = frozenset({204, 404})
"""The server's statuses for the end of an answer, and for none that is asked for."""
_ABSENT: Final = 503
_NUMBER: Final = b"\r\nNats-Sequence: "
_SUBJECT: Final = b"\r\nNats-Subject: "


async def read(
    store: Store, stream: str, subject: str, after: int, upto: int, what: str
) -> AsyncIterator[list[Message]]:
    """Yield the messages under `subject` after place `after`, up to `upto`, in order and in batches.

    Erased messages are left out.

    Raises:
        HearthNetError: `partition` without an answer.
    """
    while after < upto:
        count = min(_BATCH, upto - after)
        wanted = {"seq": after + 1, "batch": count, "max_bytes": _BATCH_BYTES, "next_by_subj": subject}
        found = await _get(store, stream, wanted, what)
        batch = [message for message in found if message.sequence <= upto]
        if batch:
            yield batch
        after = batch[-1].sequence if len(batch) == len(found) > 0 else upto


async def by_number(store: Store, stream: str, numbers: Collection[int], what: str) -> dict[int, Message]:
    """Return the messages with these numbers, without those that were erased, and perhaps some others.

    Raises:
        HearthNetError: `partition` without an answer.
    """
    wanted = ({"seq": first, "batch": count} for first, count in _runs(numbers))
    answers = await asyncio.gather(*(_get(store, stream, one, what) for one in wanted))
    return {message.sequence: message for answer in answers for message in answer}


async def by_subject(store: Store, stream: str, subjects: Collection[str], what: str) -> dict[str, Message]:
    """Return the newest messages of these subjects, at most 1,000, without those that were erased.

    Raises:
        HearthNetError: `partition` without an answer.
    """
    if not subjects:
        return {}
    wanted = {"multi_last": list(subjects), "batch": len(subjects)}
    return {message.subject: message for message in await _get(store, stream, wanted, what)}


def _runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and the count of each run of numbers without gaps."""
    runs = []
    for _, run in groupby(enumerate(sorted(set(numbers))), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        runs.append((members[0], len(members)))
    return runs


async def _get(store: Store, stream: str, wanted: dict[str, Any], what: str) -> list[Message]:
    async with answering(what):
        batches = await store.link.batches()
        await batches.connected()
        found, status = await batches.read(f"{_API}.{stream}", wanted)
    if status == _ABSENT:
        raise Unavailable(f"{what} does not answer yet; try again", rule="store_silent")
    if status not in _END:
        raise HearthNetError("internal_error", f"{what} refuses to be read (status {status})")
    return [_message(*one) for one in found]


def _message(headers: bytes, data: bytes) -> Message:
    """Return a message; the server's own headers follow those with which it was stored."""
    number, subject = (_last(headers, name) for name in (_NUMBER, _SUBJECT))
    return Message(data, int(number), subject.decode())


def _last(headers: bytes, name: bytes) -> bytes:
    start = headers.rindex(name) + len(name)
    return headers[start : headers.index(b"\r\n", start)]
