"""Translation of a text of any length by trans.text, which accepts 4,000 characters.

See: docs/trans.md#long-texts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

import msgspec

from hearthnet.bus.bus import Bus
from hearthnet.core.tasks import end
from hearthnet.text.splitting import parts

MOST_CHARACTERS: Final = 4_000
"""Maximum of characters in one call."""
AT_ONCE: Final = 4
Done = Callable[[int, int], None]
"""Called with the number of finished parts and of all parts."""


class Translated(msgspec.Struct, frozen=True):
    """A whole text in the other language.

    `source` is its language as named or detected; `confidence` is that of its parts weighted by their length;
    `backends` are those that translated, each once.
    """

    text: str
    source: str
    target: str
    confidence: float
    backends: tuple[str, ...]
    parts: int


async def translate(
    bus: Bus,
    text: str,
    source: str,
    target: str,
    *,
    backend: str | None = None,
    done: Done = lambda number, of: None,
) -> Translated:
    """Translate `text` in parts, several at once, split between sentences where possible.

    With `source` auto the first part decides for all. A text without a character, or already in the wanted
    language, needs no call. `done` receives the progress.

    Raises:
        HearthNetError: As trans.text; no part is returned then.
    """
    if source == target or not text.strip():
        return Translated(text, source, target, 1.0, (), 0)
    pieces = list(parts(text, MOST_CHARACTERS))
    first = await _part(bus, pieces[0], source, target, backend)
    source = first.output.get("detected_from", source)
    done(1, len(pieces))
    places, ready = asyncio.Semaphore(AT_ONCE), 1

    async def one(piece: str) -> Any:
        nonlocal ready
        async with places:
            reply = await _part(bus, piece, source, target, backend)
        ready += 1
        done(ready, len(pieces))
        return reply

    if source == target and first.meta["backend"] == "none":
        return Translated(text, source, target, 1.0, (), len(pieces))
    replies = [first, *await _all(one(piece) for piece in pieces[1:])]
    weights = [len(piece) or 1 for piece in pieces]
    known = sum(reply.output["confidence"] * weight for reply, weight in zip(replies, weights, strict=True))
    return Translated(
        "".join(reply.output["text"] for reply in replies),
        source,
        target,
        round(known / sum(weights), 3),
        tuple(dict.fromkeys(reply.meta["backend"] for reply in replies)),
        len(pieces),
    )


async def _all(calls: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Return all results, in order; the first error cancels the other calls."""
    tasks = [asyncio.create_task(call, name="translate part") for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        await end(set(tasks))


async def _part(bus: Bus, text: str, source: str, target: str, backend: str | None) -> Any:
    params = {} if backend is None else {"backend": backend}
    return await bus.call(
        "trans.text@1.0", {"params": params, "input": {"text": text, "from": source, "to": target}}
    )
