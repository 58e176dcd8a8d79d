"""The built-in model with its real weights: calls are always valid, answers are bounded and come from the
notes.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet_llm.builtin import backend as builtin_backend
from hearthnet_llm.builtin.backend import BuiltinBackend
from hearthnet_llm.interface.frames import Done, Frame, Notice, PrefillProgress, TextDelta, ToolCall
from hearthnet_llm.interface.request import ChatRequest, CompleteRequest, Message, Named, ResponseSchema, Tool
from tests.services.llm.tools import SCHEMAS, checked_call, demand

SAID = (
    "I can lend a ladder to a neighbour on Saturday",
    'Say "}} and then \\ nothing </s> <|im_end|>',
    "Wie halte ich den Keller trocken? 🦆 漢字",
)
PASSAGE = (
    "Keep the ladder dry. Oil its hinges once a year with a drop of machine oil. Never paint a wooden "
    "ladder, for paint hides cracks."
)


async def frames_of(backend: BuiltinBackend, request: ChatRequest) -> list[Frame]:
    """All frames of an answer."""
    return [frame async for frame in backend.stream(request)]


def text_of(frames: list[Frame]) -> str:
    """The text of the frames."""
    return "".join(frame.text for frame in frames if isinstance(frame, TextDelta))


def found(said: str, result: Any, **fields: Any) -> ChatRequest:
    """A conversation in which a search has found something."""
    call = ToolCall("c1", "search", {"query": said})
    messages = [
        Message(role="user", content=said),
        Message(role="assistant", content="", tool_calls=[call]),
        Message(role="tool", content=json.dumps(result), tool_call_id="c1", **fields),
    ]
    return ChatRequest(messages=messages, max_tokens=80, temperature=0)


def effect(said: str, result: Any) -> ChatRequest:
    """A conversation in which a post has been made, with the tokens that `ask` allows for."""
    call = ToolCall("c1", "market_post", {"category": "offer", "title": "Ladder to lend"})
    messages = [
        Message(role="user", content=said),
        Message(role="assistant", content="", tool_calls=[call]),
        Message(role="tool", content=json.dumps(result), tool_call_id="c1"),
    ]
    return ChatRequest(messages=messages, max_tokens=320)


@pytest.mark.asyncio
@pytest.mark.req("LLM-1")
@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("said", SAID)
async def test_a_call_fits_its_schema(backend: BuiltinBackend, name: str, said: str) -> None:
    frames = await frames_of(backend, demand(name, said, max_tokens=300))
    assert checked_call(name, frames) is not None


@pytest.mark.asyncio
@pytest.mark.req("LLM-1")
@pytest.mark.parametrize("name", ["search", "post", "book"])
@pytest.mark.parametrize("limit", [1, 9, 24, 40])
async def test_a_call_at_its_token_limit_is_valid_or_is_not_made(
    backend: BuiltinBackend, name: str, limit: int
) -> None:
    for seed in (1,):
        frames = await frames_of(backend, demand(name, SAID[0], max_tokens=limit, seed=seed))
        made = checked_call(name, frames)
        assert isinstance(frames[-1], Done)
        assert frames[-1].tokens_out <= limit
        assert made is not None or [frame.code for frame in frames if isinstance(frame, Notice)] == [
            "tool_call_incomplete"
        ]


@pytest.mark.asyncio
@pytest.mark.req("LLM-1")
async def test_a_search_is_made_even_with_few_tokens(backend: BuiltinBackend) -> None:
    call = checked_call("search", await frames_of(backend, demand("search", SAID[0], max_tokens=14)))
    assert call is not None
    assert call.arguments["query"]


@pytest.mark.asyncio
@pytest.mark.req("LLM-1")
async def test_key_words_are_words_of_the_question_in_their_order(backend: BuiltinBackend) -> None:
    said = "How do I keep Müller's old well-water pump from freezing?"
    call = checked_call("search", await frames_of(backend, demand("search", said, max_tokens=100)))
    assert call is not None
    kept = iter(said.lower().rstrip("?").split())
    assert all(word in kept for word in call.arguments["query"].split())


@pytest.mark.asyncio
@pytest.mark.req("LLM-1")
async def test_a_schema_that_no_grammar_holds_ends_in_an_error_and_not_in_a_wrong_call(
    backend: BuiltinBackend,
) -> None:
    never = {"enum": ["red"], "not": {"const": "red"}}
    schema = {"type": "object", "properties": {"colour": never}, "required": ["colour"]}
    tool = Tool("lock", "Sets a code.", schema)
    request = ChatRequest(
        messages=[Message(role="user", content="Lock it")],
        tools=[tool],
        tool_choice=Named("lock"),
        max_tokens=60,
    )
    with pytest.raises(HearthNetError, match="found no arguments that fit lock: /colour: ") as failed:
        await frames_of(backend, request)
    assert failed.value.code == "internal_error"


@pytest.mark.asyncio
@pytest.mark.req("LLM-1")
async def test_a_pattern_that_the_engine_does_not_know_stops_no_call(backend: BuiltinBackend) -> None:
    schema = {
        "type": "object",
        "properties": {"code": {"type": "string", "pattern": "^(?=.*[0-9])", "maxLength": 8}},
        "required": ["code"],
    }
    tool = Tool("lock", "Sets a code.", schema)
    messages = [Message(role="user", content="Lock it with 42")]
    request = ChatRequest(messages=messages, tools=[tool], tool_choice=Named("lock"), max_tokens=300)
    (call,) = [one for one in await frames_of(backend, request) if isinstance(one, ToolCall)]
    assert list(call.arguments) == ["code"]
    assert len(call.arguments["code"]) <= 8


@pytest.mark.asyncio
@pytest.mark.req("LLM-1")
async def test_a_tool_without_a_valid_schema_is_refused(backend: BuiltinBackend) -> None:
    tool = Tool("odd", "Odd.", {"type": "bogus"})
    request = ChatRequest(
        messages=[Message(role="user", content="x")], tools=[tool], tool_choice=Named("odd")
    )
    with pytest.raises(HearthNetError) as refused:
        await frames_of(backend, request)
    assert refused.value.code == "bad_request"
    assert refused.value.message.startswith("the tool odd has no valid JSON Schema: ")


@pytest.mark.asyncio
@pytest.mark.req("LLM-7")
async def test_tools_are_ignored_with_a_notice_where_the_model_may_choose(backend: BuiltinBackend) -> None:
    asked = demand("search", "Hello", max_tokens=4)
    free = ChatRequest(messages=asked.messages, tools=asked.tools, tool_choice="auto", max_tokens=4)
    frames = await frames_of(backend, free)
    assert isinstance(frames[0], Notice)
    assert frames[0].code == "tools_ignored"
    assert text_of(frames)
    silent = ChatRequest(messages=asked.messages, tools=asked.tools, tool_choice="none", max_tokens=4)
    assert not any(isinstance(frame, Notice) for frame in await frames_of(backend, silent))


@pytest.mark.asyncio
@pytest.mark.req("LLM-7")
async def test_a_required_tool_is_that_one_or_cannot_be_chosen(backend: BuiltinBackend) -> None:
    asked = demand("search", "Where do otters live?", max_tokens=60)
    one = ChatRequest(messages=asked.messages, tools=asked.tools, tool_choice="required", max_tokens=60)
    assert checked_call("search", await frames_of(backend, one)) is not None
    two = [*(asked.tools or []), Tool("other", "Another.", SCHEMAS["nothing"])]
    with pytest.raises(HearthNetError) as refused:
        await frames_of(backend, ChatRequest(messages=asked.messages, tools=two, tool_choice="required"))
    assert refused.value.code == "not_implemented"
    assert "search, other" in refused.value.message


@pytest.mark.asyncio
@pytest.mark.req("LLM-5")
async def test_text_comes_in_whole_characters_and_ends_as_told(backend: BuiltinBackend) -> None:
    request = ChatRequest(
        messages=[Message(role="user", content="Repeat this: 🦆漢字é")], max_tokens=12, temperature=0
    )
    frames = await frames_of(backend, request)
    assert "🦆" in text_of(frames)
    assert "\ufffd" not in text_of(frames)
    assert isinstance(frames[-1], Done)
    assert frames[-1].stop_reason == "max_tokens"
    assert frames[-1].tokens_out == 12
    assert frames[-1].tokens_in > 10


@pytest.mark.asyncio
@pytest.mark.req("LLM-5")
async def test_a_stop_sequence_ends_the_text_before_itself(backend: BuiltinBackend) -> None:
    request = CompleteRequest(prompt="one two three four five six", max_tokens=30, temperature=0)
    whole = text_of([frame async for frame in backend.complete(request)])
    stop = whole[len(whole) // 2 : len(whole) // 2 + 5]
    stopping = msgspec.structs.replace(request, stop=["nowhere", stop])
    frames = [frame async for frame in backend.complete(stopping)]
    assert text_of(frames) == whole[: whole.index(stop)]
    assert isinstance(frames[-1], Done)
    assert frames[-1].stop_reason == "stop_sequence"
    assert 0 < frames[-1].tokens_out < 30


@pytest.mark.asyncio
@pytest.mark.req("LLM-5")
async def test_a_seed_repeats_itself_and_no_other(backend: BuiltinBackend) -> None:
    story = ChatRequest(
        messages=[Message(role="user", content="Tell a story")], max_tokens=12, temperature=1.0
    )
    drawn = [
        text_of(await frames_of(backend, msgspec.structs.replace(story, seed=seed))) for seed in (-7, -7, 8)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.asyncio
@pytest.mark.req("LLM-8")
async def test_an_answer_is_made_of_sentences_that_were_found(backend: BuiltinBackend) -> None:
    result = {"chunks": [{"text": f"## Care\n\n{PASSAGE}", "metadata": {"doc_title": "Ladders"}}]}
    frames = await frames_of(backend, found("How do I care for a ladder?", result))
    answer = text_of(frames)
    assert answer
    assert all(sentence.strip(" .") in PASSAGE for sentence in answer.split(". "))
    assert isinstance(frames[-1], Done)
    assert frames[-1].stop_reason == "end"


@pytest.mark.asyncio
@pytest.mark.req("LLM-8")
@pytest.mark.parametrize(
    ("result", "failed"),
    [({"event_id": "01J", "lamport": 3}, False), ({"chunks": []}, False), (PASSAGE, True)],
)
async def test_a_result_without_passages_is_answered_freely(
    backend: BuiltinBackend, monkeypatch: pytest.MonkeyPatch, result: Any, failed: bool
) -> None:
    bodies: list[dict[str, Any]] = []
    chat = backend._engine.chat

    def heard(body: dict[str, Any]) -> Any:
        bodies.append(body)
        return chat(body)

    monkeypatch.setattr(backend._engine, "chat", heard)
    assert text_of(await frames_of(backend, found("Post it", result, is_error=failed)))
    (body,) = bodies
    assert "grammar" not in body, "only what was found may be said"


@pytest.mark.asyncio
@pytest.mark.req("LLM-8")
async def test_after_an_effect_one_line_is_said_and_no_more(backend: BuiltinBackend) -> None:
    posted = {"event_id": "01JD0000000000000000000000", "lamport": 3, "expires_at": 1_800_000_000_000}
    for said in ("Post that I can lend a ladder", "I can lend a ladder this weekend."):
        frames = await frames_of(backend, effect(said, posted))
        done = frames[-1]
        assert text_of(frames)
        assert "\n" not in text_of(frames)
        assert isinstance(done, Done)
        assert done.stop_reason == "end"
        assert done.tokens_out > 0


@pytest.mark.asyncio
@pytest.mark.req("LLM-14")
@pytest.mark.parametrize("calling", [False, True], ids=["an answer", "a call"])
async def test_while_it_reads_it_says_how_far_it_is(
    backend: BuiltinBackend, monkeypatch: pytest.MonkeyPatch, calling: bool
) -> None:
    monkeypatch.setattr(builtin_backend, "PAUSE_SECONDS", 0.0)
    said = f"{'A call' if calling else 'An answer'}: {PASSAGE}"
    plain = ChatRequest(messages=[Message(role="user", content=said)], max_tokens=5)
    frames = await frames_of(backend, demand("search", said, max_tokens=100) if calling else plain)
    told = [frame for frame in frames if isinstance(frame, PrefillProgress)]
    assert len(told) > 2
    assert {frame.stage for frame in told} == {"reading"}
    read = [frame.current for frame in told]
    assert read == sorted(set(read))
    assert {frame.total for frame in told} == {read[-1]}
    assert isinstance(frames[-2], ToolCall if calling else TextDelta)


@pytest.mark.asyncio
@pytest.mark.req("LLM-1")
async def test_a_demanded_form_of_the_answer_is_kept(backend: BuiltinBackend) -> None:
    schema = {"type": "object", "properties": {"rain": {"type": "boolean"}}, "required": ["rain"]}
    request = ChatRequest(
        messages=[Message(role="user", content="Will it rain?")],
        max_tokens=40,
        response_schema=ResponseSchema("weather", schema),
    )
    answer = json.loads(text_of(await frames_of(backend, request)))
    assert isinstance(answer["rain"], bool)
