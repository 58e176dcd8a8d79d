"""Topics through a real socket, members with their own key, and effects that a client has itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec
import pytest

from hearthnet import Call, Offer, Reply, Service, capability
from hearthnet.bus.session import keyring
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms, rfc3339
from hearthnet.gateway.socket.topic import LOOK_SECONDS, Readers
from hearthnet.trust.authorization.approval import Approval, sign_approval
from hearthnet.trust.authorization.token import Scope, mint
from hearthnet.trust.keys import Identity
from tests.gateway.socket.test_tool_runs import ask, confirm, post
from tests.helpers.envelopes import sign_envelope
from tests.helpers.gateway import Guest, House
from tests.helpers.probe import Anything
from tests.helpers.scripted_model import Say
from tests.helpers.socket_client import Frame, complete, limits, line

pytestmark = pytest.mark.asyncio(loop_scope="module")
DEADLINE = 30.0
LIST = "market.list@1.0"


class Stall(Service):
    """A market that a test fills."""

    name: ClassVar[str] = "stall"

    def __init__(self) -> None:
        super().__init__()
        self.posts: list[dict[str, Any]] = []
        self.principals: list[str] = []

    def offers(self) -> list[Offer]:
        return [Offer(capability=LIST, max_concurrent=8)]

    def put(self, title: str) -> None:
        """One more post."""
        self.posts.append(
            {
                "event_id": ids.new_ulid(),
                "lamport": len(self.posts) + 1,
                "author": Identity.generate().node_id,
                "category": "offer",
                "title": title,
                "body": "In good order.",
                "location": None,
                "tags": [],
                "created_at": rfc3339(now_ms()),
                "expires_at": rfc3339(now_ms() + 86_400_000),
            }
        )

    @capability(LIST)
    async def list(self, call: Call[Anything, Anything]) -> Reply:
        """What came since."""
        self.principals.append(call.principal)
        since = call.body["input"]["since_lamport"]
        found = [one for one in self.posts if one["lamport"] > since]
        return Reply({"posts": found, "removed": [], "max_lamport": len(self.posts)})


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch, shared: House) -> Iterator[None]:
    monkeypatch.setattr(shared.gateway.sockets.feeds, "_seconds", dict.fromkeys(LOOK_SECONDS, 0.05))
    yield
    shared.gateway.sockets.topics.clear()


@pytest.mark.req("SOCK-14", "SOCK-15")
async def test_the_mesh_is_followed_as_it_changes(shared: House) -> None:
    guest, other = shared.guest(), shared.guest()
    async with line(shared, guest) as one, line(shared, other) as two:
        for each in (one, two):
            await each.send("subscribe", topic="mesh")
            assert (await each.until("opened"))["data"]["topic"] == "mesh"
        first = await one.until("snapshot")
        offered = {offer["capability"] for offer in first["data"]["offers"]}
        assert {"llm.complete@1.0", "rag.query@1.0"} <= offered
        await two.until("snapshot")
        async with shared.mesh.hosting(Stall()):
            came = await one.until("appeared")
            assert (came["data"]["capability"], came["data"]["health"]) == (LIST, "well")
            assert await two.until("appeared") == came
        gone = await one.until("gone")
        assert (gone["data"]["capability"], gone["seq"] > came["seq"]) == (LIST, True)
        await two.until("gone")
        assert len(shared.gateway.sockets.topics) == 1
        await one.send("cancel")
        await one.rest()
        assert one.close_code == 1000
    async with line(shared, guest) as again:
        await again.send("subscribe", topic="mesh", since_seq=came["seq"])
        await again.until("opened")
        assert await again.until("gone") == gone
    async with line(shared, guest) as late:
        await late.send("subscribe", topic="mesh", since_seq=5)
        assert (await late.until("snapshot"))["seq"] >= gone["seq"]


@pytest.mark.req("SOCK-14", "SOCK-15")
async def test_new_posts_are_told_under_the_token_of_one_who_may_read_them(shared: House) -> None:
    stall = Stall()
    stall.put("Ladder")
    async with shared.mesh.hosting(stall):
        guest, blind = shared.guest("market.list"), shared.guest("llm.complete")
        async with line(shared, blind) as one:
            await one.send("subscribe", topic="market.post")
            (refused,) = await one.rest()
            assert refused["data"]["error"] == "token_scope_insufficient"
        async with line(shared, guest) as one:
            await one.send("subscribe", topic="market.post")
            snapshot = await one.until("snapshot")
            assert [post["title"] for post in snapshot["data"]["posts"]] == ["Ladder"], snapshot
            stall.put("Saw")
            told = await one.until("posted")
            assert (told["data"]["title"], told["seq"]) == ("Saw", snapshot["seq"] + 1)
        assert set(stall.principals) == {shared.client(guest).principal}


@pytest.mark.req("SOCK-22")
async def test_what_the_mesh_offers_is_told_to_those_who_may_search_it(shared: House) -> None:
    async with line(shared, shared.guest("market.list")) as one:
        await one.send("subscribe", topic="mesh")
        (refused,) = await one.rest()
    assert (refused["data"]["error"], "mesh.search" in refused["data"]["message"]) == (
        "token_scope_insufficient",
        True,
    )


@pytest.mark.req("SOCK-23")
async def test_who_is_removed_follows_no_longer(shared: House) -> None:

    guest, other = shared.guest(), shared.guest()
    with limits(shared, check_seconds=0.1):
        async with line(shared, guest) as one, line(shared, other) as two:
            for each in (one, two):
                await each.send("subscribe", topic="runs")
                await each.until("snapshot")
            assert shared.gateway.clients.book.remove(guest.entry.id)
            await one.rest()
            assert one.close_code == 4401
            assert one.reason.startswith("unauthorized: this client is not known here")
            assert two.close_code is None


@pytest.mark.req("SOCK-23")
async def test_a_token_from_elsewhere_is_over_while_its_socket_is_open(
    shared: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"topic": "mesh"}
    subscribe = first(shared, "subscribe", given, "topic.subscribe", {"params": {}, "input": given}, "2.0")
    late = now_ms() + 720_000  # the token is for 600 s
    async with line(shared, None) as one, line(shared, shared.guest()) as two:
        await one.socket.send(subscribe)
        await one.until("snapshot")
        await two.send("subscribe", **given)
        await two.until("snapshot")
        monkeypatch.setattr(shared.gateway.clients, "_clock", lambda: late)
        with limits(shared, check_seconds=0.1):
            await one.rest()
        said = "unauthorized: the token's life is over; ask its issuer for a new one"
        assert (one.close_code, one.reason) == (4401, said)
        assert two.close_code is None


@pytest.mark.req("SOCK-15")
async def test_who_may_no_longer_read_a_topic_makes_way_for_who_may(shared: House) -> None:
    stall = Stall()
    async with shared.mesh.hosting(stall):
        readers, may = Readers(), shared.client(shared.guest("market.list"))
        readers.add(may)
        readers.add(shared.client(shared.guest("llm.complete")))
        given = {"since_lamport": 0, "limit": 5}
        for _ in range(2):
            assert (await readers.ask(shared.gateway, LIST, given))["posts"] == []
        assert stall.principals == [may.principal] * 2
        assert list(readers._clients) == [may.id]
        with pytest.raises(HearthNetError, match="nobody who follows"):
            await Readers().ask(shared.gateway, LIST, given)
        with pytest.raises(HearthNetError) as wrong:
            await readers.ask(shared.gateway, LIST, {"limit": 0})
        assert wrong.value.code == "bad_request"


async def test_nothing_is_asked_in_the_name_of_who_has_left(shared: House) -> None:
    async with shared.mesh.hosting(Stall()):
        readers, guest = Readers(), shared.client(shared.guest("market.list"))
        readers.add(guest)
        readers.add(guest)
        readers.remove(guest)
        given = {"since_lamport": 0, "limit": 5}
        assert (await readers.ask(shared.gateway, LIST, given))["posts"] == []
        readers.remove(guest)
        with pytest.raises(HearthNetError, match="nobody who follows"):
            await readers.ask(shared.gateway, LIST, given)


@pytest.mark.req("SOCK-14")
async def test_a_client_hears_what_waits_for_it(shared: House) -> None:
    guest = shared.guest(key=True)
    async with line(shared, guest) as watching, line(shared, guest) as one:
        await watching.send("subscribe", topic="runs")
        assert (await watching.until("snapshot"))["data"] == {"runs": []}
        turns = Say(calls=(("market_post", post("Ladder")),)), Say("Done so.")
        opened = await ask(shared, one, guest, "Watch it", ["market_post"], *turns)
        told = await watching.until("appeared")
        while not told["data"]["pending"]:
            told = await watching.until("changed")
        assert told["data"]["run"] == opened["data"]["run"]
        await confirm(one, guest, (await one.until("confirmation_required"))["data"])
        assert (await one.rest())[-1]["event"] == "done"
        while told["data"]["pending"]:
            told = await watching.until("changed")


# --- effects of the client's own


def sale(title: str) -> dict[str, Any]:
    return {"params": {}, "input": post(title)}


@pytest.mark.req("SOCK-18")
async def test_an_effect_of_ones_own_is_shown_signed_and_happens(shared: House) -> None:
    guest = shared.guest(key=True)
    assert guest.identity is not None
    async with line(shared, guest) as one:
        await one.call(shared, guest, "market.post", sale("Bench"))
        asked = (await one.until("confirmation_required"))["data"]
        assert asked["body"]["input"]["title"] == "Bench"
        about = {"confirmation_id": asked["confirmation_id"], "shown": asked["arguments_digest"]}
        forged = {**asked["approval"], "signature": "ed25519:" + "A" * 86}
        for word, code in (
            ({"decision": "approve"}, "unauthorized"),
            ({"decision": "approve", "approval": forged}, "invalid_signature"),
            ({"decision": "edit", "arguments": {}}, "bad_request"),
        ):
            await one.send("confirm", **about, **word)
            assert (await one.until("refused"))["data"]["error"] == code
        await one.send("tool_result", tool_call_id="call", content={})
        assert (await one.until("refused"))["data"]["error"] == "not_found"
        assert [call for call in shared.workshop.posts if call.body["input"]["title"] == "Bench"] == []
        yes = sign_approval(guest.identity, msgspec.convert(asked["approval"], Approval)).as_json()
        await one.send("confirm", **about, decision="approve", approval=yes)
        events = [frame["event"] for frame in await one.rest()]
    assert events[-2:] == ["result", "done"]
    assert [call.body["input"]["title"] for call in shared.workshop.posts].count("Bench") == 1


@pytest.mark.req("SOCK-18")
async def test_an_effect_that_is_denied_does_not_happen(shared: House) -> None:
    guest = shared.guest(key=True)
    async with line(shared, guest) as one:
        await one.call(shared, guest, "market.post", sale("Never"))
        asked = (await one.until("confirmation_required"))["data"]
        await one.send("confirm", confirmation_id=asked["confirmation_id"], decision="deny")
        assert (await one.rest())[-1]["data"] == {
            "stop_reason": "denied",
            "happened": [{"capability": "market.post@1.0", "state": "refused"}],
        }
    assert "Never" not in [call.body["input"]["title"] for call in shared.workshop.posts]


@pytest.mark.req("SOCK-18")
async def test_who_has_no_key_approves_by_asking(shared: House) -> None:
    guest = shared.guest()
    async with line(shared, guest) as one:
        await one.call(shared, guest, "market.post", sale("Chair"))
        assert [frame["event"] for frame in await one.rest()] == ["opened", "result", "done"]
    (made,) = [call for call in shared.workshop.posts if call.body["input"]["title"] == "Chair"]
    assert made.principal == shared.client(guest).principal
    assert made.approval is not None
    assert (made.approval.via, made.approval.approver) == ("gateway", shared.bus.peer.node_id)
    async with line(shared, guest) as one:
        await one.call(shared, guest, "rag.ingest", {"params": {}, "input": {}})
        (refused,) = await one.rest()
    assert (refused["event"], refused["data"]["error"]) == ("error", "bad_request")


# --- a member with its own key


def member(house: House) -> tuple[Identity, str]:
    """The second member, and its grant for this gateway's node."""
    identity = keyring.load_identity(house.mesh.guest.device_key)
    peer = house.bus.peer
    token = mint(
        identity,
        subject=peer.node_id,
        audience=peer.community,
        scope=Scope(("llm.complete", "rag.query", "mesh.search")),
        now_ms=now_ms(),
        ttl_seconds=600,
    )
    return identity, token


