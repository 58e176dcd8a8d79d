"""Two homes on one computer, each with its own server, joined by a leaf link.

See: docs/operations.md#links-between-homes.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio

from hearthnet.bus.bus import Bus
from hearthnet.core.errors import HearthNetError
from hearthnet.supervisor.community import join_client as guest_module
from hearthnet.supervisor.community.join_client import temporary_server
from hearthnet.supervisor.nats import server_config
from hearthnet.supervisor.nats.leaf_links import Upstream, linked
from hearthnet.supervisor.nats.server_config import ANY_PORT
from hearthnet.trust.keys import Identity
from tests.helpers.mesh import Mesh
from tests.helpers.nats_server import NatsServer
from tests.helpers.offers import offered
from tests.helpers.probe import QUERY, ProbeService, query
from tests.helpers.processes import kill, paused
from tests.helpers.stopwatch import Stopwatch
from tests.helpers.waiting import wait_for
from tests.supervisor.houses import Callers, House, Street, admitted, parsed, way_to
from tests.supervisor.raw_leaf import RawLeaf

Link = Callable[..., Awaitable[RawLeaf]]
pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def street(tmp_path: Path) -> Street:
    """A founder, a member who has a home of its own, and one more member."""
    return Street.build(tmp_path, "bob", "carol")


@pytest_asyncio.fixture
async def founder(street: Street, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    """The home that the others link to."""
    # Silence is noticed in a second, not in fifteen.
    monkeypatch.setattr(server_config, "_PINGS", "ping_interval: 400ms\nping_max: 2")
    async with street.open("founder") as house:
        yield house


@pytest_asyncio.fixture
async def bob(street: Street, founder: House) -> AsyncIterator[House]:
    """A home that links to the founder's."""
    async with street.open("bob", upstream=way_to(founder)) as house:
        await wait_for(lambda: link_is_there(house), what="the link")
        yield house


@pytest_asyncio.fixture
async def link(founder: House) -> AsyncIterator[Link]:
    """Makes links to the founder's server by hand."""
    made: list[RawLeaf] = []

    async def connect(identity: Identity, **claims: Any) -> RawLeaf:
        made.append(await RawLeaf.connect(founder.server.state.leaf_port, identity.login(), **claims))
        return made[-1]

    yield connect
    for leaf in made:
        await leaf.close()


async def link_is_there(house: House) -> bool:
    """Whether the house has its link to another one."""
    assert house.server.guarded.system is not None
    with contextlib.suppress(HearthNetError):
        return await linked(house.server.guarded.system)
    return False


@contextlib.asynccontextmanager
async def hosting(house: House, service: ProbeService | None = None) -> AsyncIterator[ProbeService]:
    """A service at that house."""
    service = service or ProbeService()
    server = cast("NatsServer", house.server.state)  # of which only the address is asked for
    settings = house.server._settings(ANY_PORT, ANY_PORT)
    async with Mesh(house.home, house.home, server, house.identity, settings).hosting(service):
        yield service


async def ask(bus: Bus, house: House, seconds: float = 30) -> str:
    """Who answered a call from `bus` to the service of `house`."""
    reply = await bus.call(QUERY, query(), node=house.identity.node_id, timeout_seconds=seconds)
    return str(reply.provider)


@pytest.mark.req("UP-36")
async def test_two_homes_use_each_others_capabilities(founder: House, bob: House) -> None:
    async with hosting(founder) as theirs, hosting(bob) as bobs:
        at_founder = await Bus.join(founder.home, founder.url, "a")
        at_bob = await Bus.join(bob.home, bob.url, "b")
        assert {view.node for view in await offered(at_bob, QUERY, 2)} == {
            founder.identity.node_id,
            bob.identity.node_id,
        }
        assert await ask(at_bob, founder) == founder.identity.node_id
        assert await ask(at_founder, bob) == bob.identity.node_id
        assert [call.caller for call in theirs.calls] == [bob.identity.node_id]
        assert [call.caller for call in bobs.calls] == [founder.identity.node_id]
        await at_bob.close()
        await at_founder.close()


