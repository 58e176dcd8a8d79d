"""`hearthnet ingest`: adds documents to a corpus."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from hearthnet.cli.input.local_call import on_bus
from hearthnet.cli.input.options import common_options
from hearthnet.cli.input.yes_no import is_agreed
from hearthnet.cli.output import terminal
from hearthnet.cli.output.text import counted, one_line
from hearthnet.core.errors import FULL, OK, OTHER, HearthNetError
from hearthnet.core.home import Home

if TYPE_CHECKING:
    from hearthnet.bus.bus import Bus
    from hearthnet.bus.routing.offer_registry import OfferView
    from hearthnet.bus.store import HomeStore
    from hearthnet.cli.input.text_files import TextFile

_CORPUS: Final = re.compile(r"[a-z0-9-]{1,64}")
_READ_ONLY: Final = "system"
_NEVER_SHARED: Final = "personal"
_PATH_LIMIT: Final = 1000
_MOST_SKIPPED: Final = 5
_MOST_RANGES: Final = 8
_AT_ONCE: Final = 8
"""The number of files in progress at once; each waits for the disk several times."""
_FULL: Final = "capacity_exceeded"
_PATIENCE_SECONDS: Final = 600.0
"""The time that a file waits for a place that others occupy, such as a second `hearthnet ingest`."""
_LEAST_WAIT_SECONDS: Final = 0.1
_FOLLOW_AFTER_SECONDS: Final = 0.5
"""The time after which the progress of an ingestion is shown."""


class ProgressDisplay(NamedTuple):
    """The display of progress: `done` takes a line about one file, `stage` its progress."""

    done: Callable[[str], None]
    stage: Callable[[str], None] | None = None


@click.command("ingest")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path))
@click.option(
    "--corpus",
    required=True,
    metavar="NAME",
    help="The collection to add to: a-z, 0-9 and -. It is made when it is new.",
)
@click.option(
    "--update",
    is_flag=True,
    help="Let each file take the place of what came under the same name before.",
)
@click.option(
    "--share/--private",
    "shared",
    default=None,
    help="Let every member of the community search the corpus, or this home alone. A new corpus is private; "
    "on a terminal you are asked.",
)
@common_options
def command(
    paths: tuple[Path, ...], corpus: str, update: bool, shared: bool | None, home: Home, json: bool
) -> int:
    """Add documents to a corpus, so that questions can be answered from them.

    Who can read them: this home, unless the corpus is shared, on purpose, with every member of the community.
    Another corpus takes what is not for them. See: hearthnet corpus share --help

    PDF, HTML, Markdown, text, DOCX and EPUB can be read. In folders, files with one of their endings are
    taken. A file that is already there, unchanged, is not added twice. A file that fails does not stop the
    others: failures are listed at the end, and the exit code is 1. A full disk stops all, with exit code 8.
    """
    from hearthnet.cli.input.text_files import PATTERNS, find

    check_corpus(corpus)
    if corpus == _NEVER_SHARED:
        if shared:
            raise HearthNetError("unauthorized", "the corpus personal is never shared; choose another name")
        shared = False
    found = find(list(paths))
    if not found.texts:
        raise HearthNetError("not_found", f"there is nothing to ingest: none of {PATTERNS}")
    summary: dict[str, Any] = {"corpus": corpus, "ingested": [], "skipped": found.skipped, "failed": []}
    is_new = not json and _is_new(home, corpus)
    if shared is None and is_new:
        shared = is_agreed(f"Let every member of the community search the corpus {corpus}?")
    with _progress(len(found.texts), json) as display:
        asyncio.run(_ingest(home, _Order(corpus, update, shared), found.texts, summary, display))
    terminal.result(json, summary, lambda: _show(summary, is_new=is_new))
    if any(map(is_full, summary["failed"])):
        return FULL
    return OTHER if summary["failed"] else OK


def check_corpus(name: str) -> None:
    """Check that `name` is the name of a corpus to which documents can be added."""
    if name == _READ_ONLY:
        raise HearthNetError(
            "unauthorized", "the corpus system comes with HearthNet and is read-only; choose another name"
        )
    check_name(name)


def check_name(name: str) -> None:
    """Check that `name` can be the name of a corpus."""
    if not _CORPUS.fullmatch(name):
        raise HearthNetError(
            "bad_request", f"{one_line(name[:80])!r} is no name for a corpus; write 1 to 64 of a-z, 0-9 and -"
        )


def _is_new(home: Home, corpus: str) -> bool:
    async def listed(bus: Bus) -> list[dict[str, Any]]:
        body: dict[str, Any] = {"params": {}, "input": {}}
        reply = await bus.call("rag.list_corpora@1.0", body, node=bus.peer.node_id)
        return list(reply.output["corpora"])

    return corpus not in {one["name"] for one in on_bus(home, listed)}


class _Order(NamedTuple):
    """The corpus for the files, whether to replace earlier versions, and the answer about sharing, if any."""

    corpus: str
    update: bool
    shared: bool | None = None


async def _ingest(
    home: Home, order: _Order, texts: list[TextFile], summary: dict[str, Any], display: ProgressDisplay
) -> None:
    from hearthnet.bus.bus import Bus
    from hearthnet.bus.store import HomeStore

    async with await Bus.connect(home, name="cli") as bus, await HomeStore.connect(home, name="cli") as store:
        offers = await bus.offers("rag.ingest")
        most = largest([view for view in offers if view.node == bus.peer.node_id])
        outcomes: dict[int, dict[str, Any] | HearthNetError] = {}
        waiting = iter(enumerate(texts))

        async def take() -> None:
            for number, file in waiting:
                outcomes[number] = outcome = await _outcome(bus, store, order, file, most, display)
                if isinstance(outcome, HearthNetError) and is_full(outcome.to_body()):
                    return  # no other file would fare better

        async with asyncio.TaskGroup() as tasks:
            for _ in range(_AT_ONCE):
                tasks.create_task(take())
        if order.shared is not None and any(isinstance(one, dict) for one in outcomes.values()):
            await share(bus, order.corpus, shared=order.shared)
            summary["shared"] = order.shared
        else:
            summary["shared"] = order.corpus in await shared_corpora(bus)
    summary["not_tried"] = [str(file.path) for number, file in enumerate(texts) if number not in outcomes]
    for number, outcome in sorted(outcomes.items()):
        file = texts[number]
        if isinstance(outcome, HearthNetError):
            summary["failed"].append({"path": str(file.path), **outcome.to_body()})
        else:
            summary["ingested"].append({"path": str(file.path), **outcome})


async def share(bus: Bus, corpus: str, *, shared: bool, copies: bool | None = None) -> dict[str, Any]:
    """Share a corpus of this node with the community, or keep it to this home.

    `copies` is whether homes of members may keep a copy; None leaves that as it is.
    """
    given = {"shared": shared} if copies is None else {"shared": shared, "copies": copies}
    body = {"params": {"corpus": corpus}, "input": given}
    return dict((await bus.call("rag.share@1.0", body, node=bus.peer.node_id)).output)


async def shared_corpora(bus: Bus) -> set[str]:
    """Return the names of this node's corpora that every member may search."""
    from hearthnet.trust.authorization.authority import HOME

    offers = await bus.offers("rag.query")
    mine = [view for view in offers if view.node == bus.peer.node_id]
    return {str(view.params["corpus"]) for view in mine if view.offer.trust != HOME}


