"""Spans of model answers, by OpenTelemetry's conventions for generative AI, no content."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final, Literal

from hearthnet.telemetry import names, steps
from hearthnet_llm.interface.request import ChatRequest, CompleteRequest
from hearthnet_llm.responses.response_builder import ResponseBuilder

Operation = Literal["chat", "text_completion"]
_PROVIDERS: Final = {"gemini": "gcp.gemini", "bedrock": "aws.bedrock", "azure": "azure.ai.openai"}
"""By kind of connection, if the conventions use another word for it."""
_HERE: Final = frozenset({"llama.cpp", "scripted"})
"""Models that answer in this process."""


@contextlib.contextmanager
def answered(
    operation: Operation, answer: ResponseBuilder, request: ChatRequest | CompleteRequest
) -> Iterator[None]:
    """Describe the current span by `answer`, however the block ends."""
    try:
        yield
    finally:
        backend, model = answer.profile.backend, answer.profile.model
        meta = answer.meta()
        found = {
            names.AI_OPERATION: operation,
            names.AI_PROVIDER: _PROVIDERS.get(backend, backend),
            names.AI_MODEL: model,
            names.AI_MOST_TOKENS: getattr(request, "max_tokens", None),
            names.AI_TEMPERATURE: getattr(request, "temperature", None),
            names.AI_TOP_P: getattr(request, "top_p", None),
        }
        if answer.is_done:
            found[names.AI_ANSWERED_BY] = model
            found[names.AI_FINISHED] = [meta["stop_reason"]]
            found[names.AI_TOKENS_IN] = meta["tokens_in"]
            found[names.AI_TOKENS_OUT] = meta["tokens_out"]
            found[names.AI_TOKENS_CACHED] = meta.get("tokens_cached")
            found[names.AI_TOKENS_THINKING] = meta.get("tokens_thinking")
        known = {name: value for name, value in found.items() if value is not None}
        steps.describe(f"{operation} {model}", "internal" if backend in _HERE else "client", known)
