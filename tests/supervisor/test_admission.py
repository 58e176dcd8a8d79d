"""Who may log in to a server changes while it runs, and nobody else notices."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from nats import errors

from hearthnet.core.errors import HearthNetError
from hearthnet.supervisor.nats import nats_server
from hearthnet.supervisor.nats.address import Address
from hearthnet.supervisor.nats.server_config import (
    BusLogin,
    Certificate,
    LeafListener,
    LeafRemote,
    ServerSettings,
    render,
)
from hearthnet.trust.keys import Identity
from tests.helpers.processes import kill
from tests.helpers.stopwatch import Stopwatch
from tests.helpers.waiting import wait_for
from tests.supervisor.houses import Callers, House, Street, admitted

pytestmark = pytest.mark.asyncio
_LINK_BEYOND = """\
  compression: off
  host: "0.0.0.0"
  port: 7422
  no_advertise: true
  tls {
    cert_file: "c.pem"
    key_file: "k.pem"
    handshake_first: true
    timeout: 5
  }
  remotes: [
    {
      urls: ["nats-leaf://kitchen:7422", "nats-leaf://barn:7423"]
      account: HN
      include './upstream.login'
      deny_imports: ["$SYS.>", "$JS.>", "$SRV.>", "_INBOX_ops.>"]
      deny_exports: ["$SRV.>", "_INBOX_ops.>"]
      ignore_discovered_servers: true
      no_randomize: true
      tls {
        ca_file: "upstream.pem"
        handshake_first: true
        timeout: 5
      }
    }
  ]
}
"""
_LINK_ON_LOOPBACK = """\
  compression: off
  host: "127.0.0.1"
  port: 7422
  no_advertise: true
  remotes: [
    {
      urls: ["nats-leaf://127.0.0.1:1"]
      account: HN
      include './upstream.login'
      deny_imports: ["$SYS.>", "$JS.>", "$SRV.>", "_INBOX_ops.>"]
      deny_exports: ["$SRV.>", "_INBOX_ops.>"]
      ignore_discovered_servers: true
      no_randomize: true
    }
  ]
}
"""


@pytest_asyncio.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """The founder's server, whose roster names just the founder."""
    async with Street.build(tmp_path).open("founder") as opened:
        yield opened


@pytest.mark.req("UP-30")
async def test_whoever_is_revoked_is_cut_and_nobody_else_notices(house: House, callers: Callers) -> None:
    me, friend, foe = house.identity, Identity.generate(), Identity.generate()
    await house.server.admit(admitted(me, friend, foe))
    asker = await callers.connect(house.url, me.login())
    answerer = await callers.connect(house.url, friend.login())
    victim = await callers.connect(house.url, foe.login())
    await asker.listen(f"hn.rep.*.{me.token}.>")
    await answerer.listen(f"hn.call.*.{friend.token}.>")
    await asker.say(f"hn.call.{me.token}.{friend.token}.i.c.v1")
    await wait_for(lambda: answerer.heard, what="the request")
    watch = Stopwatch(house.server.state.pid)
    await house.server.admit(admitted(me, friend))
    await wait_for(lambda: victim.cut, 30, "the revoked one to be cut")
    assert watch.seconds() < 2
    # The request that was on its way when the server read its settings is answered on the same connection.
    await answerer.say(f"hn.rep.{friend.token}.{me.token}.i.1", b"done")
    await wait_for(lambda: asker.heard, what="the answer")
    assert (asker.cut, answerer.cut, asker.refused, answerer.refused) == (0, 0, [], [])
    with pytest.raises(errors.Error, match="Authorization Violation"):
        await callers.connect(house.url, foe.login())


