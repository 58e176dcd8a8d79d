"""The home that an effect on a single node is for.

That is this home where it offers the capability, else the only other one that does. It is settled before a
person decides, who sees it: a call that was approved for one home never runs at another.
"""

from __future__ import annotations

from typing import Any, Protocol

from hearthnet.agent.tools.toolbox import BoundTool, Tool
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.authorization.approval import ANY_PROVIDER


class Offers(Protocol):
    """The present offers of a capability, as `Bus.offers` returns them."""

    async def offers(self, capability: str | None = None) -> list[OfferView]: ...


def is_for_one_home(tool: Tool) -> bool:
    """Return whether a call of `tool` takes an approval for a single node."""
    return (
        isinstance(tool, BoundTool)
        and tool.contract.side_effects
        and tool.contract.effect_scope != "community"
    )


async def provider_of(tool: BoundTool, bus: Offers, own: str, peer: Any = None) -> str:
    """Return the node that an approval of `tool` is for, `*` for an effect on the community.

    `own` is this node; `peer` has the roster with the names of homes.

    Raises:
        HearthNetError: `not_found` if no node offers the capability; `bad_request` if several other homes
            offer it.
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
    """Return the name of a home for people: its name in the community and its short id."""
    roster = getattr(peer, "roster", None)
    member = None if roster is None else roster.member(node)
    short = ids.short_id(node)
    name = "" if member is None else " ".join(member.display_name.split())
    return f"{name} ({short})" if name else short
