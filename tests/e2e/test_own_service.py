"""A service in a file outside the repository: run beside a node, called by commands and by a model."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.scripted_model import Say, ScriptedModel
from tests.helpers.shell import STOP_SECONDS, Shell

pytestmark = pytest.mark.e2e
SETTINGS = """\
[server]
port = 0

[community]
port = 0

[gateway]
enabled = false

[services]
enabled = ["llm"]

"""
HELLO = '''\
import hearthnet

service = hearthnet.Service("hello")


@service.capability("hello.greet@1.0")
async def greet(name: str, times: int | None = None, polite: bool = False) -> str:
    """Greet a person by name."""
    return " ".join([f"{'Good day' if polite else 'Hello'} {name}"] * (times or 1))


@service.capability("hello.sign@1.0", side_effects=True)
async def sign(call: hearthnet.Call, name: str) -> dict[str, int]:
    """Write a name into the guest book.

    :param name: who signs
    """
    book.append(name)
    return {"entries": len(book)}


book: list[str] = []
hearthnet.run(service)
'''


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    """The model that says what a test wrote for it."""
    with ScriptedModel() as running:
        yield running


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the service."""
    file = tmp_path_factory.mktemp("author") / "hello.py"
    file.write_text(HELLO)
    return file


@contextlib.contextmanager
def running(shell: Shell, program: Path, *arguments: str) -> Iterator[str]:
    """The program, once it serves; yields its first line, and ends it by SIGTERM with status 0."""
    with subprocess.Popen(
        [sys.executable, program, *arguments], env=shell.environ(), stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            yield process.stderr.readline()
            process.send_signal(signal.SIGTERM)
            assert process.wait(STOP_SECONDS) == 0, process.stderr.read()
        finally:
            process.kill()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, model: ScriptedModel, program: Path) -> Iterator[Shell]:
    """A node with a model, and the service beside it."""
    shell = Shell(tmp_path_factory.mktemp("own") / "home")
    shell.home.mkdir()
    (shell.home / "hearthnet.toml").write_text(SETTINGS + model.config)
    with shell.node(), running(shell, program) as line:
        assert line == "hello provides hello.greet@1.0, hello.sign@1.0; Ctrl-C ends it\n"
        yield shell


@pytest.mark.req("AUTHOR-5", "CLI-44")
@pytest.mark.parametrize(
    ("arguments", "code", "shown"),
    [
        (["hello.greet", "name=Ada"], 0, "Hello Ada\n"),
        (["hello.greet@1.0", "name=Ada Lovelace", "polite=true"], 0, "Good day Ada Lovelace\n"),
        (["hello.greet", "name=2", "times=2"], 0, "Hello 2 Hello 2\n"),
        (["hello.greet", "--body", '{"params": {}, "input": {"name": "Bo"}}'], 0, "Hello Bo\n"),
        (["hello.sign", "name=Ada"], 0, "entries: 1\n"),
        (["hello.greet"], 2, '"name" is a required property'),
        (["hello.greet", "name=Ada", "polite=perhaps"], 2, "not a value that polite can have"),
        (["hello.greet", "name=Ada", "age=3"], 2, "has no field 'age'"),
        (["hello.greet", "name=Ada", "name=Bo"], 2, "'name' is given twice"),
        (["hello.greet", "Ada"], 2, "'Ada' has no value; write FIELD=VALUE"),
        (["hello.greet", "name=Ada", "--body", "{}"], 2, "as FIELD=VALUE or with --body, not both"),
        (["hello.greet@2.0", "name=Ada"], 5, "nobody offers hello.greet@2.0 now"),
        (["hallo.greet", "name=Ada"], 5, "nobody offers hallo.greet now"),
        (["ragg.query", "query=x"], 5, "did you mean rag.query"),
    ],
)
def test_call_takes_fields_of_an_own_capability(
    node: Shell, arguments: list[str], code: int, shown: str
) -> None:
    done = node.run("call", *arguments)
    assert (done.returncode, shown in (done.stderr if code else done.stdout)) == (code, True), done


@pytest.mark.req("AUTHOR-5")
def test_model_calls_an_own_capability(node: Shell, model: ScriptedModel) -> None:
    model.turns["Greet Ada."] = [Say(calls=(("hello_greet", {"name": "Ada"}),)), Say("It is done.")]
    done = node.run("ask", "Greet Ada.", "--tool", "hello.greet")
    assert done.returncode == 0, done.stderr
    assert "It is done." in done.stdout
    first, second = model.requests[-2:]
    (tool,) = first["tools"]
    assert (tool["function"]["name"], tool["function"]["description"]) == (
        "hello_greet",
        "Greet a person by name.",
    )
    assert tool["function"]["parameters"]["required"] == ["name"]
    assert "Hello Ada" in str(second["messages"][-1]["content"])


@pytest.mark.req("AUTHOR-5")
def test_effect_of_an_own_capability_waits_for_a_yes(node: Shell, model: ScriptedModel) -> None:
    call = Say(calls=(("hello_sign", {"name": "Bo"}),))
    model.turns["Sign for Bo."] = [call, Say("It is signed.")]
    before = int(node.json("call", "hello.sign", "name=first", "--json")["output"]["entries"])
    waiting = node.run("ask", "Sign for Bo.", "--tool", "hello.sign")
    assert (waiting.returncode, "hello.sign@1.0 needs a yes" in waiting.stderr) == (7, True), waiting
    tool = model.requests[-1]["tools"][0]["function"]
    assert list(tool["parameters"]["properties"]) == ["name"]  # the executor makes up the client_id
    done = node.run("ask", "Sign for Bo.", "--tool", "hello.sign", "--yes-to", "hello.sign")
    assert (done.returncode, "It is signed." in done.stdout) == (0, True), done
    after = int(node.json("call", "hello.sign", "name=last", "--json")["output"]["entries"])
    assert after - before == 2


@pytest.mark.req("AUTHOR-5")
def test_program_without_a_node_says_what_to_do(tmp_path: Path, program: Path) -> None:
    done = subprocess.run(
        [sys.executable, program, "--home", tmp_path / "nowhere"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        f"cannot run the service hello: no node is running in {tmp_path / 'nowhere'}; "
        "start one with: hearthnet up\n"
    )
