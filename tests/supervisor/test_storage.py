"""Disks that are full, and folders that cannot be written: one line each, and an exit code."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hearthnet.bus.bus import Bus
from hearthnet.bus.store import Store
from hearthnet.core.errors import HearthNetError
from hearthnet.core.files import write_whole
from hearthnet.core.home import Home
from hearthnet.core.ids import new_ulid
from hearthnet.core.node_state import read_node_state
from hearthnet.service.effects import jetstream_records
from hearthnet.supervisor.nats.home_setup import Prepared
from hearthnet.supervisor.nats.nats_server import Server
from hearthnet.supervisor.os.disk import SPARE_BYTES, Disk, check_space, file_errors, make_folder
from hearthnet.supervisor.os.log_file import LogFile
from tests.helpers.probe import POST, post
from tests.helpers.processes import processes_of
from tests.helpers.small_disk import Mount, fill, small_disk
from tests.helpers.stopwatch import Stopwatch
from tests.helpers.waiting import wait_for, wait_for_sync
from tests.supervisor.conftest import Node

MB = 1024 * 1024
FULL = "the disk is full: posts and documents cannot be kept"


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """A home on a small file system in memory, with the mount options given."""
    with small_disk(tmp_path / "disk") as mounted:
        yield mounted


@pytest.mark.req("UP-18")
def test_a_disk_without_room_is_refused_before_anything_is_made(
    mount: Mount, start: Callable[..., Node]
) -> None:
    home = mount("size=8m")
    node = start("market=", home=home)
    assert node.process.wait(60) == 8
    assert "only 8 MB are free where" in node.said()
    assert node.said().count("\n") == 1
    assert list(home.path.iterdir()) == []


@pytest.mark.req("UP-18")
def test_a_disk_that_fills_up_does_not_stop_the_supervisor(mount: Mount, start: Callable[..., Node]) -> None:
    home = mount("size=80m")
    home.config_file.write_text("[server]\nport = 0\n")
    node = start("market=", home=home)
    before = node.ready().services[0]
    ballast = home.path / "ballast"
    fill(ballast)
    assert before.pid is not None
    os.kill(before.pid, signal.SIGKILL)
    wait_for_sync(lambda: "ready (restarted 1 x)" in node.said(), what="the service to be back")
    wait_for_sync(lambda: FULL in node.said(), what="the full disk to be noticed")
    ballast.unlink()
    node.reaches(lambda: node.service("market").restarts == 1, "the state file to catch up")
    wait_for_sync(lambda: "the disk has room again\n" in node.said(), what="room to be noticed")
    assert "nats-server is back" not in node.said()
    assert node.end() == 0


@pytest.mark.req("UP-29")
@pytest.mark.asyncio
async def test_a_disk_that_fills_up_is_told_and_posting_works_again_once_there_is_room(
    mount: Mount, start: Callable[..., Node]
) -> None:
    home = mount("size=80m")
    settings = '[server]\nport = 0\n[gateway]\nenabled = false\n[services]\nenabled = ["market"]\n'
    home.config_file.write_text(settings)
    node = start(home=home)
    first = node.ready().server
    async with await Bus.connect(home, "test") as bus:
        await bus.call(POST, post(new_ulid()))
        posted = time.monotonic()
        ballast = home.path / "ballast"
        fill(ballast)
        await wait_for(lambda: FULL in (node.service("market").note or ""), what="the note")
        assert f"{FULL}; free 17 MB\n" in node.said()
        # For so long a disk that had ample room counts as one that still has.
        await wait_for(lambda: time.monotonic() > posted + jetstream_records._LOOK_SECONDS, what="a new look")
        refused = post(new_ulid())
        pid = node.service("market").pid
        assert pid is not None
        assert (await _refusal(bus, refused, first.pid, pid)) < 3
        async with await Store.connect(home, "test") as store:
            fill(ballast)
            with pytest.raises(TimeoutError):
                await store.js.publish("mk.post.test.test", bytes(8000), timeout=1, stream="MARKET")
        # Some room, but too little for the server to be restarted: it takes nothing.
        os.truncate(ballast, ballast.stat().st_size - 8 * MB)
        await _refusal(bus, refused)
        ballast.unlink()
        await wait_for(lambda: read_node_state(home).server.pid != first.pid, what="another server")
        assert read_node_state(home).server.url == first.url
        await wait_for(lambda: f"nats-server is back at {first.url}" in node.said(), what="word of it")
        assert "the disk has room again; nats-server is restarted" in node.said()
        assert node.service("market").note is None
        assert (await bus.call(POST, refused)).meta["repeated"] is False
        assert (await bus.call("market.list@1.0", {"params": {}, "input": {}})).output["max_lamport"] == 2
    assert node.end() == 0


async def _refusal(bus: Bus, body: dict[str, Any], *pids: int) -> float:
    """How many seconds it takes until the body is refused for the full disk; before the deadline."""
    watch = Stopwatch(*pids)
    with pytest.raises(HearthNetError, match="the disk is full; make room, then send it again") as caught:
        await bus.call(POST, body)
    assert caught.value.exit_status == 8
    return watch.seconds()


@pytest.mark.req("UP-29")
def test_between_full_and_room_nothing_is_said(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    free = 20 * MB
    monkeypatch.setattr(Home, "free_bytes", lambda home: free)
    disk, spare = Disk(prepared.home), prepared.home.run / "spare"
    assert disk.look(complaint=False) is None
    assert spare.stat().st_size == SPARE_BYTES
    free = 5 * MB
    assert disk.look(complaint=False) is None
    assert disk.look(complaint=True) == "full"
    assert disk.note == "the disk is full: posts and documents cannot be kept; free 12 MB"
    assert not spare.exists()
    assert disk.look(complaint=True) is None
    free = 20 * MB
    assert disk.look(complaint=False) == "room"
    assert disk.note is None
    assert disk.look(complaint=False) is None
    assert disk.look(complaint=True) == "room"
    free = 3 * MB
    assert disk.look(complaint=False) == "full"


@pytest.mark.req("UP-29")
def test_words_in_a_log_are_noticed_across_two_writes(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "log")
    log.watch_for(re.compile(b"no space left"))
    log.write(b"all is well, no spa")
    assert not log.alarmed
    log.write(b"ce left on device" + b"x" * 5000)
    log.write(b"x" * 5000)
    assert log.alarmed
    log.forget()
    assert not log.alarmed


@pytest.mark.req("UP-18")
def test_a_ready_file_on_a_full_disk_ends_the_node(
    mount: Mount, start: Callable[..., Node], place: Home
) -> None:
    full = mount("size=64k").path
    with pytest.raises(HearthNetError, match="is full"), file_errors(full):
        (full / "ballast").write_bytes(b"x" * MB)
    node = start("market=", ready_file=str(full / "ready.json"))
    assert node.process.wait(60) == 8
    assert f"the disk of {full / 'ready.json'} is full" in node.said()
    assert processes_of(place.path) == []


@pytest.mark.req("UP-18")
@pytest.mark.asyncio
async def test_jetstream_on_a_full_disk(mount: Mount, prepared: Prepared) -> None:
    full = mount("size=64k").path
    with pytest.raises(HearthNetError, match="is full"), file_errors(full):
        (full / "ballast").write_bytes(b"x" * MB)
    prepared.home.jetstream.rmdir()
    prepared.home.jetstream.symlink_to(full)
    server = Server(prepared, LogFile(prepared.home.log("nats-server")), lambda line: None)
    with pytest.raises(HearthNetError) as caught:
        await server.start()
    await server.stop(1)
    assert caught.value.exit_status == 8
    assert "make room" in caught.value.message


@pytest.mark.req("UP-18")
def test_a_write_to_a_full_disk_says_so_and_leaves_nothing_half(mount: Mount) -> None:
    path = mount("size=64k").path / "file"
    with (
        pytest.raises(HearthNetError, match=r"the disk of .* is full; make room") as caught,
        file_errors(path),
    ):
        write_whole(path, b"x" * MB)
    assert caught.value.exit_status == 8
    assert list(path.parent.iterdir()) == []


@pytest.mark.req("UP-19")
def test_a_read_only_disk(mount: Mount, start: Callable[..., Node]) -> None:
    home = mount("size=80m,ro")
    node = start("market=", home=home)
    assert node.process.wait(60) == 1
    assert f"cannot write {home.path}" in node.said()
    assert (
        "Read-only file system; make it writable for this user, or name another folder with --home"
        in node.said()
    )
    assert node.said().count("\n") == 1


@pytest.mark.req("UP-19")
def test_a_file_where_the_home_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HearthNetError, match=r"cannot write .*file") as caught:
        make_folder(tmp_path / "file" / "home")
    assert caught.value.exit_status == 1


@pytest.mark.req("UP-18")
def test_room_is_asked_of_the_disk(tmp_path: Path) -> None:
    check_space(tmp_path, 1)
    with pytest.raises(HearthNetError, match="MB are free") as caught:
        check_space(tmp_path, 2**62)
    assert caught.value.details["needed_bytes"] == 2**62
    with pytest.raises(HearthNetError, match="cannot write"):
        check_space(tmp_path / "absent")
