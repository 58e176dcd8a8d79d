"""An embedding model behind a URL, called in pieces and offered while its server answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Callable, Sequence
from typing import Final

from hearthnet import HearthNetError
from hearthnet.core import EmbedModelConfig
from hearthnet.models import ModelHttpClient, ServerWatch, is_near, without_login
from hearthnet_embed.backend import Embedded, Profile
from hearthnet_embed.http_protocols import WIRES, read, request

_log = logging.getLogger(__name__)
PIECE: Final = 32
"""Texts in one request; some servers refuse more."""
_AT_ONCE: Final = 4
LOOK_SECONDS: Final = 10.0
_BEARER: Final = ("Authorization", "Bearer {key}")
_TOO_LONG: Final = re.compile(r"context|too long|exceed|maximum", re.IGNORECASE)
_UNAVAILABLE_CODES: Final = ("partition", "timeout", "capacity_exceeded", "unauthorized", "not_found")
"""Codes that may mean that the server is gone, so that it is probed at once."""
_WORD: Final = "water"


class Remote:
    """One model of one server; `changed` is called when it appears, vanishes or changes size."""

    def __init__(self, config: EmbedModelConfig, changed: Callable[[], None]) -> None:
        self.config = config
        self.problem = ""
        self._changed = changed
        self._wire = WIRES[config.kind]
        login = without_login(config.url)[1]
        self._connection = ModelHttpClient(config.name, config.api_key_env or "", _BEARER, login)
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._watch = ServerWatch()
        self._again = asyncio.Event()
        self._dim = 0
        self.looked = asyncio.Event()

    @property
    def there(self) -> bool:
        """True if the server answers now."""
        return self._watch.there

    @property
    def profile(self) -> Profile:
        """Names and abilities of the model, valid once the server has answered."""
        config = self.config
        return Profile(
            model=config.name,
            dim=self._dim,
            backend=config.kind,
            aliases=config.aliases,
            max_tokens=config.max_tokens,
            languages=config.languages,
            requires_internet=not is_near(config.url),
        )

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Return the vectors of `texts`, as `EmbeddingBackend.embed` does.

        Raises:
            HearthNetError: as translated in hearthnet/models/error_mapping.py; `internal_error` if the
                vectors have another size than before.
        """
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._piece(texts[start : start + PIECE], start))
                    for start in range(0, len(texts), PIECE)
                ]
        except ExceptionGroup as group_error:
            error = next((one for one in group_error.exceptions if isinstance(one, HearthNetError)), None)
            if error is None:
                raise
            if error.code in _UNAVAILABLE_CODES:
                self._again.set()
            raise error from error.__cause__
        pieces = [task.result() for task in tasks]
        vectors = [vector for piece in pieces for vector in piece.vectors]
        if any(len(vector) != self._dim for vector in vectors):
            self._again.set()
            raise HearthNetError(
                "internal_error",
                f"{self.config.name}: the server has another model now; ask again in a moment",
            )
        cut = tuple(index for piece in pieces for index in piece.truncated)
        return Embedded(vectors, cut, sum(piece.tokens for piece in pieces))

    async def follow(self) -> None:
        """Probe the server repeatedly, until cancelled."""
        while True:
            self._again.clear()
            before = (self._watch.there, self._dim, self.problem)
            await self._look()
            self.looked.set()
            if before != (self._watch.there, self._dim, self.problem):
                self._changed()
            await self._pause()

    async def close(self) -> None:
        """As `EmbeddingBackend.close`."""
        await self._connection.close()

    async def _pause(self) -> None:
        """Wait until the next probe is due.

        A remote server that answers is probed only after a failure, because each probe costs money.
        """
        calm = self._watch.state == "there" and not is_near(self.config.url)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if calm else self._watch.wait_seconds):
                await self._again.wait()

    async def _look(self) -> None:
        """Embed one word, which shows that the model answers, warms it up and gives its size."""
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                answer = await self._request([_WORD])
        except TimeoutError:
            self._set_unavailable(f"the server of the embedding model {self.config.name} does not answer")
        except HearthNetError as error:
            self._set_unavailable(error.message)
        else:
            self._dim = len(answer.vectors[0])
            self.problem = ""
            self._watch.seen(time.monotonic())

    def _set_unavailable(self, problem: str) -> None:
        if problem != self.problem:
            _log.info("%s", problem)
        self.problem = problem
        self._watch.failed(time.monotonic())

    async def _piece(self, texts: Sequence[str], start: int) -> Embedded:
        async with self._places:
            try:
                return await self._request(texts)
            except HearthNetError as error:
                if self.config.kind != "ollama" or not _is_too_long(error):
                    raise
                return await self._one_by_one(texts, start)

    async def _one_by_one(self, texts: Sequence[str], start: int) -> Embedded:
        """Embed each text by itself, and let the server cut only those that are too long."""
        answers: list[Embedded] = []
        cut: list[int] = []
        for index, text in enumerate(texts, start):
            try:
                answers.append(await self._request([text]))
            except HearthNetError as error:
                if not _is_too_long(error):
                    raise
                answers.append(await self._request([text], cut=True))
                cut.append(index)
        vectors = [vector for answer in answers for vector in answer.vectors]
        return Embedded(vectors, tuple(cut), sum(answer.tokens for answer in answers))

    async def _request(self, texts: Sequence[str], *, cut: bool = False) -> Embedded:
        config = self.config
        data = bytearray()
        sent = request(self._wire, config.url, config.model, texts, cut=cut)
        async with self._connection.post(sent) as body:
            async for piece in body.pieces():
                data += piece
        return await asyncio.to_thread(read, self._wire, config.name, config.url, bytes(data), len(texts))


def _is_too_long(error: HearthNetError) -> bool:
    return error.code == "bad_request" and bool(_TOO_LONG.search(error.message))
