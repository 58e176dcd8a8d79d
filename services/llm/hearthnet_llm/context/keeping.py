"""Each request within the context of the model that gets it, by what its answers have shown of its tokens."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from hearthnet_llm.backend import Backend
from hearthnet_llm.context.budget import fitted
from hearthnet_llm.context.counting import of_message, of_rest
from hearthnet_llm.frames import Done, Frame
from hearthnet_llm.request import ChatRequest

_LEAST: Final = 200
"""Of a shorter prompt the vendor's own framing is too large a part to learn from."""
_BOUNDS: Final = (0.6, 1.6)
_WEIGHT: Final = 0.5


class Contexts:
    """Of all models of a service."""

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}

    async def stream(self, backend: Backend, request: ChatRequest) -> AsyncGenerator[Frame, None]:
        """As `Backend.stream`, of a request of any length: what does not fit is left out with a notice, or
        refused (`budget.fitted`).
        """
        profile = backend.profile
        if profile.ctx_known:
            fitting = fitted(request, profile, self._ratios.get(profile.model, 1.0))
            request = fitting.request
            if fitting.notice is not None:
                yield fitting.notice
        async with aclosing(backend.stream(request)) as frames:
            async for frame in frames:
                if isinstance(frame, Done) and not profile.most_result:
                    self._learn(profile.model, request, frame.tokens_in)
                yield frame

    def _learn(self, model: str, request: ChatRequest, counted: int) -> None:
        """Takes the tokens that were counted into account; of images nobody here knows what they cost."""
        estimated = of_rest(request) + sum(of_message(message) for message in request.messages)
        if estimated < _LEAST or not counted or any(message.has_images for message in request.messages):
            return
        least, most = _BOUNDS
        seen = min(max(counted / estimated, least), most)
        before = self._ratios.get(model, 1.0)
        self._ratios[model] = before + (seen - before) * _WEIGHT
