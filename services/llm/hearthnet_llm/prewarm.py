"""A model made ready before the first question: llm.chat with `max_tokens` 0 (docs/decisions/0078).

    in this process, or a server nearby    reads the messages and the tools, and keeps what it has read
    a vendor elsewhere                     the connection is opened; reading would cost money

Nothing is said. What is asked afterwards with the same beginning starts behind it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import msgspec

from hearthnet_llm.backend import Backend, FrameStream
from hearthnet_llm.frames import Done, Frame, Progress
from hearthnet_llm.remote import Remote
from hearthnet_llm.request import ChatRequest


async def warmed(
    backend: Backend, request: ChatRequest, ask: Callable[[Backend, ChatRequest], FrameStream]
) -> AsyncGenerator[Frame, None]:
    """`Progress` while the model reads, then `Done`, with nothing said. Raises what `ask` raises."""
    profile = backend.profile
    if isinstance(backend, Remote) and profile.requires_internet:
        await backend.warm()
        yield Done("max_tokens", 0, 0, profile.tool_mode)
        return
    # No call is wanted here; only where a grammar makes it is the prompt another one for a demanded call.
    choice = request.tool_choice if profile.tool_mode == "grammar" or not request.tools else "auto"
    read = msgspec.structs.replace(request, max_tokens=1, tool_choice=choice)
    tokens, cached = 0, None
    async with aclosing(ask(backend, read)) as frames:
        async for frame in frames:
            if isinstance(frame, Progress):
                yield frame
            elif isinstance(frame, Done):
                tokens, cached = frame.tokens_in, frame.tokens_cached
    yield Done("max_tokens", tokens, 0, profile.tool_mode, cached)