def is_full(failure: dict[str, Any]) -> bool:
    """Return whether the error means a full disk; for occupied places it has a retry time."""
    return failure["error"] == _FULL and "retry_after_ms" not in failure


async def _outcome(
    bus: Bus, store: HomeStore, order: _Order, file: TextFile, most: int | None, display: ProgressDisplay
) -> dict[str, Any] | HearthNetError:
    """Return the result or error of one file.

    Raises:
        HearthNetError: `partition`, because no other file can be added then either.
    """
    try:
        cid = await store.put_blob(await asyncio.to_thread(file.read, most))
        added = await patiently(lambda: _add(bus, order, file, cid, display), _PATIENCE_SECONDS)
    except HearthNetError as error:
        if error.code == "partition":
            raise
        display.done(f"failed    {one_line(file.name)}")
        return error
    display.done(f"{_verb(added):9} {one_line(file.name)}: {_counts([added])}")
    return added


async def patiently(add: Callable[[], Awaitable[dict[str, Any]]], seconds: float) -> dict[str, Any]:
    """Return the result of `add`, repeated for `seconds` while others occupy all places."""
    end = time.monotonic() + seconds
    while True:
        try:
            return await add()
        except HearthNetError as error:
            wait = (error.retry_after_ms or 0) / 1000
            is_occupied = error.code == _FULL and error.retry_after_ms is not None
            if not is_occupied or time.monotonic() + wait > end:
                raise
        await asyncio.sleep(max(wait, _LEAST_WAIT_SECONDS))