@pytest.mark.req("UP-37")
async def test_only_the_bus_is_bridged(founder: House, bob: House, callers: Callers) -> None:
    pairs: list[tuple[Any, Any]] = [
        (founder.identity.store_login(), bob.identity.store_login()),
        (founder.server.guarded.system_login, bob.server.guarded.system_login),
    ]
    silent = []
    for ours, theirs in pairs:
        here = await callers.connect(founder.url, ours)
        there = await callers.connect(bob.url, theirs)
        await here.listen("mk.>", "hn.>", "$SYS.SERVER.>")
        await there.say("mk.post.a.b")
        await there.say(f"hn.adv.{bob.identity.token}.b.v1")  # which the link would carry for the bus
        silent.append(here)
    # The link itself carries the next message, so that the silence says something.
    me = await callers.connect(founder.url, founder.identity.login())
    await me.listen("hn.adv.>")
    also_bob = await callers.connect(bob.url, bob.identity.login())
    await also_bob.say(f"hn.adv.{bob.identity.token}.c.v1")
    await wait_for(lambda: me.heard, what="a message across the link")
    for one in silent:
        await one.client.flush()
        assert not [subject for subject in one.subjects() if subject.startswith(("mk.", "hn."))]


@pytest.mark.req("UP-37", "OPERATOR-7", "ATTACK-24")
async def test_a_hostile_hub_learns_nothing_of_a_homes_server(
    street: Street, nats_server: Callable[..., NatsServer], callers: Callers
) -> None:
    # Whoever runs the hub may say and hear there whatever they like.
    bob, owner = street.key("bob"), Identity.generate().login()
    users = ", ".join(f"{{ nkey: {login.public} }}" for login in (bob.login(), owner))
    hub = nats_server(f"accounts {{ HN {{ users: [{users}] }} }}\nleafnodes {{ host: 127.0.0.1, port: -1 }}")
    port = hub.log.read_text().partition("leafnode connections on 127.0.0.1:")[2].split()[0]
    spy = await callers.connect(hub.url, owner)
    await spy.listen(">")
    async with street.open("bob", upstream=Upstream(f"127.0.0.1:{port}")) as house:
        await wait_for(lambda: link_is_there(house), what="the link")
        inside = await callers.connect(house.url, bob.login())
        store = await callers.connect(house.url, bob.store_login())
        await inside.listen(f"hn.call.*.{bob.token}.abcdefgh.>", "$SRV.>")
        for subject in (
            "$SRV.INFO",
            "$SYS.REQ.ACCOUNT.PING.CONNZ",
            "$SYS.REQ.SERVER.PING.CONNZ",
            "$SYS.REQ.SERVER.PING",
            "$SYS.REQ.USER.INFO",
            "$JS.API.INFO",
            "$JS.API.STREAM.LIST",
        ):
            await spy.client.publish(subject, b"{}", reply="hub.wants.this")
        await store.say("mk.post.a.b")

        async def heard() -> bool:
            await spy.say(f"hn.call.{bob.token}.{bob.token}.abcdefgh.last")
            return bool(inside.heard)

        await wait_for(heard, what="the link to carry what came after")
        assert "$SRV.INFO" not in inside.subjects()
        await inside.say(f"hn.adv.{bob.token}.c.v1")
        await wait_for(lambda: f"hn.adv.{bob.token}.c.v1" in spy.subjects(), what="the other way, too")
    answers = [parsed(data) for subject, data in spy.heard if subject == "hub.wants.this"]
    # The hub's own server answers for itself; no other one does.
    assert len({answer["server"]["id"] for answer in answers}) == 1
    assert "mk.post.a.b" not in spy.subjects()


@pytest.mark.req("UP-38")
async def test_a_link_speaks_for_its_own_node_only(
    founder: House, street: Street, callers: Callers, link: Link
) -> None:
    bob, carol = street.key("bob"), street.key("carol")
    me = await callers.connect(founder.url, founder.identity.login())
    await me.listen(f"hn.call.*.{founder.identity.token}.>", "hn.adv.>", "hn.event.>")
    leaf = await link(bob)
    leaf.publish(f"hn.call.{bob.token}.{founder.identity.token}.i.c.v1")
    await wait_for(lambda: len(me.heard) == 1, what="what it may say")
    for subject in (
        f"hn.call.{carol.token}.{founder.identity.token}.i.c.v1",
        f"hn.adv.{carol.token}.c.v1",
        f"hn.event.{carol.token}.community.log",
        "$JS.API.INFO",
        "$SYS.REQ.SERVER.PING",
    ):
        forger = await link(bob, name=f"hostile-{subject}")
        forger.publish(subject)
        await wait_for(lambda: forger.over, what=f"the link to be cut for {subject}")  # noqa: B023
        assert "Permissions Violation" in forger.errors()[0]
    await me.settle()
    assert len(me.heard) == 1


