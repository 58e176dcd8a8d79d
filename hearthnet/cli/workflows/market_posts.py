"""`hearthnet market list|search|update|end`: the current posts (docs/market.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from hearthnet.cli.input.options import common_options
from hearthnet.cli.output import terminal

if TYPE_CHECKING:
    from hearthnet.core.home import Home

DAY: Final = 86_400
CATEGORIES: Final = ("offer", "request", "info", "emergency")
_REASONS: Final = ("fulfilled", "withdrawn", "user_request", "stale")


@click.command("list")
@click.option("--category", type=click.Choice(CATEGORIES))
@click.option("--tag", "tags", multiple=True, help="Only posts with this tag, or with all of several.")
@click.option("--since", type=int, metavar="LAMPORT", help="What changed and what ended since that place.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True)
@common_options
def list_posts(
    category: str | None, tags: tuple[str, ...], since: int | None, limit: int, home: Home, json: bool
) -> None:
    """List what neighbours offer, need and announce, the newest first."""
    from hearthnet.cli.output.text import one_line

    given: dict[str, Any] = {"limit": limit, **({"tags": list(tags)} if tags else {})}
    given |= {"category": category} if category else {}
    given |= {"since_lamport": since} if since else {}
    output = _called(home, "list", given)
    if json:
        terminal.json_page(output)
        return
    ended_since = output.get("ended", [])
    if output["posts"] or not ended_since:
        _show(home, output["posts"])
    for ended in ended_since:
        note = f": {one_line(ended['note'])}" if "note" in ended else ""
        terminal.line(f"ended: {ended['event_id']} ({ended['reason']}{note})")


@click.command("search")
@click.argument("query")
@click.option("-k", type=click.IntRange(1, 50), default=10, show_default=True, help="How many at most.")
@common_options
def search(query: str, k: int, home: Home, json: bool) -> None:
    """Find current posts by words, and by meaning where the mesh has a model for that."""
    output = _called(home, "search", {"query": query, "k": k})
    if json:
        terminal.json_page(output)
    else:
        _show(home, output["posts"])


@click.command("update")
@click.argument("event_id")
@click.option("--category", type=click.Choice(CATEGORIES))
@click.option("--title", help="One line that says what it is about.")
@click.option("--body", help="The message itself.")
@click.option("--tag", "tags", multiple=True, help="All its tags from now on; may be given more than once.")
@click.option("--days", type=click.IntRange(1, 30), help="How long it stays, from now.")
@common_options
def update(
    event_id: str,
    category: str | None,
    title: str | None,
    body: str | None,
    tags: tuple[str, ...],
    days: int | None,
    home: Home,
    json: bool,
) -> None:
    """Change a post of yours; fields that are not named stay as they are."""
    named = {"category": category, "title": title, "body": body, "tags": list(tags) or None}
    fields: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    fields |= {"ttl_seconds": days * DAY} if days else {}
    if not fields:
        raise click.UsageError("say what is to be different, such as --body TEXT")
    _changed(home, "update", {"event_id": event_id, "fields": fields}, f"changed: {event_id}", json)


@click.command("end")
@click.argument("event_id")
@click.option(
    "--reason",
    type=click.Choice(_REASONS),
    default="withdrawn",
    show_default=True,
    help="user_request is for the author alone.",
)
@click.option("--note", help="Why, in your words: its author and all who follow the post read it.")
@common_options
def end(event_id: str, reason: str, note: str | None, home: Home, json: bool) -> None:
    """End a post before its time.

    It must be one of yours; a trusted member may end any post.
    """
    given = {"event_id": event_id, "reason": reason, **({"note": note} if note else {})}
    _changed(home, "expire", given, f"ended: {event_id}", json)


def _changed(home: Home, verb: str, given: dict[str, Any], words: str, json: bool) -> None:
    from hearthnet.core import ids

    output = _called(home, verb, {"client_id": ids.new_ulid(), **given})
    terminal.result(json, output, words)


def _called(home: Home, verb: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the output of `market.<verb>`; `given` is checked before a node is looked for."""
    import asyncio

    from hearthnet.bus.bus import Bus, find_contract

    capability, request = f"market.{verb}@1.0", {"params": {}, "input": given}
    find_contract(capability).check_request(request)

    async def call() -> dict[str, Any]:
        async with await Bus.connect(home, name="cli") as bus:
            return dict((await bus.call(capability, request)).output)

    return asyncio.run(call())


def _show(home: Home, posts: list[dict[str, Any]]) -> None:
    from hearthnet.cli.input.member_lookup import display_name, roster_of
    from hearthnet.cli.output.durations import format_time
    from hearthnet.cli.output.text import one_line, shorten
    from hearthnet.core import ids
    from hearthnet.core.times import from_rfc3339, now_ms

    if not posts:
        terminal.line("nothing found")
        return
    now = now_ms()
    names = {member.node_id: display_name(member.display_name) for member in roster_of(home).members}
    rows = [
        (
            post["event_id"],
            post["category"],
            shorten(one_line(post["title"]), 40),
            names.get(post["author"], ids.short_id(post["author"])),
            format_time(from_rfc3339(post["expires_at"]), now),
        )
        for post in posts
    ]
    terminal.table(("event id", "category", "title", "by", "until"), rows)
