"""`hearthnet person` and `hearthnet device`: the person of this home's owner, and its devices.

A new device is a new node that joins: see `hearthnet.supervisor.community.join`.

See: docs/protocol/persons.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from hearthnet.cli.commands import home_person, person_removal
from hearthnet.cli.commands.invite import joined_as_json, read_invite
from hearthnet.cli.input import yes_no
from hearthnet.cli.input.local_call import call_local_node
from hearthnet.cli.input.member_lookup import display_name, roster_of
from hearthnet.cli.input.options import Commands, common_options
from hearthnet.cli.output import terminal
from hearthnet.cli.output.durations import Span, format_duration, format_time
from hearthnet.cli.output.suggest import ambiguous, unknown
from hearthnet.cli.output.text import one_line
from hearthnet.cli.workflows import helping, person_key
from hearthnet.cli.workflows.cosigning import show_new
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.files import remove_overwritten
from hearthnet.core.home import Home
from hearthnet.core.times import from_rfc3339, now_ms

if TYPE_CHECKING:
    from hearthnet.trust.community.persons import Device
    from hearthnet.trust.community.roster import Roster

_DAY: Final = 86_400
_TEXT_SECONDS: Final = 900
_HEADINGS: Final = ("name", "kind", "id", "since", "")
_COLUMNS: Final = 4
"""Words of the recovery key in a row."""


@click.group("person", cls=Commands)
def person() -> None:
    """Show and manage the persons of this home, and their recovery words.

    \b
    hearthnet person show
    hearthnet person words --forget
    hearthnet person add anna
    hearthnet person add ben --child --hours 07:00-20:00 --questions 30
    hearthnet person link anna
    hearthnet person list
    """


for _command in (
    home_person.add,
    home_person.list_,
    home_person.link,
    home_person.limits,
    person_removal.remove,
):
    person.add_command(_command)


@person.command()
@common_options
def show(home: Home, json: bool) -> None:
    """Show the owner of this home: id, name, devices, and whether the recovery key is here.

    The owner is the administrator; what that one can do with the others of the home is listed, too. Works
    without a running node.
    """
    roster, own = roster_of(home), _own(home)
    owner = _person_of(roster, own)
    begun = helping.begun_recoveries(home, roster, own)
    page = {**_as_json(roster, own, owner), **_keys_here(home, owner), "recoveries": begun}
    terminal.result(json, page, lambda: _print(page, roster, own, owner))


@person.command()
@click.argument("name", required=False)
@click.option("--forget", is_flag=True, help="Then remove the recovery key from this computer.")
@click.option("--yes", is_flag=True, help="Do not ask whether somebody else can see the screen.")
@common_options
def words(name: str | None, forget: bool, yes: bool, home: Home, json: bool) -> None:
    """Print the recovery words of the owner, or of the person NAME, to be written on paper.

    They take back the identity from a thief; those of the owner open the backups of this home. With
    --forget some of them are asked for, and the key is removed from this computer when they are right.
    """
    from hearthnet.backup import backup_key
    from hearthnet.backup.history import read_last
    from hearthnet.backup.words import to_words
    from hearthnet.bus.session.keyring import load_identity
    from hearthnet.cli.workflows import recovery_words

    path = None if name is None else home_person.recovery_file(home, name)
    recovery = backup_key.recovery_key(home) if path is None else load_identity(path)
    yes_no.confirm("Is nobody else looking at this screen?", confirmed=yes, option="--yes")
    found = to_words(recovery.seed)
    page = {"person": recovery.node_id, "words": found}
    if not forget:
        terminal.result(json, page, lambda: _print_words(recovery.node_id, found))
        return
    _print_words(recovery.node_id, found)
    owners = partial(recovery_words.remove_owners, home, recovery)
    recovery_words.forget(recovery, owners if path is None else partial(remove_overwritten, path))
    terminal.line("the recovery key is not on this computer any more; the paper is what there is")
    if path is not None and read_last(home).id:
        terminal.info(
            "backups made before have it, for the owner's words; remove them once there is a new one: "
            "hearthnet backup create FOLDER --keep 1"
        )


@click.group("device", cls=Commands)
def device() -> None:
    """Add, list and remove the devices of the persons of this home.

    \b
    hearthnet device add --name Laptop    here, where the node runs
    hearthnet device add --phone          a link for a phone
    hearthnet device join                 over there, before its first hearthnet up
    hearthnet device list
    hearthnet device remove Phone
    """


_person_option: Final = click.option(
    "--person", "name", metavar="NAME", help="Of this person of the home. Default: the owner."
)


@device.command("list")
@_person_option
@common_options
def list_(name: str | None, home: Home, json: bool) -> None:
    """List the devices of the owner, or of another person of the home; works without a running node."""
    roster, own = roster_of(home), _own(home)
    devices = roster.devices(_person_of(roster, own) if name is None else home_person.person_id(home, name))
    found = [device_as_json(one, own) for one in devices]
    terminal.listing(json, found, _HEADINGS, _rows(devices, own), "there is no device yet")


@device.command()
@click.option("--name", metavar="NAME", help="What the new computer is called, if it has no name of its own.")
@click.option("--expires", type=Span(60, _DAY), help="For how long, up to 24h. Default: 15m.")
@click.option("--phone", is_flag=True, help="A phone, or a browser on another computer: prints a link.")
@click.option("--person", metavar="NAME", help="With --phone: of this person of the home, not the owner.")
@common_options
def add(
    name: str | None, expires: int | None, phone: bool, person: str | None, home: Home, json: bool
) -> None:
    """Add another computer of yours: prints a text, and on a terminal a QR code of it.

    Type or paste the text there, at hearthnet device join. It is good once. The first to use it becomes
    you: keep it secret, and take it back with hearthnet invite withdraw if it was seen.

    With --phone, the code is a link to the page, good once and for ten minutes. The gateway has to serve TLS
    beyond this computer for that ([gateway] in hearthnet.toml).
    """
    if (name or expires) if phone else person:
        raise click.UsageError("--person goes with --phone, --name and --expires with a computer")
    if phone:
        home_person.add_phone(home, person, json=json)
        return
    expires = expires or _TEXT_SECONDS
    person_key.renew(home)
    fields: dict[str, Any] = {"ttl_seconds": expires}
    if name is not None:
        fields["display_name"] = name
    output = call_local_node(home, "community.device.invite@1.0", fields)
    terminal.result(json, output, lambda: show_new(output, f"{format_duration(expires)} long"))


@device.command()
@click.argument("text", required=False)
@common_options
def join(text: str | None, home: Home, json: bool) -> None:
    """Make this computer another device of the person whose text this is. The node must be stopped.

    TEXT is what hearthnet device add printed. Without it, this prompts for it or reads it from a pipe, so
    that it stays out of the shell's history. The home has to be new, or one on its own.
    """
    from hearthnet.supervisor.community.join import join_as_device

    joined = join_as_device(
        home, read_invite(text, "text of the device"), lambda line: terminal.info(one_line(line))
    )
    terminal.result(
        json,
        joined_as_json(joined),
        f"joined {one_line(joined.name)} as {display_name(joined.display_name)}, a device of "
        f"{ids.short_id(joined.person)}; start the node with: hearthnet up",
    )


@device.command()
@click.argument("device")
@_person_option
@click.option("--yes", "confirmed", is_flag=True, help="Do not ask.")
@common_options
def remove(device: str, name: str | None, confirmed: bool, home: Home, json: bool) -> None:
    """Take a device from the owner, or from another person of the home: lost, stolen or given away.

    DEVICE is its name or id. It never comes back. It approves nothing any more, a page or phone is signed
    out within two seconds, and a node is out of the community within seconds; its posts stay the owner's. The
    last node stays.
    """
    roster, own = roster_of(home), _own(home)
    mine = _person_of(roster, own) if name is None else home_person.person_id(home, name)
    found = find_device(device, roster.devices(mine))
    shown = f"{display_name(found.name)} ({ids.short_id(found.key)})"
    out = ", which leaves the community" if found.kind == "node" else ""
    here = "; this is the node of this home" if found.key == own else ""
    yes_no.confirm(
        f"Remove the {found.kind} {shown}{out}{here}? It never comes back.",
        confirmed=confirmed,
        option="--yes",
    )
    person_key.renew(home)
    output = call_local_node(home, "community.device.remove@1.0", {"device": found.key})
    terminal.result(json, {**output, "device": found.key}, f"{shown} is removed")


def _own(home: Home) -> str:
    from hearthnet.bus.session.keyring import load_identity

    return load_identity(home.device_key).node_id


def _person_of(roster: Roster, own: str) -> str:
    """Return the person whose device the node of this home is.

    Raises:
        HearthNetError: `not_found` if there is none yet.
    """
    owner = roster.owner(own)
    if owner == own:
        raise HearthNetError(
            "not_found", "this home has no person yet; it gets one when its node is started: hearthnet up"
        )
    return owner


def _keys_here(home: Home, owner: str) -> dict[str, bool]:
    from hearthnet.bus.session.keyring import load_identity

    has_recovery = home.recovery_key.exists() and load_identity(home.recovery_key).node_id == owner
    return {"recovery_key_here": has_recovery, "person_key_here": home.person_key.exists()}


def _as_json(roster: Roster, own: str, owner: str) -> dict[str, Any]:
    known = roster.person(owner)
    return {
        "person": owner,
        "short_id": ids.short_id(owner),
        "name": roster.person_name(owner),
        "epoch": 0 if known is None else known.epoch,
        "devices": [device_as_json(one, own) for one in roster.devices(owner)],
        "former": [device_as_json(one, own) for one in (known.former if known else ())],
        "administrator": home_person.administrator(),
    }


def device_as_json(one: Device, own: str) -> dict[str, Any]:
    return {
        "id": one.key,
        "short_id": ids.short_id(one.key),
        "kind": one.kind,
        "name": one.name,
        "added_at": one.added_at,
        "this": one.key == own,
    }


def _print(page: dict[str, Any], roster: Roster, own: str, owner: str) -> None:
    terminal.line(f"{display_name(page['name'])}, {page['short_id']}\n")
    terminal.table(_HEADINGS, _rows(roster.devices(owner), own))
    if page["recovery_key_here"]:
        terminal.line("\nthe recovery key is on this computer: whoever takes it is you; keep it elsewhere")
    else:
        terminal.line("\nthe recovery key is not on this computer")
    for one in page["recoveries"]:
        terminal.line(f"\n{helping.shown_recovery(one, now_ms())}")
    home_person.print_administrator()


def _print_words(person: str, found: tuple[str, ...]) -> None:
    terminal.line(f"person {ids.short_id(person)}\n")
    for first in range(0, len(found), _COLUMNS):
        row = enumerate(found[first : first + _COLUMNS], first + 1)
        terminal.line("  ".join(f"{number:>2}. {word:<10}" for number, word in row).rstrip())
    terminal.line("")


def _rows(devices: Sequence[Device], own: str) -> list[tuple[str, ...]]:
    now = now_ms()
    return [
        (
            display_name(one.name),
            one.kind,
            ids.short_id(one.key),
            format_time(from_rfc3339(one.added_at), now),
            "this node" if one.key == own else "",
        )
        for one in devices
    ]


def find_device(name: str, devices: Sequence[Device]) -> Device:
    """Return the device with this id, short id or name.

    Raises:
        HearthNetError: `not_found` if there is none; `bad_request` if several have the name.
    """
    by_id = [one for one in devices if name in (one.key, ids.short_id(one.key))]
    found = by_id or [one for one in devices if name in (one.name, display_name(one.name))]
    if len(found) > 1:
        raise ambiguous("device", name, [ids.short_id(one.key) for one in found])
    if not found:
        names = {display_name(one.name) for one in devices}
        raise unknown("device", name, names, "the owner of this home has no device")
    return found[0]
