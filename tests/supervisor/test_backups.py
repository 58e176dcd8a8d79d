"""Backups of a running node: one moment, a short pause, a schedule, and processes that are killed."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from hearthnet.backup import home_files, reader, requests
from hearthnet.backup.history import LastBackup, read_last, write_last
from hearthnet.backup.home_files import Staging
from hearthnet.bus.session.keyring import create_identity
from hearthnet.cli.workflows import backup_flow
from hearthnet.core.config import BackupConfig
from hearthnet.core.errors import HearthNetError, Unavailable
from hearthnet.core.home import Home
from hearthnet.core.node_state import read_node_state
from hearthnet.supervisor import backups
from hearthnet.supervisor.os import freeze
from hearthnet.supervisor.os.freeze import frozen
from tests.backup.homes import ignore
from tests.helpers.processes import pause
from tests.helpers.waiting import wait_for, wait_for_sync
from tests.supervisor.conftest import Node

HOUR = 3_600_000


def states(pid: int) -> set[str]:
    """The states of the threads of a process, as letters of proc(5)."""
    tasks = Path(f"/proc/{pid}/task")
    return {(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks.iterdir()}


@pytest.fixture
def child() -> subprocess.Popen[bytes]:
    """A process that leads its group, and has a child."""
    code = "import subprocess, sys, time; sleep = 'import time; time.sleep(60)'\n"
    code += "subprocess.Popen([sys.executable, '-c', sleep])\n"
    process = subprocess.Popen([sys.executable, "-c", code + "time.sleep(60)"], start_new_session=True)
    wait_for_sync(lambda: psutil.Process(process.pid).children(), what="its child")
    return process


@pytest.mark.req("BACKUP-7")
def test_frozen_processes_stand_still_and_run_on(child: subprocess.Popen[bytes]) -> None:
    family = [child.pid, *(one.pid for one in psutil.Process(child.pid).children())]
    try:
        with frozen([child.pid]):
            assert all(states(pid) == {"T"} for pid in family)
        assert not any("T" in states(pid) for pid in family)
        with pytest.raises(KeyError), frozen([child.pid]):
            raise KeyError
        assert not any("T" in states(pid) for pid in family)
    finally:
        os.killpg(child.pid, 9)
        child.wait()


@pytest.mark.req("BACKUP-7")
def test_processes_that_do_not_stop_run_on(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(freeze, "STOP_SECONDS", -1.0)
    monkeypatch.setattr(freeze, "_running", lambda _groups: [child.pid])
    try:
        with pytest.raises(Unavailable, match="do not stop"), frozen([child.pid]):
            pass
        assert "T" not in states(child.pid)
    finally:
        os.killpg(child.pid, 9)
        child.wait()


@pytest.mark.req("BACKUP-7")
def test_file_that_changes_behind_its_copy_is_copied_again(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.keys.mkdir(parents=True)
    log = home.path / "grows"
    log.write_bytes(b"one")
    staging = Staging(home, tmp_path / "copies", {})
    staging.copy_changed()
    log.write_bytes(b"two")
    (home.path / "gone").write_bytes(b"x")
    staging.copy_changed()
    (home.path / "gone").unlink()
    files = staging.copy_changed()
    assert (tmp_path / "copies/grows").read_bytes() == b"two"
    assert files.keys() == {"grows"}
    known = Staging(home, tmp_path / "none", files)
    known.copy_changed()
    assert not (tmp_path / "none").exists()
    moment = known.moment(files, 1, 2, 3)
    assert [file.is_known for file in moment.files] == [True]
    with pytest.raises(home_files.TooMuchToCopy):
        Staging(home, tmp_path / "late", {}).copy_changed(until=0.0)


@pytest.mark.req("BACKUP-7")
def test_files_that_change_too_fast_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path / "home")
    home.keys.mkdir(parents=True)
    count = 0

    def changing() -> tuple[int, ...]:
        nonlocal count
        count += 1
        (home.path / "grows").write_bytes(b"x" * count)
        return ()

    monkeypatch.setattr(backups, "MAX_PAUSE_SECONDS", -1.0)
    wanted = requests.Request(os.getpid(), {})
    with pytest.raises(HearthNetError, match="change faster") as raised:
        backups.take_moment(home, "01M879ZPM4YMD3Q204WYJQ1X0V", wanted, changing)
    assert raised.value.code == "capacity_exceeded"
    assert count == 5
    monkeypatch.setattr("hearthnet.supervisor.backups.shutil.disk_usage", lambda _path: _NoRoom)
    with pytest.raises(HearthNetError, match="make room"):
        backups.take_moment(home, "01M879ZPM4YMD3Q204WYJQ1X0V", wanted, changing)


class _NoRoom:
    free = 0


@pytest.mark.req("BACKUP-7", "BACKUP-2")
def test_running_node_is_backed_up_and_runs_on(
    place: Home, start: Callable[..., Node], tmp_path: Path
) -> None:
    node = start("one=", "two=forks")
    state = node.ready()
    folder = tmp_path / "backups"
    folder.mkdir()
    first, _ = backup_flow.create(place, folder, 0, ignore)
    again, _ = backup_flow.create(place, folder, 0, ignore)
    assert 0 < first.pause_ms < 2_000
    assert again.written_bytes < first.written_bytes
    for pid in (state.server.pid, *(service.pid for service in state.services if service.pid)):
        assert "T" not in states(pid)
    assert list(place.backup_requests.iterdir()) == []
    assert {path.name for path in place.backup.iterdir()} == {"known.json", "last.json", "lock"}
    assert read_last(place).id == again.id
    assert reader.verify(reader.choose(folder), None, ignore).chunks
    assert node.end() == 0


@pytest.mark.req("BACKUP-7")
def test_request_of_a_dead_process_is_forgotten(place: Home, start: Callable[..., Node]) -> None:
    node = start("one=")
    node.ready()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    request = requests.ask(place, {})
    path = place.backup_requests / f"{request}.request"
    wait_for_sync(lambda: requests.answer(place, request), what="an answer")
    requests.forget(place, request)
    page = json.dumps({"pid": dead.pid, "known": {}})
    path.with_name("01M879ZPM4YMD3Q204WYJQ1X0V.request").write_text(page)
    wait_for_sync(lambda: requests.waiting(place) == [], what="it to be forgotten")
    assert not requests.staging(place, "01M879ZPM4YMD3Q204WYJQ1X0V").exists()
    damaged = place.backup_requests / "01M879ZPM4YMD3Q204WYJQ1X0W.request"
    damaged.write_text("{")
    wait_for_sync(lambda: not damaged.exists(), what="the damaged one to be forgotten")
    assert node.end() == 0


@pytest.mark.req("BACKUP-10")
def test_node_makes_backups_on_its_schedule(place: Home, start: Callable[..., Node], tmp_path: Path) -> None:
    create_identity(place.recovery_key)
    folder = tmp_path / "backups"
    settings = place.config_file.read_text()
    place.config_file.write_text(f'{settings}\n[backup]\nfolder = "{folder}"\nevery_hours = 1\nkeep = 2\n')
    node = start("one=")
    node.ready()
    wait_for_sync(lambda: "no backup was made: there is no folder" in node.said(), 60)
    assert "there is no folder" in read_last(place).error
    folder.mkdir()
    write_last(place, LastBackup())
    wait_for_sync(lambda: read_last(place).id, 60, "a backup on the schedule")
    last = read_last(place)
    assert (last.error, last.folder) == ("", str(folder))
    assert reader.choose(folder).id == last.id
    assert read_node_state(place).ready
    assert node.end() == 0


@pytest.mark.req("BACKUP-10")
def test_node_that_ends_stops_the_backup_that_is_being_made(
    place: Home, start: Callable[..., Node], tmp_path: Path
) -> None:
    create_identity(place.recovery_key)
    folder = tmp_path / "backups"
    folder.mkdir()
    settings = place.config_file.read_text()
    place.config_file.write_text(f'{settings}\n[backup]\nfolder = "{folder}"\nevery_hours = 1\n')
    node = start("one=")

    def making() -> list[int]:
        return [one.pid for one in node.family() if "create" in _command_line(one)]

    (writer,) = wait_for_sync(making, 60, "a backup that is being made")
    pause(writer)
    assert node.end() == 0
    assert not psutil.pid_exists(writer)
    assert list(folder.glob("*/*.backup")) == []


def _command_line(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return list[str](process.cmdline())
    return []


@pytest.mark.asyncio
@pytest.mark.req("BACKUP-7")
@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (Unavailable("the processes do not stop"), "partition", "do not stop"),
        (OSError(errno.ENOSPC, "No space left"), "capacity_exceeded", "could not be copied"),
        (OSError(errno.EIO, "Input/output error"), "internal_error", "could not be copied"),
    ],
)
async def test_what_goes_wrong_at_the_copy_is_told_to_who_asked(
    tmp_path: Path, error: Exception, code: str, text: str
) -> None:
    home = Home(tmp_path / "home")
    home.keys.mkdir(parents=True)

    def groups() -> tuple[int, ...]:
        raise error

    answering = asyncio.ensure_future(backups.Backups(home, BackupConfig(), groups, pytest.fail).follow())
    request = requests.ask(home, {})

    def refusal() -> HearthNetError | None:
        try:
            assert requests.answer(home, request) is None
        except HearthNetError as refused:
            return refused
        return None

    try:
        refused = await wait_for(refusal, what="the answer")
        assert (refused.code, text in refused.message) == (code, True)
        assert not requests.staging(home, request).exists() or code == "partition"
    finally:
        answering.cancel()


@pytest.mark.req("BACKUP-7")
def test_requests_of_an_interrupted_node_are_removed(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.backup.mkdir(parents=True)
    request = requests.ask(home, {})
    requests.staging(home, request).mkdir()
    (home.backup / "last.json").write_text("{}")
    requests.forget_all(home)
    assert requests.waiting(home) == []
    assert [path.name for path in home.backup.iterdir()] == ["last.json"]


@pytest.mark.req("BACKUP-10")
def test_backup_is_due_by_the_time_of_the_last_one(tmp_path: Path) -> None:
    home, settings = Home(tmp_path), BackupConfig(folder="/media", every_hours=2)
    assert not backups.is_due(home, BackupConfig(), 10 * HOUR)
    assert not backups.is_due(home, BackupConfig(folder="/media", every_hours=0), 10 * HOUR)
    assert backups.is_due(home, settings, 10 * HOUR)
    write_last(home, LastBackup("id", "/media", 10 * HOUR, 10 * HOUR))
    assert not backups.is_due(home, settings, 12 * HOUR - 1)
    assert backups.is_due(home, settings, 12 * HOUR)
    assert backups.is_due(home, settings, 9 * HOUR)
    write_last(home, LastBackup("id", "/media", 10 * HOUR, 12 * HOUR, "no disk"))
    assert not backups.is_due(home, settings, 12 * HOUR + 1)
    assert backups.is_due(home, settings, 13 * HOUR)
