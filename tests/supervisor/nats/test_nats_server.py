"""The real server under the configuration that the roster gives it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from hearthnet.core.errors import HearthNetError
from hearthnet.core.ids import token_form
from hearthnet.nats.jetstream_client import StoreLink
from hearthnet.supervisor.nats import nats_process, nats_server, streams
from hearthnet.supervisor.nats.home_setup import Prepared
from hearthnet.supervisor.nats.nats_admin import NatsAdmin
from hearthnet.supervisor.nats.nats_server import Server
from hearthnet.supervisor.nats.server_config import MAX_PAYLOAD, ServerSettings, render
from hearthnet.supervisor.os.log_file import LogFile
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.keys import Identity, Login
from tests.helpers.nats_server import NatsServer
from tests.helpers.processes import kill
from tests.helpers.waiting import DEADLINE_SECONDS, wait_for

Launch = Callable[..., NatsServer]


@pytest_asyncio.fixture
async def server(prepared: Prepared) -> AsyncIterator[Server]:
    """A started and checked server of a home."""
    running = Server(prepared, LogFile(prepared.home.log("nats-server")), lambda line: None)
    await running.start()
    yield running
    await running.close()
    await running.stop(1)


class Visitor:
    """A raw client that remembers what the server refused it."""

    def __init__(self, link: Any) -> None:
        self.client = link
        self.refused: list[str] = []

    @classmethod
    async def connect(cls, url: str, login: Login | None) -> Visitor:
        from nats.aio.client import Client

        visitor = cls(Client())
        try:
            await visitor.client.connect(
                url,
                nkeys_seed_str=login.seed.decode() if login else None,
                allow_reconnect=False,
                connect_timeout=DEADLINE_SECONDS,
                error_cb=visitor._on_error,
            )
        except BaseException:
            await visitor.client.close()
            raise
        return visitor

    async def _on_error(self, error: Exception) -> None:
        self.refused.append(str(error))

    async def may_publish(self, subject: str) -> bool:
        """Whether the server takes a message on `subject`."""
        self.refused.clear()
        await self.client.publish(subject, b"x")
        return await self._accepted()

    async def may_subscribe(self, subject: str) -> bool:
        """Whether the server takes a subscription to `subject`."""
        self.refused.clear()
        await self.client.subscribe(subject)
        return await self._accepted()

    async def _accepted(self) -> bool:
        """Two round trips: one can overtake what was sent before it.

        A refusal comes before the second answer.
        """
        await self.client.flush()
        await self.client.flush()
        return not self.refused


@pytest.mark.req("UP-20")
@pytest.mark.asyncio
async def test_a_node_may_do_what_its_id_allows_and_no_more(server: Server, prepared: Prepared) -> None:
    me, you = prepared.identity.token, Identity.generate().token
    visitor = await Visitor.connect(server.state.url, prepared.identity.login())
    for kind in ("call", "ctl", "find", "adv", "event", "rep"):
        assert await visitor.may_publish(f"hn.{kind}.{me}.x.y")
        assert not await visitor.may_publish(f"hn.{kind}.{you}.{me}.y")
    for kind in ("call", "ctl", "rep"):
        assert await visitor.may_subscribe(f"hn.{kind}.*.{me}.>")
        assert not await visitor.may_subscribe(f"hn.{kind}.*.{you}.>")
    for subject in ("$JS.API.INFO", "$KV.a.b", "$SYS.REQ.SERVER.PING", f"_INBOX.{you}.x", "mk.post.a.b"):
        assert not await visitor.may_publish(subject)
    for subject in (">", "hn.>", "hn.call.>", "_INBOX.>", f"_INBOX.{you}.>", "$JS.>", "$SYS.>"):
        assert not await visitor.may_subscribe(subject)
    assert await visitor.may_subscribe(f"_INBOX.{me}.>")
    assert await visitor.may_subscribe("$SRV.>")
    await visitor.client.close()


@pytest.mark.req("UP-21")
@pytest.mark.asyncio
async def test_strangers_are_refused(server: Server) -> None:
    from nats import errors

    for stranger in (None, Identity.generate().login(), Login(os.urandom(32))):
        with pytest.raises(errors.Error, match="Authorization Violation"):
            await Visitor.connect(server.state.url, stranger)


@pytest.mark.req("UP-22")
@pytest.mark.asyncio
async def test_jetstream_is_in_the_account_of_the_operator_only(server: Server, prepared: Prepared) -> None:
    store = await StoreLink.connect(server.state.url, prepared.identity.store_login(), "store")
    js = store.client.jetstream()
    names = {stream.config.name for stream in await js.streams_info()}
    assert names == {"MARKET", "COMMUNITY", "CHAINS", "COUNTERS", "AUDIT", "RUNS", "KV_claims", "OBJ_blobs"}
    found = (await js.stream_info("MARKET")).config
    assert streams.differences(streams.promised_streams()[0], found) == []
    assert found.max_msgs_per_subject == 1
    assert found.discard_new_per_subject
    assert not found.deny_delete  # what its author deletes is erased
    assert found.deny_purge
    assert (await js.stream_info("AUDIT")).config.deny_delete
    bucket = await js.object_store("blobs")
    await bucket.put("cid", b"content")
    assert (await bucket.get("cid")).data == b"content"
    assert store.client.max_payload == MAX_PAYLOAD
    await store.close()
    bus = await Visitor.connect(server.state.url, prepared.identity.login())
    assert not await bus.may_publish("$JS.API.INFO")
    await bus.client.close()
    assert server.guarded.system is not None
    subject = "$SYS.REQ.SERVER.PING.JSZ"
    about = await server.guarded.system._link.request(subject, b'{"accounts": true}', DEADLINE_SECONDS)
    assert [account["name"] for account in json.loads(about)["data"]["account_details"]] == ["STORE"]


@pytest.mark.req("UP-23")
@pytest.mark.asyncio
async def test_a_server_that_does_not_sync_every_write_is_refused(
    nats_server: Launch, tmp_path: Path
) -> None:
    system = Login(os.urandom(32))
    config = (
        "jetstream {\n store_dir: %s\n%s}\naccounts { S { users: [ { nkey: %s } ] } }\nsystem_account: S\n"
    )
    for line, good in (("", False), (" sync_interval: always\n", True)):
        folder = json.dumps(str(tmp_path / f"js-{good}"))
        link = await NatsAdmin.connect(nats_server(config % (folder, line, system.public)).url, system)
        if good:
            await link.check_sync(tmp_path)
        else:
            with pytest.raises(HearthNetError, match="does not sync every write"):
                await link.check_sync(tmp_path)
        await link.close()


@pytest.mark.req("UP-24")
@pytest.mark.asyncio
async def test_streams_are_made_once_and_weaker_ones_are_refused(nats_server: Launch, tmp_path: Path) -> None:
    from nats.aio.client import Client

    client = Client()
    await client.connect(nats_server(f"jetstream {{\n store_dir: {json.dumps(str(tmp_path / 'js'))}\n}}").url)
    js = client.jetstream()
    await streams.ensure(js, tmp_path)
    await js.publish("mk.post.me.1", b"x")
    await streams.ensure(js, tmp_path)
    assert (await js.stream_info("MARKET")).state.messages == 1
    await js.delete_stream("MARKET")
    earlier = streams.promised_streams()[0]
    earlier.allow_atomic = None
    await js.add_stream(earlier)
    await js.publish("mk.post.me.1", b"x")
    await streams.ensure(js, tmp_path)
    found = await js.stream_info("MARKET")
    assert (found.config.allow_atomic, found.state.messages) == (True, 1), "of an earlier version"
    await js.delete_stream("MARKET")
    weaker = streams.promised_streams()[0]
    weaker.deny_purge = False
    weaker.max_age = 60.0
    weaker.deny_delete = True
    await js.add_stream(weaker)
    with pytest.raises(
        HearthNetError,
        match=r"MARKET in .*max_age is 60.*deny_delete is True.*deny_purge is False.*move that folder",
    ):
        await streams.ensure(js, tmp_path)
    await client.close()


@pytest.mark.req("UP-18")
@pytest.mark.asyncio
async def test_what_jetstream_refuses_is_said_in_one_line(nats_server: Launch, tmp_path: Path) -> None:
    from nats.aio.client import Client

    folder = json.dumps(str(tmp_path / "js"))
    config = (
        f"jetstream {{\n store_dir: {folder}\n}}\naccounts {{ A {{ users: [ {{ user: a, password: a }} ]\n"
    )
    for limit, code, message in (
        (
            "max_streams: 1",
            "internal_error",
            "cannot make the stream COMMUNITY: maximum number of streams reached",
        ),
        (
            "max_file: 0",
            "capacity_exceeded",
            "the disk has no room for JetStream; make room and start again",
        ),
    ):
        url = nats_server(config + f"jetstream {{ {limit} }} }} }}").url
        client = Client()
        await client.connect(url, user="a", password="a")
        with pytest.raises(HearthNetError) as caught:
            await streams.ensure(client.jetstream(), tmp_path)
        assert (caught.value.code, caught.value.message) == (code, message)
        await client.close()


@pytest.mark.req("UP-10")
@pytest.mark.asyncio
async def test_a_server_whose_port_was_taken_meanwhile_is_tried_again(server: Server) -> None:
    news: list[str] = []
    server._news = news.append
    keeping = asyncio.create_task(server.keep())
    port, pid = server.state.port, server.state.pid
    kill(pid)
    await wait_for(lambda: news, what="the end to be noticed")
    thief = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", port)
    await wait_for(
        lambda: not server.guarded.nats.running and server.guarded.nats.port_in_use() == "client",
        what="a failed start",
    )
    thief.close()
    await thief.wait_closed()
    await wait_for(lambda: server.state.pid != pid, what="the server to be back")
    assert server.state.port == port
    assert news[-1] == f"nats-server is back at {server.state.url}"
    keeping.cancel()


@pytest.mark.req("UP-25")
@pytest.mark.asyncio
async def test_a_server_that_does_not_start_is_quoted(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Server(prepared, LogFile(prepared.home.log("nats-server")), lambda line: None)
    broken = render(running._settings(-1, -1)).replace("listen:", "lisssten {:")
    monkeypatch.setattr(nats_server, "render", lambda settings: broken)
    with pytest.raises(
        HearthNetError, match=r"nats-server did not start \(.+\); see .*nats-server\.log"
    ) as caught:
        await running.start()
    assert "\n" not in caught.value.message
    assert caught.value.exit_status == 1
    await running.stop(1)
    running.kill()


@pytest.mark.req("UP-25")
def test_the_server_program_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = nats_process.find_program()
    assert found.name == "nats-server"
    monkeypatch.setattr(nats_process, "_DISTRIBUTION", "no-such-distribution")
    monkeypatch.setenv("PATH", str(found.parent))
    assert nats_process.find_program() == found
    record = tmp_path / "site" / "broken-1.0.dist-info" / "RECORD"
    record.parent.mkdir(parents=True)
    record.with_name("METADATA").write_text("Name: broken\nVersion: 1.0\n")
    record.write_text("nats-server,,\n")
    (tmp_path / "site" / "nats-server").mkdir()
    with monkeypatch.context() as installed:
        installed.syspath_prepend(tmp_path / "site")
        installed.setattr(nats_process, "_DISTRIBUTION", "broken")
        assert nats_process.find_program() == found
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HearthNetError, match="nats-server is not installed; get it with: pip install"):
        nats_process.find_program()


@pytest.mark.req("UP-20")
def test_every_member_has_its_own_permissions() -> None:
    nodes = [Identity.generate() for _ in range(3)]
    members = tuple(rosters.member(node, "member", "x", 0) for node in nodes)
    settings = ServerSettings("n", -1, Path("/run/a b"), Path('/js"x'), members, "USTORE", "USYS")
    text = render(settings)
    tokens = [token_form(node.node_id) for node in nodes]
    for node, token in zip(nodes, tokens, strict=True):
        assert text.count(node.login().public) == 1
        _, _, after = text.partition(f"nkey: {node.login().public}\n")
        own, _, _ = after.partition("nkey: ")
        assert f'"hn.call.{token}.>"' in own
        assert [one for one in tokens if one in own] == [token]
    assert '"/js\\"x"' in text
    assert "no_auth_user" not in text
    assert "S" + nodes[0].login().seed.decode()[1:] not in text
