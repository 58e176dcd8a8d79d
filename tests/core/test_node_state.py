"""Who reads the state of a running node, and what they are told when none runs."""

from __future__ import annotations

import fcntl
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.node_state import NodeState, ServerState, read_node_state, running_pid
from hearthnet.supervisor.os import lock
from hearthnet.supervisor.os.disk import make_folder
from hearthnet.supervisor.os.lock import home_lock
from tests.helpers.waiting import wait_for_sync

SERVER = ServerState("nats://127.0.0.1:1", 1, 1)


@pytest.fixture
def place(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    make_folder(home.run)
    return home


def state(pid: int) -> NodeState:
    return NodeState(pid, "ed25519:x", "kitchen", "0.1.0", SERVER, (), 0, True)


@pytest.mark.req("UP-15")
def test_without_a_lock_no_node_is_running(place: Home) -> None:
    place.state.write_bytes(msgspec.json.encode(state(os.getpid())))
    with home_lock(place):
        assert read_node_state(place) == state(os.getpid())
    assert running_pid(place) is None
    with pytest.raises(HearthNetError, match="no node is running") as caught:
        read_node_state(place)
    assert (caught.value.code, caught.value.exit_status) == ("partition", 3)


@pytest.mark.req("UP-15")
@pytest.mark.parametrize("left", [None, b"{", msgspec.json.encode(state(1))])
def test_a_node_that_has_written_nothing_yet_is_starting(place: Home, left: bytes | None) -> None:
    if left is not None:
        place.state.write_bytes(left)
    with home_lock(place), pytest.raises(HearthNetError, match="still starting") as caught:
        read_node_state(place)
    assert caught.value.exit_status == 3


@pytest.mark.req("UP-5")
def test_two_readers_do_not_take_each_other_for_a_node(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_READERS_SECONDS", 0.1)
    with home_lock(place):
        place.lock.write_bytes(b"")
        assert running_pid(place) == 0
    descriptor = os.open(place.lock, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        assert running_pid(place) is None
        with (
            pytest.raises(HearthNetError, match=r"already running in .*; end that one first") as caught,
            home_lock(place),
        ):
            raise AssertionError("not reached")
        assert caught.value.exit_status == 1
    finally:
        os.close(descriptor)


@pytest.mark.req("UP-5")
def test_a_reader_that_is_slow_is_no_node(place: Home) -> None:
    """It was given no core while it held the lock; whoever starts a node waits for it."""

    def start() -> None:
        with home_lock(place):
            assert running_pid(place) == os.getpid()

    reader = os.open(place.lock, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(reader, fcntl.LOCK_SH)
    with ThreadPoolExecutor() as threads:
        starting = threads.submit(start)
        over = time.monotonic() + 3 * lock._PATIENCE_SECONDS
        wait_for_sync(lambda: starting.done() or time.monotonic() > over, what="the time")
        os.close(reader)
        starting.result(20)