@pytest.mark.req("UP-39")
async def test_a_link_cannot_read_what_is_for_others(
    founder: House, street: Street, callers: Callers, link: Link
) -> None:
    bob, carol = street.key("bob"), street.key("carol")
    me = await callers.connect(founder.url, founder.identity.login())
    leaf = await link(bob)
    for subject in (">", "hn.>", "*.>", f"hn.call.*.{carol.token}.>", "hn.*.*.*.>", "_INBOX.>"):
        leaf.send(f"LS+ {subject}")
    await wait_for(lambda: leaf.welcome, what="the login to be accepted")
    await me.say(f"hn.call.{founder.identity.token}.{carol.token}.abcdefgh.c.v1", b"secret")
    await me.say(f"hn.rep.{founder.identity.token}.{carol.token}.abcdefgh.1", b"secret")
    await me.say(f"hn.call.{founder.identity.token}.{bob.token}.abcdefgh.c.v1", b"for bob")
    await wait_for(lambda: leaf.heard, what="what is for bob")
    assert b"secret" not in b"".join(leaf.heard)
    literal = await link(bob, name="other")
    literal.send(f"LS+ hn.rep.{founder.identity.token}.{carol.token}.abcdefgh.1")
    await wait_for(lambda: literal.over, what="a subscription to another's answers to be refused")
    assert "Permissions Violation" in literal.errors()[0]


@pytest.mark.req("UP-40")
async def test_a_link_that_calls_itself_the_hub_is_shut_out(
    founder: House, street: Street, callers: Callers, link: Link
) -> None:
    # Towards a hub the server checks no subject: this is what it would be used for.
    bob, carol = street.key("bob"), street.key("carol")
    watch = Stopwatch(founder.server.state.pid)
    leaf = await link(bob, is_hub=True)
    await wait_for(lambda: leaf.over, what="the link to be cut")
    assert watch.seconds() < 2
    await wait_for(lambda: founder.news, what="people to be told")
    assert "as if it were the hub" in founder.news[-1]
    again = await link(bob)
    await wait_for(lambda: again.over, what="the link to be refused")
    assert "Authorization Violation" in again.errors()[0]
    # A change of the roster does not let it in again, and others are not touched.
    await founder.server.admit(admitted(founder.identity, bob, carol))
    with pytest.raises(Exception, match="Authorization Violation"):
        await callers.connect(founder.url, bob.login())
    honest = await link(carol)
    await wait_for(lambda: honest.welcome, what="another member's link")
    assert not honest.over


