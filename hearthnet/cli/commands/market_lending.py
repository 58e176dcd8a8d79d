"""`hearthnet market reserve|lend`: steps of borrower and lender.

See: docs/market.md#lending.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import click

from hearthnet.cli.commands.market_moderation import changed
from hearthnet.cli.input.member_lookup import principal_name, roster_of
from hearthnet.cli.input.options import common_options
from hearthnet.cli.output import terminal
from hearthnet.cli.output.text import one_line
from hearthnet.core.home import Home

_DONE: Final = {
    "promise": "promised",
    "hand-over": "handed over",
    "take-back": "taken back",
    "refuse": "refused",
}
_CLOSED: Final = ("returned", "refused", "withdrawn")


@click.command("reserve")
@click.argument("event_id")
@click.option("--note", help="For the author of the post, such as when you need it; everybody can read it.")
@click.option("--withdraw", is_flag=True, help="Take your reservation back.")
@click.option("--give-back", is_flag=True, help="Say that you have given it back.")
@click.option("--reservation", metavar="ID", help="That of a guest of yours, also of one who was removed.")
@common_options
def reserve(
    event_id: str,
    note: str | None,
    withdraw: bool,
    give_back: bool,
    reservation: str | None,
    home: Home,
    json: bool,
) -> None:
    """Ask to borrow what a post offers.

    The author of the post decides. Until then it shows as asked: hearthnet market list
    """
    if withdraw and give_back:
        raise click.UsageError("say one of --withdraw and --give-back")
    step = "withdraw" if withdraw else "give_back" if give_back else "ask"
    words = {"withdraw": "withdrawn", "give_back": "given back", "ask": "asked for"}[step]
    given = {"note": note, "reservation": reservation}
    fields = {"event_id": event_id, "step": step, **{name: text for name, text in given.items() if text}}
    changed(home, "reserve", fields, f"{words}: {event_id}", json)


@click.command("lend")
@click.argument("step", type=click.Choice(tuple(_DONE)))
@click.argument("event_id")
@click.argument("reservation")
@click.option(
    "--borrower",
    metavar="NODE",
    help="Whose it is, where two reservations have one id; of a guest NODE/GUEST.",
)
@common_options
def lend(step: str, event_id: str, reservation: str, borrower: str | None, home: Home, json: bool) -> None:
    """Decide about a reservation of your post, by the ids that the list shows.

    The thing is promised or lent to one at a time.
    """
    fields = {"event_id": event_id, "reservation": reservation, "step": step.replace("-", "_")}
    if borrower:
        fields["borrower"] = borrower
    changed(home, "lend", fields, f"{_DONE[step]}: {reservation}", json)


def print_loans(home: Home, posts: Iterable[dict[str, Any]]) -> None:
    """Print the open reservations of posts, a line each."""
    loans = [(post, loan) for post in posts for loan in post.get("loans", ()) if loan["state"] not in _CLOSED]
    if not loans:
        return
    roster = roster_of(home)
    for post, loan in loans:
        by = principal_name(loan["by"] + (f"/{loan['guest']}" if "guest" in loan else ""), roster)
        note = f": {one_line(loan['note'])}" if "note" in loan else ""
        terminal.line(f"{loan['state']}: {post['event_id']} {loan['event_id']} by {by}{note}")
