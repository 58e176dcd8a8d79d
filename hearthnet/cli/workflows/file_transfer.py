"""Local files for `hearthnet file`: sources, targets, and the nodes that keep content."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

from hearthnet.cli.output import terminal
from hearthnet.cli.output.text import is_hidden, one_line
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol.manifest import CHUNK_BYTES, LARGEST_BYTES, Manifest, chunk_hash

if TYPE_CHECKING:
    from hearthnet.bus.blob_transfer import OnProgress
    from hearthnet.bus.bus import Bus
    from hearthnet.bus.calls.unary import ReceivedReply

_HEX: Final = re.compile(r"(?:blake3:)?([0-9a-f]{0,64})")
_LONGEST_NAME: Final = 200
MIN_PREFIX: Final = 4
_LIST: Final = "file.list@1.0"
_LIST_SECONDS: Final = 5.0


class FileSource:
    """A file as a source of chunks; made by `opened`."""

    def __init__(self, file: IO[bytes], path: Path, manifest: Manifest) -> None:
        self.manifest = manifest
        self._file = file
        self._path = path

    async def chunk(self, index: int) -> bytes:
        """Return chunk `index`.

        Raises:
            HearthNetError: `bad_request` if the file has changed since it was opened.
        """
        data = await asyncio.to_thread(_read_at, self._file, index)
        if not self.manifest.holds(index, data):
            raise HearthNetError("bad_request", f"{one_line(str(self._path))} has changed while it was put")
        return data


@contextlib.asynccontextmanager
async def opened(path: Path) -> AsyncIterator[FileSource]:
    """Open the file, or stdin for `-`, and read it once for its hashes."""
    with _os_errors(Path(tempfile.gettempdir()) if str(path) == "-" else path), _file(path) as file:
        yield FileSource(file, path, await asyncio.to_thread(_manifest, file, path))


@contextlib.asynccontextmanager
async def target_file(path: Path, cid: str) -> AsyncIterator[Target]:
    """Open a temporary file beside `path`: a new one, or that of an earlier attempt."""
    part = path.with_name(f".{cid[7:23]}.part")
    with _os_errors(path):
        file = await asyncio.to_thread(_open_part, part)
    with file:
        yield Target(file, part, path)


class Target:
    """The file to write, of which the correct part is reused; made by `target_file`."""

    def __init__(self, file: IO[bytes], part: Path, path: Path) -> None:
        self._file = file
        self._part = part
        self._path = path

    async def begin(self, manifest: Manifest) -> int:
        """Return the number of chunks that exist and are correct."""
        return await asyncio.to_thread(self._begin, manifest)

    async def write(self, index: int, data: bytes) -> None:
        """Write the next chunk."""
        await asyncio.to_thread(self._write, data)

    async def finish(self) -> None:
        """Move the complete file to its place."""
        await asyncio.to_thread(self._finish)

    def _begin(self, manifest: Manifest) -> int:
        file, count = self._file, 0
        while count < manifest.count and manifest.holds(count, _read_at(file, count)):
            count += 1
        file.seek(count * CHUNK_BYTES if count < manifest.count else manifest.size)
        file.truncate()
        return count

    def _write(self, data: bytes) -> None:
        with _os_errors(self._part):
            self._file.write(data)

    def _finish(self) -> None:
        with _os_errors(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._part.replace(self._path)


class Pipe:
    """Standard output as a target."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    async def begin(self, manifest: Manifest) -> int:
        """Return 0, since there is no earlier part."""
        return 0

    async def write(self, index: int, data: bytes) -> None:
        """Write the next chunk."""
        await asyncio.to_thread(self._write, data)

    def _write(self, data: bytes) -> None:
        with _os_errors(Path("stdout")):
            self._file.write(data)
            self._file.flush()


class FoundContent(NamedTuple):
    """Content that some nodes keep."""

    cid: str
    name: str
    nodes: list[str]


async def locate(bus: Bus, text: str, node: str | None) -> FoundContent:
    """Return the content whose hash begins with `text` and its nodes, this node first.

    Raises:
        HearthNetError: `not_found` if no node keeps it; `bad_request` if several hashes begin so, or too few
            characters are given.
    """
    prefix = full_prefix(text, min_length=MIN_PREFIX)
    blobs, silent = await list_files(bus, prefix, node)
    cids = list(dict.fromkeys(str(blob["cid"]) for blob in blobs))
    if len(cids) > 1:
        shown = ", ".join(cid[:23] for cid in cids[:4])
        raise HearthNetError("bad_request", f"{len(cids)} hashes begin so: {shown}", alt=cids[:16])
    if not cids:
        unheard = f"; {len(silent)} of them did not answer" if silent else ""
        raise HearthNetError("not_found", f"no node keeps {prefix[:23]} for you{unheard}")
    name = next((str(blob["name"]) for blob in blobs if blob["name"]), "")
    nodes = [str(blob["node"]) for blob in blobs]
    own = bus.peer.node_id
    return FoundContent(cids[0], name, sorted(dict.fromkeys(nodes), key=lambda one: one != own))


