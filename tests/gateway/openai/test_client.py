"""The official `openai` package against the gateway: real server, bus and socket, a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
import pytest_asyncio
from openai.types.chat import ChatCompletionChunk

from hearthnet.core import ids
from hearthnet.gateway.runs.run import DecisionBody
from hearthnet.gateway.runs.runs import GatewayRuns
from hearthnet.trust.authorization.token import Scope
from tests.helpers.gateway import Guest, House
from tests.helpers.memory_runs import MemoryRuns
from tests.helpers.scripted_model import NAME, Say
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio(loop_scope="module")

POST = {"category": "offer", "title": "Jam", "body": "Plum."}
POSTS = Say("I will.", calls=(("market_post", POST),))
LOOK: Any = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Looks",
        "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
    },
}
MESH = {"hearthnet": {"tools": ["market.post"]}}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def runs(shared: House) -> MemoryRuns:
    """Where the runs of the house are kept."""
    store = MemoryRuns()
    shared.gateway.runs = GatewayRuns(shared.bus, shared.gateway.clients, store)
    return store


def key_of(guest: Guest) -> str:
    return guest.bearer["Authorization"].removeprefix("Bearer ")


@asynccontextmanager
async def mesh(house: House, guest: Guest | None = None) -> AsyncIterator[Any]:
    """OpenAI's client, pointed at the gateway. Untyped, since tests send what its types leave out."""
    key = key_of(guest or house.guest())
    async with openai.AsyncOpenAI(
        base_url=f"{house.url}/v1", api_key=key, max_retries=0, timeout=30
    ) as client:
        yield client


def ask(house: House, *turns: Say) -> list[Any]:
    """A question of its own, which the model answers with `turns`."""
    question = f"question {ids.new_ulid()}"
    house.model.turns[question] = list(turns)
    return [{"role": "user", "content": question}]


