"""Tool runs over a socket: questions, answers, progress, cancel, and another day."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hearthnet.trust.authorization.approval import Approval, sign_approval
from tests.helpers.gateway import Guest, House, open_house
from tests.helpers.scripted_model import NAME, Say
from tests.helpers.socket_client import Frame, Line, complete, limits, line
from tests.helpers.stopwatch import Stopwatch
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio(loop_scope="module")
DEADLINE = 30.0
CAMERA = {
    "name": "camera",
    "description": "What the client sees",
    "parameters_schema": {"type": "object", "properties": {"of": {"type": "string"}}, "required": ["of"]},
}
SLOW = {"use": "llm.complete", "params": {"model": "echo"}}


def post(title: str) -> dict[str, Any]:
    return {"category": "offer", "title": title, "body": "In good order."}


async def ask(house: House, one: Line, guest: Guest, question: str, tools: list[Any], *turns: Say) -> Frame:
    """Opens a run in which the model says `turns`; gives frame 0."""
    house.model.turns[question] = list(turns)
    said = [{"role": "user", "content": question}]
    body = {"params": {"model": NAME}, "input": {"messages": said, "tools": tools}}
    await one.call(house, guest, "llm.chat", body, version="2.0")
    opened = await one.until("opened")
    assert opened["data"]["run"]
    return opened


def signed(guest: Guest, asked: Frame) -> dict[str, Any]:
    """The approval that the guest's page would send."""
    if guest.identity is None:
        return {}
    approval = sign_approval(guest.identity, msgspec.convert(asked["approval"], Approval))
    return {"approval": approval.as_json()}


async def confirm(one: Line, guest: Guest, asked: Frame, decision: str = "approve", **more: Any) -> None:
    """Answers a question."""
    yes = signed(guest, asked) if decision == "approve" else {}
    if decision != "deny":
        yes["shown"] = asked["arguments_digest"]
    await one.send("confirm", confirmation_id=asked["confirmation_id"], decision=decision, **yes, **more)


def posted(house: House, guest: Guest) -> list[str]:
    """The titles that the guest put on the market."""
    me = house.client(guest).principal
    return [call.body["input"]["title"] for call in house.workshop.posts if call.principal == me]


@pytest.mark.req("SOCK-11", "SESS-21", "PAIN-8")
@pytest.mark.parametrize("key", [True, False])
async def test_several_questions_are_answered_one_by_one_in_any_order(shared: House, key: bool) -> None:
    guest = shared.guest(key=key)
    calls = tuple(("market_post", post(title)) for title in ("Ladder", "Filter", "Saw"))
    async with line(shared, guest) as one:
        question = f"Three posts, {key}"
        await ask(shared, one, guest, question, ["market_post"], Say(calls=calls), Say("Done so."))
        asked = [(await one.until("confirmation_required"))["data"] for _ in calls]
        titles = [question["body"]["input"]["title"] for question in asked]
        assert titles == ["Ladder", "Filter", "Saw"]
        await confirm(one, guest, asked[2])
        await confirm(one, guest, asked[0], "deny", reason="not mine")
        await confirm(one, guest, asked[1])
        frames = await one.rest()
    assert sorted(posted(shared, guest)) == ["Filter", "Saw"]
    statuses = {tool["tool_call_id"]: tool["status"] for tool in frames[-1]["data"]["tools"]}
    assert [statuses[question["tool_call_id"]] for question in asked] == ["denied", "completed", "completed"]
    assert [frame["seq"] for frame in frames] == list(range(len(frames)))
    assert one.close_code == 1000


@pytest.mark.req("SOCK-11")
async def test_an_edit_is_signed_after_it_was_shown(shared: House) -> None:
    guest = shared.guest(key=True)
    calls = (("market_post", post("Ladder")),)
    async with line(shared, guest) as one:
        await ask(shared, one, guest, "Edit it", ["market_post"], Say(calls=calls), Say("Done so."))
        asked = (await one.until("confirmation_required"))["data"]
        await confirm(one, guest, asked, "edit", arguments=post("Long ladder"))
        edited = (await one.until("confirmation_edited"))["data"]
        assert edited["body"]["input"]["title"] == "Long ladder"
        assert edited["arguments_digest"] != asked["arguments_digest"]
        await confirm(one, guest, asked, "edit", arguments=post("Long ladder"), **signed(guest, edited))
        assert (await one.rest())[-1]["event"] == "done"
    assert posted(shared, guest) == ["Long ladder"]


@pytest.mark.req("SOCK-11")
async def test_without_a_key_an_edit_is_one_step(shared: House) -> None:
    guest = shared.guest()
    calls = (("market_post", post("Ladder")),)
    async with line(shared, guest) as one:
        await ask(shared, one, guest, "Edit it, too", ["market_post"], Say(calls=calls), Say("Done so."))
        asked = (await one.until("confirmation_required"))["data"]
        await confirm(one, guest, asked, "edit", arguments=post("Short ladder"))
        assert (await one.rest())[-1]["event"] == "done"
    assert posted(shared, guest) == ["Short ladder"]