def largest(offers: Sequence[OfferView]) -> int | None:
    """Return the largest accepted document in bytes; None if a provider does not announce it."""
    limits = [view.params.get("max_document_bytes") for view in offers]
    known = [most for most in limits if isinstance(most, int)]
    return max(known) if known and len(known) == len(limits) else None


async def _add(bus: Bus, order: _Order, file: TextFile, cid: str, display: ProgressDisplay) -> dict[str, Any]:
    input_ = {
        "doc_cid": cid,
        "media_type": file.media_type,
        "metadata": {"path": file.name[-_PATH_LIMIT:]},
        "update": order.update,
    }
    params = {"corpus": order.corpus}
    adding = asyncio.create_task(bus.call("rag.ingest@1.0", {"params": params, "input": input_}))
    try:
        if display.stage is not None:
            await asyncio.wait({adding}, timeout=_FOLLOW_AFTER_SECONDS)
            if not adding.done():
                await _follow(bus, {"params": params, "input": {"doc_cid": cid}}, display.stage)
        return dict((await adding).output)
    finally:
        adding.cancel()


async def _follow(bus: Bus, body: dict[str, Any], stage: Callable[[str], None]) -> None:
    """Show the progress of an ingestion until it ends, if its provider can report it."""
    with contextlib.suppress(HearthNetError):
        async with bus.stream("rag.progress@1.0", body, node=bus.peer.node_id) as stream:
            async for frame in stream:
                if frame.event == "progress":
                    how = frame.data
                    stage(one_line(f"{how['stage']} {how['current']}/{how['total']}"))


def _verb(added: dict[str, Any]) -> str:
    """Return the word for the outcome; an unchanged document is returned without its title."""
    if "title" not in added:
        return "unchanged"
    return "replaced" if added.get("replaced") else "ingested"


def _counts(added: list[dict[str, Any]]) -> str:
    pages = sum(one.get("pages") or 0 for one in added)
    passages = counted(sum(one["chunks_indexed"] for one in added), "passage")
    return f"{counted(pages, 'page')}, {passages}" if pages else passages


@contextlib.contextmanager
def _progress(total: int, quiet: bool) -> Iterator[ProgressDisplay]:
    """Show a bar on a terminal, lines elsewhere, nothing with --json."""
    if quiet:
        yield ProgressDisplay(lambda text: None)
    elif not terminal.is_tty(sys.stdout):
        yield ProgressDisplay(terminal.line)
    else:
        from rich.progress import Progress

        with Progress() as bar:
            task = bar.add_task("ingesting", total=total)
            yield ProgressDisplay(
                lambda text: bar.update(task, advance=1, description="ingesting"),
                lambda text: bar.update(task, description=text),
            )


def _show(summary: dict[str, Any], *, is_new: bool) -> None:
    files = counted(len(summary["ingested"]), "file")
    corpus = summary["corpus"]
    terminal.line(f"{files}, {_counts(summary['ingested'])} in the corpus {corpus}")
    if summary["shared"]:
        terminal.info(f"every member may search it; for this home alone: hearthnet corpus unshare {corpus}")
    elif is_new:
        terminal.info(f"this home alone may search it; for every member: hearthnet corpus share {corpus}")
    if skipped := summary["skipped"]:
        names = ", ".join(one_line(Path(path).name) for path in skipped[:_MOST_SKIPPED])
        more = ", ..." if len(skipped) > _MOST_SKIPPED else ""
        terminal.info(f"skipped {len(skipped)} that are no documents by their names: {names}{more}")
    for one in summary["ingested"]:
        if lacking := without_text(one):
            terminal.info(f"{one_line(Path(one['path']).name)}: {lacking}; ocrmypdf --skip-text adds it")
    for failure in summary["failed"]:
        terminal.error(one_line(failure["message"]))
    if summary["not_tried"]:
        terminal.error(f"{counted(len(summary['not_tried']), 'file')} not tried; make room, then repeat this")


def without_text(document: dict[str, Any]) -> str:
    """Return a note about pages of `document` that hold no text, empty if all hold some.

    It is in the output of `rag.ingest` and `rag.list_documents`.
    """
    runs: list[dict[str, int]] = document.get("pages_without_text") or []
    if not runs:
        return ""
    named = ", ".join(_run(run["first"], run["last"]) for run in runs[:_MOST_RANGES])
    more = ", ..." if len(runs) > _MOST_RANGES else ""
    alone = len(runs) == 1 and runs[0]["first"] == runs[0]["last"]
    return (
        f"page {named} holds no text (scanned?)" if alone else f"pages {named}{more} hold no text (scanned?)"
    )


def _run(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
