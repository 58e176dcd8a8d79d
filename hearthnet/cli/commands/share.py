"""`hearthnet share`: the terms under which other homes use the services of this one (docs/sharing.md)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import click

from hearthnet.cli.input.options import common_options
from hearthnet.cli.output import terminal
from hearthnet.cli.output.durations import Span, format_duration
from hearthnet.cli.output.suggest import unknown
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms

if TYPE_CHECKING:
    from hearthnet.service.sharing.terms import Terms

_HOURS: Final = re.compile(r"(\d{1,2})(?::([0-5]\d))?-(\d{1,2})(?::([0-5]\d))?")
_COMMUNITY: Final = "auth"
_DAY_MINUTES: Final = 1440
_DAY_SECONDS: Final = 86_400
_HEADINGS: Final = ("service", "shared with", "hours", "a day for each home", "now")
_WITH: Final = {"members": "every member", "trusted": "trusted members", "nobody": "nobody"}


class _Hours(click.ParamType[tuple[int, int]]):
    """Hours of the day, `22-8` or `22:30-8:15`, as minutes; the second may be on the next day."""

    name = "H-H"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Return the minutes of the day at which the hours begin and end."""
        found = _HOURS.fullmatch(str(value).strip())
        first, last = (
            (int(found[1]) * 60 + int(found[2] or 0), int(found[3]) * 60 + int(found[4] or 0))
            if found
            else (0, 0)
        )
        if first == last or not (first < _DAY_MINUTES and last <= _DAY_MINUTES):
            self.fail(
                f"{value!r} is no time of the day; write it like 22-8 or 9:30-17; 0-24 is all day", param, ctx
            )
        return first, last


@click.command("share")
@click.argument("service", required=False)
@click.option(
    "--with", "audience", type=click.Choice(tuple(_WITH)), help="The homes that may use it. Default: members."
)
@click.option(
    "--hours",
    type=_Hours(),
    help="The hours in which they may, by the clock of this computer; 0-24 is all day.",
)
@click.option(
    "--per-day",
    type=Span(1, _DAY_SECONDS),
    metavar="SPAN",
    help="Processing time for each home in a day, such as 30m; 24h is no limit.",
)
@click.option("--reset", is_flag=True, help="Share it without limits again; without SERVICE all of them.")
@common_options
def command(
    service: str | None,
    audience: str | None,
    hours: tuple[int, int] | None,
    per_day: int | None,
    reset: bool,
    home: Home,
    json: bool,
) -> None:
    """Set terms for other homes that use SERVICE, or list them.

    \b
    hearthnet share llm --with trusted --hours 22-8 --per-day 30m

    Services are shared with every member unless you say otherwise, corpora and tools are not. What you do
    not name stays as it is. Your own home is never limited. In force a second later; no restart is needed.
    """
    from hearthnet.service.sharing.terms import changing_terms, read_terms

    changes = {"audience": audience, "hours": hours, "per_day_seconds": per_day}
    wanted = {name: value for name, value in changes.items() if value is not None}
    if reset and wanted:
        raise click.UsageError("--reset goes with no other option")
    if wanted and service is None:
        raise click.UsageError("name the service, such as llm")
    if service is not None:
        _check(home, service, known={} if reset else read_terms(home.sharing))
    if wanted or reset:
        _check_home(home)
        with changing_terms(home.sharing, anew=reset and service is None) as terms:
            _change(terms, service, wanted)
    terms = read_terms(home.sharing)
    shown = {service: terms.get(service)} if service is not None else dict(terms)
    rows = [_row(name, found) for name, found in sorted(shown.items())]
    terminal.result(json, {"services": rows}, lambda: _print(rows))


def _change(terms: dict[str, Terms], service: str | None, wanted: dict[str, Any]) -> None:
    """Change the terms of a service; remove those without limits, and without `wanted` all of them."""
    import msgspec

    from hearthnet.service.sharing.terms import Terms

    if service is None:
        terms.clear()
        return
    changed = msgspec.structs.replace(terms.get(service, Terms()), **wanted) if wanted else Terms()
    if changed.hours == (0, _DAY_MINUTES):
        changed = msgspec.structs.replace(changed, hours=None)
    if changed.per_day_seconds == _DAY_SECONDS:
        changed = msgspec.structs.replace(changed, per_day_seconds=None)
    if changed == Terms():
        terms.pop(service, None)
    else:
        terms[service] = changed


def _check(home: Home, service: str, known: dict[str, Terms]) -> None:
    """Check that there is such a service: installed, running, or with terms.

    Raises:
        HearthNetError: `not_found` with similar names; `bad_request` for the service that has no terms.
    """
    from hearthnet.cli.input.local_call import running_node
    from hearthnet.core.node_state import GATEWAY
    from hearthnet.supervisor.services.specs import installed

    node = running_node(home)
    running = () if node is None else tuple(one.name for one in node.services if one.name != GATEWAY)
    names = {*installed(), *running, *known}
    if service == _COMMUNITY:
        raise HearthNetError(
            "bad_request", f"{service} is how homes are a community: it has no terms; see: hearthnet revoke"
        )
    if service not in names:
        raise unknown("service", service, names, "no service is installed")


def _check_home(home: Home) -> None:
    if not home.device_key.exists():
        raise HearthNetError("not_found", f"there is no node in {home.path}; start one with: hearthnet up")


def _row(service: str, terms: Terms | None) -> dict[str, Any]:
    from hearthnet.service.sharing.terms import Terms

    terms = terms or Terms()
    return {
        "service": service,
        "with": terms.audience,
        "hours": None if terms.hours is None else [f"{at // 60:02}:{at % 60:02}" for at in terms.hours],
        "per_day_seconds": terms.per_day_seconds,
        "open_now": terms.audience != "nobody" and terms.is_open(now_ms()),
    }


def _print(rows: list[dict[str, Any]]) -> None:
    if not rows:
        terminal.line("every service is shared with every member; see: hearthnet share --help")
        return
    terminal.table(
        _HEADINGS,
        [
            (
                row["service"],
                _WITH[row["with"]],
                "all day" if row["hours"] is None else "-".join(row["hours"]),
                "no limit" if row["per_day_seconds"] is None else format_duration(row["per_day_seconds"]),
                "open" if row["open_now"] else "closed",
            )
            for row in rows
        ],
    )