@pytest.mark.req("SOCK-11")
async def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays(shared: House) -> None:
    guest, thief = shared.guest(key=True), shared.guest(key=True)
    calls = (("market_post", post("Ladder")),)
    async with line(shared, guest) as one:
        await ask(shared, one, guest, "Refuse it", ["market_post"], Say(calls=calls), Say("Done so."))
        asked = (await one.until("confirmation_required"))["data"]
        assert thief.identity is not None
        forged = {**asked["approval"], "approver": thief.identity.node_id}
        other = {**asked, "confirmation_id": "01JZZZZZZZZZZZZZZZZZZZZZ01"}
        for given, who, code in (
            (other, guest, "not_found"),
            ({**asked, "arguments_digest": "blake3:00"}, guest, "unauthorized"),
            ({**asked, "approval": forged}, thief, "unauthorized"),
        ):
            await confirm(one, who, given)
            refused = (await one.until("refused"))["data"]
            assert refused["about"] == given["confirmation_id"]
            assert refused["error"] == code
        await one.send("tool_result", tool_call_id="call_x", content={})
        assert (await one.until("refused"))["data"]["error"] == "not_found"
        assert posted(shared, guest) == []
        await confirm(one, guest, asked)
        assert (await one.rest())[-1]["event"] == "done"
    assert posted(shared, guest) == ["Ladder"]


@pytest.mark.req("SOCK-11")
async def test_the_client_runs_its_own_tools(shared: House) -> None:
    guest = shared.guest()
    async with line(shared, guest) as one:
        turns = Say(calls=(("camera", {"of": "door"}),)), Say("It is red.")
        await ask(shared, one, guest, "Which colour?", [CAMERA], *turns)
        wanted = (await one.until("tool_wanted"))["data"]
        assert wanted["arguments"] == {"of": "door"}
        await one.send("tool_result", tool_call_id=wanted["tool_call_id"], content={"colour": "red"})
        frames = await one.rest()
    assert "".join(frame["data"]["text"] for frame in frames if frame["event"] == "token") == "It is red. "
    assert '"colour"' in str(shared.model.requests[-1]["messages"][-1]["content"])


@pytest.mark.req("SOCK-11", "PAIN-21")
async def test_ten_signs_of_progress_come_in_order_before_the_result(shared: House) -> None:
    guest = shared.guest()
    turns = Say(calls=(("llm_complete", {"prompt": "slow 10"}),)), Say("Ready.")
    async with line(shared, guest) as one:
        await ask(shared, one, guest, "Take your time", [SLOW], *turns)
        frames = await one.rest()
    events = [frame["event"] for frame in frames]
    told = [frame["data"]["current"] for frame in frames if frame["event"] == "tool_progress"]
    assert told == list(range(1, 11))
    assert max(place for place, event in enumerate(events) if event == "tool_progress") < events.index(
        "tool_result"
    )
    assert "working" not in str(shared.model.requests[-1]["messages"])


@pytest.mark.req("SOCK-12", "PAIN-13")
async def test_cancel_reaches_the_tool_within_a_second(shared: House) -> None:
    shared.workshop.go.clear()
    guest = shared.guest()
    turns = Say(calls=(("llm_complete", {"prompt": "slow 9"}),)), Say("Never said.")
    async with line(shared, guest) as one:
        await ask(shared, one, guest, "Stop it", [SLOW], *turns)
        me = shared.client(guest).principal
        (call,) = await wait_for(
            lambda: [call for call in shared.workshop.calls if call.principal == me], DEADLINE
        )
        asked_before, watch = len(shared.model.requests), Stopwatch(shared.mesh.server.process.pid)
        await one.send("cancel")
        await wait_for(lambda: call.id in shared.workshop.stopped, DEADLINE)
        took = watch.seconds()
        frames = await one.rest()
    shared.workshop.go.set()
    assert took < 1.0
    assert (frames[-1]["event"], frames[-1]["data"]["stop_reason"]) == ("done", "cancelled")
    assert frames[-1]["data"]["tools"][0]["status"] == "cancelled"
    assert len(shared.model.requests) == asked_before


@pytest.mark.req("SOCK-5", "SOCK-6", "SOCK-13")
async def test_a_page_that_is_loaded_again_finds_its_run_by_its_id(shared: House) -> None:
    guest = shared.guest(key=True)
    turns = Say("Let me see. ", calls=(("market_post", post("Ladder")),)), Say("Done so.")
    async with line(shared, guest) as one:
        opened = await ask(shared, one, guest, "Reload", ["market_post"], *turns)
        await one.until("confirmation_required")
        await one.send("ack", upto=one.seen[-1]["seq"])
        await one.send("ack", upto=one.seen[-1]["seq"])
        one.cut()
    channel = shared.gateway.sockets.channels.find(opened["data"]["stream"], shared.client(guest).principal)
    await wait_for(lambda: not channel.read, DEADLINE)
    async with line(shared, guest) as again:
        await again.send("resume", run=opened["data"]["run"])
        assert (await again.until("opened"))["data"] == opened["data"]
        snapshot = (await again.until("snapshot"))["data"]
        assert snapshot["text"].strip() == "Let me see."
        (asked,) = snapshot["pending"]
        await confirm(again, guest, asked)
        assert (await again.rest())[-1]["event"] == "done"
    assert posted(shared, guest) == ["Ladder"]


