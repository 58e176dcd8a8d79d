"""Recoveries by helpers at the nodes: who keeps and takes shares, and how a witness measures the time."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from hearthnet.bus.session import keyring
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.supervisor.nats.home_setup import Prepared, make_person
from hearthnet.trust.community import recovery_statements as statements
from hearthnet.trust.community.commands import CommunityAuthor
from hearthnet.trust.community.recovery_statements import RecoveryBegun
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from hearthnet_auth import shares
from hearthnet_auth.witness import SETTLING_MS, Clock, RecoveryWatch
from tests.helpers.members import act
from tests.helpers.mesh import Mesh
from tests.helpers.waiting import wait_for
from tests.services.auth.houses import House, living

pytestmark = pytest.mark.asyncio
KEEP, GIVE = "community.recovery.keep@1.0", "community.recovery.give@1.0"
PAPER, SHARED, NEW, FIRST, OTHER, LAPTOP = (Identity(bytes([number]) * 32) for number in range(90, 96))
DAY_MS = 86_400_000
SHARE = " ".join(["word"] * 33)


@dataclass
class Town:
    """A node that is a witness, with a person elsewhere whose helpers name it, and clocks that are driven."""

    house: House
    mesh: Mesh
    now: int = 1_800_000_000_000
    steady: int = 5_000

    @property
    def held(self) -> Roster:
        """What the service knows."""
        return self.house.auth._membership.roster

    @property
    def guest(self) -> Identity:
        """Another member, who carries what others sign."""
        return keyring.load_identity(self.mesh.guest.device_key)

    async def carry(self, *contents: Any) -> None:
        """The guest writes the statements."""
        kinds = {kind: name for name, kind in statements.STATEMENTS.items()}
        for content in contents:
            event = act(self.held, self.guest, kinds[type(content)], content, now_ms=now_ms())
            await self.house.auth._membership.add((event,))
            assert self.held.history.get(event.hash) is not None

    async def person(self, wait_seconds: int = 3 * 86_400) -> None:
        """Begins the person of `PAPER`, with the guest's node as its device, and names helpers."""
        author = CommunityAuthor(self.held, self.guest)
        await self.house.auth._membership.add((author.key_person(PAPER, FIRST, now_ms()),))
        author = CommunityAuthor(self.held, self.guest)
        await self.house.auth._membership.add((author.add_node(PAPER.node_id, FIRST, "guest", now_ms()),))
        await self.carry(self.helpers(wait_seconds))

    def helpers(self, wait_seconds: int = 3 * 86_400, key: Identity = SHARED) -> statements.HelpersNamed:
        """The statement that names this node, and two that are not there."""
        witnesses = (self.house.node_id, OTHER.node_id, LAPTOP.node_id)
        return CommunityAuthor(self.held, PAPER).named_helpers(key.node_id, wait_seconds, witnesses)

    async def begin(self, key: Identity = NEW) -> RecoveryBegun:
        """Colluding helpers announce a recovery."""
        content, _ = CommunityAuthor(self.held, SHARED).begun_recovery(PAPER.node_id, key, ())
        await self.carry(content)
        return content

    def watch(self) -> RecoveryWatch:
        """The watch of the node after a start, with the clocks of this town."""
        node: Any = SimpleNamespace(
            home=self.mesh.home, identity=self.house.identity, bus=self.house.auth._node.bus
        )
        clock = Clock(lambda: self.now, lambda: self.steady)
        return RecoveryWatch(self.house.auth._chain, node, self.mesh.home.path / "times.json", clock)

    def passes(self, ms: int) -> None:
        """Both clocks go on."""
        self.now += ms
        self.steady += ms

    def words(self, content: RecoveryBegun) -> int:
        """How many witnesses have signed."""
        name = statements.recovery_id(self.held.community_id, content)
        found = self.held.person(PAPER.node_id)
        assert found is not None
        return next(len(one.witnessed) for one in found.recoveries if one.recovery == name)


@contextlib.asynccontextmanager
async def town(mesh: Mesh) -> AsyncIterator[Town]:
    """A person with helpers, at a node that witnesses."""
    async with living(mesh, mesh.home) as house:
        found = Town(house, mesh)
        # The service's own watch has the true clocks; here one is driven.
        await house.auth._recoveries.close()
        await found.person()
        yield found


@pytest.mark.req("PERSON-44", "ATTACK-80")
async def test_witness_signs_after_the_waiting_time_by_its_own_clock(mesh: Mesh) -> None:
    """The announcement is dated back by years, and repeated; a restart in between neither helps nor hurts."""
    async with town(mesh) as one:
        watch = one.watch()
        content = await one.begin()
        await watch.step()
        one.passes(2 * DAY_MS)
        await watch.step()
        watch = one.watch()
        one.passes(DAY_MS - 1)
        await watch.step()
        assert one.words(content) == 0
        one.passes(1)
        await watch.step()
        assert one.words(content) == 1
        await watch.step()
        assert one.words(content) == 1
        assert json.loads((one.mesh.home.path / "times.json").read_bytes())


