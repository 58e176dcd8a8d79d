"""Members who were put out, and rosters of the past."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from hearthnet.bus.bus import Bus
from hearthnet.bus.keyring import load_identity, load_roster
from hearthnet.errors import HearthNetError
from hearthnet.times import now_ms
from hearthnet.trust.token import Scope, mint
from tests.attacks.attacker import LIST, LIST_BODY, Attacker, Raw
from tests.helpers.neighbourhood import settle_in
from tests.helpers.shell import Shell
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio
CUT_SECONDS = 2.0


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

        began = time.monotonic()
        shell.json("revoke", carol.node_id, "--yes", "--json")
        await wait_for(lambda: old_connection.client.is_closed, 10, "the connection to be cut")
        assert time.monotonic() - began < CUT_SECONDS + 1.0  # the command itself takes up to a second

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
            lambda: load_roster(home.roster).is_revoked(carol.node_id), 10, "the roster to be whole"
        )
        with pytest.raises(Exception, match=r"(?i)authorization"):
            await (await Raw.connect(url, carol.login())).close()
        members = shell.json("members", "--json")
        assert carol.node_id in json.dumps(members["revoked"])
