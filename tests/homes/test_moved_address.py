"""Homes of one network, of which one gets another address and is found again."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from hearthnet.core.errors import TIMED_OUT
from hearthnet.core.home import Home
from hearthnet.core.node_state import ServerState, read_node_state
from tests.helpers.waiting import wait_for
from tests.homes.house import House
from tests.homes.network import Network, need_namespaces

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio, pytest.mark.timeout(300)]
MOVED = "10.77.0.201"
NOTICE_SECONDS = 20.0
"""The longest time after which a silent loss is noticed (docs/protocol/subjects.md#server-settings)."""
FOUND_SECONDS = 15.0


def server(house: House) -> ServerState:
    """The state of the house's server."""
    return read_node_state(Home(house.shell.home)).server


@pytest.mark.req("FIND-1", "FIND-3", "FIND-4", "FIND-5", "FIND-6", "FIND-7")
async def test_a_home_whose_address_changed_is_found_by_all(tmp_path: Path) -> None:
    need_namespaces()
    async with contextlib.AsyncExitStack() as running:
        network = running.enter_context(Network(3))
        names = ("Kitchen", "Shed", "Loft")
        houses = [House(place, tmp_path, name) for place, name in zip(network.places, names, strict=True)]
        for house in houses:
            running.push_async_callback(house.close)
        kitchen, shed, loft = houses
        kitchen.begin()
        await kitchen.wait_until_ready()
        shed.join(kitchen)
        shed.begin()
        await shed.wait_until_ready()
        await wait_for(lambda: server(shed).upstream == "linked", what="the link")
        await wait_for(lambda: server(kitchen).announced, what="the announcement")
        early = kitchen.json("invite", "create", "--name", "Loft")["invite"]
        moved = f"{MOVED}:{server(kitchen).leaf_port}"

        network.places[0].move_to(MOVED)
        await wait_for(
            lambda: server(shed).address == moved and server(shed).upstream == "linked",
            NOTICE_SECONDS + FOUND_SECONDS,
            "the home to be found",
        )
        assert (await shed.call("market.list@1.0"))["posts"] == []
        post: dict[str, Any] = {
            "client_id": "01HZX3Q4R5S6T7V8W9XA0BC1DE",
            "category": "offer",
            "title": "Egg",
            "body": "One.",
        }
        await kitchen.call("market.post@1.0", **post)

        async def arrived() -> bool:
            return len((await shed.call("market.list@1.0"))["posts"]) == 1

        await wait_for(arrived, what="a post over the new link")
        # New invites name the new address, at both homes; one from before leads there, too.
        assert server(kitchen).address == moved
        settings = loft.shell.home / "hearthnet.toml"
        before = settings.read_text()
        settings.write_text(before.replace("[community]", "[community]\nzeroconf = false"))
        alone = loft.shell.run("invite", "redeem", "--json", stdin=early)
        assert alone.returncode == TIMED_OUT
        assert "nothing is there: a wrong address, a firewall, or that computer is off" in alone.stderr
        settings.write_text(before)
        done = loft.shell.run("invite", "redeem", "--json", stdin=early)
        assert done.returncode == 0, done.stderr
        assert "looking for it on this network" in done.stderr
        assert moved in done.stdout
