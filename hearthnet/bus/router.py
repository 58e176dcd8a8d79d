"""Which offer a call goes to: pure functions over contracts and offers (conventions.md 11).

The bus knows no service by name: what fits what is said by each contract's `match`.
"""

from __future__ import annotations

import random
from typing import Any

from hearthnet.bus.registry import OfferView
from hearthnet.contracts import Contract
from hearthnet.errors import HearthNetError
from hearthnet.ids import short_id


def candidates(
    contract: Contract, body: dict[str, Any], offers: list[OfferView], own: str
) -> list[OfferView]:
    """The offers that can answer `body`, best first.

    The own node comes before others and a process with free places before a full one; ties are broken at
    random, so that callers do not
    herd.
    """
    fitting = [
        view
        for view in offers
        if view.capability.serves(contract.capability)
        and _same_schema(contract, view)
        and _well_formed(contract, view)
        and contract.fits(body, view.params)
    ]
    random.shuffle(fitting)
    return sorted(
        fitting, key=lambda view: (view.offer.in_flight >= view.offer.max_concurrent, view.node != own)
    )


def no_candidate(
    contract: Contract, body: dict[str, Any], offers: list[OfferView], node: str
) -> HearthNetError:
    """Why nothing in `offers` (those of `node`, where one was named) answers `body`, with what is offered
    instead.
    """
    same_version = [view for view in offers if view.capability.serves(contract.capability)]
    if not same_version:
        who = f"{short_id(node)} does not offer" if node else "nobody in the mesh offers"
        return HearthNetError("not_found", f"{who} {contract.id} now; see: hearthnet caps")
    if not any(_same_schema(contract, view) for view in same_version):
        return HearthNetError(
            "schema_mismatch", f"{contract.id} is offered only with another contract; upgrade the older side"
        )
    asked = {rule.offer: _value(path, body) for path, rule in contract.match.items()}
    wanted = ", ".join(f"{name} {value!r}" for name, value in asked.items() if value is not None)
    offered = sorted({_describe(view, asked) for view in same_version})
    return HearthNetError(
        "not_found",
        f"no offer of {contract.id} fits {wanted}; offered: {'; '.join(offered)}",
        details={"offered": offered},
    )


def _same_schema(contract: Contract, view: OfferView) -> bool:
    """Equal versions must mean equal schemas; another minor has a hash of its own (resolution 33)."""
    return view.capability != contract.capability or view.offer.schema_hash == contract.schema_hash


def _well_formed(contract: Contract, view: OfferView) -> bool:
    """Params come from a peer: what its contract does not allow is not compared with anything."""
    try:
        contract.check_offer(view.params)
    except HearthNetError:
        return False
    return True


def _value(path: str, body: dict[str, Any]) -> Any:
    value: Any = body
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _describe(view: OfferView, asked: dict[str, Any]) -> str:
    """What the offer says to what was asked for, or all it says where nothing was."""
    names = [name for name, value in asked.items() if value is not None] or list(asked)
    return ", ".join(f"{name} {view.params.get(name)!r}" for name in names)