def said(chunks: list[ChatCompletionChunk]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def posts(house: House, guest: Guest) -> int:
    principal = house.client(guest).principal
    return len(
        {post.body["input"]["client_id"] for post in house.workshop.posts if post.principal == principal}
    )


@pytest.mark.req("HTTP-18")
async def test_the_models_of_the_mesh_are_listed(shared: House) -> None:
    async with mesh(shared) as client:
        names = [model.id async for model in client.models.list()]
        assert names == ["mesh", "mesh+tools", NAME, f"{NAME}+tools"]
        assert (await client.models.retrieve(NAME)).owned_by == "hearthnet"
        with pytest.raises(openai.NotFoundError, match="no model 'nobody/has it' is offered"):
            await client.models.retrieve("nobody/has it")
    only = shared.guest(scope=Scope(("llm.chat",), params_constraints={"model": [NAME]}))
    async with mesh(shared, only) as client:
        assert [model.id async for model in client.models.list()] == [NAME, f"{NAME}+tools"]
    async with mesh(shared, shared.guest("rag.query")) as client:
        assert [model.id async for model in client.models.list()] == []


@pytest.mark.req("HTTP-15")
async def test_an_answer_in_one_piece(shared: House) -> None:
    async with mesh(shared) as client:
        answer = await client.chat.completions.create(model=NAME, messages=ask(shared, Say("Good day.")))
    (choice,) = answer.choices
    assert (choice.message.content or "").strip() == "Good day."
    assert choice.finish_reason == "stop"
    assert answer.usage is not None
    used = answer.usage
    assert (used.prompt_tokens, used.completion_tokens, used.total_tokens) == (12, 8, 20)
    assert answer.model == NAME
    assert answer.id.startswith("chatcmpl-")


@pytest.mark.req("LLM-145")
@pytest.mark.parametrize("more", [{}, {"tools": [LOOK]}, {"extra_body": MESH}], ids=["plain", "tools", "run"])
async def test_an_empty_answer_that_was_cut_off_is_length(shared: House, more: dict[str, Any]) -> None:
    async with mesh(shared) as client:
        asked = ask(shared, Say(thinking="Hm.", cut=True))
        answer = await client.chat.completions.create(model=NAME, messages=asked, **more)
    (choice,) = answer.choices
    assert (choice.finish_reason, choice.message.content) == ("length", "")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (12, 8)
    assert not {"max_tokens", "temperature", "top_p"} & shared.model.requests[-1].keys()


@pytest.mark.req("LLM-149")
@pytest.mark.parametrize("more", [{}, {"extra_body": MESH}], ids=["plain", "run"])
async def test_an_answer_of_nothing_is_stop(shared: House, more: dict[str, Any]) -> None:
    async with mesh(shared) as client:
        asked = ask(shared, Say(thinking="Hm."))
        answer = await client.chat.completions.create(model=NAME, messages=asked, **more)
    (choice,) = answer.choices
    assert (choice.finish_reason, choice.message.content) == ("stop", "")


@pytest.mark.req("HTTP-15")
async def test_an_answer_word_by_word(shared: House) -> None:
    async with mesh(shared) as client:
        stream = await client.chat.completions.create(
            model="mesh",
            messages=ask(shared, Say("Good day to you.")),
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
    assert said(chunks).strip() == "Good day to you."
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens) == (12, 8)
    assert len(chunks) > 4


@pytest.mark.req("HTTP-15")
async def test_the_synchronous_client_works_as_well(shared: House) -> None:
    key, messages = key_of(shared.guest()), ask(shared, Say("Good day."), Say("Again."))

    def talk() -> tuple[str, str]:
        with openai.OpenAI(base_url=f"{shared.url}/v1", api_key=key, max_retries=0, timeout=30) as client:
            whole = client.chat.completions.create(model=NAME, messages=messages)
            stream = client.chat.completions.create(model=NAME, messages=messages, stream=True)
            return whole.choices[0].message.content or "", said(list(stream))

    whole, streamed = await asyncio.to_thread(talk)
    assert whole.strip() == streamed.strip() == "Good day."


@pytest.mark.req("HTTP-12")
@pytest.mark.parametrize("stream", [False, True])
async def test_the_clients_own_tools_come_back_to_it(shared: House, stream: bool) -> None:
    messages = ask(shared, Say("Let me see.", calls=(("look", {"at": "sky"}),)), Say("It is blue."))
    async with mesh(shared) as client:
        if stream:
            answer = await client.chat.completions.create(
                model=NAME, messages=messages, tools=[LOOK], stream=True
            )
            chunks = [chunk async for chunk in answer]
            called = next(
                chunk.choices[0].delta.tool_calls for chunk in chunks if chunk.choices[0].delta.tool_calls
            )
            finish, call = chunks[-1].choices[0].finish_reason, called[0]
            assert call.function is not None
            name, arguments, call_id = call.function.name, call.function.arguments, call.id
        else:
            whole = await client.chat.completions.create(model=NAME, messages=messages, tools=[LOOK])
            finish, (one,) = whole.choices[0].finish_reason, whole.choices[0].message.tool_calls or []
            assert one.type == "function"
            name, arguments, call_id = one.function.name, one.function.arguments, one.id
        assert (finish, name, arguments) == ("tool_calls", "look", '{"at":"sky"}')
        function = {"name": "look", "arguments": arguments}
        messages += [
            {"role": "assistant", "tool_calls": [{"id": call_id, "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": call_id, "content": "blue"},
        ]
        done = await client.chat.completions.create(model=NAME, messages=messages, tools=[LOOK])
    assert (done.choices[0].message.content or "").strip() == "It is blue."
    told = shared.model.requests[-1]["messages"][-1]
    assert (told["role"], told["tool_call_id"], told["content"]) == ("tool", call_id, "blue")


@pytest.mark.req("HTTP-13")
async def test_settings_and_the_form_of_the_answer_reach_the_model(shared: House) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    async with mesh(shared) as client:
        await client.chat.completions.create(
            model=NAME,
            messages=ask(shared, Say("{}")),
            response_format={"type": "json_schema", "json_schema": {"name": "number", "schema": schema}},
            temperature=0,
            max_tokens=7,
            stop=["END"],
            tools=[LOOK],
            tool_choice={"type": "function", "function": {"name": "look"}},
            user="anna",
        )
    sent = shared.model.requests[-1]
    assert sent["response_format"]["json_schema"]["schema"] == schema
    assert sent["temperature"] == 0
    assert sent.get("max_completion_tokens", sent.get("max_tokens")) == 7
    assert sent["stop"] == ["END"]
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["look"]
    assert sent["tool_choice"]["function"]["name"] == "look"
    assert "user" not in sent


@pytest.mark.req("HTTP-17")
async def test_errors_are_those_that_the_client_knows(shared: House) -> None:
    messages = ask(shared, Say("Never."))
    async with mesh(shared) as client:
        for stream in (False, True):
            with pytest.raises(openai.NotFoundError) as missing:
                await client.chat.completions.create(model="nobody-has-it", messages=messages, stream=stream)
            assert missing.value.code == "not_found"
        with pytest.raises(openai.BadRequestError) as wrong:
            await client.chat.completions.create(model=NAME, messages=messages, n=2)
        assert wrong.value.param == "n"
        with pytest.raises(openai.BadRequestError) as late:
            await client.chat.completions.create(model=NAME, messages=messages, temperature=-1)
        assert late.value.param == "temperature"
        shared.model.hangs_up = True
        try:
            with pytest.raises(openai.APIStatusError) as broken:
                await client.chat.completions.create(model=NAME, messages=messages)
        finally:
            shared.model.hangs_up = False
        assert (broken.value.status_code, broken.value.code) == (503, "partition")
    async with openai.AsyncOpenAI(base_url=f"{shared.url}/v1", api_key="sk-none", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError):
            await stranger.models.list()
    for guest, status, code in (
        (shared.guest("rag.query"), 403, "token_scope_insufficient"),
        (shared.guest(key=True), 401, "unauthorized"),
    ):
        async with mesh(shared, guest) as client:
            with pytest.raises(openai.APIStatusError) as refused:
                await client.chat.completions.create(model=NAME, messages=messages)
        assert (refused.value.status_code, refused.value.code) == (status, code)


LLAMA_CPP = {
    "error": {
        "code": 400,
        "message": "the request exceeds the available context size, try increasing it",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 5000,
        "n_ctx": 4096,
    }
}


@pytest.mark.req("HTTP-39")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", [NAME, f"{NAME}+tools"])
async def test_overlong_conversation_has_openais_code(shared: House, name: str, stream: bool) -> None:
    messages = ask(shared, Say(refuses=LLAMA_CPP))
    async with mesh(shared) as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(model=name, messages=messages, stream=stream)
    error = refused.value
    assert (error.code, error.type) == ("context_length_exceeded", "invalid_request_error")
    assert (error.param, error.status_code) == ("messages", 400)
    assert "shorten the messages" in error.message


@pytest.mark.req("HTTP-39")
@pytest.mark.parametrize("api", ["embeddings", "responses"])
async def test_openai_client_reads_what_is_not_there(shared: House, api: str) -> None:
    async with mesh(shared) as client:
        with pytest.raises(openai.NotFoundError) as missing:
            await getattr(client, api).create(model=NAME, input="x")
        assert missing.value.code == "not_found"
        assert "/v1/chat/completions" in missing.value.message
        with pytest.raises(openai.APIStatusError) as large:
            await client.chat.completions.create(
                model=NAME, messages=[{"role": "user", "content": "x" * 26_000_000}]
            )
    assert (large.value.status_code, large.value.code) == (413, "payload_too_large")


@pytest.mark.req("HTTP-17")
async def test_an_error_after_the_first_word_ends_the_stream_with_it(
    shared: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hearthnet.core.errors import HearthNetError
    from hearthnet.gateway.openai import source

    async def breaks(*_given: Any, **_options: Any) -> AsyncIterator[dict[str, Any]]:
        yield {"event": "token", "data": {"text": "Half"}, "seq": 1}
        raise HearthNetError("partition", "the model is gone")

    monkeypatch.setattr(source, "stream_frames", breaks)
    async with mesh(shared) as client:
        stream = await client.chat.completions.create(model=NAME, messages=ask(shared), stream=True)
        chunks = [await anext(stream), await anext(stream)]
        with pytest.raises(openai.APIError, match="gone"):
            await anext(stream)
    assert said(chunks) == "Half"


@pytest.mark.req("HTTP-19")
async def test_leaving_in_mid_stream_frees_the_provider(shared: House) -> None:
    shared.model.stopped_at = 0.0
    async with mesh(shared) as client:
        stream = await client.chat.completions.create(
            model=NAME, messages=ask(shared, Say(forever=True)), stream=True
        )
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                break
        await stream.close()
    await wait_for(lambda: shared.model.stopped_at, 30, "the model to be stopped")


@pytest.mark.req("HTTP-19")
async def test_giving_up_on_an_answer_in_one_piece_frees_the_provider(shared: House) -> None:
    shared.model.stopped_at, asked = 0.0, len(shared.model.requests)
    async with mesh(shared) as client:
        messages = ask(shared, Say(forever=True))
        asking = asyncio.create_task(client.chat.completions.create(model=NAME, messages=messages))
        await wait_for(lambda: len(shared.model.requests) > asked, 30)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    await wait_for(lambda: shared.model.stopped_at, 30, "the model to be stopped")


@pytest.mark.req("HTTP-14")
@pytest.mark.parametrize("by_name", [True, False])
async def test_tools_of_the_mesh_run_on_request(shared: House, runs: MemoryRuns, by_name: bool) -> None:
    search = Say("Let me look.", calls=(("search_corpus", {"query": "water", "corpus": "probe"}),))
    extra: dict[str, Any] = {} if by_name else {"hearthnet": {"tools": ["search_corpus"], "events": True}}
    async with mesh(shared) as client:
        stream = await client.chat.completions.create(
            model=f"{NAME}+tools" if by_name else NAME,
            messages=ask(shared, search, Say("Boil it.")),
            stream=True,
            extra_body=extra,
        )
        chunks = [chunk async for chunk in stream]
    assert said(chunks).replace(" ", "") == "Letmelook.\n\nBoilit."
    assert chunks[-1].choices[0].finish_reason == "stop"
    events = [
        chunk.model_extra["hearthnet"]["event"]
        for chunk in chunks
        if "event" in (chunk.model_extra or {}).get("hearthnet", {})
    ]
    assert (chunks[-1].model_extra or {})["hearthnet"] == {"happened": [{"state": "nothing"}]}
    assert ("tool_result" in events) is not by_name
    shown = {tool["function"]["name"] for tool in shared.model.requests[-1]["tools"]}
    assert "search_corpus" in shown
    assert ("market_post" in shown) is by_name
    assert "find_neighbour" not in shown


@pytest.mark.req("HTTP-16")
@pytest.mark.parametrize("approved", [True, False])
async def test_an_effect_waits_and_the_next_request_goes_on(
    shared: House, runs: MemoryRuns, approved: bool
) -> None:
    guest = shared.guest()
    messages = ask(shared, POSTS, Say("Posted." if approved else "I did not."))
    async with mesh(shared, guest) as client:
        first = await client.chat.completions.create(model=NAME, messages=messages, extra_body=MESH)
        text = first.choices[0].message.content or ""
        waits = (first.model_extra or {})["hearthnet"]
        run, (pending,) = waits["run"], waits["pending"]
        assert f"hearthnet runs approve {run} {pending['tool_call_id']}" in text
        assert posts(shared, guest) == 0
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "Go on."}]
        still = await client.chat.completions.create(model=NAME, messages=messages)
        assert run in (still.choices[0].message.content or "")
        assert posts(shared, guest) == 0
        word = DecisionBody(
            decision="approve" if approved else "deny", reason="no", shown=pending["arguments_digest"]
        )
        call = pending["tool_call_id"]
        await shared.gateway.runs.decide(shared.client(guest), run, call, word, via="page")
        done = await client.chat.completions.create(model=NAME, messages=messages)
        same = await client.chat.completions.create(
            model=NAME, messages=ask(shared), extra_body={"hearthnet": {"run": run}}
        )
    assert (done.choices[0].message.content or "").strip() == ("Posted." if approved else "I did not.")
    assert (same.choices[0].message.content or "").strip() == (done.choices[0].message.content or "").strip()
    assert posts(shared, guest) == int(approved)


@pytest.mark.req("HTTP-16")
async def test_tools_of_client_and_mesh_in_one_turn(shared: House, runs: MemoryRuns) -> None:
    guest = shared.guest()
    search = ("search_corpus", {"query": "water", "corpus": "probe"})
    messages = ask(shared, Say(calls=(("look", {"at": "sky"}), search)), Say("It is blue."))
    extra = {"hearthnet": {"tools": ["search_corpus"]}}
    async with mesh(shared, guest) as client:
        first = await client.chat.completions.create(
            model=NAME, messages=messages, tools=[LOOK], extra_body=extra
        )
        assert first.choices[0].finish_reason == "tool_calls"
        (call,) = first.choices[0].message.tool_calls or []
        messages += [
            first.choices[0].message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": "blue"},
        ]
        done = await client.chat.completions.create(
            model=NAME, messages=messages, tools=[LOOK], extra_body=extra
        )
    assert (done.choices[0].message.content or "").strip() == "It is blue."
    results = [one["content"] for one in shared.model.requests[-1]["messages"] if one["role"] == "tool"]
    assert any("blue" in one for one in results)
    assert any("about water" in one for one in results)


@pytest.mark.req("HTTP-16")
async def test_a_run_that_is_gone_is_begun_anew_where_the_conversation_has_it_all(
    shared: House, runs: MemoryRuns
) -> None:
    gone = ids.new_ulid()
    function = {"name": "look", "arguments": "{}"}
    messages = [
        *ask(shared, Say("Never."), Say("It is blue.")),
        {
            "role": "assistant",
            "tool_calls": [{"id": f"run_{gone}_c1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": f"run_{gone}_c1", "content": "blue"},
    ]
    async with mesh(shared) as client:
        done = await client.chat.completions.create(
            model=NAME, messages=messages, tools=[LOOK], extra_body=MESH
        )
        assert (done.choices[0].message.content or "").strip() == "It is blue."
        told = shared.model.requests[-1]["messages"]
        assert [one["role"] for one in told] == ["user", "assistant", "tool"]
        assert told[-1]["content"] == "blue"
        with pytest.raises(openai.NotFoundError, match="there is no run"):
            await client.chat.completions.create(
                model=NAME, messages=messages, extra_body={"hearthnet": {"run": gone}}
            )
