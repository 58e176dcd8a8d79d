"""The built-in tools that can be called now, and the reasons against the others.

A tool needs a contract that this version has, and an offer of its capability.

See: docs/tools.md#the-parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from hearthnet.agent.tools.builtin import (
    ALL_BUILTIN,
    builtin_names,
    builtin_tools,
    capability_of,
    description_of,
)
from hearthnet.agent.tools.types import ToolDefinition
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.core.capability_name import parse_capability

UNAVAILABLE: Final = "tool_unavailable"
"""The code of the notice about a tool that was requested by name and cannot be called."""


class ToolStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A built-in tool in the present mesh.

    `nodes` offer its capability; `reason` says why it is not available.
    """

    name: str
    description: str
    capability: str
    side_effects: bool
    available: bool
    nodes: list[str]
    reason: str

    @property
    def notice(self) -> str:
        """The text for a run that named this tool although it cannot be called."""
        return f"the tool {self.name} is not available: {self.reason}"


class Availability(NamedTuple):
    """The tools of a set that can be called now, and the others."""

    tools: list[ToolDefinition]
    missing: list[ToolStatus]


def listed_tools(offers: Iterable[OfferView]) -> list[ToolStatus]:
    """Return all built-in tools, available or not; `offers` are all offers of the mesh."""
    there = list(offers)
    return [_listed(name, there) for name in ALL_BUILTIN]


def available_tools(
    names: Sequence[str],
    offers: Iterable[OfferView],
    bound_params: Mapping[str, Mapping[str, Any]] | None = None,
) -> Availability:
    """Divide the tools called `names` into those that can be called now and the others.

    The former are made by `builtin_tools`, whose errors are raised.
    """
    there = list(offers)
    listed = [_listed(name, there) for name in names if name in ALL_BUILTIN]
    missing = [tool for tool in listed if not tool.available]
    gone = {tool.name for tool in missing}
    return Availability(builtin_tools([name for name in names if name not in gone], bound_params), missing)


def _listed(name: str, offers: Sequence[OfferView]) -> ToolStatus:
    capability = parse_capability(capability_of(name))
    nodes = sorted({view.node for view in offers if view.capability.serves(capability)})
    known = name in builtin_names()
    reason = "" if known and nodes else f"nobody offers {capability.name} now"
    if nodes and not known:
        reason = f"this version of HearthNet has no contract for {capability}"
    return ToolStatus(
        name=name,
        description=description_of(name),
        capability=str(capability),
        side_effects=known and builtin_tools([name])[0].side_effects,
        available=not reason,
        nodes=nodes,
        reason=reason,
    )
