"""The owner's settings of tool calls: [llm] tools_* in hearthnet.toml.

They hold for every tool loop on this node, at the command line and in the gateway.

See: docs/tools.md#the-owners-settings, docs/decisions/0077.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypedDict

import msgspec

from hearthnet.agent.tools.builtin import ALL_BUILTIN
from hearthnet.agent.tools.names import unknown_tool
from hearthnet.agent.tools.types import ToolDefinition
from hearthnet.core.config import LlmConfig
from hearthnet.core.errors import HearthNetError

_SET: Final = "llm.tools_default_set"


class OwnerLimits(TypedDict):
    """Those arguments of `ToolExecutor` that the owner has set."""

    max_iterations: int
    per_tool_timeout_seconds: int
    max_parallel: int


class ToolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The switch, the limits of a new run, and the default tools.

    A saved run keeps the limits with which it began.
    """

    enabled: bool = True
    max_iterations: int = 6
    per_tool_timeout_seconds: int = 30
    max_parallel: int = 4
    default_set: tuple[str, ...] = LlmConfig().tools_default_set

    def check(self) -> None:
        """Check that tools are switched on.

        Raises:
            HearthNetError: `bad_request` if they are switched off here.
        """
        if not self.enabled:
            raise HearthNetError(
                "bad_request",
                "tool calls are switched off on this node; ask without tools, or set tools_enabled = true "
                "under [llm] in hearthnet.toml",
                details={"setting": "llm.tools_enabled"},
            )

    def limits_of(self, tools: Sequence[ToolDefinition]) -> OwnerLimits:
        """Return the arguments for a `ToolExecutor` with `tools` within these settings.

        Where there are tools, raises as `check`.
        """
        if tools:
            self.check()
        return {
            "max_iterations": self.max_iterations,
            "per_tool_timeout_seconds": self.per_tool_timeout_seconds,
            "max_parallel": self.max_parallel,
        }


def tool_settings(config: LlmConfig) -> ToolSettings:
    """Return the settings in `config`.

    Raises:
        HearthNetError: `bad_request` for an unknown tool in the default set.
    """
    for name in config.tools_default_set:
        if name not in ALL_BUILTIN:
            error = unknown_tool(name, ALL_BUILTIN)
            details: dict[str, Any] = {"setting": _SET}
            raise HearthNetError("bad_request", f"{_SET}: {error.message}", details=details, alt=error.alt)
    return ToolSettings(**{name: getattr(config, f"tools_{name}") for name in ToolSettings.__struct_fields__})
