"""A newcomer believes the community's id, and nothing that the inviter's node says besides."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any, ClassVar, SupportsIndex

import msgspec
import pytest
import pytest_asyncio

from hearthnet import Call, Offer, Reply, Service, capability
from hearthnet.bus.session import keyring
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.supervisor.community.join_client import JoinClient
from hearthnet.trust.community import commands, invites
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.community.events import CommunityEvent
from hearthnet.trust.community.invites import InviteText
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from tests.helpers.members import DAY_MS
from tests.helpers.mesh import Mesh
from tests.helpers.probe import Anything

pytestmark = pytest.mark.asyncio
SEED = bytes([9] * 32)


class Inviter(Service):
    """The inviter's node, which says what a test lets it say: of `community.sync` page by page."""

    name: ClassVar[str] = "auth"

    def __init__(self) -> None:
        super().__init__()
        self.pages: list[Iterable[Any]] = []
        self.answer: Iterable[Any] = ()
        self.heads: list[dict[str, Any]] = []
        self.joins = 0

    def offers(self) -> list[Offer]:
        """What a newcomer asks for."""
        return [Offer(capability="community.sync@1.0"), Offer(capability="community.join@1.0")]

    @capability("community.sync@1.0")
    async def sync(self, call: Call[Anything, Any]) -> Reply:
        """The next page."""
        self.heads.append(dict(call.input["heads"]))
        events = [*self.pages.pop(0)]
        return Reply({"events": events, "more": bool(self.pages), "revocations": []})

    @capability("community.join@1.0", event_sourced=True)
    async def join(self, call: Call[Anything, Any]) -> Reply:
        """Says yes, whatever it is."""
        self.joins += 1
        return Reply({"event_id": ids.new_ulid(), "lamport": 9, "events": [*self.answer]})


@pytest_asyncio.fixture
async def inviter(mesh: Mesh) -> AsyncIterator[Inviter]:
    """Hosted at the founder's node."""
    service = Inviter()
    async with mesh.hosting(service):
        yield service


@pytest_asyncio.fixture
async def newcomer(mesh: Mesh) -> AsyncIterator[JoinClient]:
    """At the founder's server; here under a member's login, which opens it as an invite's does."""
    roster = keyring.load_roster(mesh.home.roster)
    text = InviteText(
        community_id=roster.community_id,
        seed=ids.b64(SEED),
        address="127.0.0.1:1",
        fingerprint="",
        inviter=mesh.identity.node_id,
        name=roster.name,
        expires_at=now_ms() + DAY_MS,
    )
    who = keyring.load_identity(mesh.guest.device_key)
    connected = await JoinClient.connect(mesh.guest, mesh.server.url, who, text)
    yield connected
    await connected.close()


def roster_of(mesh: Mesh) -> Roster:
    """The founder's roster, with the invite in it that the newcomer holds."""
    held, now = keyring.load_roster(mesh.home.roster), now_ms()
    event = commands.CommunityAuthor(held, mesh.identity).invite(
        Identity(SEED), display_name="", expires_at=now + DAY_MS, now_ms=now
    )
    return rosters.merge(held, [event])


def plain(events: Iterable[CommunityEvent]) -> list[Any]:
    """Events as a reply holds them."""
    return [msgspec.to_builtins(event) for event in events]


async def refusal(newcomer: JoinClient, held: Roster | None = None) -> HearthNetError:
    """What keeps the newcomer from a roster."""
    with pytest.raises(HearthNetError) as caught:
        await newcomer.roster(held)
    return caught.value


@pytest.mark.req("JOIN-8")
async def test_the_roster_comes_in_pages_and_is_derived_anew(
    mesh: Mesh, inviter: Inviter, newcomer: JoinClient
) -> None:
    whole = roster_of(mesh)
    inviter.pages = [plain([event]) for event in whole.events]
    assert await newcomer.roster() == msgspec.structs.replace(whole, signature="", signed_by="")
    assert inviter.heads[0] == {}
    assert [len(heads) for heads in inviter.heads[1:3]] == [1, 2]
    inviter.pages = [plain(whole.events[2:])]
    held = rosters.derive(whole.community_id, whole.events[:2])
    assert (await newcomer.roster(held)).version == whole.version
    assert inviter.heads[-1] == held.heads()


