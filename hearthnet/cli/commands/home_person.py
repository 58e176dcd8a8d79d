"""`hearthnet person add`, `list`, `link` and `limits`: the persons of a home other than its owner.

See: docs/persons.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from hearthnet.cli.input.member_lookup import display_name, roster_of
from hearthnet.cli.input.options import common_options
from hearthnet.cli.output import terminal
from hearthnet.cli.output.text import counted, one_line
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.gateway.auth.administrator import CAN, CANNOT
from hearthnet.gateway.auth.home_persons import HomePerson, HomePersons, Limits, clock

if TYPE_CHECKING:
    from hearthnet.trust.community.roster import Roster

_HEADINGS: Final = ("name", "kind", "id", "devices", "limits")
_HOURS: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-4]):([0-5]\d)")
_DAY_MINUTES: Final = 1440


class _Hours(click.ParamType[tuple[int, int]]):
    """Hours of the day, `07:00-20:00`, as minutes."""

    name = "HH:MM-HH:MM"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Return the minutes of the day at which the hours begin and end."""
        found = _HOURS.fullmatch(str(value))
        first, last = (
            (int(found[1]) * 60 + int(found[2]), int(found[3]) * 60 + int(found[4])) if found else (0, 0)
        )
        if not first < last <= _DAY_MINUTES:
            self.fail(f"{value} is not of the form 07:00-20:00, the first before the second", param, ctx)
        return first, last


