"""Operators of a home: their files, their login at the real server, and what a linked home sees of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import nkeys
import pytest
import pytest_asyncio
from nats import errors

from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.supervisor.community import operators
from hearthnet.supervisor.community.operators import Operator, Operators
from hearthnet.supervisor.nats.leaf_links import linked
from hearthnet.supervisor.nats.server_config import ANY_PORT
from hearthnet.trust.keys import Login
from tests.helpers.mesh import Mesh
from tests.helpers.nats_server import NatsServer
from tests.helpers.probe import ProbeService
from tests.helpers.stopwatch import Stopwatch
from tests.helpers.waiting import DEADLINE_SECONDS, wait_for
from tests.supervisor.houses import Callers, House, Street, admitted, way_to
from tests.supervisor.raw_leaf import RawLeaf

ASKED, ANSWERS = "$SRV.PING", "_INBOX_ops.x.1"


@pytest.fixture
def place(tmp_path: Path) -> Home:
    """A home with a folder for keys."""
    home = Home(tmp_path / "home")
    home.keys.mkdir(parents=True)
    return home


def told(home: Home) -> tuple[list[Operator], list[str]]:
    """The operators, and what is said about the other files."""
    lines: list[str] = []
    return operators.read(home, lines.append), lines


@pytest.mark.req("OPERATOR-5")
def test_an_operator_is_a_seed_that_every_client_reads(place: Home) -> None:
    made = operators.create(place, "anna")
    assert stat.S_IMODE(made.seed_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(made.seed_file.parent.stat().st_mode) == 0o700
    seed = made.seed_file.read_bytes().strip()
    assert nkeys.from_seed(bytearray(seed)).public_key.decode() == made.login.public
    found, lines = told(place)
    assert [(each.name, each.login.public, each.seed_file) for each in found] == [
        ("anna", made.login.public, made.seed_file)
    ]
    assert lines == []
    assert os.listdir(made.seed_file.parent) == ["anna.nk"]


@pytest.mark.req("OPERATOR-5")
def test_a_name_that_is_taken_is_not_written_over(place: Home) -> None:
    made = operators.create(place, "anna")
    with pytest.raises(HearthNetError, match=r"there is an operator anna already.*operator remove anna"):
        operators.create(place, "anna")
    assert made.seed_file.read_bytes().strip() == made.login.seed
    operators.remove(place, "anna")
    assert told(place) == ([], [])
    assert operators.create(place, "anna").login.public != made.login.public


@pytest.mark.req("OPERATOR-5")
@pytest.mark.parametrize("name", ["", "Anna", "a b", "../a", "a/b", ".a", "-a", "a.b", "ä", "a" * 33, "a\n"])
def test_what_is_no_name_is_refused(place: Home, name: str) -> None:
    with pytest.raises(HearthNetError, match="is no name of an operator; use up to 32") as caught:
        operators.create(place, name)
    assert caught.value.code == "bad_request"
    with pytest.raises(HearthNetError, match="there is no operator") as caught:
        operators.remove(place, name)
    assert caught.value.code == "not_found"
    assert not place.operators.exists()


@pytest.mark.req("OPERATOR-5")
def test_a_folder_that_cannot_be_written_is_named(place: Home) -> None:
    place.operators.write_text("in the way")
    with pytest.raises(HearthNetError, match=r"cannot write .*operators"):
        operators.create(place, "anna")


def _other_letter(seed: bytes) -> bytes:
    return seed[:20] + (b"A" if seed[20:21] != b"A" else b"B") + seed[21:]


@pytest.mark.req("OPERATOR-8")
def test_files_that_do_not_count_are_named(place: Home) -> None:
    good = operators.create(place, "good")
    for name in ("open", "damaged", "account", "empty", "folder", "twice"):
        operators.create(place, name)
    place.operators.joinpath("open.nk").chmod(0o640)
    place.operators.joinpath("damaged.nk").write_bytes(_other_letter(good.login.seed))
    account = nkeys.encode_seed(bytes(32), nkeys.PREFIX_BYTE_ACCOUNT)
    place.operators.joinpath("account.nk").write_bytes(account)
    place.operators.joinpath("empty.nk").write_bytes(b"")
    place.operators.joinpath("folder.nk").unlink()
    place.operators.joinpath("folder.nk").mkdir()
    place.operators.joinpath("twice.nk").write_bytes(good.login.seed)
    place.operators.joinpath("Not a name.nk").write_bytes(good.login.seed)
    found, lines = told(place)
    assert [each.name for each in found] == ["good"]
    assert operators.names(place) == ["account", "damaged", "empty", "folder", "good", "open", "twice"]
    assert len(lines) == 5
    for name, reason in {
        "account": "holds no seed of an operator; make a new one: hearthnet operator remove account",
        "damaged": "holds no seed",
        "empty": "holds no seed",
        "folder": "cannot read",
        "open": "can be read by others; run: chmod 600",
    }.items():
        (line,) = [line for line in lines if f"{name}.nk" in line]
        assert reason in line
        assert good.login.seed.decode() not in line


@pytest.mark.req("OPERATOR-5", "OPERATOR-8")
@pytest.mark.asyncio
async def test_who_comes_and_goes_is_noticed(place: Home) -> None:
    news: list[str] = []
    watched, changed = Operators(place, news.append), asyncio.Event()
    assert not watched.logins
    watching = asyncio.create_task(watched.watch(changed.set))
    made = operators.create(place, "anna")
    await asyncio.wait_for(changed.wait(), DEADLINE_SECONDS)
    assert watched.logins == (made.login.public,)
    assert Operators(place, news.append).logins == (made.login.public,)
    changed.clear()
    made.seed_file.chmod(0o644)
    await asyncio.wait_for(changed.wait(), DEADLINE_SECONDS)
    assert not watched.logins
    assert len(news) == 1
    changed.clear()
    operators.remove(place, "anna")
    await asyncio.wait_for(changed.wait(), DEADLINE_SECONDS)
    watching.cancel()
    await asyncio.wait({watching})


# --- at the real server


@pytest_asyncio.fixture
async def street(tmp_path: Path) -> Street:
    """A founder, and two members."""
    return Street.build(tmp_path, "bob", "carol")


@pytest_asyncio.fixture
async def founder(street: Street) -> AsyncIterator[House]:
    """The home that others link to."""
    async with street.open("founder") as house:
        yield house


def let_in(house: House, *identities: Any) -> tuple[Login, Any]:
    """A new operator, and who may log in with it there."""
    login = Login(os.urandom(32))
    return login, admitted(house.identity, *identities)._replace(operators=(login.public,))


@contextlib.asynccontextmanager
async def hosting(house: House) -> AsyncIterator[str]:
    """A service at that house; its instance."""
    server = cast("NatsServer", house.server.state)  # of which only the address is asked for
    settings = house.server._settings(ANY_PORT, ANY_PORT)
    mesh = Mesh(house.home, house.home, server, house.identity, settings)
    async with mesh.hosting(ProbeService()) as host:
        yield host.peer.instance


@pytest.mark.req("OPERATOR-5")
@pytest.mark.asyncio
async def test_an_operator_comes_and_is_cut_and_nobody_else_notices(house: House, callers: Callers) -> None:
    me = await callers.connect(house.url, house.identity.login())
    login, wanted = let_in(house)
    with pytest.raises(errors.Error, match=r"(?i)authorization"):
        await callers.connect(house.url, login)
    await house.server.admit(wanted)
    operator = await callers.connect(house.url, login)
    await operator.listen("_INBOX_ops.>")
    assert operator.refused == []
    await house.server.guarded.clear()
    assert operator.cut == 0
    watch = Stopwatch(house.server.state.pid)
    await house.server.admit(admitted(house.identity))
    await wait_for(lambda: operator.cut, what="the operator to be cut")
    assert watch.seconds() < 2
    with pytest.raises(errors.Error, match=r"(?i)authorization"):
        await callers.connect(house.url, login)
    assert me.cut == 0


@pytest_asyncio.fixture
async def house(founder: House) -> House:
    """The founder's, where nobody else comes."""
    return founder


