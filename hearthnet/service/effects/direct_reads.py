"""Many messages of a stream by one request: the numbers or subjects are known, and most lie side by side.

See: docs/protocol/subjects.md#stored-subjects.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Collection, Iterable
from itertools import groupby
from typing import TYPE_CHECKING, Any

from hearthnet.bus.store import Store
from hearthnet.service.effects.jetstream_records import Message, answering

if TYPE_CHECKING:
    from nats.aio.msg import Msg


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
    from nats import errors
    from nats.js import api

    client, found, ended = store.link.client, list[Message](), asyncio.Event()

    async def take(message: Msg) -> None:
        headers = message.headers or {}
        if "Status" in headers:  # that was all, or there is nothing
            ended.set()
        else:
            found.append(Message(message.data, int(headers["Nats-Sequence"]), headers["Nats-Subject"]))

    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox, cb=take)
    try:
        async with answering(what):
            subject = f"{api.DEFAULT_PREFIX}.DIRECT.GET.{stream}"
            await client.publish(subject, json.dumps(wanted).encode(), reply=inbox)
            await ended.wait()
    finally:
        with contextlib.suppress(errors.Error):
            await subscription.unsubscribe()
    return found
