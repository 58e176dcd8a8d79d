"""The official `openai` package against a node in processes of its own: gateway, model, documents, market."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.helpers.scripted_model import NAME, Say
from tests.helpers.served import Served, served
from tests.helpers.waiting import wait_for_sync

pytestmark = pytest.mark.e2e
POST = {"category": "offer", "title": "Jam", "body": "Plum."}
SEARCH = ("search_corpus", {"query": "rainwater safe to drink", "corpus": "system"})
LOOK: Any = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Looks",
        "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
    },
}
SCOPE = ("llm.chat", "rag.query", "market.post", "market.list")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The node, with its own documents and an empty market."""
    with served(tmp_path_factory.mktemp("served"), "rag", "market") as node:
        wait_for_sync(lambda: "rag.query" in node.shell.run("caps").stdout, 60, "the documents")
        yield node


@pytest.fixture
def client(node: Served) -> Iterator[Any]:
    """OpenAI's client with a key of its own. Untyped, since tests send what its types leave out."""
    with program(node, node.key(*SCOPE)) as client:
        yield client


def program(node: Served, key: str) -> Any:
    return openai.OpenAI(base_url=f"{node.url}/v1", api_key=key, max_retries=0, timeout=60)


def outcome_of(answer: Any, *, stream: bool) -> tuple[str, str | None, list[dict[str, str]]]:
    """Text, finish reason and tool calls of an answer, pieces of calls put together as the SDK's users do."""
    if not stream:
        (choice,) = answer.choices
        calls = [
            {"id": one.id, "name": one.function.name, "arguments": one.function.arguments}
            for one in choice.message.tool_calls or []
        ]
        return (choice.message.content or "").strip(), choice.finish_reason, calls
    text, finish, parts = "", None, dict[int, dict[str, str]]()
    for chunk in answer:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
            for piece in choice.delta.tool_calls or []:
                part = parts.setdefault(piece.index, {"id": "", "name": "", "arguments": ""})
                part["id"] += piece.id or ""
                part["name"] += piece.function.name or ""
                part["arguments"] += piece.function.arguments or ""
    return text.strip(), finish, [parts[index] for index in sorted(parts)]


def results(node: Served) -> list[str]:
    """The results of tools as the model was shown them last."""
    return [one["content"] for one in node.model.requests[-1]["messages"] if one["role"] == "tool"]


@pytest.mark.req("HTTP-14", "HTTP-15")
@pytest.mark.parametrize("stream", [False, True])
def test_a_run_with_tools_of_the_mesh_answers(node: Served, client: Any, stream: bool) -> None:
    answer = client.chat.completions.create(
        model=f"{NAME}+tools",
        messages=node.ask(Say(calls=(SEARCH,)), Say("Boil it.")),
        stream=stream,
    )
    text, finish, calls = outcome_of(answer, stream=stream)
    assert (text, finish, calls) == ("Boil it.", "stop", [])
    (found,) = results(node)
    assert "rainwater" in found.lower(), "the node's own documents"


