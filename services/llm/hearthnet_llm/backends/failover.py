"""Choice among models for a request, their warm-up, and the handling of failures.

    named, images, context, tools    unsuitable models are skipped, without counting as failed
    failure before the first frame   the next model is used, with a notice
    failure after it                 the stream ends with that error

A request with `max_tokens` 0 warms a model up (docs/decisions/0078). No text is generated; a later request
with the same beginning starts after it.

    in this process, or a nearby server    reads the messages and the tools, and caches them
    a remote vendor                        the connection is opened; reading would cost money

See: docs/models.md#what-is-offered-and-when.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Final

import msgspec

from hearthnet import HearthNetError
from hearthnet_llm.backends.http_backend import Remote
from hearthnet_llm.interface.backend import Backend, FrameStream, Profile
from hearthnet_llm.interface.frames import Done, Notice, PrefillProgress
from hearthnet_llm.interface.request import ChatRequest, ModelParams, Named
from hearthnet_llm.responses.retry_without_tool import notice, without_tools

_ELSEWHERE: Final = (
    *("partition", "timeout", "rate_limited", "capacity_exceeded", "internal_error"),
    *("unauthorized", "not_found", "not_implemented"),
)
"""Failures of one model's server; a faulty request would fail at every other one too."""
_NO_TOOLS: Final = re.compile(
    r"(\bnot|n't|\bno\b.{0,40}?) (currently )?(support|enable|allow|implement)\w*\b.*\b(tool|function)"
    r"|\b(tools?|functions?|tool (use|call\w*|choice)|function call\w*)\b.*(\bnot|n't|\bun)\s?(be )?"
    r"(support|enable|allow)",
    re.IGNORECASE | re.DOTALL,
)


def named_backends(backends: Sequence[Backend], params: ModelParams, away: dict[str, str]) -> list[Backend]:
    """Return the backends with the requested name, or all if none is requested.

    Raises:
        HearthNetError: `partition` if the named model's server does not answer; `not_found` if there is no
            such model.
    """
    name = params.model
    found = [one for one in backends if name in (None, one.profile.model, *one.profile.aliases)]
    if found:
        return found
    if params.model in away:
        reason = away[params.model] or f"the model {params.model} has not answered yet"
        raise HearthNetError(
            "partition", f"{reason}; it is offered again once it answers", details={"rule": "backend_gone"}
        )
    names = [backend.profile.model for backend in backends]
    missing = "no model" if params.model is None else f"no model {params.model!r}"
    message = f"{missing} here; there is {', '.join(names) or 'none'}"
    raise HearthNetError("not_found", message, details={"path": "/params/model", "nearest": names})


def capable_backends(
    backends: Sequence[Backend], params: ModelParams, request: ChatRequest | None
) -> list[Backend]:
    """Return the backends that can serve the request, best first.

    If there is none, return the first backend, whose error will state the reason.
    """
    fits = [backend for backend in backends if _fits(backend.profile, params, request)]
    if request is not None and request.tools:
        fits.sort(key=lambda backend: _clumsy(backend.profile, request))
    return fits or list(backends[:1])


def _fits(profile: Profile, params: ModelParams, request: ChatRequest | None) -> bool:
    eyes = "vision" in profile.modalities
    if (params.ctx or 0) > profile.ctx or ("vision" in (params.modalities or ()) and not eyes):
        return False
    if request is None:
        return True
    if not eyes and any(message.images for message in request.messages):
        return False
    return not request.demands_tool or _clumsy(profile, request) == 0


def _clumsy(profile: Profile, request: ChatRequest) -> int:
    """Return the distance of the model from the required use of tools.

    0: it can, 1: it cannot choose among tools, 2: it cannot call any.
    """
    if not profile.supports_tools() or len(request.tools or ()) > profile.max_tools:
        return 2
    choice = request.tool_choice
    alone = isinstance(choice, Named) or (choice == "required" and len(request.tools or ()) == 1)
    return 1 if profile.tools_by_name_only and not alone else 0


