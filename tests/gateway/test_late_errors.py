"""Errors after the head of a streamed answer: a real node, a model that fails late, real clients."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest

from hearthnet.core.home import Home
from hearthnet.core.node_state import read_node_state
from tests.helpers.scripted_model import NAME, ScriptedModel
from tests.helpers.shell import Shell

SETTINGS = (
    "[server]\nport = 0\n\n[community]\nport = 0\n\n[gateway]\nport = 0\n\n[llm]\nbuiltin = false\n\n"
    '[services]\nenabled = ["llm"]\n\n'
)
pytestmark = [pytest.mark.e2e, pytest.mark.req("HTTP-38")]
QUESTION: Any = [{"role": "user", "content": "Are you there?"}]


class Node:
    """A node that runs, with one connected model and a client."""

    def __init__(self, shell: Shell, model: ScriptedModel) -> None:
        self.model = model
        self.url = read_node_state(Home(shell.home)).gateway_url
        self.key = shell.json("clients", "add", "chat", "--json")["secret"]

    @contextmanager
    def slow_failure(self) -> Iterator[None]:
        """The model keeps everybody waiting until `model.go` is set, and hangs up then."""
        self.model.go.clear()
        self.model.hangs_up = True
        try:
            yield
        finally:
            self.model.hangs_up = False
            self.model.go.set()

    def events(self, path: str, body: dict[str, Any]) -> list[str]:
        """The lines of a streamed answer, on the plain HTTP of the standard library.

        It raises `IncompleteRead` where the chunked body is torn off.
        """
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=60)
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        connection.request("POST", path, json.dumps(body), {**headers, "Accept": "text/event-stream"})
        with closing(connection):
            answer = connection.getresponse()
            assert answer.status == 200
            self.model.go.set()
            text = answer.read().decode()
        return [line for line in text.splitlines() if line]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    shell = Shell(tmp_path_factory.mktemp("late") / "home")
    shell.home.mkdir()
    with ScriptedModel() as model:
        (shell.home / "hearthnet.toml").write_text(SETTINGS + model.config)
        with shell.node():
            yield Node(shell, model)


@pytest.mark.parametrize("name", [NAME, f"{NAME}+tools"])
def test_openai_client_raises_a_late_error(node: Node, name: str) -> None:
    with openai.OpenAI(base_url=f"{node.url}/v1", api_key=node.key, max_retries=0, timeout=60) as client:
        with node.slow_failure():
            stream = client.chat.completions.create(model=name, messages=QUESTION, stream=True)
            node.model.go.set()
            with pytest.raises(openai.APIError, match="hung up"):
                list(stream)
        again = client.chat.completions.create(model=name, messages=QUESTION, stream=True)
        assert "all." in "".join(chunk.choices[0].delta.content or "" for chunk in again)


def test_late_error_ends_the_completion_properly(node: Node) -> None:
    with node.slow_failure():
        lines = node.events("/v1/chat/completions", {"model": NAME, "messages": QUESTION, "stream": True})
    (error,) = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    told = error["error"]
    assert (told["type"], told["code"], told["param"]) == ("service_unavailable_error", "partition", None)
    assert "hung up" in told["message"]


@pytest.mark.parametrize("tools", [[], [{"name": "look", "parameters_schema": {"type": "object"}}]])
def test_late_error_ends_the_events_of_a_call(node: Node, tools: list[Any]) -> None:
    given = {"messages": QUESTION, **({"tools": tools} if tools else {"stream": True})}
    call = {"capability": "llm.chat", "body": {"params": {"model": NAME}, "input": given}}
    with node.slow_failure():
        lines = [line for line in node.events("/v1/call", call) if not line.startswith(":")]
    assert lines[-3:-1] == [f"id: {len(lines) // 3}", "event: error"]
    told = json.loads(lines[-1].removeprefix("data: "))
    assert (told["error"], "hung up" in told["message"]) == ("partition", True)
    assert [line for line in lines if line.startswith("event:")][:-1] == ["event: iteration"] * bool(tools)