@pytest.mark.req("UP-40")
async def test_a_hub_that_is_seen_a_moment_late_is_shut_out_all_the_same(
    founder: House, street: Street, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = founder.server.guarded.system
    assert system is not None
    look, looks = system.hubs, iter([set[int]()])

    async def late() -> set[int]:
        for nothing_yet in looks:
            return nothing_yet
        return await look()

    monkeypatch.setattr(system, "hubs", late)
    watch = Stopwatch(founder.server.state.pid)
    leaf = await link(street.key("bob"), is_hub=True)
    await wait_for(lambda: leaf.over, what="the link to be cut")
    assert watch.seconds() < 2
    await wait_for(lambda: founder.news, what="people to be told")
    again = await link(street.key("bob"))
    await wait_for(lambda: again.over, what="the link to be refused")
    assert "Authorization Violation" in again.errors()[0]


@pytest.mark.req("UP-41")
async def test_a_revoked_home_is_cut_off_and_stays_out(founder: House, bob: House, callers: Callers) -> None:
    me = await callers.connect(founder.url, founder.identity.login())
    await me.listen("hn.adv.>")
    at_bob = await callers.connect(bob.url, bob.identity.login())
    await at_bob.say(f"hn.adv.{bob.identity.token}.c.v1")
    await wait_for(lambda: me.heard, what="the link to carry messages")
    watch = Stopwatch(founder.server.state.pid)
    await founder.server.admit(admitted(founder.identity))
    assert founder.server.guarded.system is not None
    assert [each for each in await founder.server.guarded.system.sessions() if each.is_leaf] == []
    assert watch.seconds() < 2
    await wait_for(lambda: "Authorization Violation" in bob.log, what="bob's next attempt to be refused")
    assert [each for each in await founder.server.guarded.system.sessions() if each.is_leaf] == []
    me.heard.clear()
    await at_bob.say(f"hn.adv.{bob.identity.token}.c.v1")
    await me.settle()
    assert me.heard == []
    assert me.cut == 0
    # Its own home goes on, and its people are told why it is alone.
    assert at_bob.cut == 0
    await wait_for(lambda: len(bob.news) == 2, what="people to be told")
    assert bob.news == [
        f"linked to the home at {founder.server.state.address}",
        f"no link to the home at {founder.server.state.address} (it refuses this node: there it does not "
        "belong to the community); this home works alone meanwhile",
    ]


@pytest.mark.req("UP-42")
@pytest.mark.parametrize("how", ["killed", "silent"])
async def test_a_lost_link_leaves_each_home_working_and_heals(founder: House, bob: House, how: str) -> None:
    async with hosting(founder), hosting(bob):
        at_bob = await Bus.join(bob.home, bob.url, "b")

        async def reached() -> bool:
            with contextlib.suppress(HearthNetError):
                return await ask(at_bob, founder, 5) == founder.identity.node_id
            return False

        await wait_for(reached, what="the other home to be reached")
        pid = founder.server.state.pid
        if how == "killed":
            kill(pid)
        with paused(pid) if how == "silent" else contextlib.nullcontext():
            if how == "silent":
                await wait_for(lambda: "Stale Connection" in bob.log, what="the silence to be noticed")
            assert await ask(at_bob, bob) == bob.identity.node_id
        await wait_for(reached, 60, "the other home to be reached again")
        await at_bob.close()


@pytest.mark.req("UP-43")
async def test_a_members_link_does_not_replace_anothers(
    founder: House, bob: House, street: Street, link: Link
) -> None:
    # A server takes two links under one name for one that came back, and cuts the first.
    token = bob.identity.token
    for name in (f"hearthnet-{token}", token, bob.identity.node_id):
        rival = await link(street.key("carol"), name=name, cluster=name)
        await wait_for(lambda: rival.welcome, what="the rival to be let in")  # noqa: B023
    assert "Duplicate" not in founder.log
    assert await link_is_there(bob)


@pytest.mark.req("UP-44")
async def test_a_guest_reaches_the_inviters_home_for_as_long_as_the_invite_is_open(
    founder: House, tmp_path: Path, callers: Callers
) -> None:
    key, me = Identity.generate(), founder.identity
    with pytest.raises(HearthNetError, match="does not accept this invite") as caught:
        async with temporary_server(tmp_path / "guest", key, way_to(founder)):
            pytest.fail("let in without an invite")
    assert caught.value.code == "unauthorized"
    await founder.server.admit(admitted(me, invites=(key,)))
    host = await callers.connect(founder.url, me.login())
    await host.listen(f"hn.call.*.{me.token}.abcdefgh.>")
    async with temporary_server(tmp_path / "guest", key, way_to(founder)) as url:
        guest = await callers.connect(url, key.login())
        await guest.listen(f"hn.rep.*.{key.token}.>")
        subject = f"hn.call.{key.token}.{me.token}.abcdefgh.community.join.v1"

        async def heard() -> bool:
            # The other server learns of the listener a moment after the link is there.
            await guest.say(subject)
            return bool(host.heard)

        await wait_for(heard, what="a call across the link")
        assert not await guest.may_say(f"hn.call.{key.token}.{me.token}.abcdefgh.market.list.v1")
        await founder.server.admit(admitted(me))
        assert founder.server.guarded.system is not None
        assert not [each for each in await founder.server.guarded.system.sessions() if each.is_leaf]
    assert key.to_text().split()[1] not in (tmp_path / "guest" / "server.conf").read_text()


@pytest.mark.req("UP-44")
async def test_a_home_that_is_not_there_is_said_to_be_so(
    founder: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_module, "LINK_SECONDS", 0.5)
    way = way_to(founder)
    with (
        paused(founder.server.state.pid),
        pytest.raises(HearthNetError, match=f"{way.address} cannot be reached") as caught,
    ):
        async with temporary_server(tmp_path / "guest", Identity.generate(), way):
            pytest.fail("linked to a server that stands still")
    assert caught.value.code == "partition"
