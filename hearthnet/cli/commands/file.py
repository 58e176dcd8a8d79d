"""`hearthnet file`: put, read, list, remove and verify content by its hash (docs/file.md)."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hearthnet.cli.input.local_call import on_bus
from hearthnet.cli.input.options import Commands, common_options
from hearthnet.cli.output import terminal
from hearthnet.cli.output.text import counted, one_line, size
from hearthnet.core import ids
from hearthnet.core.errors import OK, OTHER
from hearthnet.core.home import Home

if TYPE_CHECKING:
    from hearthnet.bus.blob_transfer import TransferResult
    from hearthnet.bus.bus import Bus

_node_option = click.option("--node", metavar="ID", help="Full id of the node to ask. See: hearthnet members")


@click.group("file", cls=Commands)
def command() -> None:
    """Content of any size by its hash: put it on a node, read it anywhere."""


@command.command("put")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path))
@click.option("--name", help="What it is called in lists; for one file. Default: the file's name.")
@click.option("--share", is_flag=True, help="Let every member read it. Default: you alone.")
@click.option(
    "--keep",
    type=click.IntRange(1, 365),
    metavar="DAYS",
    help="How long to keep it. Default: until you remove it.",
)
@_node_option
@common_options
def put(
    paths: tuple[Path, ...],
    name: str | None,
    share: bool,
    keep: int | None,
    node: str | None,
    home: Home,
    json: bool,
) -> None:
    """Put files on this node, or on another, and print their content hashes.

    PATH may be - for stdin. Putting an interrupted file again continues where it stopped; content that is
    there already is not sent.
    """
    from hearthnet.bus.blob_transfer import Options
    from hearthnet.cli.workflows.file_transfer import check_name, file_name

    if name is not None and len(paths) != 1:
        raise click.UsageError("--name is for one file")
    names = [check_name(file_name(path) if name is None else name) for path in paths]
    seconds = None if keep is None else keep * 86_400

    async def all_of_them(bus: Bus) -> None:
        for path, called in zip(paths, names, strict=True):
            done = await _put(bus, path, Options(called, share, seconds, node or bus.peer.node_id), json)
            _show_put(done, called, json)

    on_bus(home, all_of_them)


@command.command("get")
@click.argument("cid")
@click.argument("target", required=False, type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite the file that is there.")
@_node_option
@common_options
def get(cid: str, target: Path | None, force: bool, node: str | None, home: Home, json: bool) -> None:
    """Read content by its hash, or the unique beginning of one, into a file.

    TARGET is a file or a folder, or - for stdout; without it the content goes into this folder, under the
    name it was put by. All nodes are searched, this one first. An interrupted transfer continues where it
    stopped.
    """
    from hearthnet.cli.workflows.file_transfer import locate, place_for

    async def fetched(bus: Bus) -> None:
        found = await locate(bus, cid, node)
        path = place_for(target, found.name, found.cid, force)
        done = await _get(bus, found.cid, found.nodes, path, json)
        if path is None:
            return
        terminal.result(json, {**_done(done), "path": str(path)}, _transfer_text(str(path), done, "read"))

    on_bus(home, fetched)


@command.command("list")
@click.argument("prefix", default="")
@_node_option
@common_options
def list_blobs(prefix: str, node: str | None, home: Home, json: bool) -> None:
    """List the content that the nodes keep and you may read.

    PREFIX is the beginning of a hash.
    """
    from hearthnet.cli.workflows.file_transfer import full_prefix, list_files

    async def print_files(bus: Bus) -> None:
        blobs, silent = await list_files(bus, full_prefix(prefix), node)
        for silent_node, why in silent:
            terminal.info(f"{ids.short_id(silent_node)} does not say what it keeps: {one_line(why)}")
        rows = [
            (
                blob["cid"][:23],
                size(blob["size_bytes"]),
                one_line(blob["name"]) or "-",
                "shared" if blob["shared"] else "yours" if blob["mine"] else "home",
                blob["until"] or "-",
                ids.short_id(blob["node"]),
            )
            for blob in blobs
        ]
        empty = "nothing is kept; put something with: hearthnet file put FILE"
        terminal.listing(json, blobs, ("hash", "size", "name", "whose", "until", "node"), rows, empty)

    on_bus(home, print_files)


@command.command("remove")
@click.argument("cid")
@click.option("--all", "everybody", is_flag=True, help="Also where others hold it; on this node only.")
@_node_option
@common_options
def remove(cid: str, everybody: bool, node: str | None, home: Home, json: bool) -> None:
    """Give up content by its hash, or the unique beginning of one.

    Content that no one holds any more is deleted.
    """
    from hearthnet.cli.workflows.file_transfer import locate

    async def removed(bus: Bus) -> None:
        at = node or bus.peer.node_id
        found = await locate(bus, cid, at)
        body = {"params": {}, "input": {"cid": found.cid, "all": everybody}}
        output = (await bus.call("file.remove@1.0", body, node=at)).output
        if json:
            terminal.json_page(output)
        elif output["deleted"]:
            terminal.line(f"deleted: {found.cid}")
        else:
            terminal.line(f"no longer yours; others hold it still: {found.cid}")

    on_bus(home, removed)


@command.command("verify")
@click.argument("cids", nargs=-1, metavar="CID...")
@common_options
def verify(cids: tuple[str, ...], home: Home, json: bool) -> int:
    """Read the content that this node keeps, and report what the disk has damaged.

    CID is the hash of the content to read. Default: all of it. The exit code is 1 if something is damaged.
    Putting the same file again repairs it.
    """
    from hearthnet.cli.workflows import file_verify

    found = asyncio.run(file_verify.verified(home, cids, quiet=json))
    terminal.result(json, found.as_json(), lambda: file_verify.show(found))
    return OTHER if found.damaged else OK


async def _put(bus: Bus, path: Path, options: Any, json: bool) -> TransferResult:
    from hearthnet.bus import blob_transfer
    from hearthnet.cli.workflows.file_transfer import opened, progress

    async with opened(path) as source:
        with progress("putting", options.name, source.manifest.size, quiet=json) as on_progress:
            return await blob_transfer.put(bus, source, options, on_progress)


async def _get(bus: Bus, cid: str, nodes: list[str], path: Path | None, json: bool) -> TransferResult:
    from hearthnet.bus import blob_transfer
    from hearthnet.cli.workflows.file_transfer import Pipe, progress, target_file

    with progress("reading", cid[:23], None, quiet=json or path is None) as on_progress:
        if path is None:
            return await blob_transfer.fetch(bus, cid, nodes, Pipe(sys.stdout.buffer), on_progress)
        async with target_file(path, cid) as target:
            done = await blob_transfer.fetch(bus, cid, nodes, target, on_progress)
            await target.finish()
            return done


def _show_put(done: TransferResult, name: str, json: bool) -> None:
    if json:
        terminal.json_line({**_done(done), "name": name})
    else:
        terminal.info(_transfer_text(name or "stdin", done, "sent"))
        terminal.line(done.cid)


def _done(done: TransferResult) -> dict[str, Any]:
    return {"cid": done.cid, "size_bytes": done.size, "node": done.node, "chunks_moved": done.chunks}


def _transfer_text(what: str, done: TransferResult, verb: str) -> str:
    return f"{one_line(what)}: {size(done.size)}, {counted(done.chunks, 'chunk')} {verb}"
