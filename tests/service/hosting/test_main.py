"""The process of one service, as its supervisor sees it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import pytest_asyncio

from tests.helpers.mesh import Mesh
from tests.helpers.processes import child_environment
from tests.helpers.waiting import wait_for_sync

_VERBS = ("list", "search", "post", "update", "expire", "delete", "export")
pytestmark = pytest.mark.asyncio


class Child:
    """A service process with its two pipes."""

    def __init__(self, mesh: Mesh, name: str) -> None:
        self.status, status_end = os.pipe()
        lifeline_end, self.lifeline = os.pipe()
        command = [
            sys.executable,
            "-m",
            "hearthnet.service.hosting.main",
            name,
            "--home",
            str(mesh.home.path),
        ]
        environment = child_environment(
            HEARTHNET_STATUS_FD=str(status_end), HEARTHNET_LIFELINE_FD=str(lifeline_end)
        )
        self.process = subprocess.Popen(
            command, pass_fds=(status_end, lifeline_end), env=environment, stderr=subprocess.DEVNULL
        )
        os.close(status_end)
        os.close(lifeline_end)
        os.set_blocking(self.status, False)
        self._heard = b""

    def said(self) -> list[dict[str, Any]]:
        """Every line so far."""
        try:
            while more := os.read(self.status, 65536):
                self._heard += more
        except BlockingIOError:
            pass
        return [json.loads(line) for line in self._heard.splitlines()]

    def wait_for(self, state: str) -> dict[str, Any]:
        """The first line with `state`."""
        return wait_for_sync(
            lambda: next((line for line in self.said() if line["state"] == state), None), 20, state
        )

    def close(self) -> None:
        """Ends it, and the pipes."""
        self.process.kill()
        self.process.wait()
        os.close(self.status)
        os.close(self.lifeline)


@pytest_asyncio.fixture
async def node(mesh: Mesh) -> Any:
    """The mesh as a running node: its state is published and its lock is held."""
    with mesh.published():
        yield mesh


@pytest.fixture
def children() -> Iterator[list[Child]]:
    """Processes that end with the test."""
    started: list[Child] = []
    yield started
    for child in started:
        child.close()


def _start(children: list[Child], mesh: Mesh, name: str) -> Child:
    children.append(Child(mesh, name))
    return children[-1]


@pytest.mark.req("SERVICE-1")
async def test_a_service_says_what_it_offers_and_ends_when_told(node: Mesh, children: list[Child]) -> None:
    child = _start(children, node, "market")
    ready = child.wait_for("ready")
    assert ready["offers"] == [f"market.{verb}@1.0" for verb in sorted(_VERBS)]
    assert ready["note"] is None
    assert child.said()[0]["state"] == "starting"
    async with await node.bus() as bus:
        assert (await bus.call("market.list@1.0", {"params": {}, "input": {}})).output["posts"] == []
        child.process.send_signal(signal.SIGTERM)
        assert child.process.wait(60) == 0
        assert await bus.offers() == []


@pytest.mark.req("SERVICE-2")
async def test_a_service_ends_with_its_supervisor(node: Mesh, children: list[Child]) -> None:
    child = _start(children, node, "market")
    child.wait_for("ready")
    os.close(child.lifeline)
    child.lifeline = os.open(os.devnull, os.O_RDONLY)
    assert child.process.wait(60) == 1


@pytest.mark.req("SERVICE-3")
async def test_a_service_that_cannot_start_says_why(mesh: Mesh, children: list[Child]) -> None:
    absent = _start(children, mesh, "nosuch")
    assert absent.wait_for("failed")["note"] == ("no service 'nosuch' is installed; install hearthnet-nosuch")
    assert absent.process.wait(60) == 5
    alone = _start(children, mesh, "market")
    assert "hearthnet up" in alone.wait_for("failed")["note"]
    assert alone.process.wait(60) == 3


@pytest.mark.req("SERVICE-3")
async def test_a_defect_at_the_start_is_named_too(node: Mesh, children: list[Child]) -> None:
    folder = node.home.service("market")
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("a file where the data folder should be")
    child = _start(children, node, "market")
    assert "FileExistsError" in child.wait_for("failed")["note"]
    assert child.process.wait(60) == 1
