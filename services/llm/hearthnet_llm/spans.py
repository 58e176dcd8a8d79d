"""Spans of model answers, by OpenTelemetry's conventions for generative AI, no content."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final, Literal

from hearthnet.telemetry import describe_span
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
        values: dict[str, Any] = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": _PROVIDERS.get(backend, backend),
            "gen_ai.request.model": model,
            "gen_ai.request.max_tokens": request.max_tokens,
            "gen_ai.request.temperature": request.temperature,
            "gen_ai.request.top_p": request.top_p,
        }
        if answer.done is not None:
            values["gen_ai.response.model"] = model
            values["gen_ai.response.finish_reasons"] = [meta["stop_reason"]]
            values["gen_ai.usage.input_tokens"] = meta["tokens_in"]
            values["gen_ai.usage.output_tokens"] = meta["tokens_out"]
            values["gen_ai.usage.cache_read.input_tokens"] = meta.get("tokens_cached")
            values["gen_ai.usage.reasoning.output_tokens"] = meta.get("tokens_thinking")
        attributes = {name: value for name, value in values.items() if value is not None}
        describe_span(f"{operation} {model}", "internal" if backend in _HERE else "client", attributes)
