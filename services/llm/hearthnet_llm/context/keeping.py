"""Each request within the context of the model that gets it, by what its answers have shown of its tokens."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

import msgspec

from hearthnet.canonical import content_hash
from hearthnet.errors import HearthNetError
from hearthnet_llm.backend import Backend
from hearthnet_llm.context.budget import fitted
from hearthnet_llm.context.counting import of_message, of_rest
from hearthnet_llm.context.summary import asked, beginnings
from hearthnet_llm.frames import Done, Frame, Progress, Token
from hearthnet_llm.request import ChatRequest, Message

_LEAST: Final = 200
"""Of a shorter prompt the vendor's own framing is too large a part to learn from."""
_BOUNDS: Final = (0.6, 1.6)
_WEIGHT: Final = 0.5
STAGE: Final = "summarising"
_FRESH: Final = 6
"""So many messages that were left out later stand beside a summary by their beginnings."""
_KEPT: Final = 1024
_log = logging.getLogger(__name__)


class Contexts:
    """Of all models of a service."""

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}
        self._summaries: dict[tuple[str, str], str] = {}
        """By model, and by the digest of the messages that each is of."""

    async def stream(self, backend: Backend, request: ChatRequest) -> AsyncGenerator[Frame, None]:
        """As `Backend.stream`, of a request of any length: what does not fit is left out with a notice, or
        refused (`budget.fitted`).
        """
        profile = backend.profile
        if profile.ctx_known:
            ratio = self._ratios.get(profile.model, 1.0)
            fitting = fitted(request, profile, ratio)
            if fitting.left_out and profile.summarises:
                yield Progress(STAGE, 0, len(fitting.left_out))
                written = await self._written(backend, fitting.left_out, fitting.most_summary)
                fitting = fitted(request, profile, ratio, written)
            request = fitting.request
            if fitting.notice is not None:
                yield fitting.notice
        async with aclosing(backend.stream(request)) as frames:
            async for frame in frames:
                if isinstance(frame, Done) and not profile.most_result:
                    self._learn(profile.model, request, frame.tokens_in)
                yield frame

    async def _written(self, backend: Backend, left_out: Sequence[Message], most_tokens: int) -> str:
        """The model's summary of `left_out`; empty where it gives none.

        One that was written before for the beginning of it serves again, until several more messages have
        been left out; then the next one goes on from there.
        """
        model = backend.profile.model
        digests = _digests(left_out)
        known = next((n for n in range(len(digests), 0, -1) if (model, digests[n - 1]) in self._summaries), 0)
        earlier = self._summaries[model, digests[known - 1]] if known else ""
        fresh = left_out[known:]
        if known and len(fresh) <= _FRESH:
            return "\n".join([earlier, *beginnings(fresh, most_tokens // 3)])
        try:
            request = asked(earlier, fresh, most_tokens, backend.profile.ctx * 2 // 3)
            async with aclosing(backend.stream(request)) as frames:
                said = [frame.text async for frame in frames if isinstance(frame, Token)]
        except HearthNetError as error:
            _log.warning("%s wrote no summary: %s", model, error)
            return earlier
        text = " ".join("".join(said).split())
        if text:
            if len(self._summaries) >= _KEPT:
                self._summaries.clear()
            self._summaries[model, digests[-1]] = text
        return text or earlier

    def _learn(self, model: str, request: ChatRequest, counted: int) -> None:
        """Takes the tokens that were counted into account; of images nobody here knows what they cost."""
        estimated = of_rest(request) + sum(of_message(message) for message in request.messages)
        if estimated < _LEAST or not counted or any(message.has_images for message in request.messages):
            return
        least, most = _BOUNDS
        seen = min(max(counted / estimated, least), most)
        before = self._ratios.get(model, 1.0)
        self._ratios[model] = before + (seen - before) * _WEIGHT


def _digests(messages: Sequence[Message]) -> list[str]:
    """Of each beginning of `messages`: of the first, of the first two, and so on."""
    found: list[str] = []
    for message in messages:
        before = found[-1].encode() if found else b""
        found.append(content_hash(before + msgspec.json.encode(message)))
    return found