@pytest.mark.req("SOCK-13", "PAIN-4")
async def test_a_run_that_nobody_came_back_for_goes_on_another_day(
    shared: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    guest = shared.guest(key=True)
    monkeypatch.setattr(shared.gateway.runs, "_away", 0.05)
    turns = Say(calls=(("market_post", post("Ladder")),)), Say("Done so.")
    with limits(shared, linger_seconds=0.05):
        async with line(shared, guest) as one:
            opened = await ask(shared, one, guest, "Another day", ["market_post"], *turns)
            await one.until("confirmation_required")
            one.cut()
        run, sockets = opened["data"]["run"], shared.gateway.sockets
        await wait_for(lambda: f"run {run}" not in {task.get_name() for task in sockets.runs}, DEADLINE)
        await wait_for(lambda: sockets.channels.of_run(run, shared.client(guest).principal) is None, DEADLINE)
    async with line(shared, guest) as again:
        await again.send("resume", run=run)
        after = (await again.until("opened"))["data"]
        assert (after["run"], after["stream"] == opened["data"]["stream"]) == (run, False)
        asked = (await again.until("confirmation_required"))["data"]
        await confirm(again, guest, asked)
        assert (await again.rest())[-1]["event"] == "done"
    assert posted(shared, guest) == ["Ladder"]
    async with line(shared, guest) as late:
        await late.send("resume", run=run)
        (refused,) = await late.rest()
    assert (refused["event"], refused["data"]["error"]) == ("error", "bad_request")


@pytest.mark.req("SOCK-11")
async def test_tools_that_cannot_be_are_told_in_frame_0(shared: House) -> None:
    guest = shared.guest()
    for tools, code in ((["no_such_tool"], "not_found"), ([7], "bad_request")):
        async with line(shared, guest) as one:
            said = [{"role": "user", "content": "x"}]
            body = {"params": {"model": NAME}, "input": {"messages": said, "tools": tools}}
            await one.call(shared, guest, "llm.chat", body, version="2.0")
            (refused,) = await one.rest()
        assert (refused["event"], refused["data"]["error"]) == ("error", code)
    assert not [one for one in shared.gateway.sockets.channels if one.owner == shared.client(guest).principal]


@pytest.mark.req("SOCK-11")
async def test_a_model_that_fails_is_an_error_at_the_end(shared: House) -> None:
    guest = shared.guest()
    shared.model.hangs_up = True
    try:
        async with line(shared, guest) as one:
            await ask(shared, one, guest, "Fail", ["market_post"], Say("Never said."))
            frames = await one.rest()
    finally:
        shared.model.hangs_up = False
    assert [frame["event"] for frame in frames].count("error") == 1
    assert (frames[-1]["event"], frames[-1]["data"]["error"]) == ("error", "partition")
    assert "hung up" in frames[-1]["data"]["message"]


@pytest.mark.req("SOCK-11", "PAIN-8")
async def test_an_answer_that_comes_twice_counts_once(shared: House) -> None:
    guest = shared.guest(key=True)
    calls = (("market_post", post("Ladder")), ("market_post", post("Saw")))
    async with line(shared, guest) as one:
        await ask(shared, one, guest, "Twice", ["market_post"], Say(calls=calls), Say("Done so."))
        first = (await one.until("confirmation_required"))["data"]
        second = (await one.until("confirmation_required"))["data"]
        await confirm(one, guest, first)
        await confirm(one, guest, first, "deny")
        told = (await one.until("notice"))["data"]
        assert (told["code"], told["word"], told["tool_call_id"]) == (
            "decided_before",
            "approved",
            first["tool_call_id"],
        )
        await confirm(one, guest, second, "deny")
        assert (await one.rest())[-1]["event"] == "done"
    assert posted(shared, guest) == ["Ladder"]


@pytest.mark.req("SOCK-17")
async def test_a_gateway_that_ends_lets_go_of_runs_and_streams(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        house.workshop.go.clear()
        guest = house.guest()
        turns = Say(calls=(("market_post", post("Ladder")),)), Say("Never said.")
        async with line(house, guest) as one, line(house, guest) as two, line(house, guest) as three:
            opened = await ask(house, one, guest, "Ends", ["market_post"], *turns)
            await one.until("confirmation_required")
            await two.call(house, guest, "llm.complete", complete("slow 5"))
            await two.until("opened")
            await three.send("subscribe", topic="mesh")
            await three.until("snapshot")
            await house.gateway.sockets.close()
            for each in (one, two, three):
                await each.rest()
                assert each.close_code == 1001
        assert not house.gateway.sockets.runs
        (kept,) = await house.gateway.runs.listing(house.client(guest))
        assert (kept["run"], len(kept["pending"])) == (opened["data"]["run"], 1)
