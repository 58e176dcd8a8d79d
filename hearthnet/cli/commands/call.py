"""`hearthnet call`: a call of one capability."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hearthnet.cli.input.argument_form import read_pairs
from hearthnet.cli.input.json_input import read_json
from hearthnet.cli.input.local_call import fill_client_id, on_bus
from hearthnet.cli.input.member_lookup import members, resolve_member, roster_of
from hearthnet.cli.input.options import common_options, settings_of
from hearthnet.cli.output import terminal
from hearthnet.cli.output.text import as_json, as_lines, many_lines, one_line
from hearthnet.core import ids
from hearthnet.core.home import Home

if TYPE_CHECKING:
    from hearthnet.bus.bus import Bus
    from hearthnet.bus.calls.streaming import StreamFrame
    from hearthnet.bus.calls.unary import ReceivedReply
    from hearthnet.contracts.contract import Contract

_BODY_FORM = '{"params": {...}, "input": {...}}'


@click.command("call")
@click.argument("name")
@click.argument("pairs", nargs=-1, metavar="[FIELD=VALUE]...")
@click.option(
    "--body",
    metavar="JSON|@FILE|-",
    help=f"The request, {_BODY_FORM}; - reads it from stdin.",
)
@common_options
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Seconds to wait. Default: what the contract says.",
)
@click.option("--node", metavar="NODE", help="The member to call; else the best one, or only this node.")
@click.option("--token", metavar="TEXT|@FILE", help="Call in the name of who issued this token.")
@click.pass_context
def command(
    context: click.Context,
    name: str,
    pairs: tuple[str, ...],
    body: str | None,
    home: Home,
    json: bool,
    timeout: float | None,
    node: str | None,
    token: str | None,
) -> None:
    """Call a capability and print its reply, or its frames as they come.

    NAME is a capability, such as market.list or rag.query@1.0. Each FIELD=VALUE is a field of its params or
    input: text as it is, anything else as JSON. --body gives the whole request instead.

    What an MCP server or a package offers is called at this node, unless --node names another one.

    With --json, stdout has only the reply body {"output", "meta"}, or one frame {"event", "data", "seq"} a
    line.
    """
    from hearthnet.bus.bus import find_contract
    from hearthnet.cli.commands.token import read_token
    from hearthnet.contracts.namespaces import is_provider_defined

    if body is not None and pairs:
        raise click.UsageError("give the request as FIELD=VALUE or with --body, not both", context)
    request = None if body is None else read_json(body, "--body", _BODY_FORM)
    chosen = "" if node is None else resolve_member(node, members(roster_of(home))).node_id
    if is_provider_defined(name):
        contract = on_bus(home, lambda bus: bus.fetch_contract(name, node=chosen))
    else:
        contract = find_contract(name)
    name = contract.id if is_provider_defined(name) else name
    if request is None:
        fields = read_pairs(pairs, contract.tool_schema(None, frozenset()))
        request = contract.split_arguments(fields, None)
    made = fill_client_id(contract, request)
    contract.check_request(request)
    if made:
        terminal.info(f"client_id {made} (the same one again has no second effect)")
    options: dict[str, Any] = {
        "timeout_seconds": timeout,
        "node": chosen,
        "token": "" if token is None else read_token(token),
    }
    if streams(contract, request):
        settings_of(context).frames = json
        on_bus(home, lambda bus: _stream(bus, name, request, options, json))
    else:
        _show(on_bus(home, lambda bus: bus.call(name, request, **options)), json)


def streams(contract: Contract, request: dict[str, Any]) -> bool:
    """Return whether the answer is a stream: the contract allows it and `stream` is not false."""
    return contract.stream_schema is not None and request["input"].get("stream", True) is not False


def _show(reply: ReceivedReply, json: bool) -> None:
    if json:
        terminal.json_page(reply.body)
        return
    for line in as_lines(reply.output):
        terminal.line(line)
    terminal.line(terminal.styled(f"from {ids.short_id(reply.provider)}: {as_json(reply.meta)}", "dim"))


async def _stream(bus: Bus, name: str, request: dict[str, Any], options: dict[str, Any], json: bool) -> None:
    text_open = False
    async with bus.stream(name, request, **options) as stream:
        async for frame in stream:
            if json:
                terminal.json_line({"event": frame.event, "data": frame.data, "seq": frame.seq})
            else:
                text_open = _show_frame(frame, text_open)


def _show_frame(frame: StreamFrame, text_open: bool) -> bool:
    """Print a frame; return whether a line of text is still incomplete."""
    text = frame.data.get("text")
    if frame.event == "token" and isinstance(text, str):
        terminal.write(many_lines(text))
        return not text.endswith("\n") if text else text_open
    if text_open:
        terminal.line()
    terminal.write(terminal.styled(f"{one_line(frame.event)} {as_json(frame.data)}", "dim") + "\n")
    return False