@pytest.mark.req("UP-31")
async def test_a_configuration_that_the_server_refuses_changes_nothing(
    house: House, callers: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    friend = Identity.generate()
    visitor = await callers.connect(house.url, house.identity.login())
    before = house.home.server_config.read_bytes()
    monkeypatch.setattr(nats_server, "render", lambda settings: render(settings) + "\nno_such_setting: 1\n")
    with pytest.raises(HearthNetError, match=r"refuses the new configuration: .*no_such_setting"):
        await house.server.admit(admitted(house.identity, friend))
    assert house.home.server_config.read_bytes() == before
    assert visitor.cut == 0
    monkeypatch.undo()
    # The next start, too, is with what was accepted.
    kill(house.server.state.pid)
    await wait_for(lambda: any("is back" in line for line in house.news), what="the server to be back")
    with pytest.raises(errors.Error, match="Authorization Violation"):
        await callers.connect(house.url, friend.login())
    await house.server.admit(admitted(house.identity, friend))
    await callers.connect(house.url, friend.login())


@pytest.mark.req("UP-32")
async def test_commands_reach_a_server_that_was_restarted(house: House, callers: Callers) -> None:
    friend, foe = Identity.generate(), Identity.generate()
    await house.server.admit(admitted(house.identity, friend))
    pid = house.server.state.pid
    kill(pid)
    # While it is away it cannot be told, but starts with what is wanted by then.
    with pytest.raises(HearthNetError) as caught:
        await house.server.admit(admitted(house.identity, foe))
    assert caught.value.code == "partition"
    await wait_for(lambda: house.server.state.pid != pid, what="the server to be back")
    await callers.connect(house.url, foe.login())
    with pytest.raises(errors.Error, match="Authorization Violation"):
        await callers.connect(house.url, friend.login())

    async def told() -> bool:
        try:
            await house.server.admit(admitted(house.identity))
        except HearthNetError:
            return False
        return True

    await wait_for(told, what="the supervisor's connection to be back")
    watch = Stopwatch(house.server.state.pid)
    await wait_for(lambda: callers.open[0].cut, what="the visitor to be cut")
    assert watch.seconds() < 2


@pytest.mark.req("UP-32")
async def test_a_server_that_did_not_hear_is_told_again(house: House, callers: Callers) -> None:
    """It stood still; the configuration was written, and nobody has said that it is to be read."""
    friend = Identity.generate()
    os.kill(house.server.state.pid, signal.SIGSTOP)
    try:
        with pytest.raises(HearthNetError, match="does not answer") as caught:
            await house.server.admit(admitted(house.identity, friend))
    finally:
        os.kill(house.server.state.pid, signal.SIGCONT)
    assert caught.value.code == "partition"
    await house.server.admit(admitted(house.identity, friend))
    await callers.connect(house.url, friend.login())


@pytest.mark.req("UP-33")
async def test_an_invite_is_good_for_joining_and_nothing_else(house: House, callers: Callers) -> None:
    key, me = Identity.generate(), house.identity
    await house.server.admit(admitted(me, invites=(key,)))
    guest = await callers.connect(house.url, key.login())
    assert await guest.may_say(f"hn.call.{key.token}.{me.token}.abcdefgh.community.join.v1")
    assert await guest.may_say(f"hn.find.{key.token}.community.join.v1")
    assert await guest.may_listen(f"hn.rep.*.{key.token}.>")
    assert await guest.may_listen("hn.adv.*.community.join.v1")
    for subject in (
        f"hn.call.{key.token}.{me.token}.abcdefgh.market.list.v1",
        f"hn.call.{me.token}.{me.token}.abcdefgh.community.join.v1",
        f"hn.find.{key.token}.market.list.v1",
        f"hn.find.{key.token}._all.v0",
        f"hn.rep.{key.token}.{me.token}.abcdefgh.x",
        f"hn.ctl.{key.token}.{me.token}.abcdefgh.x",
        f"hn.adv.{key.token}.community.join.v1",
        f"hn.event.{key.token}.community.log",
    ):
        assert not await guest.may_say(subject), subject
    for subject in (
        "hn.event.>",
        "hn.find.>",
        "hn.adv.>",
        f"hn.call.*.{key.token}.>",
        f"hn.rep.*.{me.token}.>",
    ):
        assert not await guest.may_listen(subject), subject
    watch = Stopwatch(house.server.state.pid)
    await house.server.admit(admitted(me))
    await wait_for(lambda: guest.cut, what="the invite's connection to be cut")
    assert watch.seconds() < 2


@pytest.mark.req("UP-34")
async def test_the_own_node_stays_in_whatever_the_roster_says(house: House, callers: Callers) -> None:
    await house.server.admit(admitted(Identity.generate()))
    await callers.connect(house.url, house.identity.login())


@pytest.mark.req("UP-35")
async def test_a_login_that_is_named_twice_is_the_first_ones(house: House, callers: Callers) -> None:
    friend, thief = Identity.generate(), Identity.generate()
    twice = BusLogin(thief.node_id, friend.login().public)
    stolen = BusLogin(thief.node_id, house.identity.store_login().public)
    wanted = admitted(house.identity, friend)
    await house.server.admit(wanted._replace(members=(*wanted.members, twice, stolen), invites=(twice,)))
    visitor = await callers.connect(house.url, friend.login())
    assert await visitor.may_say(f"hn.adv.{friend.token}.c.v1")
    assert not await visitor.may_say(f"hn.adv.{thief.token}.c.v1")


@pytest.mark.req("UP-42")
async def test_the_configuration_of_a_link_is_the_designs(tmp_path: Path) -> None:
    beyond = Certificate(Path("c.pem"), Path("k.pem"))
    homes = Address("kitchen", 7422), Address("barn", 7423)
    for listener, remote in (
        (LeafListener("0.0.0.0", 7422, beyond), LeafRemote(homes, "upstream.login", Path("upstream.pem"))),
        (LeafListener("127.0.0.1", 7422), LeafRemote((Address("127.0.0.1", 1),), "upstream.login")),
    ):
        settings = ServerSettings(
            "n", -1, tmp_path, tmp_path, (), "USTORE", "USYS", listener=listener, remote=remote
        )
        above, _, link = render(settings).partition("\nleafnodes {\n")
        assert above.count("\nping_interval: 5s\nping_max: 2\n") == 1
        assert link == (_LINK_BEYOND if listener.tls else _LINK_ON_LOOPBACK)
    with pytest.raises(HearthNetError, match=r"a leaf listener on 0\.0\.0\.0 needs TLS"):
        LeafListener("0.0.0.0", 7422)


@pytest.mark.req("UP-35")
async def test_what_is_no_login_does_not_reach_the_configuration(tmp_path: Path) -> None:
    odd = BusLogin(Identity.generate().node_id, 'U" } ] } }')
    text = render(ServerSettings("n", -1, tmp_path, tmp_path, (odd,), "USTORE", "USYS"))
    assert odd.login not in text


@pytest.mark.req("UP-30")
async def test_many_changes_at_once_end_with_the_last(house: House, callers: Callers) -> None:
    friends = [Identity.generate() for _ in range(12)]
    steps = [admitted(house.identity, *friends[: count + 1]) for count in range(len(friends))]
    await asyncio.gather(*(house.server.admit(step) for step in steps))
    for friend in friends:
        await callers.connect(house.url, friend.login())
