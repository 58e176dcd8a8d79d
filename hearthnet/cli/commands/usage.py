"""`hearthnet usage`: calls between this home and others, by day (docs/sharing.md)."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from hearthnet.cli.input.member_lookup import KnownMember, roster_of
from hearthnet.cli.input.options import common_options
from hearthnet.cli.output import terminal
from hearthnet.cli.output.suggest import ambiguous, unknown
from hearthnet.cli.output.text import counted
from hearthnet.core import ids
from hearthnet.core.errors import OTHER, HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.times import local_day, now_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hearthnet.bus.session.usage_book import UsageCount, UsageKey
    from hearthnet.trust.community.roster import Roster

_KEPT_DAYS: Final = 90
_T = TypeVar("_T")
_HEADINGS: Final = ("day", "home", "capability", "calls", "time", "tokens")
_TITLES: Final = {"served": "used of this home by others", "used": "used of other homes by this one"}


@click.command("usage")
@click.option(
    "--days",
    type=click.IntRange(1, _KEPT_DAYS),
    default=7,
    show_default=True,
    help="Up to today, which counts.",
)
@click.option(
    "--forget", "forgotten", metavar="NODE", help="Remove the counts of one home, or of one that left."
)
@common_options
def command(days: int, forgotten: str | None, home: Home, json: bool) -> None:
    """Show what other homes used of this one, and this one of others: calls, processing time, tokens.

    Counts are kept on this computer for 90 days; nobody else reads them. They have no contents of calls.
    """
    from hearthnet.bus.session.usage_book import UsageBook, days_before

    book, roster = UsageBook(home.usage), roster_of(home)
    if forgotten is not None:
        key = _resolve(forgotten, _try(lambda: book.rows("")), roster)
        removed = _try(lambda: book.forget([key]))
        shown = f"removed {counted(removed, 'count')} of {_name(key, roster)}"
        terminal.result(json, {"home": key, "removed": removed}, shown)
        return
    since = days_before(local_day(now_ms()), days - 1)
    rows = [_row(key, count, roster) for key, count in _try(lambda: book.rows(since))]
    page: dict[str, Any] = {
        "since": since,
        **{side: [row for row in rows if row["direction"] == side] for side in _TITLES},
    }
    for row in rows:
        del row["direction"]
    terminal.result(json, page, lambda: _print(page))


def _try(work: Callable[[], _T]) -> _T:
    """Return what `work` returns.

    Raises:
        HearthNetError: `bad_request` if the counts cannot be read or changed.
    """
    try:
        return work()
    except (OSError, sqlite3.Error) as error:
        raise HearthNetError("bad_request", f"cannot read the usage: {error}", exit_status=OTHER) from error


def _row(key: UsageKey, count: UsageCount, roster: Roster) -> dict[str, Any]:
    return {
        "day": key.day,
        "direction": key.direction,
        "home": key.home,
        "name": _name(key.home, roster),
        "service": key.service,
        "capability": key.capability,
        "calls": count.calls,
        "processing_seconds": count.ms / 1000,
        "tokens_in": count.tokens_in,
        "tokens_out": count.tokens_out,
    }


def _name(home: str, roster: Roster) -> str:
    """Return how a home is called here, else its short id."""
    shown = roster.shown_name(home) or roster.person_name(home)
    return KnownMember(home, shown).name if shown else ids.short_id(home)


def _resolve(text: str, rows: Iterable[tuple[UsageKey, UsageCount]], roster: Roster) -> str:
    """Return the home of some counts that `text`, its name or id, means.

    Raises:
        HearthNetError: `not_found` if there is none; `bad_request` if there are several.
    """
    homes = {key.home for key, _ in rows}
    wanted = text.strip().casefold()
    found = [home for home in homes if wanted in (home.casefold(), ids.short_id(home).casefold())] or [
        home for home in homes if _name(home, roster).casefold() == wanted
    ]
    if len(found) > 1:
        raise ambiguous("home", text, sorted(map(ids.short_id, found)))
    if not found:
        raise unknown("home", text, {_name(home, roster) for home in homes}, "nothing is counted")
    return found[0]


def _print(page: dict[str, Any]) -> None:
    for side, title in _TITLES.items():
        terminal.line(f"{title} since {page['since']}:")
        if not page[side]:
            terminal.line("  nothing")
            continue
        terminal.table(
            _HEADINGS,
            [
                (
                    row["day"],
                    row["name"],
                    row["capability"],
                    str(row["calls"]),
                    _spent(row["processing_seconds"]),
                    _tokens(row),
                )
                for row in page[side]
            ],
        )


def _spent(seconds: float) -> str:
    """Return a time as `0.4 s`, `3 min 20 s` or `1 h 5 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _tokens(row: dict[str, Any]) -> str:
    return f"{row['tokens_in']} + {row['tokens_out']}" if row["tokens_in"] or row["tokens_out"] else "-"
