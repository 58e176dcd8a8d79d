"""Fitting of each request into its model's context, with token counts learned on the way."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

import msgspec

from hearthnet import HearthNetError
from hearthnet.core import content_hash
from hearthnet_llm.context.budget import trim
from hearthnet_llm.context.summary import LEAST, Written, excerpts, parts, summary_request
from hearthnet_llm.context.token_count import of_request
from hearthnet_llm.interface.backend import Backend, FrameStream
from hearthnet_llm.interface.frames import Done, PrefillProgress, TextDelta
from hearthnet_llm.interface.request import ChatRequest, Message

_LEAST: Final = 200
"""Prompts with fewer tokens teach nothing, because the vendor's own framing is too large a part of them."""
_BOUNDS: Final = (0.6, 1.6)
_WEIGHT: Final = 0.5
STAGE: Final = "summarising"
_FRESH: Final = 6
"""Messages left out after a summary was written that are represented by their beginnings."""
_MAX_SUMMARIES: Final = 1024
_log = logging.getLogger(__name__)


class Contexts:
    """Token ratios and summaries of all models of a service."""

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}
        self._summaries: dict[tuple[str, str], Written] = {}
        """By model, and by the digest of the summarised messages."""

    async def stream(self, backend: Backend, request: ChatRequest) -> FrameStream:
        """Stream an answer as `Backend.stream`, to a request of any length.

        If the request does not fit, messages are left out with a notice (`budget.trim`).

        Raises:
            HearthNetError: `bad_request` if it cannot be made to fit.
        """
        profile = backend.profile
        if profile.ctx_known:
            ratio = self._ratios.get(profile.model, 1.0)
            fitting = trim(request, profile, ratio)
            if profile.summarises and fitting.left_out and fitting.most_summary >= LEAST:
                written = Written()
                async with aclosing(self._written(backend, fitting.left_out, fitting.most_summary)) as steps:
                    async for step in steps:
                        if isinstance(step, PrefillProgress):
                            yield step
                        else:
                            written = step
                fitting = trim(request, profile, ratio, written)
            request = fitting.request
            if fitting.notice is not None:
                yield fitting.notice
        async with aclosing(backend.stream(request)) as frames:
            async for frame in frames:
                if isinstance(frame, Done) and not profile.most_result:
                    self._learn(profile.model, request, frame.tokens_in)
                yield frame

    async def _written(
        self, backend: Backend, left_out: Sequence[Message], most_tokens: int
    ) -> AsyncGenerator[PrefillProgress | Written, None]:
        """Yield progress, and then the model's summary of `left_out`, empty if it gives none.

        A stored summary of a beginning of these messages is reused until several more messages have been left
        out; then it is continued. A text too long for one request takes several.
        """
        model = backend.profile.model
        digests = _digests(left_out)
        done = next((n for n in range(len(digests), 0, -1) if (model, digests[n - 1]) in self._summaries), 0)
        written = self._summaries[model, digests[done - 1]] if done else Written()
        if not done or len(left_out) - done > _FRESH:
            found, skipped = parts(left_out[done:], backend.profile.ctx // 2)
            silent, before = written.silent + skipped, done
            for part in found:
                yield PrefillProgress(STAGE, done, len(left_out))
                text = await self._summary(
                    backend, summary_request(written.text, part.lines, most_tokens, backend.profile.ctx)
                )
                if not text:
                    break
                written, done = Written(text, silent=silent), before + part.end
                self._keep(model, digests[done - 1], written)
        lines, silent = excerpts(left_out[done:], most_tokens // 3)
        yield Written(written.text, tuple(lines), written.silent + silent)

    async def _summary(self, backend: Backend, request: ChatRequest) -> str:
        try:
            async with aclosing(backend.stream(request)) as frames:
                texts = [frame.text async for frame in frames if isinstance(frame, TextDelta)]
        except HearthNetError as error:
            _log.warning("%s wrote no summary: %s", backend.profile.model, error)
            return ""
        return " ".join("".join(texts).split())

    def _keep(self, model: str, digest: str, written: Written) -> None:
        if len(self._summaries) >= _MAX_SUMMARIES:
            self._summaries.clear()
        self._summaries[model, digest] = written

    def _learn(self, model: str, request: ChatRequest, counted: int) -> None:
        """Adjust the ratio by the counted tokens; requests with images are ignored."""
        estimated = of_request(request)
        if estimated < _LEAST or not counted or any(message.images for message in request.messages):
            return
        least, most = _BOUNDS
        ratio = min(max(counted / estimated, least), most)
        before = self._ratios.get(model, 1.0)
        self._ratios[model] = before + (ratio - before) * _WEIGHT


def _digests(messages: Sequence[Message]) -> list[str]:
    """Return a digest of each prefix of `messages`: of the first, of the first two, and so on."""
    found: list[str] = []
    for message in messages:
        before = found[-1].encode() if found else b""
        found.append(content_hash(before + msgspec.json.encode(message)))
    return found
