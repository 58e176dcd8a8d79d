"""The process of one service, as its supervisor sees it."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
import pytest_asyncio

from tests.helpers.mesh import Mesh
from tests.helpers.service_child import Child

_POSTS = ("list", "search", "post", "update", "expire", "delete", "export", "hide", "unhide")
_VERBS = (*_POSTS, "mute", "remove_person", "reserve", "lend")
pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def node(mesh: Mesh) -> Any:
    """The mesh as a running node: its state is published and its lock is held."""
    with mesh.published():
        yield mesh


def _start(children: list[Child], mesh: Mesh, name: str) -> Child:
    children.append(Child(mesh, name))
    return children[-1]


@pytest.mark.req("SERVICE-1")
async def test_a_service_says_what_it_offers_and_ends_when_told(node: Mesh, children: list[Child]) -> None:
    child = _start(children, node, "market")
    ready = child.wait_for("ready")
    own = [f"market.{verb}@1.0" for verb in sorted(_VERBS)]
    assert ready["offers"] == ["community.log.sync@1.0 topic=market", *own]
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