def first(house: House, kind: str, members: Frame, capability: str, body: Frame, version: str) -> str:
    """A first frame as the second member signs it (docs/protocol/gateway.md)."""
    identity, token = member(house)
    envelope = house.envelope(capability, body, version)
    said = sign_envelope(identity, envelope)
    names = ("request_id", "from", "community", "timestamp", "signature")
    signed = {name: said[name] for name in names}
    return msgspec.json.encode({"type": kind, **members, **signed, "token": token}).decode()


@pytest.mark.req("SOCK-19")
async def test_a_member_calls_with_its_own_key(shared: House) -> None:
    body = complete("my own words")
    members = {"capability": "llm.complete", "version": "1.0", "body": body}
    frame = first(shared, "call", members, "llm.complete", body, "1.0")
    async with line(shared, None) as one:
        await one.socket.send(frame)
        frames = await one.rest()
    assert [frame["event"] for frame in frames] == ["opened", "token", "token", "token", "done"]
    identity, _ = member(shared)
    assert shared.workshop.calls[-1].principal == identity.node_id
    async with line(shared, None) as again:
        await again.socket.send(frame)
        (refused,) = await again.rest()
    assert (refused["data"]["error"], again.close_code) == ("invalid_signature", 4401)
    given = {"stream": frames[0]["data"]["stream"], "after": 2}
    resume = first(shared, "resume", given, "stream.resume", {"params": {}, "input": given}, "2.0")
    async with line(shared, None) as back:
        await back.socket.send(resume)
        assert [frame["event"] for frame in await back.rest()] == ["opened", "token", "done"]
    topic = {"topic": "mesh"}
    subscribe = first(shared, "subscribe", topic, "topic.subscribe", {"params": {}, "input": topic}, "2.0")
    async with line(shared, None) as follower:
        await follower.socket.send(subscribe)
        await follower.until("snapshot")
    async with line(shared, None) as unsigned:
        await unsigned.send("resume", **given)
        await unsigned.rest()
    assert unsigned.close_code == 4401


@pytest.mark.req("SOCK-19")
async def test_what_was_changed_on_the_way_is_refused(shared: House) -> None:
    guest: Guest = shared.guest(key=True)
    async with line(shared, guest) as one:
        frame = shared.envelope("llm.complete", complete("my words"), "1.0", guest)
        frame["body"] = complete("other words")
        await one.socket.send(msgspec.json.encode({"type": "call", **frame}).decode())
        await one.rest()
    assert (one.close_code, one.seen[0]["data"]["error"]) == (4401, "invalid_signature")
