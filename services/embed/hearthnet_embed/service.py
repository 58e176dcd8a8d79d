"""The embed service (capabilities.md, "embed"): one offer per model; without one, none and a reason."""

from __future__ import annotations

import asyncio
from typing import ClassVar, Final

from hearthnet.service import Call, NodeContext, Offer, Reply, Service, capability
from hearthnet_embed import asking
from hearthnet_embed.backend import Backend
from hearthnet_embed.request import EmbedInput, EmbedParams

_NONE: Final = "no embedding model"


class EmbedService(Service):
    """Texts as vectors, for everyone in the community."""

    name: ClassVar[str] = "embed"

    _node: NodeContext

    def __init__(self) -> None:
        super().__init__()
        self._backends: list[Backend] = []

    async def start(self, node: NodeContext) -> None:
        """Finds the models."""
        self._node = node
        self._renew()

    def offers(self) -> list[Offer]:
        """`embed.text` for each model that is there."""
        return [
            Offer(capability="embed.text@1.0", params=one.profile.params(self._most(one)))
            for one in self._backends
        ]

    async def stop(self) -> None:
        """Lets go of all models."""
        for backend in self._backends:
            await backend.close()

    @capability("embed.text@1.0")
    async def embed(self, call: Call[EmbedParams, EmbedInput]) -> Reply:
        """The vectors of some texts, in their order."""
        backend = asking.named(self._backends, call.params.model, {})
        asking.check_count(call.input.texts, self._most(backend))
        embedded = await backend.embed(call.input.texts)
        meta = {
            "model": backend.profile.model,
            "tokens_in": embedded.tokens,
            "truncated": list(embedded.truncated),
        }
        return Reply(await asyncio.to_thread(asking.output, embedded, call.input.normalize), meta)

    def _most(self, backend: Backend) -> int:
        return asking.most_texts(backend.profile.dim, self._node.bus.peer.link.max_payload)

    def _renew(self) -> None:
        self.note = None if self._backends else _NONE
        self.offers_changed()
