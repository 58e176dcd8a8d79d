"""A stream as the page reads it: each frame once, over every break; and the answer that the frames make."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.gateway.page.library import Refusal, ask, ask_all

STREAM: Final = "01HZX3Q4R5S6T7V8W9XA0BC1DF"
RUN: Final = "01HZX3Q4R5S6T7V8W9XA0BC1DG"
OPENED: Final[dict[str, Any]] = {"event": "opened", "seq": 0, "data": {"stream": STREAM, "run": RUN}}


def stream(count: int) -> list[dict[str, Any]]:
    said = [{"event": "token", "seq": one, "data": {"text": f"{one} "}} for one in range(1, count)]
    return [OPENED, *said, {"event": "done", "seq": count, "data": {"stop_reason": "end"}}]


@pytest.mark.req("PAGE-6")
def test_a_stream_cut_at_every_frame_is_the_same_stream() -> None:
    frames = stream(20)
    assert ask("cut", frames) == [frames[1:]] * len(frames)


@pytest.mark.req("PAGE-6")
def test_what_was_had_is_passed_over_and_what_is_missing_is_noticed() -> None:
    frames = stream(12)
    double, gap, late, none = ask_all(
        [
            ["read", [*frames[:5], *frames[2:7]]],
            ["read", [*frames[:3], frames[5]]],
            ["read", [*frames, {**frames[1], "seq": 13}]],
            ["read", [OPENED, {"event": "token", "data": {}}]],
        ]
    )
    assert [one["seq"] for one in double["seen"]] == [1, 2, 3, 4, 5, 6]
    assert [one.words for one in (gap, late, none)] == [
        "Error: frame 5 after 2",
        "Error: a frame after the last",
        "Error: a frame without a number",
    ]


@pytest.mark.req("PAGE-6")
def test_every_eighth_frame_is_to_be_acknowledged_and_where_it_stands_is_kept() -> None:
    frames = stream(20)
    seven, eight, from_kept = ask_all(
        [
            ["read", frames[:8]],
            ["read", frames[:9]],
            ["read", frames[9:], {"stream": STREAM, "run": RUN, "after": 8}],
        ]
    )
    assert (seven["due"], eight["due"]) == (0, 8)
    assert eight["kept"] == {"stream": STREAM, "run": RUN, "after": 8}
    assert eight["resume"] == {"type": "resume", "stream": STREAM, "after": 8}
    assert [one["seq"] for one in from_kept["seen"]] == list(range(9, 21))
    assert from_kept["ended"]


@pytest.mark.req("PAGE-6")
def test_a_snapshot_stands_for_the_frames_before_it() -> None:
    snapshot = {"event": "snapshot", "seq": 9, "data": {"text": "so far "}}
    found = ask("read", [OPENED, snapshot, *stream(12)[10:]], {"stream": STREAM, "after": 2})
    assert [one["seq"] for one in found["seen"]] == [9, 10, 11, 12]


@pytest.mark.req("PAGE-6")
def test_another_stream_begins_at_its_beginning() -> None:
    found = ask("read", stream(3), {"stream": "01HZX3Q4R5S6T7V8W9XA0BC1DZ", "after": 40})
    assert [one["seq"] for one in found["seen"]] == [1, 2, 3]


# --- the answer -------------------------------------------------------------------------------------------


def frame(event: str, **data: Any) -> dict[str, Any]:
    return {"event": event, "data": data}


PENDING: Final = {
    "confirmation_id": "c1",
    "run": RUN,
    "tool_call_id": "b",
    "name": "market_post",
    "capability": "market.post@1.0",
    "arguments": {"title": "T"},
    "body": {"params": {}, "input": {"title": "T"}},
    "arguments_digest": "blake3:0",
}
CHUNK: Final = {"metadata": {"doc_cid": "blake3:1", "doc_title": "Water", "date": "2024", "sources": ["WHO"]}}
TURN: Final = [
    OPENED,
    frame("iteration", iteration=1, max_iterations=6, final=False),
    frame("token", text="Let me "),
    frame("token", text="look."),
    frame("tool_call", id="a", name="search_corpus", arguments={"query": "x"}),
    frame("tool_status", tool_call_id="a", name="search_corpus", status="running", text="runs"),
    frame("tool_progress", tool_call_id="a", current=1, total=2, stage="reading"),
    frame("tool_progress", tool_call_id="a", current=2, total=2, stage="reading"),
    frame("tool_call", id="b", name="market_post", arguments={"title": "T"}),
    frame(
        "tool_result",
        tool_call_id="a",
        name="search_corpus",
        status="completed",
        is_error=False,
        ms=7,
        bytes=3,
        content={"chunks": [CHUNK, CHUNK]},
    ),
    frame("confirmation_required", **PENDING),
]


@pytest.mark.req("PAGE-7")
def test_frames_make_cards_and_words_in_their_order() -> None:
    found = ask("run", TURN)
    assert found["run"] == RUN
    assert found["words"] == "Let me look."
    assert found["segments"] == [{"iteration": 1, "text": "Let me look.", "calls": ["a", "b"]}]
    search, post = found["calls"]
    assert (search["status"], search["ms"]) == ("completed", 7)
    assert (post["status"], post["pending"]["confirmation_id"]) == ("waiting", "c1")
    assert found["waiting"] == ["b"]
    assert found["sources"] == [{"title": "Water", "date": "2024", "sources": ["WHO"]}]


@pytest.mark.req("PAGE-7")
def test_a_turn_that_is_asked_for_again_is_not_said_twice() -> None:
    again = [OPENED, frame("iteration", iteration=1), *TURN[2:4]]
    later = [frame("iteration", iteration=2), frame("token", text="Done."), frame("done", run=RUN, ms=3)]
    found = ask("run", [*TURN[:4], *again, *later])
    assert found["words"] == "Let me look.\n\nDone."
    assert found["state"] == "done"


@pytest.mark.req("PAGE-7")
def test_what_is_suspended_waits_and_what_failed_says_why() -> None:
    suspended, failed, unknown = ask_all(
        [
            ["run", [OPENED, frame("suspended", run=RUN, pending=[PENDING], wanted=[])]],
            ["run", [OPENED, frame("error", error="timeout", message="late")]],
            ["run", [OPENED, frame("of_tomorrow", what=1), frame("toString")]],
        ]
    )
    assert (suspended["state"], suspended["waiting"]) == ("suspended", ["b"])
    assert (failed["state"], failed["error"]["error"]) == ("error", "timeout")
    assert unknown["state"] == "running"


@pytest.mark.req("PAGE-7")
def test_a_snapshot_takes_the_place_of_what_was_had() -> None:
    calls = [{"tool_call_id": "a", "name": "search_corpus", "status": "completed", "text": "done"}]
    snapshot = frame("snapshot", text="All of it.", truncated=False, calls=calls, pending=[PENDING])
    found = ask("run", [*TURN[:4], snapshot, frame("token", text=" And more.")])
    assert found["words"] == "All of it. And more."
    assert [(one["id"], one["status"]) for one in found["calls"]] == [("a", "completed"), ("b", "waiting")]


@pytest.mark.req("PAGE-7")
def test_calls_of_any_id_are_told_apart() -> None:
    ids = ["__proto__", "constructor", "x" * 94, ""]
    found = ask("run", [OPENED, *(frame("tool_call", id=one, name="n", arguments={}) for one in ids)])
    assert not isinstance(found, Refusal)
    assert [one["id"] for one in found["calls"]] == ids
