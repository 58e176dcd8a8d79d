"""`hearthnet corpus`: list, show, share and remove corpora and documents (docs/rag.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from hearthnet.cli.commands.ingest import check_corpus, share, shared_corpora, without_text
from hearthnet.cli.input.local_call import on_bus
from hearthnet.cli.input.options import Commands, common_options
from hearthnet.cli.input.yes_no import confirm
from hearthnet.cli.output import terminal
from hearthnet.cli.output.text import counted, one_line, size
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home

if TYPE_CHECKING:
    from hearthnet.bus.bus import Bus

_LEAST_PREFIX: Final = 4
_MOST: Final = 1000
_CID_LENGTH: Final = 23


@click.group("corpus", cls=Commands)
def command() -> None:
    """Collections of documents: list them, show what one holds, share one, remove documents.

    A corpus is private to this home until you share it with every member of the community.
    """


@command.command("list")
@common_options
def list_corpora(home: Home, json: bool) -> None:
    """List the corpora of this node."""
    corpora = on_bus(home, _corpora)
    rows = [
        (
            one["name"],
            str(one["docs"]),
            str(one["chunks"]),
            size(one["size_bytes"]),
            one["language_majority"] or "-",
            "every member" if one["shared"] else "this home",
        )
        for one in corpora
    ]
    headings = ("corpus", "documents", "passages", "text", "language", "searched by")
    terminal.result(json, corpora, lambda: terminal.table(headings, rows))


@command.command("show")
@click.argument("name")
@common_options
def show(name: str, home: Home, json: bool) -> None:
    """List the documents of a corpus, up to 1000, by title."""
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
@common_options
def share_corpus(name: str, home: Home, json: bool) -> None:
    """Let every member of the community search a corpus and list its documents.

    The files stay private: what is shown are passages and titles. See: hearthnet corpus unshare
    """
    _share(name, home, json, shared=True)


@command.command("unshare")
@click.argument("name")
@common_options
def unshare_corpus(name: str, home: Home, json: bool) -> None:
    """Keep a corpus to this home. What others have read of it stays read."""
    _share(name, home, json, shared=False)


def _share(name: str, home: Home, json: bool, *, shared: bool) -> None:
    check_corpus(name)
    output = on_bus(home, lambda bus: share(bus, name, shared=shared))
    who = "every member of the community" if shared else "this home alone"
    terminal.result(json, output, f"{name} can be searched by {who}")


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
    return [{**one, "shared": one["name"] in shared} for one in listed]


async def _documents(bus: Bus, name: str, node: str = "") -> dict[str, Any]:
    body = {"params": {"corpus": name}, "input": {"limit": _MOST}}
    node = node or bus.peer.node_id
    return dict((await bus.call("rag.list_documents@1.0", body, node=node)).output)
