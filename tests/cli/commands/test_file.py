"""`hearthnet file` against a node that runs, and what a kill in the middle leaves."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hearthnet.bus.blobs.metadata import CHUNKS
from hearthnet.bus.store import HomeStore
from hearthnet.core.home import Home
from hearthnet.core.node_state import read_node_state
from hearthnet.core.times import from_rfc3339, now_ms
from hearthnet.protocol.manifest import CHUNK_BYTES, hash_of, manifest_of
from tests.helpers.damage import flip
from tests.helpers.processes import kill, pause
from tests.helpers.shell import Shell
from tests.helpers.waiting import wait_for, wait_for_sync

COUNT = 200
"""Chunks of a file that takes a second to put: 50 MB."""


@pytest.fixture(scope="module")
def keeper() -> Iterator[Shell]:
    """A node with the service `file` alone."""
    with tempfile.TemporaryDirectory(prefix="hn-file-") as folder:
        shell = Shell(Path(folder) / "home")
        shell.home.mkdir()
        (shell.home / "hearthnet.toml").write_text(
            "[gateway]\nenabled = false\n\n"
            '[server]\nport = 0\n\n[services]\nenabled = ["file"]\n\n[file]\nkeep_free_mb = 0\n'
        )
        with shell.node():
            yield shell


@pytest.fixture
def large(tmp_path: Path) -> tuple[Path, str]:
    """A large file of its own content, and its hash."""
    path = tmp_path / "large.bin"
    data = os.urandom(CHUNK_BYTES) * COUNT
    path.write_bytes(data)
    return path, manifest_of(data).cid


async def under_way(shell: Shell, cid: str, putting: subprocess.Popen[str]) -> None:
    """Holds the command `putting` as soon as some chunks have arrived in the node's store."""
    subject = f"{CHUNKS}put-{hash_of(cid).hex()}"
    async with await HomeStore.connect(Home(shell.home), "test") as store:

        async def begun() -> bool:
            return (await store.blobs.link.subjects(subject)).get(subject, 0) > 3

        await wait_for(begun, 60, "the first chunks")
        pause(putting.pid)
    assert putting.poll() is None


def cids(shell: Shell) -> list[str]:
    return [blob["cid"] for blob in shell.json("file", "list", "--json")]


def failed(here: Any, home: Path, status: int, *arguments: str | Path) -> str:
    """What a command says that must end with `status`; in this process."""
    assert here("file", *arguments, "--home", home) == status, here.err
    line: str = here.err.splitlines()[-1]
    assert line.startswith("hearthnet: "), here.err
    assert "Traceback" not in here.err
    return line


@pytest.mark.req("FILE-20", "FILE-11")
def test_files_there_and_back(keeper: Shell, here: Any, tmp_path: Path) -> None:
    text, empty = tmp_path / "notes.txt", tmp_path / "empty"
    text.write_text("Grüße\n" * 100_000)
    empty.touch()
    done = keeper.run("file", "put", text, empty, "--share")
    assert done.returncode == 0, done.stderr
    cid, nothing = done.stdout.split()
    assert cid == manifest_of(text.read_bytes()).cid
    assert "notes.txt: 800 kB, 4 chunks sent" in done.stderr
    again = keeper.json("file", "put", text, "--json")
    assert (again["cid"], again["chunks_moved"], again["name"]) == (cid, 0, "notes.txt")
    listed = keeper.json("file", "list", "--json")
    assert {(blob["cid"], blob["name"], blob["shared"]) for blob in listed} == {
        (cid, "notes.txt", True),
        (nothing, "empty", True),
    }
    table = keeper.run("file", "list", cid[:20]).stdout
    assert cid[:23] in table
    assert "shared" in table
    folder = tmp_path / "out"
    folder.mkdir()
    got = keeper.json("file", "get", cid[7:20], folder, "--json")
    assert got["path"] == str(folder / "notes.txt")
    assert (folder / "notes.txt").read_bytes() == text.read_bytes()
    assert "--force" in failed(here, keeper.home, 2, "get", cid, folder)
    assert "4 chunks read" in keeper.run("file", "get", cid, folder, "--force").stdout
    assert keeper.run("file", "get", cid, "-").stdout == text.read_text()
    assert keeper.run("file", "get", nothing, "-").stdout == ""
    assert keeper.run("file", "remove", cid).stdout == f"deleted: {cid}\n"
    assert keeper.json("file", "remove", nothing, "--json") == {"cid": nothing, "deleted": True}
    assert "nothing is kept" in keeper.run("file", "list").stdout
    assert "no node keeps" in failed(here, keeper.home, 5, "get", cid, folder, "--force")


@pytest.mark.req("FILE-20")
def test_stdin_a_name_a_time_and_a_bar(keeper: Shell, here: Any, tmp_path: Path) -> None:
    done = keeper.run("file", "put", "-", "--name", "words", "--keep", "3", "--json", stdin="from a pipe")
    assert done.returncode == 0, done.stderr
    (blob,) = keeper.json("file", "list", "--json")
    assert (blob["name"], blob["shared"], blob["mine"]) == ("words", False, True)
    days = (from_rfc3339(blob["until"]) - now_ms()) / 86_400_000
    assert 2.9 < days <= 3
    (tmp_path / "a").write_bytes(bytes(CHUNK_BYTES * 3))
    with keeper.terminal("file", "put", tmp_path / "a") as screen:
        screen.expect("putting a ")
        screen.expect("blake3:")
        assert screen.end() == 0
    async_put(keeper, b"the home's own")
    own = manifest_of(b"the home's own").cid
    assert "you hold no blob" in failed(here, keeper.home, 5, "remove", own)
    for cid in cids(keeper):
        assert keeper.json("file", "remove", cid, "--all", "--json")["deleted"]


