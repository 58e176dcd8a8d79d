"""The life of a node: real supervisor, real nats-server, services that are doubles."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from hearthnet.bus.bus import Bus
from hearthnet.bus.session import gossip_frames
from hearthnet.bus.session.keyring import load_identity, load_roster
from hearthnet.core.config_loader import DEFAULT_CONFIG
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.ids import new_ulid
from hearthnet.core.node_state import read_node_state
from hearthnet.core.times import now_ms
from hearthnet.trust.community import commands
from tests.helpers.neighbourhood import settle_in
from tests.helpers.processes import unused_port
from tests.helpers.stopwatch import Stopwatch
from tests.helpers.waiting import wait_for, wait_for_sync
from tests.supervisor.conftest import Node, living
from tests.supervisor.houses import Visitor

Start = Callable[..., Node]


def mode(path: Path) -> int:
    """The permission bits of a file."""
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.req("UP-1", "UP-2")
def test_the_first_run_makes_a_home_and_a_ready_node(start: Start, place: Home) -> None:
    node = start("rag=stage", "market=")
    state = node.ready()
    assert state == read_node_state(place)
    assert state.ready
    assert state.pid == node.process.pid
    assert [(each.name, each.state, each.restarts) for each in state.services] == [
        ("rag", "ready", 0),
        ("market", "ready", 0),
    ]
    assert state.services[0].offers == ("double.echo@1.0 corpus=system",)
    with socket.create_connection(("127.0.0.1", state.server.port), timeout=5):
        pass
    assert {mode(place.device_key), mode(place.community_key), mode(place.server_config)} == {0o600}
    assert {mode(folder) for folder in (place.keys, place.nats, place.run, place.logs, place.services)} == {
        0o700
    }
    assert node.end() == 0
    assert not node.ready_file.exists()
    with pytest.raises(HearthNetError, match=r"no node is running in .*hearthnet up") as caught:
        read_node_state(place)
    assert caught.value.exit_status == 3


@pytest.mark.req("UP-3")
def test_progress_then_a_table_with_addresses_logs_and_commands(start: Start, place: Home) -> None:
    node = start("rag=stage")
    state = node.ready()
    assert node.end() == 0
    said = node.said()
    assert said.index("new device key") < said.index("rag: loading model") < said.index("capabilities")
    for part in (
        state.server.url,
        str(place.logs),
        "--corpus system",
        "--tool market_post",
        "double.echo@1.0",
    ):
        assert part in said
    assert "drained" in place.log("rag").read_text()


@pytest.mark.req("UP-1")
def test_a_home_without_settings_gets_commented_ones(start: Start, tmp_path: Path) -> None:
    home = Home(tmp_path / "deep" / "home")
    home.path.parent.mkdir()
    node = start("market=", home=home)
    node.ready()
    assert node.end() == 0
    assert home.config_file.read_text() == DEFAULT_CONFIG


@pytest.mark.req("UP-2")
def test_a_second_run_finds_the_same_identity(start: Start) -> None:
    first = start("market=")
    identity = first.ready().node_id
    assert first.end() == 0
    second = start("market=")
    assert second.ready().node_id == identity
    assert second.said().count("new device key") == 1
    assert second.end() == 0


@pytest.mark.req("UP-4")
def test_a_taken_port_makes_way_for_a_free_one(start: Start, place: Home) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        place.config_file.write_text(f"[server]\nport = {port}\n")
        node = start("market=")
        state = node.ready()
        assert state.server.port not in (0, port)
        assert state.server.url == f"nats://127.0.0.1:{state.server.port}"
        assert node.end() == 0


@pytest.mark.req("UP-4")
def test_a_free_port_of_the_settings_is_used(start: Start, place: Home) -> None:
    port = unused_port()
    place.config_file.write_text(f"[server]\nport = {port}\n")
    node = start("market=")
    assert node.ready().server.port == port
    assert node.end() == 0


@pytest.mark.req("UP-5")
def test_a_second_node_in_the_same_home_is_refused(start: Start, place: Home) -> None:
    first = start("market=")
    state = first.ready()
    second = start("market=")
    assert second.process.wait(60) == 1
    assert f"already running in {place.path} (process {first.process.pid})" in second.said()
    assert read_node_state(place) == state
    assert first.end() == 0


@pytest.mark.req("UP-6")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_everything_in_time(start: Start, number: signal.Signals) -> None:
    node = start("rag=forks", "market=stubborn")
    node.ready()
    family = node.family()
    assert len(family) >= 4
    assert node.seconds_to_end(number) < 5
    assert node.process.wait() == 0
    assert living(family) == []


@pytest.mark.req("UP-6")
def test_a_signal_during_the_start_ends_it_too(start: Start) -> None:
    node = start("market=silent")
    node.reaches(lambda: node.service("market").pid is not None, "a service process")
    family = node.family()
    assert node.end() == 0
    assert living(family) == []
    assert not node.ready_file.exists()


@pytest.mark.req("UP-6")
def test_a_second_signal_ends_at_once(start: Start, place: Home) -> None:
    node = start("market=stubborn")
    node.ready()
    family = node.family()
    node.process.send_signal(signal.SIGINT)
    wait_for_sync(lambda: "ending" in node.said(), what="the first signal to be heard")
    assert node.seconds_to_end(signal.SIGINT) < 2
    assert node.process.wait() == 130
    assert living(family) == []


@pytest.mark.req("UP-7")
def test_a_killed_supervisor_leaves_no_orphan(start: Start, place: Home) -> None:
    node = start("rag=", "market=stubborn")
    state = node.ready()
    family = node.family()
    assert state.server.pid in {each.pid for each in family}
    node.process.kill()
    node.process.wait(60)
    wait_for_sync(lambda: not living(family), what="the children to die")
    with pytest.raises(HearthNetError, match="no node is running"):
        read_node_state(place)
    again = start("market=")
    assert again.ready().pid == again.process.pid
    assert again.end() == 0


@pytest.mark.req("UP-8")
def test_a_crashed_service_comes_back_and_the_table_says_so(start: Start) -> None:
    node = start("market=")
    before = node.ready().services[0]
    assert before.pid is not None
    os.kill(before.pid, signal.SIGKILL)
    node.reaches(lambda: node.service("market").restarts == 1, "a restart")
    node.reaches(lambda: node.service("market").state == "ready", "the service to be back")
    assert node.service("market").pid != before.pid
    wait_for_sync(lambda: "ready (restarted 1 x)" in node.said(), what="the table")
    assert "market was killed by SIGKILL; it is started again" in node.said()
    assert node.end() == 0


@pytest.mark.req("UP-9")
def test_a_service_that_does_not_start_does_not_hold_up_the_others(start: Start, place: Home) -> None:
    node = start("llm=crash", "market=chatty", "rag=fail")
    state = node.ready()
    llm, market, rag = state.services
    assert market.state == "ready"
    assert llm.state == "waiting"
    assert llm.note == "ended with exit code 3: the disk sings"
    assert rag.note == "ended with exit code 5: no model file; get one with: hearthnet models install"
    node.reaches(lambda: node.service("llm").restarts > llm.restarts, "another attempt")
    assert node.end() == 0
    assert "the disk sings" in node.said()
    assert "market: sent a status line that is none" in place.log("up").read_text()


@pytest.mark.req("UP-10")
def test_a_killed_server_comes_back_at_the_same_address(start: Start, place: Home) -> None:
    node = start("market=")
    before = node.ready().server
    os.kill(before.pid, signal.SIGKILL)
    node.reaches(lambda: read_node_state(place).server.pid != before.pid, "the server to be back")
    after = read_node_state(place).server
    assert after.url == before.url
    with socket.create_connection(("127.0.0.1", after.port), timeout=5):
        pass
    wait_for_sync(lambda: f"nats-server is back at {after.url}" in node.said(), what="word of it")
    assert node.end() == 0


@pytest.mark.req("UP-27")
def test_an_enabled_service_that_is_not_installed_is_said_to_be(start: Start, place: Home) -> None:
    place.config_file.write_text(
        '[server]\nport = 0\n[services]\nenabled = ["nowhere"]\n[gateway]\nenabled = false\n'
    )
    node = start(ready_file="-")
    node.reaches(lambda: read_node_state(place).ready, "the node to be ready")
    assert read_node_state(place).services == ()
    assert node.end() == 0
    assert "nowhere is enabled in" in node.said()
    assert "pip install hearthnet-nowhere" in node.said()


@pytest.mark.req("UP-11")
def test_a_ready_file_that_is_something_else_is_left_alone(start: Start, place: Home) -> None:
    letter = place.path.with_name("ready.json")
    letter.write_text("dear diary")
    node = start("market=")
    assert node.process.wait(60) == 2
    assert f"{letter} exists and is no ready-file" in node.said()
    assert letter.read_text() == "dear diary"


@pytest.mark.req("UP-30", "UP-50")
def test_a_node_that_runs_puts_out_who_is_revoked(start: Start, place: Home, tmp_path: Path) -> None:
    street = settle_in(tmp_path / "street", "bob", services=())
    street.founder.config_file.write_text(place.config_file.read_text())
    bob = load_identity(street.home("bob").device_key)
    node = start("market=", home=street.founder)
    server = node.ready().server
    url = server.url

    async def seconds_until_cut() -> float:
        founder = await Bus.join(street.founder, url, "auth")
        victim = await Visitor.connect(url, bob.login())
        peer, now = founder.peer, now_ms()
        event = commands.CommunityAuthor(peer.roster, peer.identity).revoke(
            bob.node_id, "gone", client_id=new_ulid(), now_ms=now
        )
        watch = Stopwatch(server.pid, node.process.pid)
        for body in gossip_frames.batches([event], ()):
            await gossip_frames.publish(peer.sender, gossip_frames.LOG, body)
        await wait_for(lambda: victim.cut, what="the revoked node to be cut")
        took = watch.seconds()
        await victim.client.close()
        await founder.close()
        return took

    assert asyncio.run(seconds_until_cut()) < 2
    wait_for_sync(
        lambda: "does not belong to the community any more" in node.said(), what="people to be told"
    )
    assert node.end() == 0
    assert load_roster(street.founder.roster).is_revoked(bob.node_id)
