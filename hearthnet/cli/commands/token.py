"""`hearthnet token`: narrow, short-lived authority for another node.

See: docs/protocol/tokens.md#issuing.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from hearthnet.cli.input.local_call import call_local_node
from hearthnet.cli.input.member_lookup import members, resolve_member, roster_of
from hearthnet.cli.input.options import Commands, common_options, only_option
from hearthnet.cli.output import terminal
from hearthnet.cli.output.durations import Span, format_time
from hearthnet.cli.output.text import as_json, one_line
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.ids import is_ulid
from hearthnet.core.times import from_rfc3339, now_ms

if TYPE_CHECKING:
    from hearthnet.trust.authorization.token import Claims

_DAY: Final = 86_400
_LONGEST: Final = 4096
_LIMITS: Final = {
    "max_calls_total": "calls at each node",
    "max_effects": "of which change something",
    "rate_limit_per_minute": "calls a minute",
}
_REASONS: Final = ("manual", "policy", "compromise")


@click.group("token", cls=Commands)
def command() -> None:
    """Let another node call some capabilities in your name, for a while.

    \b
    hearthnet token issue --to Kitchen --cap rag.query --corpus manuals --ttl 1h
    """


@command.command()
@click.option("--to", "to", required=True, metavar="NODE", help="Who may use it: a member's name or id.")
@click.option(
    "--cap",
    "capabilities",
    required=True,
    multiple=True,
    metavar="CAPABILITY",
    help="What it covers, such as rag.query or rag.query@1.0, or experimental.mcp.NAME.* for all tools of an "
    "MCP server. May be given several times.",
)
@click.option("--corpus", "corpora", multiple=True, metavar="NAME", help="Only this corpus.")
@only_option
@click.option("--ttl", type=Span(1, _DAY), default="1h", show_default=True, help="For how long, up to 24h.")
@click.option("--calls", type=click.IntRange(min=1), help="At most so many calls, at each node.")
@click.option("--effects", type=click.IntRange(min=0), help="At most so many that change something.")
@click.option("--per-minute", type=click.IntRange(min=1), help="At most so many calls a minute.")
@common_options
def issue(
    to: str,
    capabilities: tuple[str, ...],
    corpora: tuple[str, ...],
    only: tuple[str, ...],
    ttl: int,
    calls: int | None,
    effects: int | None,
    per_minute: int | None,
    home: Home,
    json: bool,
) -> None:
    """Sign a token and print it.

    It carries no more authority than this node has, and only the node that it is for can use it.
    """
    from hearthnet.gateway.api.capabilities import installed

    for name in capabilities:
        installed(name)
    subject = resolve_member(to, members(roster_of(home)))
    limits = {"rate_limit_per_minute": per_minute, "max_calls_total": calls, "max_effects": effects}
    scope: dict[str, Any] = {
        "capabilities": list(capabilities),
        **{name: limit for name, limit in limits.items() if limit is not None},
    }
    if corpora:
        scope["corpora"] = list(corpora)
    if only:
        scope["params_constraints"] = constraints_of(only)
    fields = {"subject": subject.node_id, "scope": scope, "ttl_seconds": ttl}
    output = call_local_node(home, "auth.token.issue@1.0", fields)
    if json:
        terminal.json_page(output)
        return
    terminal.line(one_line(str(output["token"])))
    terminal.info(
        f"for {subject}, until {_when(str(output['expires_at']))}; take it back with: hearthnet token revoke "
        f"{one_line(str(output['token_id']))}"
    )


@command.command()
@click.argument("token")
@click.option("--issuer", metavar="NODE", help="Whose it is, where TOKEN is only an id. Default: yours.")
@click.option("--reason", type=click.Choice(_REASONS), default="manual", show_default=True)
@common_options
def revoke(token: str, issuer: str | None, reason: str, home: Home, json: bool) -> None:
    """Make a token worthless before its time, at every node.

    TOKEN is the token itself, its id, a file that holds the token (@FILE), or - to read it from stdin. Those
    of others can be revoked with level trusted.
    """
    fields = {"token_id": token, "reason": reason}
    if not is_ulid(token):
        claims = _claims(read_token(token))
        fields |= {"token_id": claims.jti, "issuer": claims.iss}
    elif issuer is not None:
        fields["issuer"] = resolve_member(issuer, members(roster_of(home))).node_id
    output = call_local_node(home, "auth.token.revoke@1.0", fields)
    terminal.result(
        json, output, f"revoked {one_line(str(output['token_id']))}; providers refuse it from now on"
    )


@command.command()
@click.argument("token")
@common_options
def show(token: str, home: Home, json: bool) -> None:
    """Show what a token allows, and whether it can still be used.

    TOKEN is the token itself, a file that holds it (@FILE), or - to read it from stdin.
    """
    output = call_local_node(home, "auth.token.introspect@1.0", {"token": read_token(token)})
    terminal.result(json, output, lambda: _show(output, home))


def _show(output: dict[str, Any], home: Home) -> None:
    state = "can be used" if output["active"] else f"cannot be used: {one_line(str(output['reason']))}"
    terminal.line(f"{one_line(str(output['token_id']))} {state}")
    rows = {"from": _called(home, str(output["issuer"])), "for": _called(home, str(output["subject"]))}
    if output.get("principal"):
        rows["principal"] = one_line(str(output["principal"]))
    rows["valid"] = f"{_when(str(output['not_before']))} until {_when(str(output['expires_at']))}"
    scope = output["scope"]
    rows["covers"] = ", ".join(one_line(str(name)) for name in scope["capabilities"])
    for name, allowed in scope.get("params_constraints", {}).items():
        rows[f"only {one_line(name)}"] = " or ".join(as_json(value) for value in allowed)
    rows |= {words: str(scope[name]) for name, words in _LIMITS.items() if scope.get(name) is not None}
    width = max(map(len, rows))
    for name, value in rows.items():
        terminal.line(f"  {name.ljust(width)}  {value}")


def _called(home: Home, node: str) -> str:
    """Return the node by name and short id, if the roster has it."""
    known = next((one for one in members(roster_of(home)) if one.node_id == node), None)
    return one_line(node) if known is None else str(known)


def constraints_of(only: tuple[str, ...]) -> dict[str, list[str]]:
    """Return `FIELD=VALUE` by field; a repeated field allows each of its values."""
    found: dict[str, list[str]] = {}
    for entry in only:
        name, separator, value = entry.partition("=")
        if not separator:
            raise click.UsageError(f"--only {entry} is not FIELD=VALUE, such as corpus=manuals")
        found.setdefault(name, []).append(value)
    return found


def read_token(text: str) -> str:
    """Return the token in `text`, in the file named after an `@`, or on stdin for `-`.

    Raises:
        HearthNetError: `bad_request` if it is no token; `not_found` for a missing file.
    """
    from hearthnet.trust.authorization.token import SCHEME

    found = _read(text)
    if not found.startswith(SCHEME):
        raise HearthNetError("bad_request", f"this is no token; one begins with {SCHEME}")
    return found


def _read(text: str) -> str:
    if text == "-":
        return sys.stdin.readline(_LONGEST).strip()
    if not text.startswith("@"):
        return text.strip()
    try:
        return Path(text[1:]).read_text("ascii").strip()
    except FileNotFoundError as error:
        raise HearthNetError("not_found", f"there is no file {one_line(text[1:])}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise HearthNetError("bad_request", f"there is no token in {one_line(text[1:])}") from error


def _claims(text: str) -> Claims:
    from hearthnet.trust.authorization import token as tokens

    try:
        return tokens.decode(text)
    except HearthNetError as error:
        raise HearthNetError(error.code, f"{error.message}; copy it whole, or name it by its id") from error


def _when(wire: str) -> str:
    return format_time(from_rfc3339(wire), now_ms())
