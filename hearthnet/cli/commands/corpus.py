"""`hearthnet corpus`: list, show, share, copy and remove corpora and documents (docs/rag.md)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import click

from hearthnet.bus.routing.named_homes import AT, home_called, with_home
from hearthnet.cli.commands.ingest import check_corpus, share, shared_corpora, without_text
from hearthnet.cli.input.local_call import on_bus
from hearthnet.cli.input.options import Commands, common_options
from hearthnet.cli.input.yes_no import confirm
from hearthnet.cli.output import terminal
from hearthnet.cli.output.text import counted, one_line, size
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.ids import short_id

if TYPE_CHECKING:
    from hearthnet.bus.bus import Bus

_LEAST_PREFIX: Final = 4
_MOST: Final = 1000
_CID_LENGTH: Final = 23
_LIST_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.3


@click.group("corpus", cls=Commands)
def command() -> None:
    """Collections of documents: list them, show what one holds, share or copy one, remove documents.

    A corpus is private to this home until you share it with every member of the community.
    """


@command.command("list")
@click.option("--everywhere", is_flag=True, help="Those of other homes, too, each as NAME@HOME.")
@common_options
def list_corpora(everywhere: bool, home: Home, json: bool) -> None:
    """List the corpora of this node, and its copies of those of other homes, each as NAME@HOME."""
    corpora = on_bus(home, _everywhere if everywhere else _corpora)
    rows = [
        (
            one_line(one["name"]),
            str(one["docs"]),
            "-" if one["chunks"] is None else str(one["chunks"]),
            size(one["size_bytes"]),
            one["language_majority"] or "-",
            one_line(_searched_by(one)),
        )
        for one in corpora
    ]
    headings = ("corpus", "documents", "passages", "text", "language", "searched by")
    terminal.result(json, corpora, lambda: terminal.table(headings, rows))


@command.command("show")
@click.argument("name")
@common_options
def show(name: str, home: Home, json: bool) -> None:
    """List the documents of a corpus, up to 1000, by title; NAME@HOME is that of another home."""
    listed = on_bus(home, lambda bus: _documents(bus, name))
    if json:
        terminal.json_page(listed)
        return
    rows = [
        (
            one["doc_cid"][:_CID_LENGTH],
            one_line(one["title"])[:60],
            one["language"] or "-",
            str(one["chunks"]),
        )
        for one in listed["documents"]
    ]
    terminal.table(("hash", "title", "language", "passages"), rows)
    for one in listed["documents"]:
        if lacking := without_text(one):
            terminal.info(f"{one_line(one['title'])[:60]}: {lacking}")
    if listed["truncated"]:
        terminal.info(f"there are more than {_MOST}")


@command.command("share")
@click.argument("name")
@click.option("--copies", is_flag=True, help="Homes of members may keep a copy, with the files.")
@common_options
def share_corpus(name: str, copies: bool, home: Home, json: bool) -> None:
    """Let every member of the community search a corpus and list its documents.

    The files stay private, except with --copies; passages and titles are shown. Without --copies,
    copies that were allowed end. See: hearthnet corpus unshare, hearthnet corpus mirror
    """
    _share(name, home, json, shared=True, copies=copies)


@command.command("unshare")
@click.argument("name")
@common_options
def unshare_corpus(name: str, home: Home, json: bool) -> None:
    """Keep a corpus to this home, and end its copies. What others have read of it stays read."""
    _share(name, home, json, shared=False, copies=False)


def _share(name: str, home: Home, json: bool, *, shared: bool, copies: bool) -> None:
    check_corpus(name)
    output = on_bus(home, lambda bus: share(bus, name, shared=shared, copies=copies))
    who = "every member of the community" if shared else "this home alone"
    kept = "; homes of members may keep a copy, with its files" if copies else ""
    terminal.result(json, output, f"{name} can be searched by {who}{kept}")


@command.command("mirror")
@click.argument("name", metavar="NAME@HOME")
@click.option("--end", "ends", is_flag=True, help="Delete the copy that is here.")
@common_options
def mirror(name: str, ends: bool, home: Home, json: bool) -> None:
    """Keep a copy of another home's corpus here, which answers while that home is away.

    That home has to share it with copies, and ends the copy by no longer doing so. The copy is kept up to
    date. An interrupted command leaves it on its way. See: hearthnet corpus list
    """
    corpus, _, other = name.partition(AT)
    check_corpus(corpus)
    if not other:
        raise click.UsageError("name the home as well, as in manuals@Kitchen; see: hearthnet members")
    output = on_bus(home, lambda bus: _mirrored(bus, corpus, other, ends=ends))
    terminal.result(json, output, lambda: terminal.line(f"{one_line(name)}: {_copy_line(output)}"))


@command.command("remove")
@click.argument("name")
@click.argument("documents", nargs=-1, metavar="DOCUMENT...")
@click.option("--all", "everything", is_flag=True, help="Every document of the corpus, and so the corpus.")
@click.option("--yes", "confirmed", is_flag=True, help="Do not ask; for --all.")
@common_options
def remove(
    name: str, documents: tuple[str, ...], everything: bool, confirmed: bool, home: Home, json: bool
) -> None:
    """Remove documents from a corpus; they are no longer found. --all asks first.

    DOCUMENT is the beginning of a hash as `corpus show` lists them, or a whole title. The file itself stays
    in the store until it is removed there. See: hearthnet file remove --all
    """
    check_corpus(name)
    if everything == bool(documents):
        raise click.UsageError("name the documents, or give --all")

    if everything:
        there = on_bus(home, lambda bus: _documents(bus, name, bus.peer.node_id))
        count = f"more than {_MOST} documents" if there["truncated"] else None
        count = count or counted(len(there["documents"]), "document")
        confirm(f"Remove the corpus {name} with {count}?", confirmed=confirmed, option="--yes")

    async def removed(bus: Bus) -> list[dict[str, Any]]:
        outputs: list[dict[str, Any]] = []
        while True:
            listed = await _documents(bus, name, bus.peer.node_id)
            targets = listed["documents"] if everything else [_meant(listed, text) for text in documents]
            for one in targets:
                body = {"params": {"corpus": name}, "input": {"doc_cid": one["doc_cid"]}}
                output = (await bus.call("rag.remove@1.0", body)).output
                outputs.append({**output, "title": one["title"]})
            if not (everything and listed["truncated"]):
                return outputs

    outputs = on_bus(home, removed)
    if json:
        terminal.json_page({"corpus": name, "removed": outputs})
        return
    for one in outputs:
        terminal.line(f"removed  {one_line(one['title'])}: {counted(one['chunks_removed'], 'passage')}")


def _meant(listed: dict[str, Any], text: str) -> dict[str, Any]:
    """Return the one document that `text` names."""
    documents: list[dict[str, Any]] = listed["documents"]
    found = [one for one in documents if one["title"] == text]
    bare = text.removeprefix("blake3:").rstrip("…")
    if not found and len(bare) >= _LEAST_PREFIX:
        found = [one for one in documents if one["doc_cid"].removeprefix("blake3:").startswith(bare)]
    if len(found) == 1:
        return found[0]
    shown = one_line(text[:80])
    if found:
        cids = [one["doc_cid"][:_CID_LENGTH] for one in found[:4]]
        raise HearthNetError("bad_request", f"{shown!r} stands for {len(found)} documents: {', '.join(cids)}")
    raise HearthNetError("not_found", f"there is no document {shown!r}; see: hearthnet corpus show")


async def _corpora(bus: Bus) -> list[dict[str, Any]]:
    body: dict[str, Any] = {"params": {}, "input": {}}
    listed = (await bus.call("rag.list_corpora@1.0", body, node=bus.peer.node_id)).output["corpora"]
    shared = await shared_corpora(bus)
    own = [{**one, "shared": one["name"] in shared} for one in listed if "copy_of" not in one]
    return [*own, *await _copies_here(bus)]


async def _everywhere(bus: Bus) -> list[dict[str, Any]]:
    """Return the corpora of every home that answers, this one first."""
    from hearthnet.agent.tools.everybody import LIST, merged

    body: dict[str, Any] = {"params": {}, "input": {}}
    listed = merged(LIST, body, await bus.gather(LIST, body, timeout_seconds=_LIST_SECONDS), bus.peer)
    shared = await shared_corpora(bus)
    for line in listed.get("missing", ()):
        terminal.info(one_line(line))
    return [{**one, "shared": AT in one["name"] or one["name"] in shared} for one in listed["corpora"]]


async def _documents(bus: Bus, name: str, node: str = "") -> dict[str, Any]:
    body = {"params": {"corpus": name}, "input": {"limit": _MOST}}
    if AT not in name:
        node = node or bus.peer.node_id
    return dict((await bus.call("rag.list_documents@1.0", body, node=node)).output)


async def _mirrored(bus: Bus, corpus: str, home: str, *, ends: bool) -> dict[str, Any]:
    """Begin the copy of a corpus of the home that is called so, or end it; return its last row.

    Waits until the copy is up to date, or a problem keeps it from that; an ended one until it is gone.

    Raises:
        HearthNetError: As `home_called`; any error of the call.
    """
    node = home_called(bus.peer.roster, home)
    body = {"params": {"corpus": corpus}, "input": {"home": node, "end": ends}}
    row = dict((await bus.call("rag.mirror@1.0", body)).output)
    shown = ""
    while True:
        found = [one for one in await _copies(bus) if (one["corpus"], one["home"]) == (corpus, node)]
        row = found[0] if found else {**row, "state": "ended"}
        if not found or "problem" in row or (row["state"] == "whole" and not ends):
            return row
        if (line := _copy_line(row)) != shown:
            terminal.info(line)
            shown = line
        await asyncio.sleep(_PAUSE_SECONDS)


async def _copies_here(bus: Bus) -> list[dict[str, Any]]:
    """Return the copies of this home as rows of a list of corpora; `copy` is the row of the copy itself."""
    roster = bus.peer.roster
    return [
        {
            "name": with_home(one["corpus"], one["home"], roster),
            "docs": one["documents"],
            "chunks": None,
            "size_bytes": one["size_bytes"],
            "language_majority": None,
            "shared": True,
            "copy": one,
        }
        for one in await _copies(bus)
    ]


def _searched_by(row: dict[str, Any]) -> str:
    """Return the readers of a listed corpus, or the state of a copy, in words."""
    if "copy" in row:
        return f"copy: {_copy_line(row['copy'])}"
    if "copy_of" in row:
        return f"every member; copy of {short_id(row['copy_of'])} of {row['as_of']}"
    return "every member" if row["shared"] else "this home"


def _copy_line(copy: dict[str, Any]) -> str:
    """Return the state of a copy in words."""
    if copy["state"] in ("ending", "ended"):
        return str(copy["state"])
    fetching = f"{copy['documents_fetched']} of {counted(copy['documents_wanted'], 'document')}"
    parts: list[str] = [
        f"version {copy['version']} of {copy['as_of']}" if copy["version"] else f"fetching, {fetching}"
    ]
    if copy["version"] and copy["documents_fetched"] != copy["documents_wanted"]:
        parts.append(f"a newer one is fetched, {fetching}")
    if copy["version"]:
        parts.append(f"{counted(copy['documents'], 'document')}, {size(copy['size_bytes'])}")
    if copy["unreadable"]:
        parts.append(f"{counted(copy['unreadable'], 'document')} cannot be read here")
    if copy["answers"]:
        parts.append("answers in place of its home")
    return "; ".join([*parts, *([copy["problem"]] if "problem" in copy else [])])


async def _copies(bus: Bus) -> list[dict[str, Any]]:
    body: dict[str, Any] = {"params": {}, "input": {}}
    reply = await bus.call("rag.list_mirrors@1.0", body, node=bus.peer.node_id)
    return list(reply.output["copies"])
