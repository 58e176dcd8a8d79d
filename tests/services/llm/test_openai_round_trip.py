"""Any request, any vendor of OpenAI's wire: what is written is read as something that is written the same."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.contracts.registry import contracts
from hearthnet_llm.interface.content_parts import (
    CacheHint,
    DocumentPart,
    ImagePart,
    RefusalPart,
    TextPart,
    ThinkingPart,
)
from hearthnet_llm.interface.frames import ToolCall
from hearthnet_llm.interface.request import (
    ChatRequest,
    Message,
    Named,
    ResponseSchema,
    ServerTool,
    Thinking,
    Tool,
)
from hearthnet_llm.vendors import openai
from hearthnet_llm.vendors.openai import dialect
from hearthnet_llm.vendors.wire import HttpRequest, Target

CONTRACT = contracts().get("llm.chat@2.0")
NAMES = st.from_regex(r"[a-zA-Z0-9_-]{1,8}", fullmatch=True)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=5,
)
OBJECTS = st.dictionaries(WORDS, JSON, max_size=3)
MAYBE = st.none() | st.booleans()
CACHE = st.none() | st.builds(CacheHint, st.none() | st.just("1h"))
PARTS = st.one_of(
    st.builds(TextPart, WORDS, CACHE),
    st.builds(ImagePart, data=st.just("AAAA"), media_type=st.just("image/png"), cache=CACHE),
    st.builds(ImagePart, url=st.just("https://x.example/a.png"), detail=st.none() | st.just("low")),
    st.builds(
        DocumentPart, data=st.just("AAAA"), media_type=st.just("application/pdf"), name=st.just("a.pdf")
    ),
    st.builds(RefusalPart, WORDS),
)
CONTENT = WORDS | st.lists(PARTS, min_size=1, max_size=3)
THOUGHTS = st.none() | st.lists(
    st.builds(ThinkingPart, WORDS, kind=st.just("text"), signature=st.none() | st.just("s")), max_size=2
)
CALLS = st.lists(st.builds(ToolCall, NAMES, NAMES, OBJECTS), max_size=2)
ASSISTANTS = st.builds(
    Message, st.just("assistant"), st.none() | CONTENT, CALLS, thinking=THOUGHTS, prefix=MAYBE, cache=CACHE
)
OTHERS = st.builds(Message, st.sampled_from(["system", "user"]), CONTENT, name=st.none() | NAMES)
RESULTS = st.builds(
    Message, st.just("tool"), CONTENT, tool_call_id=NAMES, is_error=st.sampled_from([None, True])
)
TOOLS = st.builds(
    Tool, NAMES, st.none() | WORDS, st.none() | OBJECTS, MAYBE, CACHE,
    st.none() | st.just(ServerTool("web_search", context_size="low")),
)  # fmt: skip
REQUESTS = st.builds(
    ChatRequest,
    messages=st.lists(ASSISTANTS | OTHERS | RESULTS, max_size=4),
    max_tokens=st.none() | st.integers(1, 9),
    temperature=st.none() | st.just(0.5),
    stop=st.none() | st.lists(NAMES, max_size=2),
    seed=st.none() | st.integers(0, 9),
    logprobs=MAYBE,
    tools=st.none() | st.lists(TOOLS, max_size=2),
    tool_choice=st.sampled_from([None, "auto", "none", "required", Named("x"), Named("x", ["y"], False)]),
    parallel_tool_calls=MAYBE,
    response_schema=st.none() | st.builds(ResponseSchema, st.just("x"), st.none() | OBJECTS, strict=MAYBE),
    thinking=st.none() | st.builds(
        Thinking, st.sampled_from([None, "on", "off"]), st.none() | st.just("low"), st.none() | st.just(9),
        keep=MAYBE),
    stream=MAYBE,
)  # fmt: skip


@pytest.mark.req("LLM-22")
@given(REQUESTS, st.sampled_from(["", *dialect.VENDORS]), st.sampled_from(["m", "gpt-5-mini"]))
def test_what_is_written_is_read_and_written_the_same(request_: ChatRequest, vendor: str, model: str) -> None:
    native = openai.encode(request_, Target(model, "https://x.example/v1", vendor))
    wire: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(native.body))
    read, target = openai.read(HttpRequest("POST", native.url, wire), vendor)
    if any(message.role == "user" for message in read.messages):
        CONTRACT.check_request({"params": {}, "input": msgspec.to_builtins(read)})
    again = openai.encode(read, target)
    assert again.url == native.url
    assert msgspec.json.decode(msgspec.json.encode(again.body)) == wire
