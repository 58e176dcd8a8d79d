"""Which model is asked, what happens when it fails, and models that call no tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet_llm.backends.failover import Failover, capable_backends, named_backends
from hearthnet_llm.context.manager import Contexts
from hearthnet_llm.interface.backend import Backend, Profile
from hearthnet_llm.interface.content_parts import ImagePart, JsonPart, TextPart
from hearthnet_llm.interface.frames import Done, Frame, Notice, PrefillProgress, TextDelta, ToolCall
from hearthnet_llm.interface.request import ChatRequest, CompleteRequest, Message, ModelParams, Named, Tool

HELLO = ChatRequest(messages=[Message("user", "Hello")])
TOOLS = [Tool("look", "Looks", {"type": "object"}), Tool("post", "Posts", {"type": "object"})]
END = Done("end", 1, 1)
GONE = HearthNetError("partition", "the model a cannot be reached")


class Spoken:
    """A backend that says what it was given; an error among it is raised there."""

    def __init__(self, *said: Frame | HearthNetError, name: str = "a", **profile: Any) -> None:
        self.said = said
        self.heard: list[ChatRequest] = []
        self._profile = Profile(
            **{"model": name, "backend": "test", "ctx": 100, "tool_mode": "native", **profile}
        )

    @property
    def profile(self) -> Profile:
        """As `Backend.profile`."""
        return self._profile

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Frame, None]:
        """As `Backend.stream`."""
        self.heard.append(request)
        for one in self.said:
            if isinstance(one, HearthNetError):
                raise one
            yield one

    async def complete(self, request: CompleteRequest) -> AsyncGenerator[Frame, None]:
        """As `Backend.complete`."""
        yield END

    async def aclose(self) -> None:
        """As `Backend.aclose`."""


async def answer(
    *backends: Backend, request: ChatRequest = HELLO, toolless: bool = True
) -> tuple[list[Frame], list[str], list[str]]:
    """The frames, who was chosen, and who has failed."""
    chosen: list[str] = []
    failed: list[str] = []
    failover = Failover(
        backends,
        lambda profile: chosen.append(profile.model),
        lambda backend, error: failed.append(backend.profile.model),
        lambda backend: toolless,
        Contexts().stream,
    )
    return [frame async for frame in failover.chat(request)], chosen, failed


@pytest.mark.asyncio
@pytest.mark.req("LLM-44")
@pytest.mark.parametrize(
    "code",
    [
        "partition",
        "timeout",
        "rate_limited",
        "capacity_exceeded",
        "internal_error",
        "unauthorized",
        "not_found",
        "not_implemented",
    ],
)
async def test_the_next_one_answers_where_the_first_fails_before_its_first_word(code: str) -> None:
    begun: list[Frame] = [Notice("slow", "the model a is busy"), PrefillProgress("reading", 0, 1)]
    first = Spoken(*begun, HearthNetError(code, "the model a cannot be reached"))
    frames, chosen, failed = await answer(first, Spoken(TextDelta("Hi"), END, name="b"))
    assert (chosen, failed) == (["a", "b"], ["a"])
    told = Notice("other_model", "the model a cannot be reached; b answers instead")
    assert frames == [*begun, told, TextDelta("Hi"), END]


@pytest.mark.asyncio
@pytest.mark.req("LLM-44")
async def test_after_the_first_word_nobody_else_is_asked() -> None:
    other = Spoken(TextDelta("Hi"), END, name="b")
    with pytest.raises(HearthNetError, match="the model a"):
        await answer(Spoken(TextDelta("H"), GONE), other)
    assert other.heard == []


@pytest.mark.asyncio
@pytest.mark.req("LLM-44")
async def test_what_is_wrong_with_the_request_is_said_at_once() -> None:
    other = Spoken(TextDelta("Hi"), END, name="b")
    with pytest.raises(HearthNetError, match="too long"):
        await answer(Spoken(HearthNetError("bad_request", "too long")), other)
    assert other.heard == []


@pytest.mark.asyncio
@pytest.mark.req("LLM-44")
async def test_where_all_fail_each_is_named_under_the_code_of_the_first() -> None:
    busy = HearthNetError("rate_limited", "b is busy", retry_after_ms=700)
    with pytest.raises(HearthNetError) as failed:
        await answer(Spoken(GONE), Spoken(busy, name="b"))
    error = failed.value
    assert (error.code, error.retry_after_ms) == ("partition", 700)
    assert error.message == "no model could answer: the model a cannot be reached; b is busy"
    with pytest.raises(HearthNetError) as alone:
        await answer(Spoken(busy))
    assert alone.value is busy


@pytest.mark.req("LLM-44")
def test_who_cannot_do_it_is_passed_over() -> None:
    blind, toolless = Spoken(name="blind", ctx=50), Spoken(name="toolless", tool_mode="none")
    by_name = Spoken(name="by_name", tool_mode="grammar", tools_by_name_only=True)
    sees = Spoken(name="sees", modalities=("text", "vision"))
    few = Spoken(name="few", max_tools=1)
    everyone: list[Backend] = [blind, toolless, by_name, few, sees]

    def order(request: ChatRequest, **params: Any) -> list[str]:
        return [
            backend.profile.model for backend in capable_backends(everyone, ModelParams(**params), request)
        ]

    picture = ChatRequest(messages=[Message("user", [ImagePart("x")])])
    assert order(HELLO) == ["blind", "toolless", "by_name", "few", "sees"]
    assert order(picture) == ["sees"]
    assert order(HELLO, ctx=51) == order(HELLO, ctx=100) == ["toolless", "by_name", "few", "sees"]
    assert order(HELLO, ctx=50) == order(HELLO)
    assert order(HELLO, modalities=["vision"]) == ["sees"]
    with_tools = ChatRequest(messages=HELLO.messages, tools=TOOLS)
    assert order(with_tools) == ["blind", "sees", "by_name", "toolless", "few"]
    required = ChatRequest(messages=HELLO.messages, tools=TOOLS, tool_choice="required")
    assert order(required) == ["blind", "sees"]
    one = ChatRequest(messages=HELLO.messages, tools=TOOLS, tool_choice=Named("look"))
    assert order(one) == ["blind", "by_name", "sees"]
    assert [backend.profile.model for backend in capable_backends([toolless], ModelParams(), one)] == [
        "toolless"
    ]


@pytest.mark.req("LLM-43", "LLM-44")
def test_a_name_that_is_not_there_now_is_told_from_one_that_is_not_known() -> None:
    backends: list[Backend] = [Spoken(name="a", aliases=("x",)), Spoken(name="a"), Spoken(name="b")]
    assert named_backends(backends, ModelParams("a"), {}) == backends[:2]
    assert named_backends(backends, ModelParams("x"), {}) == backends[:1]
    assert named_backends(backends, ModelParams(), {}) == backends
    with pytest.raises(HearthNetError, match="cannot be reached; it is offered again once") as away:
        named_backends(backends, ModelParams("far"), {"far": "far cannot be reached"})
    with pytest.raises(HearthNetError, match="no model 'c' here; there is a, a, b") as unknown:
        named_backends(backends, ModelParams("c"), {"far": ""})
    assert (away.value.code, unknown.value.code) == ("partition", "not_found")


REPLAYED = ChatRequest(
    messages=[
        Message("user", "Where?"),
        Message("assistant", "I look.", [ToolCall("c", "look", {})]),
        Message("tool", [JsonPart({"at": "home"})], tool_call_id="c", name="look"),
    ],
    tools=TOOLS,
)


@pytest.mark.asyncio
@pytest.mark.req("LLM-45")
async def test_a_model_without_tools_answers_in_one_go() -> None:
    single = Spoken(TextDelta("Hi"), Done("end", 1, 1, "native"), tool_mode="none")
    frames, _, _ = await answer(single, request=REPLAYED)
    assert frames == [
        Notice("tools_ignored", "a cannot call tools, so it answers without them"),
        TextDelta("Hi"),
        END,
    ]
    (asked,) = single.heard
    assert (asked.tools, asked.tool_choice) == (None, None)
    assert [(message.role, message.content) for message in asked.messages] == [
        ("user", "Where?"),
        ("assistant", "I look.\n[asked look]"),
        ("user", '[result of look]\n{"at": "home"}'),
    ]
    seen = Message("tool", [TextPart("there"), ImagePart(data="aGk=")], tool_call_id="c")
    sighted = Spoken(END, tool_mode="none", ctx=10_000)
    shown = ChatRequest(messages=[*REPLAYED.messages[:-1], seen], tools=TOOLS, tool_choice="none")
    assert (await answer(sighted, request=shown))[0] == [END], "no notice: nothing was to be called"
    assert sighted.heard[0].tools is None
    assert sighted.heard[0].messages[-1] == Message(
        "user", [TextPart("[result of a tool]\nthere"), ImagePart(data="aGk=")]
    )
    with pytest.raises(HearthNetError, match="a cannot call tools; ask a model whose offer says") as refused:
        await answer(
            single, request=ChatRequest(messages=HELLO.messages, tools=TOOLS, tool_choice="required")
        )
    assert refused.value.code == "not_implemented"


@pytest.mark.asyncio
@pytest.mark.req("LLM-45")
@pytest.mark.parametrize(
    "said",
    [
        "registry.ollama.ai/library/gemma:2b does not support tools",
        "tools are not supported by this model",
        "This model doesn't support function calling",
        "No endpoints found that support tool use",
    ],
)
async def test_a_server_that_refuses_tools_is_asked_again_without(said: str) -> None:
    class Learning(Spoken):
        async def stream(self, request: ChatRequest) -> AsyncGenerator[Frame, None]:
            """Refuses tools."""
            self.heard.append(request)
            if request.tools:
                raise HearthNetError("bad_request", f"a: the server answered 400: {said}")
            yield END

    model = Learning()
    request = ChatRequest(messages=HELLO.messages, tools=TOOLS)
    frames, _, failed = await answer(model, request=request)
    assert frames == [Notice("tools_ignored", "a cannot call tools, so it answers without them"), END]
    assert ([one.tools for one in model.heard], failed) == ([TOOLS, None], [])
    with pytest.raises(HearthNetError, match=said):
        await answer(model, request=request, toolless=False)


@pytest.mark.asyncio
@pytest.mark.req("LLM-45")
async def test_a_tool_that_is_wrong_is_not_taken_for_tools_that_are_not_there() -> None:
    wrong = Spoken(HearthNetError("bad_request", "tools.0.parameters: type is missing"))
    with pytest.raises(HearthNetError, match="type is missing"):
        await answer(wrong, request=ChatRequest(messages=HELLO.messages, tools=TOOLS))


@pytest.mark.asyncio
@pytest.mark.req("LLM-44", "LLM-51")
async def test_what_is_too_long_for_one_goes_to_the_next() -> None:
    long = ChatRequest(messages=[Message("user", "word " * 9000)])
    small, large = Spoken(TextDelta("No"), END), Spoken(TextDelta("Hi"), END, name="b", ctx=100_000)
    frames, chosen, _ = await answer(small, large, request=long)
    assert chosen == ["a", "b"]
    assert frames[-2:] == [TextDelta("Hi"), END]
