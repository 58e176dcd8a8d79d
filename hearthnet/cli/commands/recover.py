"""`hearthnet recover`: replaces the person key of a person, and removes the devices that were lost.

The recovery key signs here and goes nowhere: the node gets signed statements alone. The new person key is in
the home before they are in the log, so that an interruption at any point is completed by the next start or by
another recovery.

See: docs/protocol/persons.md#recovery.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from hearthnet.cli.commands.person import find_device
from hearthnet.cli.input import yes_no
from hearthnet.cli.input.local_call import call_local_node, running_node
from hearthnet.cli.input.member_lookup import display_name, roster_of
from hearthnet.cli.input.options import common_options
from hearthnet.cli.output import terminal
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.files import write_whole
from hearthnet.core.home import Home

if TYPE_CHECKING:
    from hearthnet.trust.community.person_statements import Statement
    from hearthnet.trust.community.persons import Device, Person
    from hearthnet.trust.community.roster import Roster
    from hearthnet.trust.keys import Identity


@click.command("recover")
@click.option(
    "--words",
    metavar="FILE",
    help="A file with the recovery words, or - for stdin. Default: the key of this home, else a question.",
)
@click.option("--lost", multiple=True, metavar="NAME|ID", help="A device that is lost; may be repeated.")
@click.option("--keep-all", is_flag=True, help="No device is lost; only the person key is replaced.")
@click.option("--back", multiple=True, metavar="NAME|ID", help="A removed device that is yours all the same.")
@click.option("--object", "objects", is_flag=True, help="Stop a recovery by helpers that you did not want.")
@click.option("--yes", "confirmed", is_flag=True, help="Do not ask.")
@common_options
def command(
    words: str | None,
    lost: tuple[str, ...],
    keep_all: bool,
    back: tuple[str, ...],
    objects: bool,
    confirmed: bool,
    home: Home,
    json: bool,
) -> None:
    """Replace your keys with the recovery key, after a computer with them was lost or stolen.

    The lost devices are named with --lost: they are removed, and nothing that they sign from then on counts.
    All others stay; name those that the thief has added, too. Works on a home of yours, and on a new one that
    has joined by an invite and was not started since. Without the words: see hearthnet helpers.
    """
    if objects:
        _object(home, json, confirmed)
        return
    from hearthnet.bus.session.keyring import load_identity
    from hearthnet.cli.workflows import recovery_words
    from hearthnet.trust.keys import Identity

    roster, own = roster_of(home), load_identity(home.device_key).node_id
    owner = roster.owner(own)
    recovery = recovery_words.recovery_of(home, words, "" if owner == own else owner)
    person = _person(roster, recovery, own)
    gone = [find_device(name, roster.devices(person.person)) for name in lost]
    again = [find_device(name, person.former) for name in back]
    if not gone and not keep_all:
        raise HearthNetError("bad_request", "say which devices are lost, with --lost NAME, or --keep-all")
    stay = [one for one in (*roster.devices(person.person), *again) if one not in gone]
    yes_no.confirm(_question(gone, stay), confirmed=confirmed, option="--yes")
    key = Identity.generate()
    statements = _signed(roster, recovery, key, gone, again)
    keep(home, key, statements)
    if running_node(home) is not None:
        call_local_node(home, "community.person.recover@1.0", {})
    page = _as_json(person, key, gone, stay) | {"written": not home.recovery_statements.exists()}
    terminal.result(json, page, _summary(page))


def _object(home: Home, json: bool, confirmed: bool) -> None:
    """Object, as the device that this node is, to each recovery of its person that has begun."""
    from hearthnet.bus.session.keyring import load_identity
    from hearthnet.trust.community.commands import CommunityAuthor

    roster, own = roster_of(home), load_identity(home.device_key)
    person = roster.person(roster.person_of(own.node_id))
    begun = [one.recovery for one in (() if person is None else person.recoveries)]
    if not begun:
        raise HearthNetError("not_found", "no recovery of your person has begun")
    yes_no.confirm("Stop the recovery by your helpers?", confirmed=confirmed, option="--yes")
    author = CommunityAuthor(roster, own)
    carry(home, *(author.objection(one) for one in begun))
    terminal.result(
        json,
        {"objected": begun},
        "the recovery is stopped; if your helpers began it without you, choose others: hearthnet helpers "
        "choose",
    )


def _person(roster: Roster, recovery: Identity, own: str) -> Person:
    """Return the person of `recovery`, whose this node is or may become.

    Raises:
        HearthNetError: `not_found` if there is none; `bad_request` if the node is another person's.
    """
    person = roster.person(recovery.node_id)
    if person is None:
        raise HearthNetError("not_found", f"no person in {roster.name} has this recovery key")
    if roster.owner(own) not in (own, person.person):
        raise HearthNetError(
            "bad_request",
            "this home is another person's; recover on a home of yours, or on a new one: hearthnet invite "
            "redeem, then hearthnet recover before its first start",
        )
    return person


def _signed(
    roster: Roster, recovery: Identity, key: Identity, gone: Sequence[Device], again: Sequence[Device]
) -> tuple[Statement, ...]:
    from hearthnet.trust.community.commands import CommunityAuthor

    author = CommunityAuthor(roster, recovery)
    return author.recovered(key, {one.key for one in gone}, {one.key for one in again})


def keep(home: Home, key: Identity, statements: Sequence[Statement]) -> None:
    """Write the new person key over the old one, then the statements for the log."""
    from hearthnet.service.community.queued_statements import queue_statements
    from hearthnet.supervisor.os.disk import file_errors

    with file_errors(home.person_key):
        write_whole(home.person_key, key.to_text().encode("ascii"), durable=True)
        queue_statements(home, statements)


def carry(home: Home, *statements: Statement) -> None:
    """Have the node that runs in `home` write statements to the log, after those that wait already."""
    from hearthnet.service.community.queued_statements import queue_statements
    from hearthnet.supervisor.os.disk import file_errors

    with file_errors(home.recovery_statements):
        queue_statements(home, statements)
    call_local_node(home, "community.person.recover@1.0", {})


def _question(gone: Sequence[Device], stay: Sequence[Device]) -> str:
    lost = ", ".join(map(_named, gone)) or "none"
    return (
        f"Replace the keys. Removed for ever: {lost}. These stay: {', '.join(map(_named, stay)) or 'none'}."
    )


def _named(one: Device) -> str:
    return f"{display_name(one.name)} ({ids.short_id(one.key)})"


def _as_json(person: Person, key: Identity, gone: Sequence[Device], stay: Sequence[Device]) -> dict[str, Any]:
    return {
        "person": person.person,
        "epoch": person.epoch + 1,
        "key": key.node_id,
        "removed": [one.key for one in gone],
        "devices": [one.key for one in stay],
    }


def _summary(page: dict[str, Any]) -> str:
    done = "your keys are replaced" if page["written"] else "your keys are replaced at the next hearthnet up"
    return f"{done}; removed: {len(page['removed'])}, staying: {len(page['devices'])}"