@pytest.mark.req("PERSON-44")
async def test_damaged_recovery_of_its_own_keeps_no_word_back(
    mesh: Mesh, caplog: pytest.LogCaptureFixture
) -> None:
    async with town(mesh) as one:
        watch, content = one.watch(), await one.begin()
        one.mesh.home.recovering.mkdir(mode=0o700)
        (one.mesh.home.recovering / "request.json").write_text("{")
        await watch.step()
        one.passes(3 * DAY_MS)
        await watch.step()
        assert one.words(content) == 1
        assert "is not completed" in caplog.text


@pytest.mark.req("PERSON-44", "ATTACK-80")
async def test_witness_signs_nothing_after_an_objection(mesh: Mesh) -> None:
    async with town(mesh) as one:
        watch = one.watch()
        content = await one.begin()
        await watch.step()
        one.passes(3 * DAY_MS)
        name = statements.recovery_id(one.held.community_id, content)
        await one.carry(CommunityAuthor(one.held, one.guest).objection(name))
        await watch.step()
        assert one.words(content) == 0


@pytest.mark.req("PERSON-44", "ATTACK-80")
async def test_witness_signs_for_one_of_two_at_once(mesh: Mesh) -> None:
    async with town(mesh) as one:
        watch = one.watch()
        both = [await one.begin(key) for key in (NEW, OTHER)]
        await watch.step()
        one.passes(3 * DAY_MS)
        for _ in range(2):
            await watch.step()
        assert sorted(map(one.words, both)) == [0, 1]


@pytest.mark.req("PERSON-44", "ATTACK-80")
async def test_witness_runs_for_the_last_part_of_the_time(mesh: Mesh) -> None:
    """It was off, it slept, or its clock was set forward: it has to run for ten minutes first."""
    async with town(mesh) as one:
        watch = one.watch()
        content = await one.begin()
        await watch.step()
        one.passes(4 * DAY_MS)
        watch = one.watch()
        rest = await watch.step()
        assert one.words(content) == 0
        assert 0 < rest <= SETTLING_MS / 1000
        one.passes(SETTLING_MS - 1)
        await watch.step()
        one.now += DAY_MS  # asleep, or set
        await watch.step()
        one.passes(SETTLING_MS - 1)
        await watch.step()
        assert one.words(content) == 0
        one.passes(1)
        await watch.step()
        assert one.words(content) == 1


@pytest.mark.req("PERSON-44")
async def test_witness_forgets_what_is_over_and_measures_each_anew(mesh: Mesh) -> None:
    """A second announcement waits from its own receipt; times in a damaged file are measured anew."""
    async with town(mesh) as one:
        watch, path = one.watch(), one.mesh.home.path / "times.json"
        content = await one.begin()
        await watch.step()
        one.passes(2 * DAY_MS)
        second = await one.begin(OTHER)
        await watch.step()
        for damage in ("damaged", "[]", '{"x": null}'):
            path.write_text(damage)
            await watch.step()
        one.passes(2 * DAY_MS)
        await watch.step()
        assert (one.words(content), one.words(second)) == (0, 0)
        await one.carry(one.helpers(key=LAPTOP))
        await watch.step()
        assert json.loads(path.read_bytes()) == {}
        one.passes(DAY_MS)
        await watch.step()
        found = one.held.person(PAPER.node_id)
        assert found is not None
        assert found.recoveries == ()


@pytest.mark.req("PERSON-44")
async def test_running_service_signs_by_itself(mesh: Mesh) -> None:
    async with living(mesh, mesh.home) as house:
        one = Town(house, mesh)
        await one.person(wait_seconds=1)
        content = await one.begin()
        await wait_for(lambda: one.words(content) == 1, what="the word of the witness")


