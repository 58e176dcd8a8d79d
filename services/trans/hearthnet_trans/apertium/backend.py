"""Apertium as a backend: one pipeline for each requested pair, kept while it is used."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hearthnet import HearthNetError
from hearthnet.core import TaskSet
from hearthnet_trans.apertium import modes
from hearthnet_trans.apertium.pipeline import HANGS_SECONDS, Broken, Pipeline
from hearthnet_trans.apertium.stream import Lost, decode, encode, parts
from hearthnet_trans.backend import Pair, Translation, TranslationWork

_log = logging.getLogger(__name__)
MOST_PIPELINES: Final = 4
"""Pipelines that run at once."""
IDLE_SECONDS: Final = 300.0
_LOOK_SECONDS: Final = 10.0
_RETRY_MS: Final = 500


class Apertium:
    """Translation by Apertium, as a `TranslationBackend`."""

    name = "apertium"
    places = 16

    def __init__(
        self,
        folder: Path | None = None,
        *,
        most: int = MOST_PIPELINES,
        idle_seconds: float = IDLE_SECONDS,
        hangs_seconds: float = HANGS_SECONDS,
        look_seconds: float = _LOOK_SECONDS,
    ) -> None:
        self._folder = folder or modes.folder()
        self._most = most
        self._idle = idle_seconds
        self._hangs = hangs_seconds
        self._look_every = look_seconds
        self._modes: dict[Pair, Path] = {}
        self._pipelines: dict[Pair, Pipeline] = {}
        self._starting = asyncio.Lock()
        self._alone: dict[Pair, asyncio.Lock] = {}
        self._tasks = TaskSet()
        self.note = ""

    @property
    def pairs(self) -> frozenset[Pair]:
        """As `TranslationBackend.pairs`."""
        return frozenset(self._modes)

    async def open(self, changed: Callable[[], None]) -> None:
        """As `TranslationBackend.open`."""
        self._modes = await asyncio.to_thread(modes.installed, self._folder)
        self._tasks.start(self._follow(changed), "apertium follow")

    async def translate(self, work: TranslationWork) -> Translation:
        """Translate as `TranslationBackend.translate`; if markup is lost, translate again in pieces."""
        encoded = encode(work.text)
        if not encoded.words:
            return Translation(work.text, self._model(work))
        try:
            decoded = decode(await self._run(work, encoded.stream), encoded.kept)
            marked, text = decoded.marked, decoded.text
        except Lost:
            text, marked = await self._in_pieces(work)
        known = max(0.0, 1 - marked / encoded.words)
        return Translation(text, self._model(work), round(known, 3))

    async def close(self) -> None:
        """As `TranslationBackend.close`."""
        await self._tasks.close()
        while self._pipelines:
            await self._pipelines.popitem()[1].close()

    def _model(self, work: TranslationWork) -> str:
        mode = self._modes.get((work.source, work.target))
        return mode.stem if mode is not None else ""

    async def _in_pieces(self, work: TranslationWork) -> tuple[str, int]:
        """Translate each stretch of words by itself, and keep the text between them."""
        whole, marked = "", 0
        for to_translate, part in parts(work.text):
            if to_translate:
                encoded = encode(part)
                try:
                    decoded = decode(await self._run(work, encoded.stream), encoded.kept)
                except Lost as error:
                    raise _failed(work, str(error)) from error
                part, marked = decoded.text, marked + decoded.marked
            whole += part
        return whole, marked

    async def _run(self, work: TranslationWork, stream: str) -> str:
        """Return the answer of the pair's pipeline.

        After a failure the text is tried once more. Retries of a pair run one at a time, so that a text that
        breaks the pipeline does not fail another text twice.

        Raises:
            HearthNetError: `internal_error` if the second attempt fails; errors of `_pipeline`.
        """
        pair = work.source, work.target
        try:
            return await (await self._pipeline(work)).run(stream)
        except Broken as error:
            _log.warning("apertium %s-%s broke off: %s", *pair, error)
        async with self._alone.setdefault(pair, asyncio.Lock()):
            try:
                return await (await self._pipeline(work)).run(stream)
            except Broken as error:
                raise _failed(work, str(error)) from error

    async def _pipeline(self, work: TranslationWork) -> Pipeline:
        """Return the pair's pipeline, started if necessary.

        Raises:
            Broken: the programs cannot be started.
            HearthNetError: `not_found` if the pair is no longer installed; `capacity_exceeded` if too many
                pipelines are busy.
        """
        pair = work.source, work.target
        async with self._starting:
            if pair not in self._modes:
                raise HearthNetError(
                    "not_found", f"Apertium has {work.source}-{work.target} no longer installed"
                )
            running = self._pipelines.get(pair)
            if running is not None and running.alive:
                return running
            if running is not None:
                await self._pipelines.pop(pair).close()
            await self._make_room()
            try:
                command = await asyncio.to_thread(modes.command, self._modes[pair])
            except modes.ModeError as error:
                raise Broken(str(error)) from error
            started = await Pipeline.start(command, hangs_seconds=self._hangs)
            self._pipelines[pair] = started
            return started

    async def _make_room(self) -> None:
        """End the pipeline that was idle for longest, if the limit is reached.

        Raises:
            HearthNetError: `capacity_exceeded` if none is idle.
        """
        if len(self._pipelines) < self._most:
            return
        idle = [(one.used_at, pair) for pair, one in self._pipelines.items() if one.idle]
        if not idle:
            raise HearthNetError(
                "capacity_exceeded",
                f"{self._most} pairs of languages are being translated already; try again in a moment",
                retry_after_ms=_RETRY_MS,
            )
        await self._pipelines.pop(min(idle)[1]).close()

    async def _follow(self, changed: Callable[[], None]) -> None:
        """End idle pipelines, and detect installed and removed pairs, until cancelled."""
        while True:
            await asyncio.sleep(self._look_every)
            found = await asyncio.to_thread(modes.installed, self._folder)
            if found != self._modes:
                self._modes = found
                changed()
            async with self._starting:
                await self._end_idle()

    async def _end_idle(self) -> None:
        before = asyncio.get_running_loop().time() - self._idle
        for pair, one in list(self._pipelines.items()):
            if not one.alive or (one.idle and one.used_at < before):
                await self._pipelines.pop(pair).close()


def _failed(work: TranslationWork, why: str) -> HearthNetError:
    reason = f"Apertium's {work.source}-{work.target} cannot translate this text: {why}"
    return HearthNetError(
        "internal_error", f"{reason}; leave out what is unusual in it, or name another backend"
    )
