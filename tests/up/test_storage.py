"""Disks that are full, and folders that cannot be written: one line each, and an exit code."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hearthnet.config import Home
from hearthnet.errors import HearthNetError
from hearthnet.up.files import check_space, file_errors, make_folder, write_whole
from hearthnet.up.first_run import Prepared
from hearthnet.up.log_file import LogFile
from hearthnet.up.server import Server
from tests.helpers.leaving import leave_out
from tests.helpers.processes import processes_of
from tests.helpers.waiting import wait_for_sync
from tests.up.conftest import Node

MB = 1024 * 1024
Mount = Callable[[str], Home]


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """A home on a small file system in memory, with the mount options given."""
    folder = tmp_path / "disk"
    folder.mkdir()
    program = shutil.which("mount")
    if program is None or os.geteuid() != 0:
        leave_out("mounting a small disk takes root")

    def mounted(options: str) -> Home:
        done = subprocess.run(
            [program, "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=False, capture_output=True
        )
        if done.returncode:
            leave_out(f"this system cannot mount a small disk: {done.stderr.decode().strip()}")
        return Home(folder)

    yield mounted
    subprocess.run(["umount", str(folder)], check=False, capture_output=True)


@pytest.mark.req("UP-18")
def test_a_disk_without_room_is_refused_before_anything_is_made(
    mount: Mount, start: Callable[..., Node]
) -> None:
    home = mount("size=8m")
    node = start("market=", home=home)
    assert node.process.wait(10) == 8
    assert "only 8 MB are free where" in node.said()
    assert node.said().count("\n") == 1
    assert not home.device_key.exists()


@pytest.mark.req("UP-18")
def test_a_disk_that_fills_up_does_not_stop_the_supervisor(mount: Mount, start: Callable[..., Node]) -> None:
    home = mount("size=80m")
    home.config_file.write_text("[server]\nport = 0\n")
    node = start("market=", home=home)
    before = node.ready().services[0]
    ballast = home.path / "ballast"
    with pytest.raises(HearthNetError, match="is full"), file_errors(home.path):
        ballast.write_bytes(b"x" * 200 * MB)
    assert before.pid is not None
    os.kill(before.pid, signal.SIGKILL)
    wait_for_sync(lambda: "ready (restarted 1 x)" in node.said(), 15, "the service to be back")
    assert node.service("market") == before
    ballast.unlink()
    node.reaches(lambda: node.service("market").restarts == 1, "the state file to catch up")
    assert node.end() == 0


@pytest.mark.req("UP-18")
def test_a_ready_file_on_a_full_disk_ends_the_node(
    mount: Mount, start: Callable[..., Node], place: Home
) -> None:
    full = mount("size=64k").path
    with pytest.raises(HearthNetError, match="is full"), file_errors(full):
        (full / "ballast").write_bytes(b"x" * MB)
    node = start("market=", ready_file=str(full / "ready.json"))
    assert node.process.wait(20) == 8
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
    assert node.process.wait(10) == 1
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
