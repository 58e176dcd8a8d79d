"""The port for other homes: that of the settings, else another one that stays the same at every start."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.supervisor.nats import leaf_ports
from hearthnet.supervisor.nats.leaf_ports import MAX_PORTS, KnownPorts, LeafPorts
from hearthnet.supervisor.nats.server_config import ANY_PORT
from hearthnet.trust.community.roster import Roster
from tests.helpers.household import make_home, settle
from tests.helpers.processes import unused_port
from tests.helpers.shell import Shell
from tests.helpers.waiting import wait_for, wait_for_sync
from tests.supervisor.houses import House, Street, way_to
from tests.supervisor.test_links import link_is_there


@pytest.fixture
def street(tmp_path: Path) -> Street:
    """A founder and a member who has a home of its own."""
    return Street.build(tmp_path, "bob")


@contextlib.contextmanager
def occupied(port: int = 0) -> Iterator[int]:
    """A port that another program uses: a free one, or `port`, unless some program uses that already."""
    port = port or unused_port()
    with socket.socket() as other:
        with contextlib.suppress(OSError):
            other.bind(("127.0.0.1", port))
            other.listen()
        yield port


def settings(port: int) -> str:
    """Those of a home that listens for others at `port`."""
    return f"[server]\nport = 0\n[community]\nport = {port}\n"


def linked_port(house: House) -> int:
    """Where its server listens for other homes."""
    return house.server.state.leaf_port


@pytest.fixture
def default(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The default port, which another program uses: a free one in place of 7422."""
    with occupied() as port:
        monkeypatch.setattr(leaf_ports, "DEFAULT_PORT", port)
        yield port


@pytest.mark.req("UP-48")
@pytest.mark.asyncio
async def test_leaf_port_taken_default_moves_once(street: Street, default: int) -> None:
    async with street.open("founder", settings=settings(default)) as house:
        port, news, state = linked_port(house), house.news, house.server.state
        assert port not in (0, default)
        assert news == [
            f"port {default} is taken; other homes reach this one at port {port}, now and at every later "
            "start"
        ]
        assert state.address == f"127.0.0.1:{port}"
        assert state.preferred_leaf_port == default
        assert f"port {default} was taken; this one is kept" in state.homes
    async with street.open("founder", settings=settings(default)) as house:
        assert (linked_port(house), house.news) == (port, [])


