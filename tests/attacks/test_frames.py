"""Frames that were captured, changed, turned round or led elsewhere."""

from __future__ import annotations

import time
from collections import Counter

import msgspec
import pytest

from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.core import ids
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.times import now_ms
from hearthnet.protocol import frame as frames
from hearthnet.protocol import subjects
from hearthnet.trust.keys import Identity
from tests.attacks.attacker import (
    LIST,
    LIST_BODY,
    NO_ANSWER,
    POST,
    Answers,
    Attacker,
    Raw,
    outcome,
    post_body,
)
from tests.attacks.conftest import Victim
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio


@pytest.mark.req("ATTACK-5")
async def test_a_captured_call_has_no_second_effect(mallory: Attacker, market: OfferView) -> None:
    body = post_body("Captured and sent again")
    header = mallory.header(market, POST, body)
    data = mallory.boxed(mallory.inner(header, body, signed=True), market)
    subject = mallory.subject(market, POST)
    assert await mallory.deliver(subject, data, header.id) == "ok"
    assert await mallory.strike(subject, data, header.id, market) == NO_ANSWER
    assert await mallory.posted("Captured and sent again") == 1


@pytest.mark.req("ATTACK-6")
async def test_one_changed_byte_is_no_frame(mallory: Attacker, market: OfferView) -> None:
    header = mallory.header(market, LIST, LIST_BODY)
    data = mallory.boxed(mallory.inner(header, LIST_BODY, signed=False), market)
    subject = mallory.subject(market, LIST)
    for place in (0, 5, 7, 29, 31, 46, len(data) // 2, len(data) - 1):
        changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        assert await mallory.strike(subject, changed, header.id, market) == NO_ANSWER, place
    assert await mallory.strike(subject, data[:-1], header.id, market) == NO_ANSWER
    assert await mallory.deliver(subject, data, header.id) == "ok"


@pytest.mark.req("ATTACK-6")
async def test_another_capability_in_the_subject_is_no_call(mallory: Attacker, market: OfferView) -> None:
    header = mallory.header(market, LIST, LIST_BODY)
    data = mallory.boxed(mallory.inner(header, LIST_BODY, signed=False), market)
    subject = mallory.subject(market, "market.expire@1.0")
    assert await mallory.strike(subject, data, header.id, market) == NO_ANSWER


@pytest.mark.req("ATTACK-6")
async def test_a_control_subject_takes_no_call(mallory: Attacker, market: OfferView) -> None:
    header = mallory.header(market, LIST, LIST_BODY)
    data = mallory.boxed(mallory.inner(header, LIST_BODY, signed=False), market)
    subject = subjects.control(mallory.peer.node_id, market.node, market.offer.instance, header.id)
    assert await mallory.strike(subject, data, header.id, market) == NO_ANSWER


@pytest.mark.req("ATTACK-7")
async def test_the_operator_of_the_server_reads_no_frame(
    victim: Victim, mallory: Attacker, market: OfferView
) -> None:
    # All that a server sees of a call is its subject and these bytes.
    secret = "the-word-that-nobody-else-may-read"
    body = post_body(secret)
    header = mallory.header(market, POST, body)
    data = mallory.boxed(mallory.inner(header, body, signed=True), market)
    assert secret.encode() not in data
    assert header.id.encode() not in data
    operator = Identity.generate()
    for key in (
        operator.box_key(operator.node_id, market.node),
        operator.box_key(mallory.peer.node_id, operator.node_id),
    ):
        with pytest.raises(frames.FrameError):
            frames.unbox(data, key)
    carol = victim.key("carol")
    with pytest.raises(frames.FrameError):
        frames.unbox(data, carol.box_key(mallory.peer.node_id, carol.node_id))


@pytest.mark.req("ATTACK-8")
async def test_a_frame_cannot_be_turned_round(victim: Victim, mallory: Attacker, market: OfferView) -> None:
    # Boxed with the key of the other direction, as one who reflects a frame would have it.
    header = mallory.header(market, LIST, LIST_BODY)
    inner = mallory.inner(header, LIST_BODY, signed=False)
    reflected = frames.box(inner, mallory.peer.sender.keys.of(market.node))
    assert await mallory.strike(mallory.subject(market, LIST), reflected, header.id, market) == NO_ANSWER


@pytest.mark.req("ATTACK-8")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("to", "another node"),
        ("to_instance", "zzzzzzzz"),
        ("community", "another community"),
        ("sender", "another node"),
        ("kind", "reply"),
        ("kind", "ack"),
        ("kind", "offer"),
    ],
)
async def test_a_frame_for_somebody_else_is_dropped(
    mallory: Attacker, market: OfferView, field: str, value: str
) -> None:
    given = Identity.generate().node_id if value.startswith("another") else value
    # The stream that its subject names, so that nothing else about it is wrong.
    changes = {field: given, "stream": subjects.topic(parse_capability(LIST)) if field == "kind" else ""}
    header = msgspec.structs.replace(mallory.header(market, LIST, LIST_BODY), **changes)
    data = mallory.boxed(mallory.inner(header, LIST_BODY, signed=False), market)
    assert await mallory.strike(mallory.subject(market, LIST), data, header.id, market) == NO_ANSWER


