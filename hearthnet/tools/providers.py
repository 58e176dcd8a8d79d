"""Which home an effect on a single node is for: the own one where it offers that, else the only other one.

It is settled before a person is asked, who sees it: what was approved for one home never runs at another.
"""

from __future__ import annotations

from typing import Any, Protocol

from hearthnet import ids
from hearthnet.bus.registry import OfferView
from hearthnet.errors import HearthNetError
from hearthnet.tools.toolbox import BoundTool, Tool
from hearthnet.trust.approval import ANY_PROVIDER


class Offers(Protocol):
    """Who offers a capability now, as `Bus.offers` says."""

    async def offers(self, capability: str | None = None) -> list[OfferView]: ...


def is_for_one_home(tool: Tool) -> bool:
    """Whether a call of `tool` takes an approval for a single node."""
    return (
        isinstance(tool, BoundTool)
        and tool.contract.side_effects
        and tool.contract.effect_scope != "community"
    )


async def provider_of(tool: BoundTool, bus: Offers, own: str, peer: Any = None) -> str:
    """The node that an approval of `tool` is for, `*` for an effect on the community; `own` is this node.

    `peer` knows the names of homes. Raises `not_found` where the capability is offered by nobody,
    `bad_request` where several other homes offer it.
    """
    if not is_for_one_home(tool):
        return ANY_PROVIDER
    nodes = sorted({view.node for view in await bus.offers(tool.capability)})
    if own in nodes:
        return own
    if len(nodes) == 1:
        return nodes[0]
    if not nodes:
        raise HearthNetError("not_found", f"nobody offers {tool.capability} now; try again later")
    homes = ", ".join(home_of(peer, node) for node in nodes)
    raise HearthNetError(
        "bad_request",
        f"cannot tell for which home {tool.capability} is meant: this one does not offer it, and these do: "
        f"{homes}; ask the user to call it at one of them",
        details={"providers": nodes},
    )


def home_of(peer: Any, node: str) -> str:
    """A home as people know it: its name in the community, where it has one, and its short id."""
    roster = getattr(peer, "roster", None)
    member = None if roster is None else roster.member(node)
    short = ids.short_id(node)
    name = "" if member is None else " ".join(member.display_name.split())
    return f"{name} ({short})" if name else short
