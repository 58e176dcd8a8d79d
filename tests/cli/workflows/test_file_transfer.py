"""Files at this end of `hearthnet file`, without a node."""

from __future__ import annotations

import errno
import io
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from hearthnet.cli.workflows import file_transfer
from hearthnet.cli.workflows.file_transfer import (
    Pipe,
    check_name,
    file_name,
    full_prefix,
    opened,
    place_for,
    target_file,
)
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol.manifest import CHUNK_BYTES, manifest_of

DATA = bytes(range(256)) * 1024 * 2 + b"the end"
CID = manifest_of(DATA).cid


def refused(message: str, work: Any, *given: Any) -> None:
    with pytest.raises(HearthNetError, match=message) as caught:
        work(*given)
    assert caught.value.code == "bad_request"
    assert caught.value.message.isprintable()


@pytest.mark.req("FILE-20")
def test_the_beginning_of_a_hash() -> None:
    assert full_prefix("") == "blake3:"
    assert full_prefix("1f") == full_prefix("blake3:1f") == full_prefix("blake3:1f…") == "blake3:1f"
    for text in ("blake3:" + "0" * 65, "XYZ", "../1f", "1f\n", "sha256:1f"):
        refused("is no content hash: blake3: and up to 64 of 0-9a-f$", full_prefix, text)
    assert full_prefix("1f2e", min_length=4) == "blake3:1f2e"
    refused("give at least 4 characters of the hash", lambda: full_prefix("1f2", min_length=4))


@pytest.mark.req("FILE-14", "FILE-20")
def test_names_are_no_paths_and_can_be_seen() -> None:
    assert check_name("Grüße 🕯.txt") == "Grüße 🕯.txt"
    assert file_name(Path("-")) == ""
    assert file_name(Path("a/b.txt")) == "b.txt"
    for name in ("a/b", "a\\b", "a\x1b[2Jb", "a\u202eb", "x" * 201):
        refused("cannot be a name: up to 200 characters that can be seen, no path", check_name, name)


@pytest.mark.req("FILE-14", "FILE-20")
def test_what_others_call_it_is_never_a_path(tmp_path: Path) -> None:
    for name, kept in (
        ("../../etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("/", CID[7:23]),
        ("..", CID[7:23]),
        (".bashrc", "bashrc"),
        ("a\x1b[2Jb\u202e", "a[2Jb"),
        ("", CID[7:23]),
    ):
        assert place_for(tmp_path, name, CID, False) == tmp_path / kept
    assert place_for(None, "x.txt", CID, False) == Path("x.txt")
    assert place_for(Path("-"), "x.txt", CID, False) is None
    assert place_for(tmp_path / "mine", "x.txt", CID, False) == tmp_path / "mine"
    (tmp_path / "there").touch()
    assert place_for(tmp_path / "there", "x.txt", CID, True) == tmp_path / "there"
    refused("/there is there already; --force", place_for, tmp_path / "there", "x.txt", CID, False)


@pytest.mark.req("FILE-13", "FILE-20")
@pytest.mark.asyncio
@pytest.mark.parametrize("left", [0, 100, CHUNK_BYTES, CHUNK_BYTES + 9, len(DATA), len(DATA) + 50])
async def test_a_file_is_whole_or_not_there_and_goes_on(tmp_path: Path, left: int) -> None:
    path, manifest = tmp_path / "out", manifest_of(DATA)
    part = tmp_path / f".{CID[7:23]}.part"
    part.write_bytes((DATA + b"x" * 50)[:left])
    async with target_file(path, CID) as target:
        have = await target.begin(manifest)
        assert have == (3 if left == len(DATA) else min(left, 2 * CHUNK_BYTES) // CHUNK_BYTES)
        for index in range(have, 3):
            assert not path.exists()
            await target.write(index, DATA[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES])
        await target.finish()
    assert path.read_bytes() == DATA
    assert not part.exists()


@pytest.mark.req("FILE-13")
@pytest.mark.asyncio
async def test_what_was_left_and_is_wrong_is_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / f".{CID[7:23]}.part").write_bytes(DATA[:CHUNK_BYTES] + bytes(CHUNK_BYTES) + b"the end")
    async with target_file(tmp_path / "out", CID) as target:
        assert await target.begin(manifest_of(DATA)) == 1


@pytest.mark.req("FILE-20")
@pytest.mark.asyncio
async def test_trouble_with_files_is_said(tmp_path: Path) -> None:
    for path, code, reason in (
        (tmp_path / "none", "not_found", "No such file or directory"),
        (tmp_path, "bad_request", "Is a directory"),
    ):
        with pytest.raises(HearthNetError) as caught:
            async with opened(path):
                pass
        assert (caught.value.code, caught.value.message) == (code, f"{path}: {reason}")
    with pytest.raises(HearthNetError, match=r"no folder/.*: No such file or directory$") as nowhere:
        async with target_file(tmp_path / "no folder" / "out", CID):
            pass
    assert nowhere.value.code == "not_found"
    (tmp_path / "out").mkdir()
    async with target_file(tmp_path / "out", CID) as target:
        assert await target.begin(manifest_of(DATA)) == 0

        class Full(io.BytesIO):
            def write(self, data: Any) -> int:
                raise OSError(errno.ENOSPC, "No space left on device")

        with pytest.raises(HearthNetError, match=r"/out: Is a directory$") as taken:
            await target.finish()
        assert taken.value.code == "bad_request"
        target._file.close()
        target._file = Full()
        with pytest.raises(HearthNetError, match="no room is left on that disk; make room") as full:
            await target.write(0, b"x")
        assert full.value.code == "capacity_exceeded"


@pytest.mark.req("FILE-20")
@pytest.mark.asyncio
async def test_a_file_that_changes_while_it_is_put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.bin"
    file.write_bytes(DATA)
    async with opened(file) as source:
        assert source.manifest == manifest_of(DATA)
        assert await source.chunk(2) == b"the end"
        file.write_bytes(bytes(len(DATA)))
        with pytest.raises(HearthNetError, match="has changed"):
            await source.chunk(1)
    monkeypatch.setattr(file_transfer, "LARGEST_BYTES", 9)
    with pytest.raises(HearthNetError, match="more than 9 bytes"):
        async with opened(file):
            pass


@pytest.mark.req("FILE-20")
@pytest.mark.asyncio
async def test_both_standard_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    class Standard:
        buffer = io.BytesIO(DATA)

    monkeypatch.setattr("sys.stdin", Standard())
    async with opened(Path("-")) as source:
        assert source.manifest.cid == CID
        assert await source.chunk(2) == b"the end"
    out = io.BytesIO()
    pipe = Pipe(out)
    assert await pipe.begin(manifest_of(DATA)) == 0
    await pipe.write(0, b"first")
    assert out.getvalue() == b"first"

    class Full(io.BytesIO):
        number = errno.ENOSPC

        def write(self, data: Any) -> int:
            raise OSError(self.number, os.strerror(self.number))

    with pytest.raises(HearthNetError, match="stdout: no room is left on that disk") as full:
        await Pipe(Full()).write(0, b"first")
    assert full.value.exit_status == 8
    Full.number = errno.EPIPE
    with pytest.raises(BrokenPipeError):
        await Pipe(Full()).write(0, b"first")

    def without_room() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", without_room)
    with pytest.raises(HearthNetError, match=f"{tempfile.gettempdir()}: no room is left"):
        async with opened(Path("-")):
            pass