@pytest.mark.req("ATTACK-8")
async def test_a_frame_for_another_process_of_the_node_is_dropped(
    mallory: Attacker, market: OfferView, victim: Victim
) -> None:
    async def another() -> OfferView | None:
        views = await mallory.bus.offers()
        there = (view for view in views if view.node == victim.node)
        return next((view for view in there if view.offer.instance != market.offer.instance), None)

    other = await wait_for(another, what="another process")
    header = mallory.header(market, LIST, LIST_BODY)
    data = mallory.boxed(mallory.inner(header, LIST_BODY, signed=False), market)
    elsewhere = subjects.call(mallory.peer.node_id, victim.node, other.offer.instance, parse_capability(LIST))
    assert await mallory.strike(elsewhere, data, header.id, market) == NO_ANSWER


@pytest.mark.req("ATTACK-8")
async def test_an_effect_without_a_signature_is_refused(mallory: Attacker, market: OfferView) -> None:
    body = post_body("Not signed")
    refused = await mallory.refusal(market, POST, body, signed=False)
    assert refused.code == "invalid_signature"
    assert refused.message == "market.post@1.0 has side effects: its calls must be signed"
    assert await mallory.posted("Not signed") == 0


@pytest.mark.req("ATTACK-8")
async def test_anothers_signature_is_no_signature(
    victim: Victim, mallory: Attacker, market: OfferView
) -> None:
    body = post_body("Signed by carol")
    header = mallory.header(market, POST, body)
    inner = frames.signed(header, msgspec.json.encode(body), victim.key("carol"))
    data = mallory.boxed(inner, market)
    assert await mallory.strike(mallory.subject(market, POST), data, header.id, market) == NO_ANSWER
    assert await mallory.posted("Signed by carol") == 0


@pytest.mark.req("ATTACK-19")
@pytest.mark.parametrize("minutes", [-5, 5])
async def test_a_clock_five_minutes_off_is_told_the_time(
    mallory: Attacker, market: OfferView, minutes: int
) -> None:
    honest = mallory.header(market, LIST, LIST_BODY)
    told = await mallory.refusal(market, LIST, LIST_BODY, time=honest.time + minutes * 60_000)
    assert told.code == "expired"
    assert abs(told.details["now"] - now_ms()) < 30_000


@pytest.mark.req("ATTACK-7")
async def test_other_members_hear_nothing_of_a_call(
    victim: Victim, mallory: Attacker, market: OfferView
) -> None:
    carol: Raw = await victim.raw("carol")
    token = ids.token_form(victim.key("carol").node_id)
    for subject in ("hn.find.>", "hn.adv.>", "hn.event.>", f"hn.rep.*.{token}.>", f"hn.call.*.{token}.>"):
        await carol.subscribe(subject)
    before = len(carol.heard)
    assert await mallory.call(market, LIST, LIST_BODY) == "ok"
    await carol.settle()
    assert [m.subject for m in carol.heard[before:] if not m.subject.startswith("hn.adv.")] == []
    await carol.close()


@pytest.mark.req("ATTACK-19", "BUS-30")
@pytest.mark.parametrize("minutes", [-5, 5])
async def test_a_node_whose_clock_is_off_is_not_locked_out(
    mallory: Attacker, market: OfferView, minutes: int
) -> None:
    mallory.peer.sender.clocks._ahead[market.node] = (
        minutes * 60_000
    )  # as if our own clock were off by that much
    for capability, body in ((LIST, LIST_BODY), (POST, post_body("By a clock that is off"))):
        assert (await mallory.bus.call(capability, body, node=market.node)).provider == market.node
    assert abs(mallory.peer.sender.clocks._ahead[market.node]) < 30_000


@pytest.mark.req("ATTACK-19")
async def test_stale_frames_are_told_the_time_a_few_times_a_second(
    mallory: Attacker, market: OfferView
) -> None:
    old = mallory.header(market, LIST, LIST_BODY).time - 300_000
    told, began = [], time.monotonic()
    for _ in range(40):
        header = mallory.header(market, LIST, LIST_BODY, time=old)
        answers = Answers()
        mallory.peer.replies.expect(header.id, answers)
        told.append(answers)
        data = mallory.boxed(mallory.inner(header, LIST_BODY, signed=False), market)
        await mallory.peer.link.publish(mallory.subject(market, LIST), data)
    assert await mallory.call(market, LIST, LIST_BODY) == "ok"
    codes = Counter(outcome(answers.frames) for answers in told)
    # The count begins anew each second, once at any moment of the first one.
    assert 1 <= codes["expired"] <= 10 * (time.monotonic() - began + 2), codes
    assert codes == {"expired": codes["expired"], NO_ANSWER: 40 - codes["expired"]}