def async_put(shell: Shell, data: bytes) -> None:
    """Content that a process of the home keeps."""

    async def put() -> None:
        async with await HomeStore.connect(Home(shell.home), "test") as store:
            await store.put_blob(data)

    asyncio.run(put())


@pytest.mark.req("FILE-14", "FILE-20")
def test_what_cannot_be_is_said_in_a_line(keeper: Shell, stopped: Shell, here: Any, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "b\x1b[2J").touch()
    for status, arguments, words in (
        (5, ("put", tmp_path / "none"), f"{tmp_path}/none: No such file or directory"),
        (2, ("put", tmp_path), f"{tmp_path}: Is a directory"),
        (2, ("put", tmp_path / "b\x1b[2J"), "[2J' cannot be a name: "),
        (2, ("put", tmp_path / "a", "--name", "../x"), "'../x' cannot be a name: "),
        (2, ("put", tmp_path / "a", tmp_path / "a", "--name", "x"), "--name is for one file"),
        (2, ("get", "no hash", tmp_path), "'no hash' is no content hash"),
        (2, ("get", "1f", tmp_path), "give at least "),
        (5, ("get", "0" * 64, tmp_path), f"no node keeps blake3:{'0' * 16} for you"),
        (5, ("remove", "0" * 64), f"no node keeps blake3:{'0' * 16} for you"),
        (2, ("list", "no hash"), "'no hash' is no content hash"),
    ):
        assert words in failed(here, keeper.home, status, *arguments)
        assert "\x1b" not in here.err
    assert "no node is running in " in failed(here, stopped.home, 3, "list")
    assert here("file") == 0
    assert "put" in here.out


@pytest.mark.req("FILE-5", "FILE-13")
def test_a_put_that_is_killed_leaves_nothing_to_be_seen_and_goes_on(
    keeper: Shell, large: tuple[Path, str]
) -> None:
    path, cid = large
    with keeper.start("file", "put", path) as putting:
        asyncio.run(under_way(keeper, cid, putting))
        assert cid not in cids(keeper)
        putting.kill()
        putting.wait()
    done = keeper.json("file", "put", path, "--json")
    assert done["cid"] == cid
    assert 0 < done["chunks_moved"] < COUNT
    check(keeper, path, cid)


@pytest.mark.req("FILE-5", "FILE-13")
def test_a_service_that_is_killed_is_gone_on_with(keeper: Shell, large: tuple[Path, str]) -> None:
    path, cid = large
    with keeper.start("file", "put", path, "--json") as putting:
        asyncio.run(under_way(keeper, cid, putting))
        (service,) = read_node_state(Home(keeper.home)).services
        assert service.pid is not None
        kill(service.pid)
        putting.send_signal(signal.SIGCONT)
        out, err = putting.communicate(timeout=100)
    assert putting.returncode == 0, (out, err)
    check(keeper, path, cid)


def check(shell: Shell, path: Path, cid: str) -> None:
    """It is whole; and then it is gone."""
    there = path.with_name("back.bin")
    got: dict[str, Any] = shell.json("file", "get", cid, there, "--json")
    assert got["size_bytes"] == COUNT * CHUNK_BYTES
    assert there.read_bytes() == path.read_bytes()
    assert shell.json("file", "remove", cid, "--json")["deleted"]


@pytest.mark.req("FILE-24", "CLI-6")
def test_verify_names_damage_and_put_mends_it(keeper: Shell, here: Any, tmp_path: Path) -> None:
    """Damaged on the disk under the running server, in a part that it does not have in memory."""
    whole, hurt = tmp_path / "whole.txt", tmp_path / "hurt.bin"
    data = os.urandom(80 * CHUNK_BYTES)
    whole.write_bytes(b"whole")
    hurt.write_bytes(data)
    other = keeper.run("file", "put", whole).stdout.strip()
    found = keeper.json("file", "verify", "--json")
    assert found == {"checked": 1, "size_bytes": 5, "damaged": []}
    cid = keeper.run("file", "put", hurt).stdout.strip()
    assert "1 file, 5 B: all whole" in keeper.run("file", "verify", other[:20]).stdout
    assert "no blake3:00" in failed(here, keeper.home, 5, "verify", "0000000000")
    flip(Home(keeper.home).jetstream, data[47 * CHUNK_BYTES : 47 * CHUNK_BYTES + 64])
    done = keeper.run("file", "verify")
    assert (done.returncode, done.stdout) == (1, f"damaged  {cid} hurt.bin: chunk 48 of 80\n")
    assert "1 of 2 files" in done.stderr
    damaged = {"cid": cid, "name": "hurt.bin", "size_bytes": len(data), "damaged_chunks": [47]}
    told = keeper.run("file", "verify", cid, "--json")
    assert (told.returncode, json.loads(told.stdout)["damaged"]) == (1, [damaged])
    assert "damaged" in failed(here, keeper.home, 1, "get", cid, tmp_path / "out", "--force")
    wait_for_sync(lambda: "1 file is damaged" in keeper.run("status").stdout, 30, "status to say so")
    again = keeper.run("file", "put", hurt)
    assert "80 chunks sent" in again.stderr
    assert keeper.json("file", "verify", "--json")["damaged"] == []
    assert keeper.json("file", "get", cid, tmp_path / "out", "--json")["chunks_moved"] == 33
    wait_for_sync(lambda: "damaged" not in keeper.run("status").stdout, 90, "status to be well again")
    for each in cids(keeper):
        keeper.run("file", "remove", each)
