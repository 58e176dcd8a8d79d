"""The interface of all models, and their abilities as data.

An offer promises only what its profile states; callers read it in the offer's params.

See: docs/models.md#what-is-offered-and-when.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any, Literal, Protocol

import msgspec

from hearthnet_llm.interface.frames import Frame, ToolPath
from hearthnet_llm.interface.request import ChatRequest, CompleteRequest

FrameStream = AsyncGenerator[Frame, None]
AskModel = Callable[[ChatRequest], FrameStream]


class Backend(Protocol):
    """One model.

    `stream` and `complete` yield frames up to exactly one `Done`, or raise `HearthNetError`. Closing the
    generator stops the work and frees its resources within 200 ms (docs/protocol/streams.md#cancel).
    """

    @property
    def profile(self) -> Profile:
        """Abilities of the model."""
        ...

    def stream(self, request: ChatRequest) -> FrameStream:
        """Continue a conversation whose order was checked (validation.py)."""
        ...

    def complete(self, request: CompleteRequest) -> FrameStream:
        """Continue one text; yields no frames of tools."""
        ...

    async def aclose(self) -> None:
        """Release all resources; running calls end with an error."""
        ...


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """One model behind one backend.

    `ctx` counts tokens of prompt and answer together; without `ctx_known` it is a guess, for which no request
    is refused. `most_result`: a tool's result is shown to the model up to this number of tokens; 0 is all of
    it. `continues`: it accepts the beginning of its answer (`Message.prefix`). `summarises`: it is used to
    summarise the beginning of a long conversation. `tools_by_name_only`: it calls a tool only if the caller
    demands that tool. An empty `languages` promises none in particular. `advice` is one line for the user.
    """

    model: str
    backend: str
    ctx: int
    ctx_known: bool = True
    most_result: int = 0
    aliases: tuple[str, ...] = ()
    tool_mode: ToolPath = "none"
    tools_by_name_only: bool = False
    max_tools: int = 64
    languages: tuple[str, ...] = ()
    modalities: tuple[Literal["text", "vision"], ...] = ("text",)
    requires_internet: bool = False
    quotes: bool = False
    continues: bool = False
    summarises: bool = False
    advice: str = ""
    max_concurrent: int = 4

    def supports_tools(self) -> bool:
        """Return whether the model calls tools.

        The config decides, else a test of the model, else its server or kind (backends/backend_kinds.py).
        """
        return self.tool_mode != "none"

    def chat_params(self) -> dict[str, Any]:
        """Return the params of this model's llm.chat offer."""
        return {
            **self.complete_params(),
            "modalities": list(self.modalities),
            "tools_supported": self.supports_tools(),
            "max_tools_per_call": self.max_tools if self.supports_tools() else 0,
            "tool_mode": self.tool_mode,
            "tools_by_name_only": self.tools_by_name_only,
        }

    def complete_params(self) -> dict[str, Any]:
        """Return the params of this model's llm.complete offer."""
        return {
            "model": self.model,
            "models": list(self.aliases),
            "ctx": self.ctx,
            "backend": self.backend,
            "languages": list(self.languages),
            "requires_internet": self.requires_internet,
            "advice": self.advice,
        }