@pytest.mark.req("JOIN-8")
async def test_events_of_another_community_altered_or_malformed_ones_are_refused(
    mesh: Mesh, inviter: Inviter, newcomer: JoinClient
) -> None:
    root, first = Identity.generate(), Identity.generate()
    other = rosters.create(root, rosters.member(first, "anchor", "x", now_ms()), "Elsewhere", now_ms())
    founding = plain(roster_of(mesh).events)[0]
    altered = {**founding, "data": {**founding["data"], "name": "Mine"}}
    for events, code in (
        (plain(other.events), "bad_request"),
        ([altered], "bad_request"),
        ([], "bad_request"),
    ):
        inviter.pages = [events]
        error = await refusal(newcomer)
        assert (error.code, "nothing founds it" in error.message) == (code, True)
    inviter.pages = [[{**founding, "signature": "ed25519:" + "A" * 86, "wall_clock": "2026-01-31T08:00:00Z"}]]
    assert (await refusal(newcomer)).code == "bad_request"


@pytest.mark.req("ATTACK-27", "JOIN-8")
async def test_one_bad_event_of_an_answer_does_not_keep_the_others_out(
    mesh: Mesh, inviter: Inviter, newcomer: JoinClient
) -> None:
    whole = roster_of(mesh)
    first, *others = plain(whole.events)
    bad = [
        {**first, **changes}
        for changes in (
            {"schema_version": 0},
            {"schema_version": 2**40},
            {"event_id": "x", "sequence": 0},
            {"event_type": "community.Fair", "wall_clock": "later"},
            {"data": {f"m{number}": 1 for number in range(5_000)}, "signature": ""},
            {"unknown": True},
        )
    ]
    inviter.pages = [[bad[0], first, *bad[1:], *others]]
    assert (await newcomer.roster()).events == whole.events


@pytest.mark.req("JOIN-8")
async def test_an_inviter_that_was_put_out_lets_nobody_in(
    mesh: Mesh, inviter: Inviter, newcomer: JoinClient
) -> None:
    held, root = roster_of(mesh), keyring.load_identity(mesh.home.community_key)
    gone = commands.CommunityAuthor(held, root).revoke(
        mesh.identity.node_id, "other", client_id="out", now_ms=now_ms()
    )
    inviter.pages = [plain(rosters.merge(held, [gone]).events)]
    error = await refusal(newcomer)
    assert error.code == "unauthorized"
    assert "does not belong to" in error.message


@pytest.mark.req("JOIN-8")
async def test_a_yes_without_an_event_that_says_so_is_none(
    mesh: Mesh, inviter: Inviter, newcomer: JoinClient
) -> None:
    held, other, now = roster_of(mesh), Identity.generate(), now_ms()
    request = invites.ask(held, Identity(SEED), other, "Barn", now)
    another = invites.admit(held, mesh.identity, request, now)
    for answer, why in (([], "none of them says so"), (held.events, "none of them says so"), (another, "")):
        inviter.answer = plain(answer)
        with pytest.raises(HearthNetError, match=f"let this one in, but its events do not: {why}") as caught:
            await newcomer.join(held, Identity.generate(), "Shed")
        assert caught.value.code == "unauthorized"
    assert inviter.joins == 3


@pytest.mark.req("JOIN-8")
async def test_without_an_open_invite_nothing_is_asked(
    mesh: Mesh, inviter: Inviter, newcomer: JoinClient
) -> None:
    held = keyring.load_roster(mesh.home.roster)
    with pytest.raises(HearthNetError, match="used or withdrawn") as caught:
        await newcomer.join(held, Identity.generate(), "Shed")
    assert caught.value.code == "unauthorized"
    assert inviter.joins == 0


@pytest.mark.req("JOIN-8")
async def test_a_node_that_is_not_there_is_said(mesh: Mesh, newcomer: JoinClient) -> None:
    error = await refusal(newcomer)
    assert error.code == "partition"
    assert "has to run while the invite is redeemed" in error.message


@pytest.mark.req("JOIN-8")
async def test_an_invite_that_the_node_has_just_forgotten_is_said_to_be_used_up(
    mesh: Mesh, newcomer: JoinClient, inviter: Inviter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its link is cut a moment later."""

    class Forgotten(list[Iterable[Any]]):
        def pop(self, place: SupportsIndex = -1) -> Iterable[Any]:
            raise HearthNetError("unauthorized", "community.sync@1.0 takes level invited")

    inviter.pages = Forgotten()
    assert "takes level invited" in (await refusal(newcomer)).message, "under the node's own key"
    who = keyring.load_identity(mesh.guest.device_key)
    monkeypatch.setattr(InviteText, "key", lambda text: who)
    error = await refusal(newcomer)
    assert error.code == "unauthorized"
    assert "does not accept this invite: it was used, withdrawn or has expired" in error.message