@pytest.mark.req("UP-70")
@pytest.mark.asyncio
async def test_leaf_port_kept_after_the_default_is_free(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    with occupied() as default:
        monkeypatch.setattr(leaf_ports, "DEFAULT_PORT", default)
        async with street.open("founder", settings=settings(default)) as house:
            port, way = linked_port(house), way_to(house)
    async with street.open("founder", settings=settings(default)) as house:
        assert linked_port(house) == port
        async with street.open("bob", upstream=way) as bob:
            await wait_for(lambda: link_is_there(bob), what="the link")


@pytest.mark.req("UP-70")
@pytest.mark.asyncio
async def test_leaf_port_any_is_the_same_at_each_start(street: Street) -> None:
    async with street.open("founder", settings=settings(0)) as house:
        port = linked_port(house)
    async with street.open("founder", settings=settings(0)) as house:
        assert (linked_port(house), house.news, house.server.state.preferred_leaf_port) == (port, [], 0)


@pytest.mark.req("UP-70")
@pytest.mark.asyncio
async def test_leaf_port_lost_is_told_and_tried_again(street: Street) -> None:
    async with street.open("founder", settings=settings(0)) as house:
        first = linked_port(house)
    with occupied(first):
        async with street.open("founder", settings=settings(0)) as house:
            second = linked_port(house)
            assert house.news == [
                f"port {first}, at which other homes know this one, is taken; they reach it again once that "
                f"port is free at a start, or by a new invite to port {second} (hearthnet invite create)"
            ]
        async with street.open("founder", settings=settings(0)) as house:
            assert (linked_port(house), house.news) == (second, [])
    async with street.open("founder", settings=settings(0)) as house:
        assert linked_port(house) == first


@pytest.mark.req("UP-48")
@pytest.mark.asyncio
async def test_leaf_port_fixed_and_taken_is_an_error(street: Street) -> None:
    with occupied() as port:
        with pytest.raises(
            HearthNetError, match=rf"port {port}: another program uses it; end that"
        ) as caught:
            async with street.open("founder", settings=settings(port)):
                pytest.fail("started")
        assert caught.value.code == "bad_request"
        assert str(street.place("founder").config_file) in caught.value.message
    async with street.open("founder", settings=settings(port)) as house:
        assert (linked_port(house), house.news) == (port, [])


@pytest.fixture
def alone(tmp_path: Path) -> tuple[Home, Roster]:
    """A home whose community has nobody else in it."""
    household = settle(tmp_path, {})
    return household.founder, household.roster


@pytest.mark.req("UP-70")
def test_leaf_ports_without_invites_are_not_remembered(alone: tuple[Home, Roster]) -> None:
    LeafPorts(*alone, 7422).keep(5)
    assert LeafPorts(*alone, 7422).candidates == (7422, ANY_PORT)
    assert LeafPorts(*alone, 9).candidates == (9,)


@pytest.mark.req("UP-70")
@pytest.mark.parametrize("data", [b"", b"[]", b'{"configured": 7422, "ports": "x"}'])
def test_leaf_ports_damaged_file_counts_as_none(tmp_path: Path, data: bytes) -> None:
    household = settle(tmp_path, {"attic": "member"})
    household.founder.leaf_ports.write_bytes(data)
    ports = LeafPorts(household.founder, household.roster, 7422)
    assert ports.candidates == (7422, ANY_PORT)
    ports.keep(5)
    assert LeafPorts(household.founder, household.roster, 7422).candidates == (5, 7422, ANY_PORT)


@pytest.mark.req("UP-70")
def test_leaf_ports_of_another_setting_are_forgotten(tmp_path: Path) -> None:
    household = settle(tmp_path, {"attic": "member"})
    home, roster = household.founder, household.roster
    for port in range(1, MAX_PORTS + 3):
        LeafPorts(home, roster, 7422).keep(port)
    kept = msgspec.json.decode(home.leaf_ports.read_bytes(), type=KnownPorts)
    assert kept.ports == (*range(1, MAX_PORTS), MAX_PORTS + 2), "the first homes know the oldest"
    assert LeafPorts(home, roster, 0).candidates == (ANY_PORT,)


def is_linked(shell: Shell) -> bool:
    """Whether the running node is linked to the home that took it in."""
    return bool(shell.json("status", "--json")["server"]["upstream"] == "linked")


@pytest.mark.e2e
@pytest.mark.req("UP-70")
@pytest.mark.timeout(300)
def test_member_is_back_after_restart_with_port_7422_taken(tmp_path: Path) -> None:
    """Two nodes as people run them, with the port of the settings as they are written first."""
    hearth, kitchen = (
        Shell(make_home(tmp_path / name, name, '["auth"]').path) for name in ("hearth", "kitchen")
    )
    config = hearth.home / "hearthnet.toml"
    config.write_text(config.read_text().replace("[community]\nport = 0", "[community]\nport = 7422"))
    with occupied(7422):
        with hearth.node() as state:
            port = state["server"]["leaf_port"]
            invite = hearth.json("invite", "create", "--json", "--name", "Kitchen")["invite"]
            assert kitchen.run("invite", "redeem", "--json", stdin=invite).returncode == 0
        with kitchen.node(), hearth.node() as state:
            assert state["server"]["leaf_port"] == port
            assert "now and at every later start" not in hearth.home.with_suffix(".log").read_text()
            status = hearth.run("status").stdout
            assert f"127.0.0.1:{port} (port 7422 was taken; this one is kept" in status
            assert f"127.0.0.1:{port} (port 7422 was taken" in hearth.home.with_suffix(".log").read_text()
            wait_for_sync(lambda: is_linked(kitchen), 60, "the link")