async def list_files(
    bus: Bus, prefix: str, node: str | None
) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
    """Return the content that each node, or `node`, keeps with this prefix; and silent nodes.

    A silent node is given with its error.
    """

    def more(reply: ReceivedReply) -> dict[str, Any] | None:
        output = reply.output
        fields = {"prefix": prefix, "after": output["cids"][-1]} if output["more"] else None
        return None if fields is None else {"params": {}, "input": fields}

    body = {"params": {}, "input": {"prefix": prefix}}
    if node:
        asked = bus.gather_from(_LIST, [(node, body)], more=more, timeout_seconds=_LIST_SECONDS)
    else:
        asked = bus.gather(_LIST, body, more=more, timeout_seconds=_LIST_SECONDS)
    found = await asked
    if not found.providers:
        raise HearthNetError("not_found", "nobody offers file.list; is the service `file` running?")
    if len(found.providers) == 1 and found.missing:
        raise found.error(_LIST)
    blobs = [{**blob, "node": reply.provider} for reply in found.replies for blob in reply.output["blobs"]]
    return blobs, [(one.node, one.reason) for one in found.missing]


def full_prefix(text: str, *, min_length: int = 0) -> str:
    """Return `text` as the beginning of a CID.

    Raises:
        HearthNetError: `bad_request` if it is not the beginning of one, or has fewer than `min_length`
            characters of the hash.
    """
    found = _HEX.fullmatch(text.rstrip("…"))
    if found is None:
        raise HearthNetError(
            "bad_request", f"{one_line(text[:80])!r} is no content hash: blake3: and up to 64 of 0-9a-f"
        )
    if len(found[1]) < min_length:
        raise HearthNetError("bad_request", f"give at least {min_length} characters of the hash")
    return f"blake3:{found[1]}"


def file_name(path: Path) -> str:
    """Return the name of a file for lists."""
    return "" if str(path) == "-" else path.name


def check_name(name: str) -> str:
    """Return `name`.

    Raises:
        HearthNetError: `bad_request` for a path, for invisible characters, and for a name that is too long.
    """
    if len(name) > _LONGEST_NAME or "/" in name or "\\" in name or any(map(is_hidden, name)):
        raise HearthNetError(
            "bad_request",
            f"{one_line(name[:80])!r} cannot be a name: up to {_LONGEST_NAME} characters that can be seen, "
            "no path; give another one with --name",
        )
    return name


def place_for(target: Path | None, name: str, cid: str, force: bool) -> Path | None:
    """Return the file to write, None for stdout.

    The name that another node gives is never used as a path.

    Raises:
        HearthNetError: `bad_request` for an existing file without `force`.
    """
    if target is not None and str(target) == "-":
        return None
    plain = "".join(letter for letter in Path(name.replace("\\", "/")).name if not is_hidden(letter))
    called = cid[7:23] if plain.strip(". ") == "" else plain.lstrip(".")
    path = Path(called) if target is None else target / called if target.is_dir() else target
    if path.exists() and not force:
        raise HearthNetError("bad_request", f"{one_line(str(path))} is there already; --force overwrites it")
    return path


@contextlib.contextmanager
def progress(verb: str, what: str, size: int | None, *, quiet: bool) -> Iterator[OnProgress]:
    """Show a bar if stderr is a terminal, else nothing."""
    if quiet or not terminal.is_tty(sys.stderr):
        yield lambda chunks, of: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"{verb} {one_line(what)[:40]}", total=size)

        def on_progress(chunks: int, of: int) -> None:
            total = size if size is not None else of * CHUNK_BYTES
            bar.update(task, completed=min(chunks * CHUNK_BYTES, total), total=total)

        yield on_progress


@contextlib.contextmanager
def _file(path: Path) -> Iterator[IO[bytes]]:
    """Yield the open file; stdin is copied to a temporary file, since it is read twice."""
    if str(path) != "-":
        with path.open("rb") as file:
            yield file
        return
    with tempfile.TemporaryFile() as aside:
        while piece := sys.stdin.buffer.read(CHUNK_BYTES):
            aside.write(piece)
        aside.seek(0)
        yield aside


def _manifest(file: IO[bytes], path: Path) -> Manifest:
    hashes, size = bytearray(), 0
    while piece := file.read(CHUNK_BYTES):
        hashes += chunk_hash(piece)
        size += len(piece)
        if size > LARGEST_BYTES:
            raise HearthNetError("bad_request", f"{one_line(str(path))} has more than {LARGEST_BYTES} bytes")
    return Manifest(size, bytes(hashes))


def _read_at(file: IO[bytes], index: int) -> bytes:
    file.seek(index * CHUNK_BYTES)
    return file.read(CHUNK_BYTES)


def _open_part(path: Path) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666), "r+b")


@contextlib.contextmanager
def _os_errors(path: Path) -> Iterator[None]:
    """Translate an OSError inside the block to an error about `path`; a broken pipe stays one."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno == errno.ENOSPC:
            message = f"{one_line(str(path))}: no room is left on that disk; make room, then try again"
            raise HearthNetError("capacity_exceeded", message) from error
        code = "not_found" if isinstance(error, FileNotFoundError) else "bad_request"
        raise HearthNetError(code, f"{one_line(str(path))}: {error.strerror or error}") from error
