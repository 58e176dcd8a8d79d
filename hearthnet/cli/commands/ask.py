"""`hearthnet ask`: a question, answered by a language model that may call tools.

See: docs/tools.md#a-run.
"""

from __future__ import annotations

import asyncio

import click

from hearthnet.cli.input.member_lookup import members, resolve_member, roster_of
from hearthnet.cli.input.options import frames_option, home_option, settings_of
from hearthnet.core.home import Home


@click.command("ask")
@click.argument("text")
@click.option("--corpus", metavar="NAME", help="Search this collection of documents first, such as system.")
@click.option(
    "--tool", "tools", multiple=True, metavar="NAME", help="Call this tool first. Several: any of them."
)
@click.option("--node", metavar="NODE", help="The member whose tools --tool names; else this node's.")
@click.option("--model", metavar="NAME", help="The model to ask. Default: the best one that is offered.")
@click.option(
    "--yes-to",
    multiple=True,
    metavar="CAPABILITY",
    help="Approve calls of exactly this capability here, or at --node, without asking.",
)
@frames_option
@home_option
@click.pass_context
def command(
    context: click.Context,
    text: str,
    corpus: str | None,
    tools: tuple[str, ...],
    node: str | None,
    model: str | None,
    yes_to: tuple[str, ...],
    frames: bool,
    home: Home,
) -> int:
    """Ask a language model, and let it call tools.

    Shows each tool call, the answer as it comes, and its sources. Each call with a side effect is shown
    first, with all it would send, to be approved, edited or refused. Without a terminal to ask at, nothing is
    sent, and the exit code is 7. Ctrl-C stops the model.
    """
    if not text.strip():
        raise click.UsageError("there is no question; write one in quotes", context)
    if any("\ud800" <= character <= "\udfff" for character in text):  # bytes that Python could not decode
        raise click.UsageError("the question is no UTF-8 text; write it again", context)
    from hearthnet.cli.workflows.ask_flow import Question, ask

    chosen = "" if node is None else resolve_member(node, members(roster_of(home))).node_id
    question = Question(text=text, corpus=corpus, tools=tools, model=model, yes_to=yes_to, node=chosen)
    return asyncio.run(ask(home, question, settings_of(context)))
