"""The owner's settings of tool calls: [llm] tools_* in hearthnet.toml.

They hold for every tool loop on this node, at the command line and in the gateway.

See: docs/tools.md#the-owners-settings, docs/decisions/0077.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hearthnet.agent.loop.state import Limits
from hearthnet.agent.persistence.run_store import RunStore
from hearthnet.agent.runtime.client_authority import ClientPrincipal
from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.runtime.ports import BusPort, GrantsPort, ResultsPort
from hearthnet.agent.tools.builtin import ALL_BUILTIN
from hearthnet.agent.tools.names import unknown_tool
from hearthnet.agent.tools.types import ToolDefinition
from hearthnet.core.config import LlmConfig
from hearthnet.core.errors import HearthNetError

_SET: Final = "llm.tools_default_set"


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

    def executor(
        self,
        bus: BusPort,
        tools: list[ToolDefinition],
        *,
        limits: Limits | None = None,
        store: RunStore | None = None,
        via: str = "decide",
        grants: GrantsPort | None = None,
        results: ResultsPort | None = None,
        acting_for: ClientPrincipal | None = None,
    ) -> ToolExecutor:
        """Return a `ToolExecutor` within these settings.

        Raises what `ToolExecutor` raises and, where there are tools, what `check` raises.
        """
        if tools:
            self.check()
        return ToolExecutor(
            bus,
            tools,
            max_iterations=self.max_iterations,
            per_tool_timeout_seconds=self.per_tool_timeout_seconds,
            max_parallel=self.max_parallel,
            limits=limits,
            store=store,
            via=via,
            grants=grants,
            results=results,
            acting_for=acting_for,
        )


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
    return ToolSettings(
        enabled=config.tools_enabled,
        max_iterations=config.tools_max_iterations,
        per_tool_timeout_seconds=config.tools_per_tool_timeout_seconds,
        max_parallel=config.tools_max_parallel,
        default_set=config.tools_default_set,
    )
