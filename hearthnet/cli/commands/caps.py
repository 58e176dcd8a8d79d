"""`hearthnet caps`: the capabilities that the mesh offers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from hearthnet.cli.input.local_call import on_bus
from hearthnet.cli.input.options import common_options
from hearthnet.cli.output import terminal
from hearthnet.cli.output.text import as_json, one_line, shorten
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthnet.bus.bus import Bus
    from hearthnet.bus.routing.offer_registry import OfferView
    from hearthnet.contracts.contract import Contract

_HEADINGS = ("capability", "node", "service", "busy", "offers")
_VALUE_WIDTH = 60


@click.command("caps")
@click.argument("name", required=False)
@click.option(
    "--watch", "-w", is_flag=True, help="Go on printing what appears, changes and goes, until Ctrl-C."
)
@common_options
def command(name: str | None, watch: bool, home: Home, json: bool) -> None:
    """List what the mesh offers: capabilities, nodes and parameters.

    NAME, such as rag.query or rag.query@1.0, lists the offers of one capability. --watch takes a NAME.
    """
    if watch:
        if name is None:
            raise click.UsageError("name what to watch, such as: hearthnet caps rag.query --watch")
        on_bus(home, lambda bus: _watch(bus, name, json))
        return
    _report(offers_of(home, name), name, json)


def _report(views: list[OfferView], name: str | None, json: bool) -> None:
    if name is not None and not views:
        raise _nothing(name)
    if json:
        terminal.json_page([offer_as_json(view) for view in views])
    elif views:
        _show(views)
    else:
        terminal.line("nobody offers anything yet; see: hearthnet status")


def offers_of(home: Home, name: str | None) -> list[OfferView]:
    """Return the offers in the mesh of the node in `home`, all or those of one capability."""

    async def offered(bus: Bus) -> list[OfferView]:
        found = await bus.offers(name)
        await bus.fetch_contracts(found)
        return found

    return on_bus(home, offered)


async def _watch(bus: Bus, name: str, json: bool) -> None:
    await bus.fetch_contract(name)
    async with bus.watch(name) as changes:
        async for change in changes:
            if json:
                terminal.json_line({"event": change.event, **offer_as_json(change.view)})
            else:
                terminal.line(f"{time.strftime('%H:%M:%S')}  {change.event:<8}  {_one(change.view)}")


def _one(view: OfferView) -> str:
    offer = view.offer
    busy = f"{offer.in_flight}/{offer.max_concurrent}"
    provider = f"{ids.short_id(view.node)}  {one_line(offer.service) or '-'}"
    return f"{one_line(str(view.capability))}  {provider}  {busy}  {params_text(view.params)}"


def _nothing(name: str) -> Exception:
    from hearthnet.bus.bus import find_contract

    contract = find_contract(name)
    return HearthNetError("not_found", f"nobody in the mesh offers {contract.id} now; see: hearthnet status")


def offer_as_json(view: OfferView) -> dict[str, Any]:
    """Return an offer as `caps --json` prints it."""
    offer = view.offer
    contract = contract_of(str(view.capability))
    return {
        "capability": str(view.capability),
        "node": view.node,
        "instance": offer.instance,
        "service": offer.service,
        "version": offer.version,
        "params": offer.params,
        "trust": offer.trust or (contract.trust_required if contract else None),
        "side_effects": contract.side_effects if contract else None,
        "summary": contract.summary if contract else None,
        "max_concurrent": offer.max_concurrent,
        "in_flight": offer.in_flight,
        "issued_at": offer.issued_at,
        "expires_at": offer.expires_at,
    }


def _show(views: list[OfferView]) -> None:
    terminal.table(
        _HEADINGS,
        [
            (
                one_line(str(view.capability)),
                ids.short_id(view.node),
                one_line(view.offer.service) or "-",
                f"{view.offer.in_flight}/{view.offer.max_concurrent}",
                params_text(view.params),
            )
            for view in views
        ],
    )
    terminal.line()
    for capability in dict.fromkeys(str(view.capability) for view in views):
        contract = contract_of(capability)
        terminal.line(
            f"{one_line(capability)}: {contract.summary if contract else 'not known to this version'}"
        )


def params_text(params: Mapping[str, Any]) -> str:
    """Return the params of an offer for people: `corpus=system, k_max=20`."""
    return ", ".join(f"{one_line(name)}={_value(value)}" for name, value in params.items()) or "-"


def _value(value: Any) -> str:
    text = one_line(value) if isinstance(value, str) else as_json(value)
    return shorten(text, _VALUE_WIDTH)


def contract_of(capability: str) -> Contract | None:
    """Return the contract of an offered capability, None if this version does not have it."""
    from hearthnet.contracts.registry import contracts

    try:
        return contracts().get(capability)
    except HearthNetError:
        return None
