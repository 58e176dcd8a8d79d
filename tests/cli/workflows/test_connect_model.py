"""`hearthnet models add|remove|test` against a node that runs: no restart, and settings stay a person's."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from hearthnet.cli.input import settings_file
from hearthnet.core.config import ModelConfig
from hearthnet.core.config_loader import load_config
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from tests.cli.conftest import Here
from tests.helpers.scripted_model import NAME, Say, ScriptedModel
from tests.helpers.shell import Shell
from tests.helpers.waiting import wait_for_sync

QUESTION = 'Take a note that says "hello". Use the tool for it.'
SETTINGS = """\
# my node
[server]
port = 0  # any

[services]
enabled = ["llm"]

[llm]
builtin = false
# what follows is mine
"""


@pytest.fixture(scope="module")
def scripted() -> Iterator[ScriptedModel]:
    """A model that calls the tool of the check."""
    model = ScriptedModel({QUESTION: [Say(calls=(("take_note", {"text": "hello"}),))]})
    with model:
        yield model


@pytest.fixture(scope="module")
def lone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A node with the llm service alone, and no model."""
    shell = Shell(tmp_path_factory.mktemp("lone") / "home")
    shell.home.mkdir()
    (shell.home / "hearthnet.toml").write_text(SETTINGS)
    with shell.node():
        yield shell


def offered(shell: Shell) -> list[str]:
    """The models that the mesh sees."""
    return [view["params"]["model"] for view in shell.json("models", "list", "--json")]


@pytest.mark.e2e
@pytest.mark.req("CLI-30", "LLM-41", "LLM-43")
def test_a_model_is_connected_asked_lost_found_and_let_go_without_a_restart(
    lone: Shell, scripted: ScriptedModel
) -> None:
    assert "hearthnet models add" in lone.run("models", "list").stdout
    added = lone.run("models", "add", scripted.url)
    assert added.returncode == 0, added.stderr
    assert added.stdout.startswith(f"{NAME}: {NAME} at {scripted.url} (openai)\n  calls the tool, after ")
    assert "  tools: yes\n  images: no\n  context: 8192 tokens\n  needs the internet: no\n" in added.stdout
    assert f'offered now; ask it with: hearthnet ask "Hello" --model {NAME}' in added.stdout
    assert lone.run("ask", "Hello?", "--model", NAME).stdout.startswith("That is all.")

    text = (lone.home / "hearthnet.toml").read_text()
    assert text.startswith(SETTINGS)
    assert tomllib.loads(text)["llm"]["models"] == [
        {"kind": "openai", "name": NAME, "url": scripted.url, "model": NAME}
    ]
    again = lone.run("models", "add", scripted.url, "--model", NAME)
    assert (again.returncode, "connected already, as scripted" in again.stderr) == (2, True)
    (tested,) = lone.json("models", "test", NAME, "--json")
    assert (tested["tool_call"], tested["ctx"], tested["vision"]) == (True, 8192, False)
    assert "  calls the tool, after " in lone.run("models", "test", NAME).stdout

    scripted.__exit__(None, None, None)
    gone = lone.run("models", "test", NAME)
    assert gone.returncode == 6
    assert "cannot be reached at 127.0.0.1" in gone.stderr
    lone.run("ask", "Hello?", "--model", NAME)
    wait_for_sync(lambda: offered(lone) == [], 20)
    assert "scripted is connected and not offered now" in lone.run("models", "list").stderr
    assert "cannot be reached" in lone.run("status").stdout
    scripted.__enter__()
    wait_for_sync(lambda: offered(lone) == [NAME], 20)

    removed = lone.json("models", "remove", NAME, "--json")
    assert removed["removed"][0]["model"] == NAME
    wait_for_sync(lambda: offered(lone) == [])
    assert (lone.home / "hearthnet.toml").read_text() == SETTINGS


@pytest.mark.e2e
@pytest.mark.req("CLI-30")
def test_a_script_learns_what_was_connected(lone: Shell, scripted: ScriptedModel) -> None:
    added = lone.json("models", "add", scripted.url, "--name", "mine", "--json")
    assert (added["name"], added["model"], added["offered"], added["problem"]) == ("mine", NAME, True, "")
    assert (added["tool_call"], added["ctx"], added["requires_internet"]) == (True, 8192, False)
    assert (
        lone.run("models", "remove", "mine").stdout == f"removed: mine: {NAME} at {scripted.url} (openai)\n"
    )