class Failover(msgspec.Struct, frozen=True):
    """One request, and the backends that may answer it, in order.

    `ask` returns the answer of one model. Callbacks: `chosen` before each attempt, `failed` after each
    failure, `toolless` if a model turns out to call no tools.
    """

    backends: Sequence[Backend]
    chosen: Callable[[Profile], None]
    failed: Callable[[Backend, HearthNetError], None]
    toolless: Callable[[Backend], bool]
    ask: Callable[[Backend, ChatRequest], FrameStream]

    def chat(self, request: ChatRequest) -> FrameStream:
        """Yield the frames of the first backend that answers the conversation."""
        return self.first(lambda backend: self.answer(backend, request))

    async def first(self, ask: Callable[[Backend], FrameStream]) -> FrameStream:
        """Yield the frames of the first backend for which `ask` succeeds."""
        problems: list[HearthNetError] = []
        for backend in self.backends:
            self.chosen(backend.profile)
            announced = not problems
            answered = False
            try:
                async with aclosing(ask(backend)) as frames:
                    async for frame in frames:
                        if not announced:
                            announced = True
                            text = f"{problems[-1].message}; {backend.profile.model} answers instead"
                            yield Notice("other_model", text)
                        answered = answered or not isinstance(frame, Notice | PrefillProgress)
                        yield frame
                return
            except HearthNetError as error:
                self.failed(backend, error)
                if answered or not _elsewhere(error):
                    raise
                problems.append(error)
        raise _together(problems)

    async def answer(self, backend: Backend, request: ChatRequest) -> FrameStream:
        """Yield one model's answer, without tools if it has none or turns out to have none.

        A notice reports that, unless no tool was to be called.
        """
        tools = bool(request.tools) and request.tool_choice != "none"
        if backend.profile.supports_tools():
            answered = False
            try:
                async with aclosing(self.ask(backend, request)) as frames:
                    async for frame in frames:
                        answered = answered or not isinstance(frame, Notice | PrefillProgress)
                        yield frame
                return
            except HearthNetError as error:
                if answered or not (tools and _refuses_tools(error) and self.toolless(backend)):
                    raise
        model = backend.profile.model
        single = without_tools(request, model)
        if tools:
            yield notice(model)
        async with aclosing(self.ask(backend, single)) as frames:
            async for frame in frames:
                yield msgspec.structs.replace(frame, tool_path="none") if isinstance(frame, Done) else frame


def _elsewhere(error: HearthNetError) -> bool:
    """Return whether another model may succeed, for instance one with a larger context."""
    return error.code in _ELSEWHERE or "limit" in error.details


def _refuses_tools(error: HearthNetError) -> bool:
    """Return whether the server rejects the request because of its tools."""
    return error.code in ("bad_request", "not_found", "not_implemented", "internal_error") and bool(
        _NO_TOOLS.search(error.message)
    )


def _together(problems: list[HearthNetError]) -> HearthNetError:
    """Return one error for all failures, with the code of the first."""
    if len(problems) == 1:
        return problems[0]
    waits = [problem.retry_after_ms for problem in problems if problem.retry_after_ms is not None]
    return HearthNetError(
        problems[0].code,
        "no model could answer: " + "; ".join(dict.fromkeys(problem.message for problem in problems)),
        retry_after_ms=min(waits, default=None),
        details={"failed": [problem.to_body() for problem in problems]},
    )


async def warmed(
    backend: Backend, request: ChatRequest, ask: Callable[[Backend, ChatRequest], FrameStream]
) -> FrameStream:
    """Yield `PrefillProgress` while the model reads, then `Done`, without text.

    Raises:
        HearthNetError: any error of `ask`.
    """
    profile = backend.profile
    if isinstance(backend, Remote) and profile.requires_internet:
        await backend.warm()
        yield Done("max_tokens", 0, 0, profile.tool_mode)
        return
    # A demanded call is dropped, unless a grammar enforces it: only there it changes the prompt.
    choice = request.tool_choice if profile.tool_mode == "grammar" or not request.tools else "auto"
    read = msgspec.structs.replace(request, max_tokens=1, tool_choice=choice)
    tokens, cached = 0, None
    async with aclosing(ask(backend, read)) as frames:
        async for frame in frames:
            if isinstance(frame, PrefillProgress):
                yield frame
            elif isinstance(frame, Done):
                tokens, cached = frame.tokens_in, frame.tokens_cached
    yield Done("max_tokens", tokens, 0, profile.tool_mode, cached)
