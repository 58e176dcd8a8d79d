"""A run goes from one device of a person to another: what counts there, and where its effects go."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hearthnet.agent.devices import copy_store, run_copy
from hearthnet.agent.devices.copy_store import MAX_RUNS, CopyStore
from hearthnet.agent.devices.run_copy import RunCopy, copy_of, from_text, to_text
from hearthnet.agent.loop.state import CallPhase
from hearthnet.agent.persistence.run_record import RunRecord
from hearthnet.agent.tools.types import Approve, Deny
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from tests.agent.keeping import PROVIDER, QUESTION, WANTS, Node
from tests.agent.scripted import done, says
from tests.helpers.memory_runs import MemoryRuns

pytestmark = pytest.mark.asyncio
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Pair:
    """The desk, where a run waits, and the laptop; the model goes on at either."""

    def __init__(self) -> None:
        self.desk = Node(MemoryRuns(), WANTS, [says("Posted."), done()])
        self.laptop = Node(MemoryRuns(), [says("Posted."), done()])
        self.laptop.peer.community = self.desk.peer.community
        self.run = ""

    async def begin(self) -> None:
        """A run waits at the desk."""
        self.run = (await self.desk.executor().run_chat_with_tools(QUESTION))["run"]

    async def copy(self, **changes: Any) -> RunCopy:
        """The run as it goes over the wire."""
        saved = self.desk.saved()
        record = (await saved.load(self.run)).record
        for name, value in changes.items():
            setattr(record, name, value)
        return from_text(to_text(await copy_of(saved, record)), self.desk.peer.identity.node_id)

    async def adopt(self, copy: RunCopy, *, is_away: bool = False) -> RunRecord:
        """The laptop takes it over."""
        saved = self.laptop.saved()
        return await run_copy.adopt(saved, copy, self.laptop.peer.identity, None, is_away=is_away)


@pytest.mark.req("PERSON-52", "PERSON-53")
async def test_two_parted_devices_send_one_idempotency_key() -> None:
    pair = Pair()
    await pair.begin()
    await pair.desk.saved().decide(pair.run, "p", Approve(), via="runs")
    copy = await pair.copy(traceparent=TRACE)
    copy.record.state.calls[0].provider = PROVIDER  # the provider that both reach
    record = await pair.adopt(copy)
    own = pair.laptop.peer.identity.node_id
    assert (record.owner, record.principal, record.key, record.moves) == (own, own, "", 1)
    assert record.traceparent == TRACE
    for node in (pair.desk, pair.laptop):
        assert (await node.executor().resume(pair.run))["content"] == "Posted."
    (one,), (other,) = pair.desk.posts, pair.laptop.posts
    assert one.idempotency_key == other.idempotency_key
    assert one.run == other.run
    assert [one.approval.approver, other.approval.approver] == [
        node.peer.identity.node_id for node in (pair.desk, pair.laptop)
    ], "authority is minted anew, by the key of who goes on"
    (signed,) = (await pair.laptop.saved().decisions(record)).values()
    assert signed.by == pair.desk.peer.identity.node_id


@pytest.mark.req("PERSON-53")
@pytest.mark.parametrize("is_away", [False, True])
@pytest.mark.parametrize(
    ("phase", "is_decided", "grant", "provider"),
    [
        (CallPhase.RUNNING, False, "", ""),
        (CallPhase.QUEUED, False, "", ""),
        (CallPhase.RUNNING, False, "g", ""),
        (CallPhase.PENDING, True, "", ""),
        (CallPhase.PENDING, False, "", "desk"),
        (CallPhase.PENDING, False, "", PROVIDER),
    ],
)
async def test_what_may_have_been_sent_goes_where_it_went(
    phase: CallPhase, is_decided: bool, grant: str, provider: str, is_away: bool
) -> None:
    pair = Pair()
    await pair.begin()
    if is_decided:
        await pair.desk.saved().decide(pair.run, "p", Approve(), via="runs")
    home, copy = pair.desk.peer.identity.node_id, await pair.copy()
    (call,) = copy.record.state.calls
    call.phase, call.grant, call.provider = phase, grant, home if provider == "desk" else provider
    record = await pair.adopt(copy, is_away=is_away)
    (call,) = record.state.calls
    if provider == "desk":
        assert call.provider == ("" if is_away else home)
        assert [one.asked.tool_call_id for one in record.effects] == ([] if is_away else ["p"])
    else:
        assert call.provider == (provider or home)
    assert (call.phase, call.grant) == (CallPhase.PENDING if grant else phase, "")


@pytest.mark.req("PERSON-52")
async def test_tools_for_a_device_that_is_away_are_for_any_home() -> None:
    pair = Pair()
    await pair.begin()
    home = pair.desk.peer.identity.node_id
    for is_away in (False, True):
        copy = await pair.copy()
        copy.record.tools = [msgspec.structs.replace(one, provider=home) for one in copy.record.tools]
        pair.laptop.store = MemoryRuns()
        record = await pair.adopt(copy, is_away=is_away)
        bound = {one.name for one in record.tools if one.provider == home}
        assert bound == ({"search_corpus"} if is_away else {"search_corpus", "market_post", "market_expire"})


@pytest.mark.req("PERSON-51", "ATTACK-91")
async def test_a_decision_that_the_device_has_not_signed_is_refused() -> None:
    pair = Pair()
    await pair.begin()
    await pair.desk.saved().decide(pair.run, "p", Deny("no"), via="runs")
    copy = await pair.copy()
    copy.decisions = [msgspec.structs.replace(copy.decisions[0], decision=Approve())]
    with pytest.raises(HearthNetError) as refused:
        await pair.adopt(copy)
    assert refused.value.code == "invalid_signature"
    assert await pair.laptop.store.runs() == []


@pytest.mark.req("PERSON-52", "ATTACK-91")
async def test_copies_that_are_none_are_refused() -> None:
    pair = Pair()
    await pair.begin()
    copy = await pair.copy()
    home = copy.home
    other = msgspec.structs.replace(copy, record=msgspec.structs.replace(copy.record, run="../../keys"))
    for text, by, code in (
        (to_text(copy), PROVIDER, "unauthorized"),
        (to_text(other), home, "bad_request"),
        (ids.b64(b"no zlib"), home, "bad_request"),
        ("!", home, "bad_request"),
    ):
        with pytest.raises(HearthNetError) as refused:
            from_text(text, by)
        assert refused.value.code == code
    large = msgspec.structs.replace(copy.record, request={"input": os.urandom(600_000).hex()})
    with pytest.raises(HearthNetError) as refused:
        to_text(msgspec.structs.replace(copy, record=large))
    assert refused.value.code == "payload_too_large"
    ended = await pair.copy()
    await pair.desk.saved().cancel(pair.run)
    ended = await pair.copy()
    with pytest.raises(HearthNetError, match="has ended"):
        await pair.adopt(ended)


@pytest.mark.req("RUN-7", "PERSON-52")
async def test_a_run_that_was_left_to_another_device_waits_here_no_more() -> None:
    pair = Pair()
    await pair.begin()
    saved = pair.desk.saved()
    record = (await saved.load(pair.run)).record
    assert len(await saved.waiting(record)) == 1
    await saved.give_up(pair.run, PROVIDER)
    assert await saved.waiting((await saved.load(pair.run)).record) == []
    for refused in (
        pair.desk.executor().resume(pair.run),
        saved.cancel(pair.run),
        saved.give_up(pair.run, PROVIDER),
        saved.decide(pair.run, "p", Approve(), via="runs"),
    ):
        with pytest.raises(HearthNetError) as error:
            await refused
        assert (error.value.code, error.value.details["device"]) == ("bad_request", PROVIDER)


@pytest.mark.req("PERSON-52", "ATTACK-91")
async def test_copies_at_rest_are_sealed_bounded_and_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair()
    await pair.begin()
    copy = await pair.copy()
    store = CopyStore(Home.resolve(tmp_path), pair.laptop.peer.identity)
    assert store.of(copy.home) == []
    store.put(copy)
    store.put(copy)
    (path,) = store._folder.iterdir()
    assert b"Lend it" not in path.read_bytes()
    assert store.find(pair.run, [copy.home]) is not None
    assert store.find(pair.run, [PROVIDER]) is None
    assert store.find("../x", [copy.home]) is None
    assert CopyStore(Home.resolve(tmp_path), pair.desk.peer.identity).of(copy.home) == [], "another's key"
    monkeypatch.setattr(copy_store, "MAX_RUNS", 1)
    more = msgspec.structs.replace(copy, record=msgspec.structs.replace(copy.record, run=ids.new_ulid()))
    with pytest.raises(HearthNetError) as refused:
        store.put(more)
    assert refused.value.code == "capacity_exceeded"
    store.keep_only(copy.home, [pair.run])
    half = store._folder / ".half.written"
    half.touch()
    store.forget_others([copy.home])
    assert half.exists()
    half.unlink()
    assert store.count(copy.home) == 1
    store.forget_others([PROVIDER])
    assert store.count(copy.home) == 0
    monkeypatch.setattr(copy_store, "MAX_RUNS", MAX_RUNS)
    store.put(copy)
    store.keep_only(copy.home, [])
    assert store.of(copy.home) == []