@pytest.mark.e2e
@pytest.mark.req("CLI-30", "LLM-40")
def test_what_is_wrong_is_said_in_one_line_and_nothing_is_written(
    lone: Shell, scripted: ScriptedModel
) -> None:
    before = (lone.home / "hearthnet.toml").read_text()
    url = scripted.url
    for arguments, code, said in (
        (("http://127.0.0.1:9",), 6, "cannot be reached at 127.0.0.1:9"),
        ((url, "--model", "other"), 5, f"has no model 'other'; it has {NAME}"),
        (
            (url, "--key-env", "NOT_SET_ANYWHERE"),
            4,
            "set the environment variable NOT_SET_ANYWHERE to its API key",
        ),
        (("azure",), 2, "where is it?"),
    ):
        done = lone.run("models", "add", *arguments)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert said in done.stderr.splitlines()[-1]
    assert (lone.home / "hearthnet.toml").read_text() == before


@pytest.mark.e2e
@pytest.mark.req("CLI-30")
def test_a_model_that_says_nothing_is_not_connected(lone: Shell) -> None:
    with ScriptedModel({question: [Say("")] for question in (QUESTION, "Say hello.")}) as silent:
        done = lone.run("models", "add", silent.url)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{NAME} answers with nothing, so it was not connected" in done.stderr
    assert (lone.home / "hearthnet.toml").read_text() == SETTINGS


@pytest.mark.req("CLI-30")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("openai", "--key-env", "sk-abcdefghijklmnop1234"),
            "--key-env is the name of the environment variable",
        ),
        (
            ("openai", "--key-env", "hf_abcDEFghijKLMnop1234"),
            "--key-env is the name of the environment variable",
        ),
        (("https://x.example/v1?key=abc123secret",), "leave the key out of the URL"),
        (("ollma",), "name one of openai, ollama"),
        (("http://x", "--url", "http://y"), "give the URL once"),
    ],
)
def test_a_key_is_refused_and_not_repeated(here: Here, arguments: tuple[str, ...], said: str) -> None:
    assert here("models", "add", *arguments) == 2
    assert said in here.err
    for secret in ("abcdefghijklmnop1234", "abcDEFghij", "abc123secret"):
        assert secret not in here.out + here.err


@pytest.mark.req("CLI-30")
def test_without_a_node_adding_says_so_and_removing_works(here: Here, home: Path) -> None:
    assert here("models", "add", "ollama") == 3
    assert "no node is running" in here.err
    assert not (home / "hearthnet.toml").exists()
    place = Home.resolve(home)
    place.path.mkdir(parents=True, exist_ok=True)
    settings_file.insert(place, ModelConfig("ollama", "one", "http://me:secret@127.0.0.1:1", "m"))
    assert here("models", "remove", "won") == 5
    assert "did you mean one?" in here.err
    assert here("models", "remove", "one") == 0
    assert here.out == "removed: one: m at http://127.0.0.1:1 (ollama)\n"
    assert here("models", "test", "one") == 5
    assert "no model is connected" in here.err


@pytest.mark.req("CLI-30")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "[llm]\nthreads = 2 # two\n",
        '# top\n[[llm.models]] # my\nkind = "ollama"\nname = "a"\nurl = "http://x"\nmodel = "a"\n# e\n[node]',
        '[llm]\nmodels = [{kind = "ollama", name = "a", url = "http://x", model = "a"}] # short\n',
        "[llm]\r\nthreads = 2\r\n",
    ],
    ids=["none", "table", "entries", "inline", "windows"],
)
def test_what_a_person_wrote_stays(home: Path, text: str) -> None:
    place = Home.resolve(home)
    place.path.mkdir(parents=True, exist_ok=True)
    place.config_file.write_bytes(text.encode())
    before = load_config(place).llm.models
    model = ModelConfig("openai", "b", "http://y/v1", "b-1", "SOME_KEY", 4096, False)
    settings_file.insert(place, model)
    assert load_config(place).llm.models == (*before, model)
    written = place.config_file.read_bytes().decode()
    for line in text.splitlines():
        assert line.partition("}]")[0] in written
    settings_file.delete(place, ModelConfig("ollama", "b", "http://x", "b"))
    assert load_config(place).llm.models == before


@pytest.mark.req("CLI-30")
def test_a_file_that_is_wrong_is_left_alone(home: Path) -> None:
    place = Home.resolve(home)
    place.path.mkdir(parents=True, exist_ok=True)
    place.config_file.write_text("[llm]\nbuiltin = maybe\n")
    with pytest.raises(HearthNetError, match="line 2"):
        settings_file.insert(place, ModelConfig("ollama", "a", "http://x", "a"))
    assert place.config_file.read_text() == "[llm]\nbuiltin = maybe\n"