def _limit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that limit a child."""
    for option in (
        click.option(
            "--may",
            multiple=True,
            metavar="CAPABILITY",
            help="What a child may call, such as llm.chat; may be repeated. Default: all that only reads.",
        ),
        click.option("--questions", type=click.IntRange(0, 10_000), help="At most so many questions a day."),
        click.option("--hours", type=_Hours(), help="The hours of the day in which a child may ask."),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("name")
@click.option("--child", is_flag=True, help="With limits, which only you change.")
@_limit_options
@common_options
def add(
    name: str,
    child: bool,
    hours: tuple[int, int] | None,
    questions: int | None,
    may: tuple[str, ...],
    home: Home,
    json: bool,
) -> None:
    """Add a person called NAME to this home, and print a link to their page, if the node runs.

    They have keys, conversations, runs and approvals of their own; no other person of the home sees or
    decides them. A child only reads, unless --may says what else.
    """
    from hearthnet.cli.workflows.home_person import create

    wanted = _limits(child, hours, questions, may)
    entry = create(home, name, wanted)
    found = _link(home, entry) if _has_gateway(home) else None
    page = {**_as_json(roster_of(home), entry), "url": found}
    terminal.result(json, page, lambda: _print_new(entry, found))


@click.command("list")
@common_options
def list_(home: Home, json: bool) -> None:
    """List the persons of this home: the owner and administrator, and the others.

    With --json, persons who were removed are there, too: their names are not used again. Works without a
    running node.
    """
    from hearthnet.bus.session.keyring import load_identity

    roster, entries = roster_of(home), HomePersons(home).entries()
    own = load_identity(home.device_key).node_id
    owner = roster.owner(own)
    pages = [_as_json(roster, entry) for entry in entries]
    if owner != own:
        pages = [_owner_as_json(roster, owner), *pages]
    rows = [_row(page) for page in pages if page["kind"] != "removed"]
    terminal.listing(json, pages, _HEADINGS, rows, "this home has no person yet; start it: hearthnet up")
    if not json:
        print_administrator()


@click.command()
@click.argument("name")
@common_options
def link(name: str, home: Home, json: bool) -> None:
    """Print a one-time link to the page of the person NAME: another browser, on this computer.

    It opens once, within ten minutes, and that browser is a device of theirs then. For a phone:
    hearthnet device add --phone --person NAME
    """
    from hearthnet.gateway.auth.login_links import LIFE_MS

    entry = HomePersons(home).present(name)
    found = _link(home, entry)
    terminal.result(
        json, {"url": found, "name": name, "expires_in_ms": LIFE_MS}, lambda: _print_link(entry, found)
    )


@click.command()
@click.argument("name")
@click.option("--none", "lifted", is_flag=True, help="Lift all limits: the child is an adult from now on.")
@_limit_options
@common_options
def limits(
    name: str,
    lifted: bool,
    hours: tuple[int, int] | None,
    questions: int | None,
    may: tuple[str, ...],
    home: Home,
    json: bool,
) -> None:
    """Set the limits of the person NAME anew: those that are named, and no others.

    They count from the next request on.
    """
    from hearthnet.cli.workflows.home_person import set_limits

    entry = HomePersons(home).present(name)
    wanted = None if lifted else _limits(True, hours, questions, may)
    if lifted and (hours or questions is not None or may):
        raise click.UsageError("give --none, or limits")
    entry = set_limits(home, entry, wanted)
    page = _as_json(roster_of(home), entry)
    terminal.result(json, page, f"{name}: {_limits_in_words(entry.limits) or 'no limits'}")


def recovery_file(home: Home, name: str) -> Path:
    """Return the file of the recovery key of the person `name`.

    Raises:
        HearthNetError: `not_found` if there is no such person, or the key is on paper alone.
    """
    entry = HomePersons(home).present(name)
    path = HomePersons(home).recovery_key(entry.name)
    if not path.exists():
        raise HearthNetError("not_found", f"the recovery key of {name} is not on this computer any more")
    return path


def person_id(home: Home, name: str) -> str:
    """Return the id of the person `name`; raises as `HomePersons.present`."""
    return HomePersons(home).present(name).person


def add_phone(home: Home, name: str | None, *, json: bool) -> None:
    """Print a link, and a QR code of it, that opens the page once on a phone.

    Raises:
        HearthNetError: `bad_request` if the gateway is not reached by others over TLS; as `_link`.
    """
    from hearthnet.cli.output import qr
    from hearthnet.cli.workflows.home_person import introduce
    from hearthnet.gateway.auth.login_links import LIFE_MS, LinkBook
    from hearthnet.trust.authorization.token import OWNER

    guest = OWNER if name is None else HomePersons(home).present(name).name
    url = _url_elsewhere(home)
    if name is not None:
        introduce(home, HomePersons(home).present(name))
    found = LinkBook(home).link(url, guest, is_for_elsewhere=True)
    if json:
        terminal.json_page({"url": found, "guest": guest, "expires_in_ms": LIFE_MS})
        return
    terminal.line(found)
    qr.show(found)
    terminal.info("opens once, within ten minutes; who opens it first is the person, so show it to nobody")


def _url_elsewhere(home: Home) -> str:
    """Return where other computers reach the gateway.

    Raises:
        HearthNetError: `bad_request` if they do not, or without TLS; as `gateway_url`.
    """
    from hearthnet.cli.commands.clients import gateway_url
    from hearthnet.cli.input.settings_file import settings
    from hearthnet.gateway.http.rate_limits import is_loopback

    url, host = gateway_url(home), settings(home).gateway.host
    if not url.startswith("https:") or is_loopback(host) or host == "localhost":
        raise HearthNetError(
            "bad_request",
            "a phone reaches the gateway over TLS only: set host, certificate and key of [gateway] in "
            f"{home.config_file} (docs/gateway.md), and start the node again",
        )
    return url


def administrator() -> dict[str, list[str]]:
    """Return what the administrator can do with the others of the home, and what not."""
    return {"can": [one.en for one in CAN], "cannot": [one.en for one in CANNOT]}


def print_administrator() -> None:
    """Print what the administrator can do with the others of the home, and what not."""
    for verb, lines in (("can", CAN), ("cannot", CANNOT)):
        terminal.line(f"\nwith the other persons of this home, its administrator {verb}")
        for one in lines:
            terminal.line(f"  - {one.en}")


def _limits(
    child: bool, hours: tuple[int, int] | None, questions: int | None, may: tuple[str, ...]
) -> Limits | None:
    from hearthnet.gateway.api.capabilities import check_installed

    if not child:
        if hours or questions is not None or may:
            raise click.UsageError("limits are for a child; add --child")
        return None
    check_installed(may)
    return Limits(tuple(dict.fromkeys(may)), hours, questions)


def _has_gateway(home: Home) -> bool:
    from hearthnet.cli.input.local_call import running_node

    node = running_node(home)
    return node is not None and bool(node.gateway_url)


def _link(home: Home, entry: HomePerson) -> str:
    """Return a new link to the page of a person.

    Raises:
        HearthNetError: With exit status 3 if no node runs; `not_found` if there is no gateway.
    """
    from hearthnet.cli.commands.clients import gateway_url
    from hearthnet.cli.workflows.home_person import introduce
    from hearthnet.gateway.auth.login_links import LinkBook

    url = gateway_url(home)
    introduce(home, entry)
    return LinkBook(home).link(url, entry.name)


def _print_new(entry: HomePerson, found: str | None) -> None:
    terminal.line(f"{entry.name}, {ids.short_id(entry.person)}")
    if found is None:
        terminal.info(f"start the node, then: hearthnet person link {entry.name}")
    else:
        _print_link(entry, found)
    terminal.info(f"their recovery words: hearthnet person words {entry.name} --forget")


def _print_link(entry: HomePerson, found: str) -> None:
    terminal.line(found)
    terminal.info(f"for {entry.name}; opens once, within ten minutes, on this computer")


def _as_json(roster: Roster, entry: HomePerson) -> dict[str, Any]:
    from hearthnet.cli.commands.person import device_as_json

    kind = "removed" if entry.removed_at else "adult" if entry.limits is None else "child"
    page: dict[str, Any] = {
        "name": entry.name,
        "kind": kind,
        "person": entry.person,
        "short_id": ids.short_id(entry.person),
        "devices": [device_as_json(one, "") for one in roster.devices(entry.person)],
        "limits": None,
    }
    if entry.limits is not None:
        hours = entry.limits.hours
        page["limits"] = {
            "capabilities": entry.limits.capabilities,
            "hours": None if hours is None else [clock(hours[0]), clock(hours[1])],
            "questions": entry.limits.questions,
        }
        page["in_words"] = _limits_in_words(entry.limits)
    return page


def _owner_as_json(roster: Roster, owner: str) -> dict[str, Any]:
    from hearthnet.cli.commands.person import device_as_json

    return {
        "name": roster.person_name(owner),
        "kind": "owner",
        "person": owner,
        "short_id": ids.short_id(owner),
        "devices": [device_as_json(one, "") for one in roster.devices(owner)],
        "limits": None,
    }


def _row(page: dict[str, Any]) -> tuple[str, ...]:
    names = ", ".join(display_name(one["name"]) for one in page["devices"]) or "none"
    return (one_line(page["name"]), page["kind"], page["short_id"], names, page.get("in_words", ""))


def _limits_in_words(found: Limits | None) -> str:
    if found is None:
        return ""
    words = [", ".join(found.capabilities) or "reads only"]
    if found.hours is not None:
        words.append(f"{clock(found.hours[0])} to {clock(found.hours[1])}")
    if found.questions is not None:
        words.append(f"{counted(found.questions, 'question')} a day")
    return "; ".join(words)
