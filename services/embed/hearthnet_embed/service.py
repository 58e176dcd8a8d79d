"""The embed service: one offer for each model; without one, no offer and a note.

Models behind URLs come first, because a person has configured them; they are offered while their servers
answer. Then follow a GGUF file named in the settings and the built-in model. A model in a file is offered
once the file is validated and is loaded after that; earlier calls wait. If the file is missing or cannot be
loaded, the note gives the reason and the service runs without it. A file that appears later is found within
seconds.

See: docs/embed.md.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import ClassVar, Final

from hearthnet import Call, NodeContext, Offer, Reply, Service, capability
from hearthnet.core import TaskSet
from hearthnet_embed import requests
from hearthnet_embed.backend import EmbeddingBackend
from hearthnet_embed.gguf import GgufBox
from hearthnet_embed.local_models import Box, MiniLmBox
from hearthnet_embed.remote import Remote
from hearthnet_embed.requests import EmbedInput, EmbedParams

LOOK_SECONDS: Final = 2.0
SETTLE_SECONDS: Final = 0.5
"""Time that a start waits for servers; those that answer later are offered later."""
_PLACES: Final = 32
_NONE: Final = "no embedding model: set embed.builtin, or name one as [[embed.models]] in hearthnet.toml"


class EmbedService(Service):
    """Vectors of texts, for all members of the community."""

    name: ClassVar[str] = "embed"

    def __init__(self) -> None:
        super().__init__()
        self._remotes: list[Remote] = []
        self._boxes: list[Box] = []
        self._tasks = TaskSet()

    async def start(self, node: NodeContext) -> None:
        """Find the models; none is loaded yet."""
        self._node = node
        config = node.config.embed
        self._remotes = [Remote(model, self._renew) for model in config.models]
        for remote in self._remotes:
            self._tasks.start(remote.follow(), f"watch {remote.config.name}")
        if config.model_file:
            self._boxes.append(GgufBox(Path(config.model_file), config.threads))
        if config.builtin:
            self._boxes.append(MiniLmBox(node.data, config.threads))
        node.progress("checking the model", 0, 1)
        for box in self._boxes:
            if box.at_once:
                await box.look()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                for remote in self._remotes:
                    await remote.looked.wait()
        self._renew()

    async def opened(self) -> None:
        """Load models from files, and watch for missing files."""
        for box in self._boxes:
            self._tasks.start(self._follow(box), f"load {type(box).__name__}")

    def offers(self) -> list[Offer]:
        """Offer `embed.text` for each available model."""
        return [
            Offer(
                capability="embed.text@1.0",
                params=one.profile.params(self._most(one)),
                max_concurrent=_PLACES,
            )
            for one in self._models
        ]

    async def stop(self) -> None:
        """Close all models."""
        await self._tasks.close()
        for backend in (*self._remotes, *(box.model for box in self._boxes if box.model is not None)):
            await backend.close()

    @capability("embed.text@1.0")
    async def embed(self, call: Call[EmbedParams, EmbedInput]) -> Reply:
        """Return the vectors of the texts, in their order."""
        away = {remote.config.name: remote.problem for remote in self._remotes if not remote.there}
        backend = requests.named(self._models, call.params.model, away)
        requests.check_count(call.input.texts, self._most(backend))
        embedded = await backend.embed(call.input.texts)
        meta = {
            "model": backend.profile.model,
            "tokens_in": embedded.tokens,
            "truncated": list(embedded.truncated),
        }
        return Reply(await asyncio.to_thread(requests.output, embedded, call.input.normalize), meta)

    @property
    def _models(self) -> list[EmbeddingBackend]:
        remotes = [remote for remote in self._remotes if remote.there]
        return [*remotes, *(box.model for box in self._boxes if box.model is not None)]

    def _most(self, backend: EmbeddingBackend) -> int:
        return requests.most_texts(backend.profile.dim, self._node.bus.peer.link.max_payload)

    async def _follow(self, box: Box) -> None:
        """Load the model of `box`; while that fails, retry whenever its file changes."""
        if not box.at_once:
            await box.look()
            self._renew()
        while not await box.load():
            self._renew()
            await box.changed(LOOK_SECONDS)
            await box.look()
            self._renew()

    def _renew(self) -> None:
        """Update the note and the offers."""
        problems = [*(remote.problem for remote in self._remotes), *(box.problem for box in self._boxes)]
        self.note = "; ".join(dict.fromkeys(filter(None, problems))) or (
            None if self._remotes or self._boxes else _NONE
        )
        self.offers_changed()