@pytest.mark.req("OPERATOR-6", "ATTACK-24")
@pytest.mark.asyncio
async def test_an_operators_login_links_no_servers(founder: House) -> None:
    login, wanted = let_in(founder)
    await founder.server.admit(wanted)
    leaf = await RawLeaf.connect(founder.server.state.leaf_port, login)
    await wait_for(lambda: leaf.over, what="the link to be refused")
    assert not leaf.welcome
    assert "Authorization Violation" in leaf.errors()[0]
    await leaf.close()


@pytest.mark.req("OPERATOR-7", "ATTACK-24")
@pytest.mark.asyncio
async def test_another_member_neither_asks_nor_hears_nor_answers(
    founder: House, street: Street, callers: Callers
) -> None:
    login, wanted = let_in(founder, street.key("carol"))
    await founder.server.admit(wanted)
    operator = await callers.connect(founder.url, login)
    await operator.listen("_INBOX_ops.>")
    carol = await callers.connect(founder.url, street.key("carol").login())
    for subject in ("$SRV.PING", "$SRV.>", "$SRV.*.probe", ANSWERS, "_INBOX_ops.>"):
        assert not await carol.may_listen(subject), subject
    for subject in ("$SRV.PING", "$SRV.STATS.probe", ANSWERS):
        assert not await carol.may_say(subject), subject
    await operator.say(ASKED)
    await operator.settle()
    assert (carol.heard, operator.heard, operator.refused) == ([], [], [])


@pytest.mark.req("OPERATOR-7", "ATTACK-24")
@pytest.mark.asyncio
async def test_each_home_is_listed_to_its_own_operators_only(
    founder: House, street: Street, callers: Callers
) -> None:
    async with street.open("bob", upstream=way_to(founder)) as bob:
        assert bob.server.guarded.system is not None
        await wait_for(lambda: linked(bob.server.guarded.system), what="the link")  # type: ignore[arg-type]
        async with hosting(founder) as at_founder, hosting(bob) as at_bob:
            for house, other, own in ((founder, bob, at_founder), (bob, founder, at_bob)):
                login, wanted = let_in(house, other.identity)
                await house.server.admit(wanted)
                operator = await callers.connect(house.url, login)
                await operator.listen("_INBOX_ops.>")
                for _ in range(3):
                    await operator.client.publish("$SRV.PING", b"", reply=ANSWERS)
                await wait_for(lambda: len(operator.heard) == 3, what="three answers")  # noqa: B023
                assert all(f'"id":"{own}"'.encode() in data for _, data in operator.heard)
            # What is sent later on the same way arrives, so that the other's answers had come before it.
            here = await callers.connect(founder.url, founder.identity.login())
            await here.listen("hn.adv.>")
            there = await callers.connect(bob.url, bob.identity.login())
            await there.say(f"hn.adv.{bob.identity.token}.c.v1")
            await wait_for(lambda: here.heard, what="a message across the link")
            assert all(len(caller.heard) == 3 for caller in callers.open[:2])
            # Nor did a question cut the link, as one beyond what its login may say does.
            assert await linked(bob.server.guarded.system)
            assert "Permissions Violation" not in founder.log
