"""Redeeming at a home that is reached with TLS, and where the inviter's node keeps silent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hearthnet.core import ids
from hearthnet.core.config_loader import load_config
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms
from hearthnet.supervisor.community import join
from hearthnet.supervisor.nats.leaf_links import load_upstream
from hearthnet.trust.community import commands
from hearthnet.trust.community.invites import InviteText, decode
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from tests.helpers.household import Household, make_home, settle
from tests.helpers.members import DAY_MS
from tests.helpers.processes import unused_port
from tests.helpers.shell import Shell
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.e2e
SEED = bytes([5] * 32)


class Hearth:
    """A community whose founder's node runs without a single service; a member's home, and an open invite."""

    def __init__(self, household: Household, server: dict[str, Any]) -> None:
        self.household = household
        self.server = server

    def invite(self, seed: bytes = SEED, fingerprint: str = "") -> str:
        """The text of the open invite, or of another one."""
        address = f"127.0.0.1:{self.server['leaf_port']}"
        return InviteText(
            community_id=self.household.roster.community_id,
            seed=ids.b64(seed),
            address=address,
            fingerprint=fingerprint or self.server["fingerprint"],
            inviter=self.household.key().node_id,
            name=self.household.roster.name,
            expires_at=now_ms() + DAY_MS,
        ).encode()


@pytest.fixture(scope="module")
def hearth(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hearth]:
    """Reached from everywhere, so with TLS."""
    household = settle(tmp_path_factory.mktemp("hearth"), {"attic": "member"})
    now, own = now_ms(), household.key()
    household.happen(
        commands.CommunityAuthor(household.roster, own).invite(
            Identity(SEED), display_name="", expires_at=now + DAY_MS, now_ms=now
        )
    )
    settings = household.founder.config_file
    settings.write_text(settings.read_text().replace("[community]", '[community]\nhost = "0.0.0.0"'))
    with Shell(household.founder.path).node() as state:
        yield Hearth(household, state["server"])


@pytest.fixture
def told() -> list[str]:
    """What a person is told."""
    return []


def refused(home: Home, text: str, told: list[str]) -> HearthNetError:
    """Why the invite was not redeemed; nothing of a community is in the home then."""
    with pytest.raises(HearthNetError) as caught:
        join.redeem(home, text, told.append)
    assert not home.roster.exists()
    assert not home.upstream.exists()
    assert not (home.run / "joining").exists()
    return caught.value


@pytest.mark.req("JOIN-4")
def test_a_silent_node_is_asked_again_for_some_seconds_and_named(
    hearth: Hearth, tmp_path: Path, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join, "PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(join, "_PAUSE_SECONDS", 0.01)
    error = refused(make_home(tmp_path / "shed", "shed"), hearth.invite(), told)
    assert error.code == "partition"
    assert ids.short_id(hearth.household.key().node_id) in error.message
    assert "has to run while the invite is redeemed" in error.message
    assert sum("does not answer yet" in line for line in told) == 1


@pytest.mark.req("JOIN-4")
def test_an_invite_that_is_closed_while_it_waits_is_refused(
    hearth: Hearth, tmp_path: Path, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second attempt is let in, and outlasts the patience; by the third the invite is closed."""
    monkeypatch.setattr(join, "PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(join, "_PAUSE_SECONDS", 0.01)
    attempts = 0

    async def asked(joining: join._Joining, *given: Any) -> Roster:
        nonlocal attempts
        attempts += 1
        joining._inside = attempts < 3
        if attempts == 3:
            raise HearthNetError("unauthorized", "it was used")
        if attempts == 2:
            clock = asyncio.get_running_loop().time
            end = clock() + join.PATIENCE_SECONDS
            await wait_for(lambda: clock() > end)
        raise HearthNetError("partition", "no answer")

    monkeypatch.setattr(join._Joining, "_request_to_join", asked)
    error = refused(make_home(tmp_path / "shed", "shed"), hearth.invite(), told)
    assert (error.code, error.message, attempts) == ("unauthorized", "it was used", 3)


@pytest.mark.req("JOIN-4")
def test_another_server_at_that_address_is_found_out(hearth: Hearth, tmp_path: Path, told: list[str]) -> None:
    home = make_home(tmp_path / "shed", "shed")
    error = refused(home, hearth.invite(fingerprint="0" * 64), told)
    assert error.code == "invalid_signature"
    assert "is not the one of the invite" in error.message


@pytest.mark.req("JOIN-4")
def test_an_invite_that_never_was_opens_nothing(hearth: Hearth, tmp_path: Path, told: list[str]) -> None:
    home = make_home(tmp_path / "shed", "shed")
    for _ in range(2):  # the second time with a key of its own, which is tried too
        error = refused(home, hearth.invite(bytes(32)), told)
        assert error.code == "unauthorized"
        assert "does not accept this invite: it was used, withdrawn or has expired" in error.message


@pytest.mark.req("JOIN-7")
def test_a_member_that_cannot_be_told_anything_keeps_what_it_has(hearth: Hearth, told: list[str]) -> None:
    """The founder's node has no service that would tell it; its home is as it was, without a new address."""
    home = hearth.household["attic"]
    before = home.roster.read_bytes()
    with pytest.raises(HearthNetError) as caught:
        join.redeem(home, hearth.invite(), told.append)
    assert caught.value.code == "partition"
    assert "belongs to founder's community already" in told[-1]
    assert home.roster.read_bytes() == before
    assert load_upstream(home) is None


@pytest.mark.req("DOOR-10")
def test_an_invite_leads_to_the_first_door_that_answers(hearth: Hearth, tmp_path: Path) -> None:
    """At one address nobody answers, at the next another server does, and the third is the hearth's."""
    alive = hearth.server["fingerprint"]
    address = f"127.0.0.1:{hearth.server['leaf_port']}"
    nobody = f"127.0.0.1:{unused_port()}"
    places = ((address, "0" * 64), (nobody, ""), (address, alive))
    text = msgspec.structs.replace(decode(hearth.invite()), address=nobody, fingerprint=alive, doors=places)
    home = make_home(tmp_path / "shed", "shed")
    joining = join._Joining(home, load_config(home), Identity.generate(), text, False)
    reported: list[str] = []
    found = asyncio.run(joining._upstream(reported.append))
    assert (found.address, found.fingerprint) == (address, alive)
    assert "BEGIN CERTIFICATE" in found.certificate
    lost = join._Joining(
        home,
        load_config(home),
        Identity.generate(),
        msgspec.structs.replace(text, fingerprint="0" * 64, doors=places[:2]),
        False,
    )
    assert reported == []
    with pytest.raises(HearthNetError, match=f"no home answers at {nobody}") as caught:
        asyncio.run(lost._upstream(reported.append))
    assert reported == [f"the home of the invite is not at {nobody}; looking for it on this network"]
    assert caught.value.code == "partition"
