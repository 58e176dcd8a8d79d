"""`hearthnet helpers`: neighbours by whom a person without devices and paper comes back.

See: docs/protocol/persons.md#helpers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from hearthnet.cli.commands.person import find_device
from hearthnet.cli.commands.recover import carry
from hearthnet.cli.input import yes_no
from hearthnet.cli.input.member_lookup import display_name, members, roster_of
from hearthnet.cli.input.options import Commands, common_options
from hearthnet.cli.output import terminal
from hearthnet.cli.output.durations import Span, format_duration, format_time
from hearthnet.cli.workflows import helping
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms

if TYPE_CHECKING:
    from hearthnet.trust.community.persons import Person
    from hearthnet.trust.community.roster import Roster
    from hearthnet.trust.keys import Identity

_DAY: Final = 86_400
_words_option: Final = click.option(
    "--words",
    metavar="FILE",
    help="A file with the recovery words, or - for stdin. Default: the key of this home, else a question.",
)
_yes_option: Final = click.option("--yes", "confirmed", is_flag=True, help="Do not ask.")


@click.group("helpers", cls=Commands)
def command() -> None:
    """Choose three neighbours, two of whom can bring you back when all your devices and the paper are lost.

    \b
    hearthnet helpers accept Anna           at each helper's: I help Anna
    hearthnet helpers choose Ben Cleo Dora  at Anna's, with the recovery words
    hearthnet helpers ask Anna              at Anna's new home, which has joined by an invite
    hearthnet helpers give Anna CODE        at two of the helpers', the code read by Anna
    hearthnet helpers begin --lost Kitchen  at Anna's new home; then the waiting time begins
    """


@command.command()
@click.argument("person")
@common_options
def accept(person: str, home: Home, json: bool) -> None:
    """Agree to keep a share for PERSON, by the name of a node of theirs. Nothing is sent."""
    roster, own = roster_of(home), _own(home)
    found = helping.find_person(roster, person)
    if found.person == roster.owner(own.node_id):
        raise HearthNetError("bad_request", "that is yourself")
    helping.agree(home, found.person)
    name = _name(roster, found.person)
    terminal.result(json, {"person": found.person, "name": name}, f"this home keeps a share for {name}")


@command.command()
@click.argument("names", metavar="NAME...", nargs=-1)
@click.option(
    "--wait", type=Span(_DAY, 30 * _DAY), default="3d", show_default=True, help="The waiting time, 1d to 30d."
)
@click.option(
    "--witness",
    "others",
    multiple=True,
    metavar="NAME|ID",
    help="One more neighbour whose node witnesses. Default: the helpers, and trusted members.",
)
@_words_option
@_yes_option
@common_options
def choose(
    names: tuple[str, ...],
    wait: int,
    others: tuple[str, ...],
    words: str | None,
    confirmed: bool,
    home: Home,
    json: bool,
) -> None:
    """Hand a share to three neighbours, each of whom has agreed before (hearthnet helpers accept).

    Two of them together can replace your keys once the waiting time is over; until then each of your
    devices can stop it (hearthnet recover --object). They replace helpers of before. Three witnesses have to
    run at the end of that time; where there are only three, all of them.
    """
    from hearthnet.backup.shares import split
    from hearthnet.trust.community.commands import CommunityAuthor
    from hearthnet.trust.keys import Identity

    roster, own = roster_of(home), _own(home)
    person = _own_person(roster, own)
    helpers = helping.chosen_helpers(roster, names, person.person)
    recovery = _recovery_key(home, words, person)
    witnesses = helping.witnesses_of(roster, helpers, others, person.person)
    shown = ", ".join(map(str, helpers))
    yes_no.confirm(
        f"Two of {shown} can replace your keys after {format_duration(wait)}?",
        confirmed=confirmed,
        option="--yes",
    )
    key = Identity.generate()
    author, last = CommunityAuthor(roster, recovery), helping.last_number(home)
    statement = author.named_helpers(key.node_id, wait, witnesses, above=last)
    helping.begin_number(home, statement.number)
    helping.hand_out(home, own, statement, helpers, split(key))
    carry(home, statement)
    helping.remember_helpers(home, statement.number, helpers)
    page = _as_json(home, roster_of(home), person.person)
    terminal.result(json, page, f"{shown} help you; {len(witnesses)} nodes witness a recovery")


@command.command("list")
@common_options
def list_(home: Home, json: bool) -> None:
    """Show your helpers, the waiting time, and who witnesses; works without a running node."""
    roster = roster_of(home)
    page = _as_json(home, roster, _own_person(roster, _own(home)).person)
    terminal.result(json, page, lambda: _print(page))


@command.command()
@_words_option
@_yes_option
@common_options
def forget(words: str | None, confirmed: bool, home: Home, json: bool) -> None:
    """Have no helpers any more: their shares are worth nothing then."""
    from hearthnet.trust.community.commands import CommunityAuthor
    from hearthnet.trust.keys import Identity

    roster = roster_of(home)
    person = _own_person(roster, _own(home))
    recovery = _recovery_key(home, words, person)
    yes_no.confirm("Have no helpers any more?", confirmed=confirmed, option="--yes")
    nobody = Identity.generate().node_id
    author, last = CommunityAuthor(roster, recovery), helping.last_number(home)
    carry(home, author.named_helpers(nobody, _DAY, (), above=last))
    terminal.result(json, _as_json(home, roster_of(home), person.person), "you have no helpers any more")


@command.command("kept")
@common_options
def list_kept(home: Home, json: bool) -> None:
    """List the persons whom you help, and whether their share is here; works without a running node."""
    roster = roster_of(home)
    found = [
        {"person": one["person"], "name": _name(roster, one["person"]), "share_here": bool(one["share"])}
        for one in helping.kept_shares(home)
    ]
    rows = [
        (one["name"], ids.short_id(one["person"]), "here" if one["share_here"] else "not sent yet")
        for one in found
    ]
    terminal.listing(json, found, ("name", "id", "share"), rows, "this home keeps no share for anybody")


@command.command()
@click.argument("person")
@click.argument("code")
@_yes_option
@common_options
def give(person: str, code: str, confirmed: bool, home: Home, json: bool) -> None:
    """Give the share of PERSON to their new home, which has CODE.

    Let the person read the code to you, by voice or in person, and be sure that it is them: a holder of two
    shares becomes that person.
    """
    roster, own = roster_of(home), _own(home)
    pages = {one["person"]: one for one in helping.kept_shares(home)}
    by_name = [one for one in pages if person in (one, ids.short_id(one), _name(roster, one))]
    found = by_name[0] if len(by_name) == 1 else helping.find_person(roster, person).person
    share = str(pages.get(found, {}).get("share", ""))
    if not share:
        raise HearthNetError("not_found", "no share of that person is here")
    node, name = helping.node_with_code(roster, found, code), _name(roster, found)
    yes_no.confirm(
        f"Has {name} told you this code, for {node}? With two shares that home becomes {name}.",
        confirmed=confirmed,
        option="--yes",
    )
    helping.give(home, own, found, share, node.node_id)
    terminal.result(json, {"person": found, "node": node.node_id}, f"{node} has the share of {name}")


@command.command()
@click.argument("person", required=False)
@click.option("--stop", is_flag=True, help="Do not recover anybody here.")
@common_options
def ask(person: str | None, stop: bool, home: Home, json: bool) -> None:
    """Prepare to become PERSON again at this new home, which has joined by an invite and has no person.

    Prints a code, which you read to two of your helpers while this node runs.
    """
    from hearthnet.trust.community.recovery_statements import share_code

    if stop:
        if home.recovering.exists():
            helping.stop(home)
        terminal.result(json, {"person": ""}, "nobody is recovered here")
        return
    roster, own = roster_of(home), _own(home)
    found = helping.find_person(roster, person or helping.asked_person(home))
    _check_new(home, roster, own.node_id, found)
    helping.ask(home, found.person)
    code = helping.grouped(share_code(roster.community_id, found.person, own.node_id))
    page = {"person": found.person, "code": code, "shares": len(helping.given_shares(home))}
    terminal.result(
        json,
        page,
        f"code: {code}\nstart the node (hearthnet up), and read the code to two of your helpers; "
        f"shares here: {page['shares']}",
    )


@command.command()
@click.option("--lost", multiple=True, metavar="NAME|ID", help="A device that is lost; may be repeated.")
@click.option("--keep-all", is_flag=True, help="No device is lost.")
@_yes_option
@common_options
def begin(lost: tuple[str, ...], keep_all: bool, confirmed: bool, home: Home, json: bool) -> None:
    """Announce the recovery at the new home, once two shares are here; the waiting time begins.

    Afterwards nothing has to be done: this node becomes yours, and the lost devices are removed, when three
    of the witnesses have seen the time pass without an objection.
    """
    from hearthnet.backup.shares import combined
    from hearthnet.service.community.queued_statements import as_json, as_pages
    from hearthnet.trust.community.commands import CommunityAuthor

    roster = roster_of(home)
    person = roster.person(helping.asked_person(home))
    if person is None or person.helpers is None:
        raise HearthNetError("not_found", "nobody is recovered here; first: hearthnet helpers ask")
    if (open_ := helping.own_recovery(home, person)) is not None and not open_.objected:
        raise HearthNetError(
            "bad_request", f"the recovery has begun; {_until(as_json(roster, open_, now_ms()))}"
        )
    gone = [find_device(name, roster.devices(person.person)) for name in lost]
    if not gone and not keep_all:
        raise HearthNetError("bad_request", "say which devices are lost, with --lost NAME, or --keep-all")
    helpers_key = combined(helping.given_shares(home), person.helpers.key)
    names = ", ".join(display_name(one.name) for one in gone) or "none"
    yes_no.confirm(f"Begin? Removed for ever afterwards: {names}.", confirmed=confirmed, option="--yes")
    key, author = helping.next_key(home, open_ is not None), CommunityAuthor(roster, helpers_key)
    begun, removals = author.begun_recovery(person.person, key, {one.key for one in gone})
    helping.prepare(home, key, as_pages(removals))
    carry(home, begun)
    helping.forget_shares(home)
    held = roster_of(home)
    now_held = held.person(person.person)
    recovery = None if now_held is None else helping.own_recovery(home, now_held)
    page = {"person": person.person} | ({} if recovery is None else as_json(held, recovery, now_ms()))
    terminal.result(
        json, page, "the recovery has begun; " + (_until(page) if recovery else "it is completed")
    )


def _own(home: Home) -> Identity:
    from hearthnet.bus.session.keyring import load_identity

    return load_identity(home.device_key)


def _own_person(roster: Roster, own: Identity) -> Person:
    person = roster.person(roster.person_of(own.node_id))
    if person is None:
        raise HearthNetError("not_found", "this home has no person yet; it gets one with hearthnet up")
    return person


def _recovery_key(home: Home, words: str | None, person: Person) -> Identity:
    from hearthnet.cli.workflows import recovery_words

    found = recovery_words.recovery_of(home, words, person.person)
    if found.node_id != person.person:
        raise HearthNetError("bad_request", "these are the recovery words of another person")
    return found


def _check_new(home: Home, roster: Roster, own: str, person: Person) -> None:
    if roster.owner(own) != own or home.person_key.exists():
        raise HearthNetError(
            "bad_request",
            "this home has a person of its own; use a new one: hearthnet invite redeem, then hearthnet "
            "helpers ask before its first start",
        )
    if person.helpers is None or not person.helpers.witnesses:
        raise HearthNetError("not_found", "that person has no helpers; the recovery words are the way back")


def _name(roster: Roster, person: str) -> str:
    name = roster.person_name(person)
    return display_name(name) if name else ids.short_id(person)


def _as_json(home: Home, roster: Roster, person: str) -> dict[str, Any]:
    found = roster.person(person)
    named = None if found is None else found.helpers
    if named is None or not named.witnesses:
        return {"person": person, "helpers": [], "witnesses": [], "wait_seconds": 0}
    nodes = {one.node_id: one.name for one in members(roster)}
    has_share = helping.remembered_helpers(home, named.number)
    return {
        "person": person,
        "helpers": [_node_as_json(node, nodes) for node in has_share],
        "witnesses": [_node_as_json(node, nodes) for node in map(ids.from_token_form, named.witnesses)],
        "wait_seconds": named.wait_seconds,
    }


def _node_as_json(node: str, nodes: dict[str, str]) -> dict[str, Any]:
    return {"id": node, "name": nodes.get(node, ""), "is_member": node in nodes}


def _print(page: dict[str, Any]) -> None:
    if not page["witnesses"]:
        terminal.line("you have no helpers")
        return
    terminal.line(f"waiting time: {format_duration(page['wait_seconds'])}\n")
    shares = {one["id"] for one in page["helpers"]}
    rows = [
        (
            one["name"] or ids.short_id(one["id"]),
            "has a share" if one["id"] in shares else "witness",
            "" if one["is_member"] else "not a member any more: choose anew",
        )
        for one in page["witnesses"]
    ]
    terminal.table(("name", "", ""), rows)


def _until(page: dict[str, Any]) -> str:
    return f"not completed before {format_time(page['not_before'], now_ms())}; keep this node running"
