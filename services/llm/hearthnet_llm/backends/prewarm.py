"""Warm-up of a model before the first question: llm.chat with `max_tokens` 0.

    in this process, or a nearby server    reads the messages and the tools, and caches them
    a remote vendor                        the connection is opened; reading would cost money

No text is generated. A later request with the same beginning starts after it (docs/decisions/0078).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import msgspec

from hearthnet_llm.backends.http_backend import Remote
from hearthnet_llm.interface.backend import Backend, FrameStream
from hearthnet_llm.interface.frames import Done, Frame, PrefillProgress
from hearthnet_llm.interface.request import ChatRequest


async def warmed(
    backend: Backend, request: ChatRequest, ask: Callable[[Backend, ChatRequest], FrameStream]
) -> AsyncGenerator[Frame, None]:
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