@pytest.mark.req("HTTP-12")
@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_of_the_client_goes_there_and_back(node: Served, client: Any, stream: bool) -> None:
    messages = node.ask(Say("Let me see.", calls=(("look", {"at": "sky"}),)), Say("It is blue."))
    asked = {"model": NAME, "tools": [LOOK], "stream": stream}
    first = client.chat.completions.create(messages=messages, **asked)
    text, finish, (call,) = outcome_of(first, stream=stream)
    assert (text, finish, call["name"]) == ("Let me see.", "tool_calls", "look")
    assert json.loads(call["arguments"]) == {"at": "sky"}
    function = {"name": call["name"], "arguments": call["arguments"]}
    messages += [
        {"role": "assistant", "tool_calls": [{"id": call["id"], "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": call["id"], "content": "blue"},
    ]
    done = client.chat.completions.create(messages=messages, **asked)
    assert outcome_of(done, stream=stream)[:2] == ("It is blue.", "stop")
    assert results(node) == ["blue"]


@pytest.mark.req("HTTP-16")
@pytest.mark.parametrize("stream", [False, True])
def test_tools_of_client_and_mesh_in_one_turn_both_run(node: Served, client: Any, stream: bool) -> None:
    messages = node.ask(Say(calls=(("look", {"at": "sky"}), SEARCH)), Say("It is blue."))
    asked = {
        "model": NAME,
        "tools": [LOOK],
        "stream": stream,
        "extra_body": {"hearthnet": {"tools": ["search_corpus"]}},
    }
    _, finish, (call,) = outcome_of(client.chat.completions.create(messages=messages, **asked), stream=stream)
    assert (finish, call["name"]) == ("tool_calls", "look")
    function = {"name": "look", "arguments": call["arguments"]}
    messages += [
        {"role": "assistant", "tool_calls": [{"id": call["id"], "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": call["id"], "content": "blue"},
    ]
    done = client.chat.completions.create(messages=messages, **asked)
    assert outcome_of(done, stream=stream)[:2] == ("It is blue.", "stop")
    blue, found = results(node)
    assert "blue" in blue
    assert "rainwater" in found.lower()


@pytest.mark.req("HTTP-16")
@pytest.mark.parametrize("decision", ["approve", "deny"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_effect_waits_for_a_yes_and_happens_once(node: Served, decision: str, stream: bool) -> None:
    key = node.key(*SCOPE)
    title = f"Jam {decision} {stream}"
    says = Say("I will.", calls=(("market_post", {**POST, "title": title}),))
    messages, mesh = node.ask(says, Say("Well.")), {"hearthnet": {"tools": ["market.post"]}}
    with program(node, key) as client, node.http(key) as http:
        first = client.chat.completions.create(model=NAME, messages=messages, extra_body=mesh, stream=stream)
        text, finish, calls = outcome_of(first, stream=stream)
        assert (finish, calls) == ("stop", [])
        (run,) = [one for one in http.get("/v1/runs").json()["runs"] if one["pending"]]
        (pending,) = run["pending"]
        assert f"hearthnet runs approve {run['run']}" in text
        assert posted(node, title) == 0
        word = {"call": pending["tool_call_id"], "decision": decision, "shown": pending["arguments_digest"]}
        assert http.post(f"/v1/runs/{run['run']}/decisions", json=word).status_code == 200
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "Go on."}]
        for _ in range(2):  # a request that is sent again repeats nothing
            done = client.chat.completions.create(model=NAME, messages=messages, stream=stream)
            assert outcome_of(done, stream=stream)[:2] == ("Well.", "stop")
    assert posted(node, title) == (decision == "approve")


def posted(node: Served, title: str) -> int:
    """How many posts of that title are on the market."""
    body = json.dumps({"params": {}, "input": {}})
    listed = node.shell.json("call", "market.list", "--body", body, "--json")["output"]["posts"]
    return sum(post["title"] == title for post in listed)


@pytest.mark.req("HTTP-17")
@pytest.mark.parametrize("stream", [False, True])
def test_errors_are_raised_as_the_packages_own_classes(node: Served, client: Any, stream: bool) -> None:
    def ask(client: Any = client, **more: Any) -> Any:
        answer = client.chat.completions.create(
            **{"model": NAME, "messages": node.ask(Say("Never.")), "stream": stream, **more}
        )
        return list(answer) if stream else answer

    with pytest.raises(openai.NotFoundError) as missing:
        ask(model="nobody-has-it")
    assert missing.value.code == "not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        ask(n=2)
    assert wrong.value.param == "n"
    with pytest.raises(openai.AuthenticationError) as unknown:
        ask(program(node, "hnk_wrong"))
    assert unknown.value.code == "unauthorized"
    with pytest.raises(openai.PermissionDeniedError) as narrow:
        ask(program(node, node.key("market.list")))
    assert narrow.value.code == "token_scope_insufficient"
    with pytest.raises(openai.NotFoundError, match="there is no run"):
        ask(extra_body={"hearthnet": {"run": "01M83SAHR54G8HEZWKSPC9RYMF"}})
    node.model.hangs_up = True
    try:
        with pytest.raises(openai.InternalServerError, match="hung up") as broken:
            ask()
    finally:
        node.model.hangs_up = False
    assert (broken.value.status_code, broken.value.code) == (503, "partition")
