"""Members who were put out, and rosters of the past."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from hearthnet.bus.bus import Bus
from hearthnet.bus.session import gossip_frames
from hearthnet.bus.session.gossip_frames import LOG
from hearthnet.bus.session.keyring import load_identity, load_roster
from hearthnet.core.errors import HearthNetError
from hearthnet.core.node_state import read_node_state
from hearthnet.core.times import now_ms
from hearthnet.trust.authorization.token import Scope, mint
from tests.attacks.attacker import LIST, LIST_BODY, Attacker, Raw
from tests.helpers.members import not_understood
from tests.helpers.neighbourhood import settle_in
from tests.helpers.shell import Shell
from tests.helpers.stopwatch import Stopwatch
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio
CUT_SECONDS = 2.0
SYNC = "community.sync@1.0"


@pytest.mark.req("ATTACK-21", "ATTACK-20")
async def test_whoever_is_revoked_is_out_and_no_old_roster_brings_it_back(tmp_path: Path) -> None:
    neighbourhood = settle_in(tmp_path, "mallory", "carol", services=("market", "auth"))
    home = neighbourhood.founder
    shell, carol = Shell(home.path), load_identity(neighbourhood.home("carol").device_key)
    before = home.roster.read_bytes()
    with shell.node() as state:
        url = str(state["server"]["url"])
        mallory = Attacker(await Bus.join(neighbourhood.home("mallory"), url, "mallory"))
        market = await mallory.target(LIST, str(state["node_id"]))
        token = mint(
            carol,
            subject=mallory.peer.node_id,
            audience=mallory.peer.community,
            scope=Scope(capabilities=(LIST,)),
            now_ms=now_ms(),
            ttl_seconds=600,
        )
        assert await mallory.call(market, LIST, LIST_BODY, token=token) == "ok"
        old_connection = await Raw.connect(url, carol.login())

        node = read_node_state(home)
        auth = next(service.pid for service in node.services if service.name == "auth")
        assert auth is not None
        with shell.start("revoke", carol.node_id, "--yes", "--json") as command:
            watch = Stopwatch(command.pid, node.pid, node.server.pid, auth)
            await wait_for(lambda: old_connection.client.is_closed, what="the connection to be cut")
            took = watch.seconds()
            assert await asyncio.to_thread(command.wait, 60) == 0
        assert took < CUT_SECONDS

        with pytest.raises(Exception, match=r"(?i)authorization"):
            await Raw.connect(url, carol.login())
        with pytest.raises(HearthNetError) as refused:
            await Bus.join(neighbourhood.home("carol"), url, "carol")
        assert refused.value.code == "unauthorized"
        assert await mallory.call(market, LIST, LIST_BODY, token=token) == "revoked"
        await mallory.bus.close()
    assert load_roster(home.roster).is_revoked(carol.node_id)

    # An old copy of the file, as a backup or a thief would put it there.
    home.roster.write_bytes(before)
    assert not load_roster(home.roster).is_revoked(carol.node_id)
    with shell.node() as state:
        url = str(state["server"]["url"])
        await wait_for(
            lambda: load_roster(home.roster).is_revoked(carol.node_id), what="the roster to be whole"
        )
        with pytest.raises(Exception, match=r"(?i)authorization"):
            await (await Raw.connect(url, carol.login())).close()
        members = shell.json("members", "--json")
        assert carol.node_id in json.dumps(members["revoked"])


@pytest.mark.req("ATTACK-27")
async def test_events_that_nobody_understands_keep_nobody_out(tmp_path: Path) -> None:
    neighbourhood = settle_in(tmp_path, "mallory", services=("auth",))
    home = neighbourhood.founder
    shell = Shell(home.path)
    with shell.node() as state:
        mallory = Attacker(
            await Bus.join(neighbourhood.home("mallory"), str(state["server"]["url"]), "mallory")
        )
        planted = not_understood(mallory.peer.roster, mallory.peer.identity)
        for body in gossip_frames.batches(planted, ()):
            await gossip_frames.publish(mallory.peer.sender, LOG, body)

        async def served() -> bool:
            reply = await mallory.bus.call(SYNC, {"params": {}, "input": {"heads": {}}})
            return {one.event_id for one in planted} <= {one["event_id"] for one in reply.output["events"]}

        await wait_for(served, what="the home to give away what it was told")
        await mallory.bus.close()
        _joins(shell, tmp_path / "first")
    # As a home that has kept them for long: they are on its disk, under its own seal.
    assert {one.hash for one in planted} <= {one.hash for one in load_roster(home.roster).events}
    with shell.node():
        _joins(shell, tmp_path / "second")


def _joins(host: Shell, newcomer: Path) -> None:
    """A new home joins by an invite of `host`."""
    text = str(host.json("invite", "create", "--json")["invite"])
    Shell(newcomer).json("invite", "redeem", text, "--json")
    assert (newcomer / "community" / "roster.json").exists()
