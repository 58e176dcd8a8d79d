"""Three homes with two doors: the founder's house burns down, and the others go on (docs/decisions/0221)."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from hearthnet.bus.bus import Bus
from hearthnet.bus.session.keyring import load_identity
from hearthnet.cli.input.local_call import on_bus
from hearthnet.core.errors import REFUSED, HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.node_state import read_node_state
from hearthnet.supervisor.nats.leaf_links import Upstream, save_upstream
from tests.helpers.household import make_home, settle
from tests.helpers.processes import processes_of
from tests.helpers.shell import READY_SECONDS, Shell
from tests.helpers.stopwatch import Stopwatch
from tests.helpers.waiting import wait_for_sync

pytestmark = pytest.mark.e2e
SYNC: dict[str, Any] = {"params": {}, "input": {"heads": {}}}


def reaches(shell: Shell, *others: Shell) -> bool:
    """Whether calls from that home to the others are answered."""

    async def answered(bus: Bus) -> None:
        for other in others:
            node = load_identity(Home(other.home).device_key).node_id
            await bus.call("community.sync@1.0", SYNC, node=node, timeout_seconds=1)

    try:
        on_bus(Home(shell.home), answered)
    except HearthNetError:
        return False
    return True


def state_of_link(shell: Shell) -> str:
    """Whether that node is linked."""
    return read_node_state(Home(shell.home)).server.upstream


@pytest.mark.req("DOOR-8", "DOOR-9", "DOOR-10")
def test_others_go_on_when_the_founders_house_burns_down(tmp_path: Path) -> None:
    household = settle(tmp_path, {"Kitchen": "trusted", "Attic": "member"}, '["auth"]', "Hearth")
    hearth, kitchen, attic = (
        Shell(home.path) for home in (household.founder, household["Kitchen"], household["Attic"])
    )
    shed = Shell(make_home(tmp_path / "Shed", "Shed", '["auth"]').path)
    with contextlib.ExitStack() as running:
        ready = tmp_path / "hearth.ready"
        burning = running.enter_context(hearth.start("up", "--ready-file", ready))
        wait_for_sync(ready.exists, READY_SECONDS, "the ready-file")
        founders = read_node_state(Home(hearth.home)).server
        for guest in (kitchen, attic):
            save_upstream(Home(guest.home), Upstream(founders.address))
            running.enter_context(guest.node())
        wait_for_sync(lambda: reaches(kitchen, attic, hearth), 30, "the hub")

        # The hub opens first; a plain member opens none.
        early = kitchen.run("door", "open", "--json")
        assert (early.returncode, "which is no door yet" in early.stderr) == (REFUSED, True), early.stderr
        plain = attic.run("door", "open", "--json")
        assert (plain.returncode, "a trusted member opens a door" in plain.stderr) == (REFUSED, True)

        first = hearth.json("door", "open", "--json")
        assert (first["state"], first["address"]) == ("open", founders.address)
        assert first["reached_from"] is not None
        for guest in (kitchen, attic):
            wait_for_sync(lambda guest=guest: state_of_link(guest) == "linked", 30, "the link")  # type: ignore[misc]
        wait_for_sync(lambda: reaches(kitchen, attic, hearth), 30, "somebody who can try the second door")
        second = kitchen.json("door", "open", "--json")
        assert (second["state"], second["reached_from"] is not None) == ("open", True)
        again = hearth.json("door", "open", "--json")
        assert (again["event_id"], again["route"]) == (first["event_id"], first["route"]), (
            "it is the same door"
        )
        doors = attic.json("door", "list", "--json")
        assert [one["address"] for one in doors] == [first["address"], second["address"]]
        assert [one["state"] for one in kitchen.json("door", "list", "--json")] == [None, "open"]
        wait_for_sync(lambda: reaches(attic, kitchen, hearth), 30, "the neighbours")
        made_before = attic.json("invite", "create", "--json")["invite"]

        watch = Stopwatch()
        burning.kill()
        burning.wait()
        wait_for_sync(lambda: not processes_of(hearth.home), what="the end of its servers")
        wait_for_sync(lambda: reaches(attic, kitchen) and reaches(kitchen, attic), 30, "the neighbours")
        assert watch.seconds() < 5

        # A text that was made before, and names the burnt door, too.
        joined = json.loads(shed.run("invite", "redeem", "--json", stdin=made_before).stdout)
        assert (joined["members"], joined["address"]) == (4, second["address"])
        running.enter_context(shed.node())
        wait_for_sync(lambda: reaches(shed, kitchen) and reaches(attic, shed), 30, "the newcomer")
        kitchen.json("door", "close", "Hearth", "--json")
        assert [one["address"] for one in kitchen.json("door", "list", "--json")] == [second["address"]]
