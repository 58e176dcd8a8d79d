"""`hearthnet ingest`: documents into a corpus."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from hearthnet.cli import terminal
from hearthnet.cli.options import home_option, json_option
from hearthnet.cli.text import counted, one_line
from hearthnet.errors import OK, OTHER, HearthNetError

if TYPE_CHECKING:
    from hearthnet.bus import Bus, OfferView
    from hearthnet.bus.store import Store
    from hearthnet.cli.text_files import TextFile
    from hearthnet.home import Home

_CORPUS: Final = re.compile(r"[a-z0-9-]{1,64}")
_READ_ONLY: Final = "system"
_PATH_LIMIT: Final = 1000
_MOST_SKIPPED: Final = 5
Done = Callable[[str], None]
"""Takes the line about one file."""


@click.command("ingest")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path))
@click.option(
    "--corpus",
    required=True,
    metavar="NAME",
    help="The collection to add to: a-z, 0-9 and -. It is made when it is new.",
)
@home_option
@json_option
def command(paths: tuple[Path, ...], corpus: str, home: Home, json: bool) -> int:
    """Add Markdown and text files to a corpus, so that questions can be answered from them.

    In folders, *.md, *.markdown and *.txt are taken. A file that is already there, unchanged, is not added
    twice. One that fails does not stop the others: they are listed at the end, and the exit code is 1.
    """
    import asyncio

    from hearthnet.cli.text_files import find

    check_corpus(corpus)
    found = find(list(paths))
    if not found.texts:
        raise HearthNetError("not_found", "there is nothing to ingest: no *.md, *.markdown or *.txt file")
    summary: dict[str, Any] = {"corpus": corpus, "ingested": [], "skipped": found.skipped, "failed": []}
    with _progress(len(found.texts), json) as done:
        asyncio.run(_ingest(home, corpus, found.texts, summary, done))
    if json:
        terminal.json_page(summary)
    else:
        _show(summary)
    return OTHER if summary["failed"] else OK


def check_corpus(name: str) -> None:
    """Raises in one line what is wrong with `name` as the name of a corpus that one may add to."""
    if name == _READ_ONLY:
        raise HearthNetError(
            "unauthorized", "the corpus system comes with HearthNet and is read-only; choose another name"
        )
    if not _CORPUS.fullmatch(name):
        raise HearthNetError(
            "bad_request", f"{one_line(name[:80])!r} is no name for a corpus; write 1 to 64 of a-z, 0-9 and -"
        )


async def _ingest(
    home: Home, corpus: str, texts: list[TextFile], summary: dict[str, Any], done: Done
) -> None:
    async with _connected(home) as (bus, store):
        most = largest(await bus.offers("rag.ingest"))
        for file in texts:
            try:
                added = await _add(bus, store, corpus, file, most)
            except HearthNetError as error:
                if error.code == "partition":
                    raise
                summary["failed"].append({"path": str(file.path), **error.to_body()})
                done(f"failed    {one_line(file.name)}")
            else:
                summary["ingested"].append({"path": str(file.path), **added})
                done(f"ingested  {one_line(file.name)}: {counted(added['chunks_indexed'], 'passage')}")


def largest(offers: Sequence[OfferView]) -> int | None:
    """Bytes of the largest document that somebody takes; None where one of them does not say."""
    said = [view.params.get("max_document_bytes") for view in offers]
    known = [most for most in said if isinstance(most, int)]
    return max(known) if known and len(known) == len(said) else None


async def _add(bus: Bus, store: Store, corpus: str, file: TextFile, most: int | None) -> dict[str, Any]:
    cid = await store.put_blob(file.read(most))
    input_ = {"doc_cid": cid, "media_type": file.media_type, "metadata": {"path": file.name[-_PATH_LIMIT:]}}
    reply = await bus.call("rag.ingest@1.0", {"params": {"corpus": corpus}, "input": input_})
    return dict(reply.output)


@contextlib.asynccontextmanager
async def _connected(home: Home) -> AsyncIterator[tuple[Bus, Store]]:
    from hearthnet.bus import Bus
    from hearthnet.bus.store import Store

    async with await Bus.connect(home, name="cli") as bus, await Store.connect(home, name="cli") as store:
        yield bus, store


@contextlib.contextmanager
def _progress(total: int, quiet: bool) -> Iterator[Done]:
    """A bar where a person looks, lines elsewhere, nothing with --json."""
    if quiet:
        yield lambda text: None
    elif not terminal.is_tty(sys.stdout):
        yield terminal.line
    else:
        from rich.progress import Progress

        with Progress() as bar:
            task = bar.add_task("ingesting", total=total)
            yield lambda text: bar.advance(task)


def _show(summary: dict[str, Any]) -> None:
    passages = sum(one["chunks_indexed"] for one in summary["ingested"])
    files, found = counted(len(summary["ingested"]), "file"), counted(passages, "passage")
    terminal.line(f"{files}, {found} in the corpus {summary['corpus']}")
    if skipped := summary["skipped"]:
        names = ", ".join(one_line(Path(path).name) for path in skipped[:_MOST_SKIPPED])
        more = ", ..." if len(skipped) > _MOST_SKIPPED else ""
        terminal.aside(f"skipped {len(skipped)} that are not *.md, *.markdown or *.txt: {names}{more}")
    for failure in summary["failed"]:
        terminal.complain(one_line(failure["message"]))