@pytest.mark.req("PERSON-45", "ATTACK-83")
async def test_share_is_kept_for_whom_the_owner_has_agreed_to_help(mesh: Mesh) -> None:
    async with town(mesh) as one, living(mesh, mesh.guest) as sender:
        path = one.mesh.home.helping / f"{PAPER.token}.json"

        async def sent(statement: statements.HelpersNamed, share: str = SHARE, to: str = "") -> str:
            node, data = one.house.node_id, msgspec.to_builtins(statement)
            sealed = sender.identity.seal_to(to or node, CommunityAuthor.share_purpose, share.encode())
            body = {"params": {}, "input": {"statement": data, "sealed": ids.b64(sealed)}}
            try:
                return str((await sender.bus.call(KEEP, body, node=node)).output["number"])
            except HearthNetError as error:
                return error.code

        statement = one.helpers()
        assert await sent(statement) == "unauthorized"
        path.parent.mkdir(mode=0o700)
        path.write_text(json.dumps({"person": PAPER.node_id, "number": 0, "share": ""}))
        assert await sent(statement) == "2"
        assert json.loads(path.read_bytes()) == {"person": PAPER.node_id, "number": 2, "share": SHARE}
        assert path.stat().st_mode & 0o777 == 0o600
        # The statement is in the log for every member to read, and brings no second share.
        assert await sent(statement) == "2"
        assert await sent(statement, "x " * 33) == "unauthorized"
        assert json.loads(path.read_bytes())["share"] == SHARE
        # A thief of the person's node has no word of the recovery key, and repeats an old one in vain.
        forged = msgspec.structs.replace(statement, number=9)
        assert await sent(forged, "x " * 33) == "invalid_signature"
        path.write_text(json.dumps({"person": PAPER.node_id, "number": 3, "share": SHARE}))
        assert await sent(statement, "x " * 33) == "unauthorized"
        path.write_text(json.dumps({"person": PAPER.node_id, "number": 1, "share": SHARE}))
        assert await sent(statement, "9" * 33) == "bad_request"
        assert await sent(statement, to=sender.node_id) == "invalid_signature"
        assert json.loads(path.read_bytes())["number"] == 1


@pytest.mark.req("PERSON-45", "ATTACK-83")
async def test_share_is_taken_where_the_person_is_recovered(mesh: Mesh) -> None:
    async with town(mesh) as one, living(mesh, mesh.guest) as helper:

        async def given(person: str = PAPER.node_id) -> str:
            node = one.house.node_id
            sealed = helper.identity.seal_to(node, CommunityAuthor.share_purpose, SHARE.encode())
            body = {"params": {}, "input": {"person": person, "sealed": ids.b64(sealed)}}
            try:
                return str((await helper.bus.call(GIVE, body, node=node)).output["person"])
            except HearthNetError as error:
                return error.code

        folder = one.mesh.home.recovering
        assert await given() == "not_found"
        folder.mkdir(mode=0o700)
        (folder / "request.json").write_text(json.dumps({"person": PAPER.node_id}))
        assert await given(OTHER.node_id) == "not_found"
        assert await given() == "unauthorized"
        witnesses = (helper.node_id, OTHER.node_id, LAPTOP.node_id)
        named = CommunityAuthor(one.held, PAPER).named_helpers(LAPTOP.node_id, 86_400, witnesses)
        await one.carry(named)
        assert await given() == PAPER.node_id
        assert (folder / f"{helper.identity.token}.share").read_text() == SHARE
        (folder / "request.json").write_text(json.dumps({"person": OTHER.node_id}))
        assert await given(OTHER.node_id) == "not_found"


@pytest.mark.req("PERSON-46")
async def test_completed_recovery_makes_the_new_home_a_device(mesh: Mesh) -> None:
    """Also where the start after it was cut off; before it, the home gets no person of its own."""
    async with town(mesh) as one:
        home, own = one.mesh.home, one.house.identity
        home.recovering.mkdir(mode=0o700)
        make_person(Prepared(home, own, one.held, None), pytest.fail)  # type: ignore[arg-type]
        (home.recovering / "request.json").write_text(json.dumps({"person": PAPER.node_id}))
        assert not shares.complete(home, one.held)
        lost = one.guest.node_id
        author = CommunityAuthor(one.held, SHARED)
        content, removals = author.begun_recovery(PAPER.node_id, NEW, (lost,))
        keyring.write_new(home.recovering / "person.key", NEW.to_text().encode())
        pages = [
            {"event_type": "community.person.device_removed", "data": msgspec.to_builtins(r)}
            for r in removals
        ]
        (home.recovering / "removals.json").write_text(json.dumps(pages))
        await one.carry(content)
        watch = one.watch()
        await watch.step()
        assert not home.person_key.exists()
        name = statements.recovery_id(one.held.community_id, content)
        for witness in (own, OTHER, LAPTOP):
            await one.carry(statements.witnessed(one.held.community_id, PAPER.node_id, name, witness))
        await watch.step()
        assert not home.recovering.exists()
        assert keyring.load_identity(home.person_key).node_id == NEW.node_id
        assert [device.key for device in one.held.devices(PAPER.node_id)] == [own.node_id]
        assert one.held.is_revoked(lost)
        assert one.held.owner(lost) == PAPER.node_id
