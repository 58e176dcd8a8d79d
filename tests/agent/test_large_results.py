"""Results that are too large for the model (docs/tools.md, "Large results")."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hearthnet.agent.loop.events import Dispatch, ToolReturned
from hearthnet.agent.loop.state import Limits
from hearthnet.agent.runtime import dispatch, stream_collector
from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.tools.result_text import READ_RESULT, excerpt, json_text, piece, surely_fits
from hearthnet.agent.tools.types import ToolCall, ToolDefinition
from hearthnet.core.canonical_json import content_hash
from hearthnet.core.errors import HearthNetError
from tests.agent.bench import EPOCH, QUERY, Bench, of, only
from tests.agent.runtime.test_executor import tools
from tests.agent.scripted import Line, ScriptedBus, calls, done, gives, says

CID, FOREIGN = "blake3:" + "0" * 64, "blake3:" + "1" * 64
STORY = ToolDefinition(
    "story", "Tells.", {"type": "object"}, "llm.complete", (1, 0), False, {"prompt": "Once"}
)
BODY = {"params": {}, "input": {"messages": [{"role": "user", "content": "What is in it?"}]}}


class Kept:
    """Results in memory."""

    def __init__(self, error: HearthNetError | None = None) -> None:
        self.blobs: dict[str, bytes] = {}
        self.error = error

    async def put(self, data: bytes, by: str) -> str:
        if self.error is not None:
            raise self.error
        self.blobs[content_hash(data)] = data
        return content_hash(data)

    async def read(self, cid: str, offset: int, length: int) -> tuple[bytes, int]:
        data = self.blobs[cid]
        return data[offset : offset + length], len(data)


FRACTIONS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | FRACTIONS | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.req("TOOL-52")
@given(value=JSON, limit=st.integers(min_value=0, max_value=4_000))
@example(value="\x00" * 100, limit=500)
@example(value=b"not JSON", limit=100)
def test_what_surely_fits_does(value: Any, limit: int) -> None:
    if surely_fits(value, limit):
        assert len(json_text(value).encode("utf-8")) <= limit


@pytest.mark.req("TOOL-52")
def test_what_is_small_surely_fits_and_what_is_large_is_not_looked_through() -> None:
    assert surely_fits({"posts": [{"title": "a", "score": 1.5, "n": 7, "x": None}] * 20}, 32_768)
    assert not surely_fits("x" * 32_768, 32_768)
    assert not surely_fits([[]] * 32_768, 32_768)

    class Unread(dict[str, Any]):
        def values(self) -> Any:
            raise AssertionError("looked through")

    assert not surely_fits([Unread(), "x" * 32_768], 32_768)


def large(bench: Bench, call_id: str = "a") -> None:
    bench.call("search_corpus", QUERY, call_id)
    returned = ToolReturned(
        now=EPOCH, tool_call_id=call_id, output={"cid": CID}, meta={}, cid=CID, size=9_000_000
    )
    bench.feed(returned)


@pytest.mark.req("TOOL-52")
@pytest.mark.parametrize("limit", [300, 4000, 32_768])
@pytest.mark.parametrize("text", ["x" * 100_000, "ä€😀" * 20_000, '"\\\n' * 30_000])
def test_what_is_shown_fits_and_has_both_ends(text: str, limit: int) -> None:
    view = excerpt(text, CID, limit)
    written = len(json.dumps(view, ensure_ascii=False, separators=(",", ":")).encode())
    assert limit - 60 <= written <= limit
    assert text.startswith(view["head"])
    assert text.endswith(view["tail"])
    head, tail = len(view["head"].encode()), len(view["tail"].encode())
    assert abs(head - 3 * tail) <= 16, "a quarter is the end, but for a part of a character"
    assert (view["bytes"], view["cid"]) == (len(text.encode()), CID)
    assert READ_RESULT in view["note"]


@pytest.mark.req("TOOL-52")
def test_of_a_small_place_only_the_note_is_left() -> None:
    view = excerpt("x" * 999, CID, 10)
    assert (view["head"], view["tail"], view["bytes"]) == ("", "", 999)
    assert view["note"] == f"the first 0 and the last 0 bytes are shown; {READ_RESULT} reads the rest"


@pytest.mark.req("TOOL-52")
def test_a_piece_says_where_the_next_one_begins() -> None:
    assert piece(b"abc", 0, 9) == {"offset": 0, "bytes": 9, "text": "abc", "next_offset": 3}
    assert piece(b"xyz", 6, 9) == {"offset": 6, "bytes": 9, "text": "xyz", "end": True}


@pytest.mark.req("TOOL-52")
def test_the_frame_says_how_large_the_result_was() -> None:
    bench = Bench()
    large(bench)
    (frame,) = bench.frames("tool_result")
    assert (frame["bytes"], frame["truncated"], frame["content"]) == (9_000_000, True, {"cid": CID})
    assert bench.loop.state.results == {CID: 9_000_000}


@pytest.mark.req("TOOL-53")
def test_only_the_results_of_this_run_are_read() -> None:
    bench = Bench()
    bench.call(READ_RESULT, {"cid": CID, "offset": 0}, "early")
    assert bench.frames("tool_result")[0]["content"].startswith("not_found: no result of this conversation")
    large(bench)
    assert not of(Dispatch, bench.call(READ_RESULT, {"cid": FOREIGN, "offset": 0}, "foreign"))
    assert bench.frames("tool_result")[-1]["content"].startswith("not_found: no result of this conversation")
    sent = only(Dispatch, bench.call(READ_RESULT, {"cid": CID, "offset": 5}, "b"))
    assert (sent.capability, sent.body) == ("", {"cid": CID, "offset": 5, "length": 4096})
    assert not of(Dispatch, bench.call(READ_RESULT, {"cid": CID, "offset": -1}, "c"))
    assert bench.frames("tool_result")[-1]["content"].startswith("invalid_arguments: /offset")
    bench.call("read_reslt", {}, "d")
    assert "read_result" not in bench.frames("tool_result")[-1]["content"], "it is not advertised"


async def asked_for(
    results: Any, *turns: Any, limit: int = 1000, more: Any = ()
) -> tuple[ScriptedBus, list[dict[str, Any]]]:
    bus = ScriptedBus(*turns, tools={"rag.query@1.0": gives({"chunks": ["x" * 8_000_000]})})
    executor = ToolExecutor(
        bus, [*tools("search_corpus"), *more], limits=Limits(max_result_bytes=limit), results=results
    )
    outcome = await executor.open_run(BODY).drive()
    return bus, [message for message in outcome.messages if message["role"] == "tool"]


@pytest.mark.asyncio
@pytest.mark.req("TOOL-52", "TOOL-53")
async def test_a_large_result_is_kept_shown_and_read_in_parts() -> None:
    kept = Kept()
    text = json.dumps({"chunks": ["x" * 8_000_000]}, separators=(",", ":"))
    cid = content_hash(text.encode())
    bus, results = await asked_for(
        kept,
        [calls("search_corpus", QUERY, "a"), done("tool_calls")],
        [calls(READ_RESULT, {"cid": cid, "offset": 7_999_990, "length": 100}, "b"), done("tool_calls")],
        [says("Only x."), done()],
    )
    view, part = (json.loads(result["content"]) for result in results)
    assert (view["cid"], view["bytes"]) == (cid, len(text))
    assert len(results[0]["content"].encode()) <= 1000
    assert part["text"] == text[7_999_990:]
    assert part["end"] is True
    offered = [[tool["name"] for tool in request["tools"]] for request in bus.requests]
    assert offered == [["search_corpus"], ["search_corpus", READ_RESULT], ["search_corpus", READ_RESULT]]


@pytest.mark.asyncio
@pytest.mark.req("TOOL-13", "TOOL-52")
@pytest.mark.parametrize("results", [None, Kept(HearthNetError("capacity_exceeded", "full"))])
async def test_where_nothing_can_be_kept_the_head_is_shown(results: Any) -> None:
    _, (result,) = await asked_for(
        results, [calls("search_corpus", QUERY, "a"), done("tool_calls")], [says("x"), done()]
    )
    view, whole = json.loads(result["content"]), json_text({"chunks": ["x" * 8_000_000]})
    assert 990 <= len(result["content"]) <= 1000, "as much as has room"
    assert whole.startswith(view["head"])
    assert view["note"].endswith(f" of {len(whole)} bytes are shown; ask for less")


@pytest.mark.asyncio
@pytest.mark.req("TOOL-52", "TOOL-19")
async def test_where_a_declared_tool_has_the_readers_name_no_two_tools_bear_it() -> None:
    kept = Kept()
    named = msgspec.structs.replace(tools("search_corpus")[0], name=READ_RESULT)
    turns = [[calls("search_corpus", QUERY, "a"), done("tool_calls")], [says("x"), done()]]
    bus, (result,) = await asked_for(kept, *turns, more=[named])
    assert "ask for less" in json.loads(result["content"])["note"]
    offered = [[tool["name"] for tool in request["tools"]] for request in bus.requests]
    assert offered == [["search_corpus", READ_RESULT]] * 2
    assert kept.blobs == {}


@pytest.mark.asyncio
@pytest.mark.req("TOOL-52")
async def test_a_small_result_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept()
    await asked_for(
        kept,
        [calls("search_corpus", QUERY, "a"), done("tool_calls")],
        [says("x"), done()],
        limit=9_000_000,
    )
    bus = ScriptedBus(
        [calls("search_corpus", QUERY, "a"), done("tool_calls")],
        [says("x"), done()],
        tools={"rag.query@1.0": gives({})},
    )
    executor = ToolExecutor(bus, tools("search_corpus"), limits=Limits(max_result_bytes=1000), results=kept)
    measured: list[Any] = []

    def measuring(value: Any) -> str:
        measured.append(value)
        return json_text(value)

    monkeypatch.setattr(dispatch, "json_text", measuring)
    outcome = await executor.open_run(BODY).drive()
    assert [json.loads(one["content"]) for one in outcome.messages if one["role"] == "tool"] == [{}]
    assert measured == [], "what is small is not even measured"
    assert kept.blobs == {}


@pytest.mark.asyncio
@pytest.mark.req("TOOL-53")
async def test_without_a_place_for_results_there_is_nothing_to_read() -> None:
    executor = ToolExecutor(ScriptedBus(), tools("search_corpus"))
    refused = await executor.dispatch(ToolCall("a", READ_RESULT, {"cid": CID, "offset": 0}))
    assert str(refused.content).startswith("unknown_tool: there is no tool 'read_result'; ")
    assert refused.is_error
    read = Dispatch(
        tool_call_id="a",
        name=READ_RESULT,
        capability="",
        body={"cid": CID, "offset": 0, "length": 1},
        client_id="",
        timeout_ms=1000,
    )
    outcome = await executor._dispatcher.outcome(read, lambda _: None)
    assert not isinstance(outcome, ToolReturned)
    assert (outcome.code, outcome.message) == (
        "not_found",
        "results are not kept here; ask for less instead",
    )


@pytest.mark.asyncio
@pytest.mark.req("TOOL-54")
async def test_what_a_streaming_tool_sends_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_collector, "MOST_COLLECTED", 2 << 20)
    monkeypatch.setattr(stream_collector, "MOST_PROGRESS", 2)
    said = {"current": 1, "total": 9, "stage": "x" * 9000}
    frames: list[Line] = [("progress", said) for _ in range(5)]
    frames += [("token", {"text": "y" * (1 << 20)}) for _ in range(3)]
    bus = ScriptedBus(
        [calls("story", {}, "a"), done("tool_calls")],
        [says("Too much."), done()],
        tools={"llm.complete@1.0": frames},
    )
    heard: list[dict[str, Any]] = []

    async def listen(frame: dict[str, Any]) -> None:
        heard.append(frame)

    await ToolExecutor(bus, [STORY]).run_chat_with_tools(BODY, stream_to=listen)
    progress = [frame["data"] for frame in heard if frame["event"] == "tool_progress"]
    assert progress == [{"current": 1, "total": 9, "tool_call_id": "a"}] * 2
    result = next(frame["data"] for frame in heard if frame["event"] == "tool_result")
    assert result["content"].startswith("payload_too_large: llm.complete@1.0 sent more than 2 MB")
