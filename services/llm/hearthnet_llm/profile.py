"""What a model can do, as data.

Nothing is offered that a profile does not vouch for; whoever asks reads it in the offer's params.

See: docs/models.md#what-is-offered-and-when.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

ToolMode = Literal["native", "grammar", "text", "none"]


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """One model behind one backend.

    `ctx` counts tokens of prompt and answer together; not `ctx_known`: it is a guess, and nobody is refused
    for it. `most_result`: so many tokens of a tool's result are shown to the model at most; 0: all of it.
    `continues`: it can be given the beginning of its answer (`Message.prefix`). `summarises`: what a long
    conversation began with is worth its own summary.
    `tools_by_name_only`: a tool call is only obtained when the caller demands one tool. An empty `languages`
    promises none in particular. `advice` is one line for people.
    """

    model: str
    backend: str
    ctx: int
    ctx_known: bool = True
    most_result: int = 0
    aliases: tuple[str, ...] = ()
    tool_mode: ToolMode = "none"
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
        """Whether the model calls tools: as the config says, else as was seen when it was asked to, else as
        its server or its kind says (abilities.py).
        """
        return self.tool_mode != "none"

    def chat_params(self) -> dict[str, Any]:
        """The params of this model's llm.chat offer."""
        return {
            **self.complete_params(),
            "modalities": list(self.modalities),
            "tools_supported": self.supports_tools(),
            "max_tools_per_call": self.max_tools if self.supports_tools() else 0,
            "tool_mode": self.tool_mode,
            "tools_by_name_only": self.tools_by_name_only,
        }

    def complete_params(self) -> dict[str, Any]:
        """The params of this model's llm.complete offer."""
        return {
            "model": self.model,
            "models": list(self.aliases),
            "ctx": self.ctx,
            "backend": self.backend,
            "languages": list(self.languages),
            "requires_internet": self.requires_internet,
            "advice": self.advice,
        }
