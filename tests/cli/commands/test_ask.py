"""`hearthnet ask` against a running node: with the model in the box, and with one that a test scripts."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from hearthnet.core.home import Home
from hearthnet.core.node_state import read_node_state
from tests.cli.test_node import LISTING, post
from tests.helpers.scripted_model import NAME, Say, ScriptedModel
from tests.helpers.shell import STOP_SECONDS, Shell
from tests.helpers.stopwatch import Stopwatch
from tests.helpers.waiting import wait_for_sync

pytestmark = pytest.mark.e2e
PROMPT = "[a]pprove, [e]dit or [r]efuse? "
BOX = ("--model", "smollm2-135m-instruct")
MODELS_ALONE = '[server]\nport = 0\n\n[services]\nenabled = ["llm"]\n\n'


def titles(shell: Shell) -> list[str]:
    """The titles on the market now."""
    posts = shell.json("call", "market.list", "--body", LISTING, "--json")["output"]["posts"]
    return [one["title"] for one in posts]


def offer(title: str, **more: Any) -> tuple[str, dict[str, Any]]:
    """A call that offers something."""
    return "market_post", json.loads(post(title=title, **more))["input"]


def frames(text: str) -> list[dict[str, Any]]:
    """The frames on stdout, each of which must be one line and have nothing but event and data."""
    found = [json.loads(line) for line in text.splitlines()]
    assert all(frame.keys() == {"event", "data"} for frame in found)
    return found


# --- the model in the box


@pytest.mark.req("ASK-1", "ASK-4", "ASK-8")
def test_a_question_to_a_corpus_searches_streams_and_names_its_sources(shell: Shell) -> None:
    done = shell.run("ask", "How do I make rainwater safe to drink?", "--corpus", "system", *BOX)
    assert done.returncode == 0, done.stderr
    advice, call, result, *_ = done.stdout.splitlines()
    assert "there to try things out" in advice
    assert call.startswith('tool search_corpus {"query":"')
    assert re.search(r"\d m?s, \d", result)
    assert "passages" in result
    answer, _, sources = done.stdout.partition("\nSources\n")
    assert "Collecting rainwater and making it safe to drink" in answer
    listed = re.findall(r"^\[(\d+)\] (.+) \(\d{4}-\d\d-\d\d\)$", sources, re.MULTILINE)
    assert [int(number) for number, _ in listed] == list(range(1, len(listed) + 1))
    assert sources.count("\n[") + 1 == len(listed) == len({title for _, title in listed})
    assert "Collecting rainwater and making it safe to drink" in {title for _, title in listed}
    assert "https://" in sources
    assert "\x1b" not in done.stdout


@pytest.mark.req("BUS-21")
def test_a_question_waits_for_a_service_that_crashed_a_moment_ago(shell: Shell) -> None:
    services = {service["name"]: service for service in shell.json("status", "--json")["services"]}
    os.kill(services["rag"]["pid"], signal.SIGKILL)
    done = shell.run("ask", "How do I knot a rope?", "--corpus", "system", "--frames", *BOX)
    assert done.returncode == 0, done.stderr + done.stdout
    results = [frame["data"] for frame in frames(done.stdout) if frame["event"] == "tool_result"]
    assert [result["status"] for result in results] == ["completed"]


@pytest.mark.req("ASK-1", "ASK-10")
def test_frames_are_json_lines_in_the_order_of_the_run(shell: Shell) -> None:
    done = shell.run("ask", "How do I treat a burn?", "--corpus", "system", "--frames", *BOX)
    assert done.returncode == 0, done.stderr
    events = [frame["event"] for frame in frames(done.stdout)]
    assert events[0] == "iteration"
    assert events.index("tool_call") < events.index("tool_result") < events.index("token")
    assert events[-1] == "done"
    result = next(frame["data"] for frame in frames(done.stdout) if frame["event"] == "tool_result")
    assert result["content"]["chunks"][0]["metadata"]["sources"]


@pytest.mark.req("ASK-12", "ASK-10")
def test_while_the_model_reads_frames_and_a_terminal_say_how_far_it_is(shell: Shell) -> None:
    question = "How do I store potatoes in winter? " * 25
    with shell.start("ask", question, "--frames", *BOX) as asking:
        assert asking.stdout is not None
        said = [*frames(asking.stdout.readline())]
        while said[-1]["event"] in {"iteration", "progress"}:
            said += frames(asking.stdout.readline())
    told = [frame["data"] for frame in said if frame["event"] == "progress"]
    assert told
    # With another model there, the one in the box is loaded when somebody asks it.
    stages = [data["stage"] for data in told]
    assert stages == sorted(stages)
    assert {"reading"} <= set(stages) <= {"loading", "reading"}
    assert all(data["current"] <= data["total"] for data in told)
    assert [frame["event"] for frame in said] == ["iteration", *["progress"] * len(told), "token"]
    with shell.terminal("ask", f"Once more: {question}", *BOX) as screen:
        screen.expect("reading ")
        screen.expect(" %")
        screen.expect("\r\x1b[K")
        screen.type("\x03")
        assert screen.end() == 130
    with shell.start("ask", f"And again: {question}", *BOX) as asking:
        assert asking.stdout is not None
        first = asking.stdout.read(1)
        asking.send_signal(signal.SIGINT)
        plain = first + asking.communicate(timeout=STOP_SECONDS)[0]
    assert "reading " not in plain
    assert "\x1b" not in plain


@pytest.mark.req("ASK-13", "CLI-5")
def test_a_model_whose_server_hangs_up_is_named_with_its_host_and_another_one_to_ask(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "gone")
    shell.home.mkdir()
    with ScriptedModel(hangs_up=True) as model:
        host = f"127.0.0.1:{model.port}"
        (shell.home / "hearthnet.toml").write_text(f"{MODELS_ALONE}{model.config}")
        with shell.node():
            wait_for_sync(lambda: NAME in shell.run("models", "list").stdout)
            done = shell.run("ask", "What is there about water?")
            assert done.returncode == 6
            assert done.stdout == ""
            assert done.stderr == (
                f"hearthnet: the server of the model {NAME} at {host} hung up; ask again, or go on with "
                "another model: --model smollm2-135m-instruct\n"
            )
            assert shell.run("ask", "Say hello.", *BOX).returncode == 0


@pytest.mark.req("ASK-14")
def test_a_model_that_nobody_named_gives_way_to_the_next(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "busy")
    shell.home.mkdir()
    question = "Say hello."
    with ScriptedModel(busy=True) as busy, ScriptedModel({question: [Say("Hello.")]}) as ready:
        first, second = (
            model.config.replace(f'name = "{NAME}"', f'name = "{name}"')
            for model, name in ((busy, "first"), (ready, "second"))
        )
        settings = f"{MODELS_ALONE}{first}\n{second}"
        (shell.home / "hearthnet.toml").write_text(settings)
        with shell.node():
            wait_for_sync(lambda: {"first", "second"} <= set(shell.run("models", "list").stdout.split()))
            done = shell.run("ask", question)
            assert (done.returncode, done.stderr) == (0, "")
            assert "second answers instead" in done.stdout
            assert "Hello." in done.stdout
            said = frames(shell.run("ask", question, "--frames").stdout)
            assert "other_model" in [frame["data"].get("code") for frame in said]
            assert [frame["event"] for frame in said if frame["event"] in ("error", "done")] == ["done"]
            named = shell.run("ask", question, "--model", "first", "--frames")
            assert named.returncode == 8
            ends = [frame["event"] for frame in frames(named.stdout) if frame["event"] in ("error", "done")]
            assert ends == ["error"]


@pytest.mark.req("ASK-14")
def test_models_that_all_fail_are_named_with_last_reason(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "failing")
    shell.home.mkdir()
    with ScriptedModel(busy=True) as busy, ScriptedModel(hangs_up=True) as gone:
        first, second = (
            model.config.replace(f'name = "{NAME}"', f'name = "{name}"')
            for model, name in ((busy, "first"), (gone, "second"))
        )
        settings = f"{MODELS_ALONE}{first}\n{second}"
        (shell.home / "hearthnet.toml").write_text(settings)
        with shell.node():
            wait_for_sync(lambda: {"first", "second"} <= set(shell.run("models", "list").stdout.split()))
            done = shell.run("ask", "Say hello.")
            assert done.returncode == 6
            assert "second answers instead" in done.stdout
            assert done.stderr == (
                "hearthnet: no model answered (tried: first, second): the server of the model second at "
                f"127.0.0.1:{gone.port} hung up; ask again, or go on with another model: --model "
                "smollm2-135m-instruct\n"
            )
            said = frames(shell.run("ask", "Say hello.", "--frames").stdout)
            (error,) = [frame["data"] for frame in said if frame["event"] == "error"]
            assert error["error"] == "partition"
            assert error["message"].startswith("no model answered (tried: first, second): ")
            assert said[-1]["event"] == "error"


@pytest.mark.req("LLM-145")
def test_an_answer_cut_off_before_it_began_is_an_error(shell: Shell, model: ScriptedModel) -> None:
    question = "What does a model say that thinks too long?"
    model.turns[question] = [Say(thinking="Hm. Let me see.", cut=True)]
    done = shell.run("ask", question, "--model", NAME)
    assert done.returncode == 1
    assert "used up its 8 tokens by thinking before it said anything" in done.stdout
    assert done.stderr.startswith("hearthnet: there is no answer: the model reached its limit of tokens")
    assert not {"max_tokens", "temperature", "top_p"} & model.requests[-1].keys()
    model.turns[question] = [Say("It says", thinking="Hm.", cut=True)]
    done = shell.run("ask", question, "--model", NAME)
    assert (done.returncode, done.stderr) == (0, "")
    assert "(the answer is cut off: the model reached its limit of tokens)" in done.stdout


@pytest.mark.req("LLM-149")
@pytest.mark.parametrize("thought", ["", "Hm. Let me see."])
def test_an_answer_of_nothing_is_an_error(shell: Shell, model: ScriptedModel, thought: str) -> None:
    question = f"What does a model say that has nothing to say? {thought}"
    model.turns[question] = [Say(thinking=thought)]
    done = shell.run("ask", question, "--model", NAME)
    assert done.returncode == 1
    assert "ended without an answer" in done.stdout
    assert done.stderr.startswith("hearthnet: there is no answer: the model ended without saying anything")
    model.turns[question] = [Say(calls=(("list_marketplace", {}),)), Say()]
    done = shell.run("ask", question, "--model", NAME, "--tool", "list_marketplace")
    assert (done.returncode, "there is no answer" in done.stderr) == (1, True)


@pytest.mark.req("LLM-149")
def test_an_effect_needs_no_words_after_it(shell: Shell, model: ScriptedModel) -> None:
    question = "Offer my ladder, and say nothing."
    model.turns[question] = [Say(calls=(offer("Silent ladder"),)), Say()]
    done = shell.run("ask", question, "--tool", "market_post", "--yes-to", "market.post", "--model", NAME)
    assert done.returncode == 0, done.stderr
    assert "there is no answer" not in done.stderr
    assert "without an answer" not in done.stdout
    assert "Silent ladder" in titles(shell)


# --- a model that can choose


@pytest.mark.req("ASK-3", "ASK-8")
def test_a_model_that_can_choose_gets_tools_and_its_answer_is_harmless(
    shell: Shell, model: ScriptedModel
) -> None:
    question = "What is there about water?"
    search = ("search_corpus", {"query": "water", "corpus": "system", "k": 2})
    model.turns[question] = [Say(calls=(search, ("list_marketplace", {}))), Say("Boil\x1b[2J\u202e it.")]
    done = shell.run("ask", question)
    assert done.returncode == 0, done.stderr
    assert "Boil\\x1b[2J\\u202e it." in done.stdout
    assert "tool list_marketplace {}" in done.stdout
    assert done.stdout.count("\n[1] ") == 1
    assert "try things out" not in done.stdout
    tools = {tool["function"]["name"] for tool in model.requests[-1]["tools"]}
    # Where Apertium is installed, the node translates as well.
    assert tools - {"translate"} == {"search_corpus", "list_corpora", "list_marketplace"}


@pytest.mark.req("TOOL-58", "TOOL-51")
def test_the_settings_of_the_file_hold_from_the_next_question_on(shell: Shell, model: ScriptedModel) -> None:
    file, question = shell.home / "hearthnet.toml", "Keep looking."
    before = file.read_text()
    model.turns[question] = [Say(calls=(("list_marketplace", {}),)), Say("One look is enough.")]
    try:
        file.write_text(before.replace("[llm]\n", "[llm]\ntools_max_iterations = 1\n"))
        wanted = ("--tool", "list_marketplace", "--tool", "describe_image")
        done = shell.run("ask", question, *wanted, "--frames")
        assert done.returncode == 0, done.stderr
        told = {frame["event"]: frame["data"] for frame in frames(done.stdout)}
        assert told["notice"] == {
            "code": "tool_unavailable",
            "text": "the tool describe_image is not available: nobody offers img.describe now",
        }
        assert told["done"]["limit"] == "max_iterations"
        file.write_text(before.replace("[llm]\n", "[llm]\ntools_enabled = false\n"))
        assert shell.run("ask", "What is there about water?").returncode == 0
        assert "tools" not in model.requests[-1]
        refused = shell.run("ask", question, "--tool", "list_marketplace")
        assert refused.returncode == 2
        assert "tool calls are switched off on this node" in refused.stderr
    finally:
        file.write_text(before)


@pytest.mark.req("ASK-9", "CLI-5")
def test_a_tool_that_the_model_invents_is_an_error_result_and_the_run_goes_on(
    shell: Shell, model: ScriptedModel
) -> None:
    question = "Invent something."
    wrong = ("list_marketplace", {"limit": 0})
    model.turns[question] = [Say(calls=(("make_coffee", {}), wrong)), Say("I cannot make coffee.")]
    done = shell.run("ask", question)
    assert done.returncode == 0, done.stderr
    assert "there is no tool 'make_coffee'" in done.stdout
    assert "invalid_arguments" in done.stdout
    assert "I cannot make coffee." in done.stdout


@pytest.mark.req("ASK-9", "CLI-5")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--corpus", "sytem"], "there is no corpus 'sytem'; did you mean system?"),
        (["--tool", "market_pots"], "there is no tool 'market_pots'; did you mean market_post"),
        (["--model", "skripted"], "there is no model 'skripted'; did you mean scripted?"),
        (["--yes-to", "market.pots"], "there is no capability 'market.pots'; did you mean market.post"),
    ],
)
def test_what_is_not_there_ends_with_5_and_the_nearest_names(
    shell: Shell, options: list[str], message: str
) -> None:
    done = shell.run("ask", "hello", *options)
    assert done.returncode == 5
    assert done.stderr.startswith(f"hearthnet: {message}")
    assert len(done.stderr.splitlines()) == 1


# --- side effects


@pytest.mark.req("ASK-2", "ASK-5")
def test_approved_on_a_terminal_it_is_posted_once_as_shown(shell: Shell, model: ScriptedModel) -> None:
    question = "I can lend a ladder."
    model.turns[question] = [Say(calls=(offer("Ladder, approved"),)), Say("Posted.")]
    with shell.terminal("ask", question, "--tool", "market_post") as screen:
        shown = screen.expect(PROMPT)
        assert '"Ladder, approved"' in shown
        assert "market.post@1.0" in shown
        assert titles(shell).count("Ladder, approved") == 0
        screen.type("a\n")
        screen.expect("completed")
        assert screen.end() == 0
        assert "Posted." in screen.shown
    assert titles(shell).count("Ladder, approved") == 1


@pytest.mark.req("ASK-5")
def test_an_edit_is_posted_as_it_was_shown_again(shell: Shell, model: ScriptedModel) -> None:
    question = "I can lend a saw."
    model.turns[question] = [Say(calls=(offer("Rip saw"),)), Say("Posted.")]
    with shell.terminal("ask", question, "--tool", "market_post") as screen:
        screen.expect(PROMPT)
        screen.type("e\n")
        for label in ("category (", "title [", "body [", "tags (", "ttl_seconds ["):
            screen.expect(label)
            screen.type("Rip saw, sharp\n" if label == "title [" else "\n")
        assert '"Rip saw, sharp"' in screen.expect(PROMPT)
        screen.type("a\n")
        assert screen.end() == 0
    assert "Rip saw, sharp" in titles(shell)
    assert "Rip saw" not in titles(shell)


@pytest.mark.req("ASK-5")
def test_refused_nothing_is_posted_and_the_model_is_told(shell: Shell, model: ScriptedModel) -> None:
    question = "I can lend an axe."
    model.turns[question] = [Say(calls=(offer("Axe"),)), Say("As you wish.")]
    with shell.terminal("ask", question, "--tool", "market_post") as screen:
        screen.expect(PROMPT)
        screen.type("r\n")
        screen.expect("denied")
        assert screen.end() == 4
        assert "As you wish." in screen.shown
    assert "Axe" not in titles(shell)
    assert "denied" in json.dumps(model.requests[-1]["messages"][-1])


@pytest.mark.req("ASK-6")
@pytest.mark.parametrize("options", [[], ["--frames"]])
def test_where_nobody_can_be_asked_nothing_is_posted_and_it_ends_with_7(
    shell: Shell, model: ScriptedModel, options: list[str]
) -> None:
    question = f"I can lend a bucket. {options}"
    model.turns[question] = [Say(calls=(offer("Bucket"),))]
    done = shell.run("ask", question, "--tool", "market_post", *options, stdin="a\ny\nyes\n")
    assert done.returncode == 7
    assert "--yes-to market.post" in done.stderr
    assert "Bucket" in done.stdout
    if options:
        assert [frame["event"] for frame in frames(done.stdout)][-1] == "suspended"
    assert "Bucket" not in titles(shell)


@pytest.mark.req("ASK-6")
def test_the_end_of_the_input_is_no_yes(shell: Shell, model: ScriptedModel) -> None:
    question = "I can lend a rope."
    model.turns[question] = [Say(calls=(offer("Rope"),))]
    with shell.terminal("ask", question, "--tool", "market_post") as screen:
        screen.expect(PROMPT)
        screen.type("\x04")
        assert screen.end() == 7
    assert "Rope" not in titles(shell)


@pytest.mark.req("ASK-7")
def test_yes_to_approves_its_own_capability_only_and_says_so(shell: Shell, model: ScriptedModel) -> None:
    question = "I can lend a stove."
    model.turns[question] = [Say(calls=(offer("Stove"),)), Say("Posted.")]
    other = shell.run("ask", question, "--tool", "market_post", "--yes-to", "market.expire")
    assert other.returncode == 7
    assert "Stove" not in titles(shell)
    done = shell.run("ask", question, "--tool", "market_post", "--yes-to", "market.post")
    assert done.returncode == 0, done.stderr
    assert "approved by --yes-to market.post" in done.stderr
    assert titles(shell).count("Stove") == 1


@pytest.mark.req("ASK-6")
def test_an_effect_that_fails_is_no_success(shell: Shell, model: ScriptedModel) -> None:
    question = "End a post that never was."
    expire = ("market_expire", {"event_id": "01JZZZZZZZZZZZZZZZZZZZZZ02", "reason": "withdrawn"})
    model.turns[question] = [Say(calls=(expire,)), Say("There is none.")]
    done = shell.run("ask", question, "--tool", "market_expire", "--yes-to", "market.expire")
    assert done.returncode == 5
    assert "not_found" in done.stdout


# --- cancel


@pytest.mark.req("ASK-11")
@pytest.mark.parametrize(("number", "options"), [(signal.SIGINT, []), (signal.SIGTERM, ["--frames"])])
def test_an_interrupt_stops_the_model_and_ends_with_130(
    shell: Shell, model: ScriptedModel, number: signal.Signals, options: list[str]
) -> None:
    question = f"Talk for ever. {options}"
    model.turns[question] = [Say(forever=True)]
    node = read_node_state(Home.resolve(shell.home))
    llm = next(service.pid for service in node.services if service.name == "llm")
    assert llm is not None
    model.stopped_at = 0.0
    with shell.start("ask", question, "--model", NAME, *options) as command:
        assert command.stdout is not None
        said = ""
        while "on " not in said:
            said += command.stdout.readline() if options else command.stdout.read(1)
        watch = Stopwatch(command.pid, node.server.pid, llm)
        command.send_signal(number)
        wait_for_sync(lambda: model.stopped_at, what="the model to stop")
        took = watch.seconds()
        out, _ = command.communicate(timeout=STOP_SECONDS)
        assert command.returncode == 130
    assert took < 0.2
    if options:
        assert frames(out)[-1]["data"]["stop_reason"] == "cancelled"


@pytest.mark.req("ASK-11")
def test_ctrl_c_at_a_question_ends_it_without_a_yes(shell: Shell, model: ScriptedModel) -> None:
    question = "I can lend a kettle."
    model.turns[question] = [Say(calls=(offer("Kettle"),))]
    with shell.terminal("ask", question, "--tool", "market_post") as screen:
        screen.expect(PROMPT)
        screen.type("\x03")
        assert screen.end() == 130
    assert "Kettle" not in titles(shell)


# --- the same model by `call`


@pytest.mark.req("CLI-8")
def test_a_streaming_call_prints_its_frames_as_they_come(shell: Shell, model: ScriptedModel) -> None:
    question = "Say something."
    model.turns[question] = [Say("One two."), Say("never")]
    given: dict[str, Any] = {"messages": [{"role": "user", "content": question}]}
    body = {"params": {"model": NAME}, "input": given}
    done = shell.run("call", "llm.chat@2.0", "--body", json.dumps(body), "--json")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [frame["seq"] for frame in found] == list(range(1, len(found) + 1))
    assert found[-1]["event"] == "done"
    assert "".join(frame["data"]["text"] for frame in found[:-1]).strip() == "One two."
    readable = shell.run("call", "llm.chat@2.0", "--body", json.dumps(body)).stdout
    text, _, rest = readable.partition("\n")
    assert text.strip() == "One two."
    assert rest.startswith("done {")
    endless: dict[str, Any] = {"messages": [{"role": "user", "content": "Say it for ever."}]}
    model.turns["Say it for ever."] = [Say(forever=True)]
    body["input"] = endless
    with shell.start("call", "llm.chat@2.0", "--body", json.dumps(body), "--json") as talking:
        assert talking.stdout is not None
        came = [json.loads(talking.stdout.readline()) for _ in range(3)]
    assert [(frame["event"], frame["seq"]) for frame in came] == [("token", 1), ("token", 2), ("token", 3)]
    given["stream"] = False
    body["input"] = given
    reply = shell.json("call", "llm.chat@2.0", "--body", json.dumps(body), "--json")
    assert reply["output"]["message"]["content"].strip() == "One two."


def test_the_models_are_listed_with_what_they_can(shell: Shell) -> None:
    table, _, advice = shell.run("models", "list").stdout.partition("\n\n")
    headings, *rows = table.splitlines()
    assert headings.split() == ["model", "node", "backend", "context", "languages", "tools"]
    said = {row.split()[0]: row.split()[2:] for row in rows}
    assert said == {
        NAME: ["openai", "8192", "-", "yes"],
        "smollm2-135m-instruct": ["llama.cpp", "4096", "en", "by", "name"],
    }
    assert "there to try things out" in advice
    offers = {offer["params"]["model"]: offer["params"] for offer in shell.json("models", "list", "--json")}
    assert offers.keys() == said.keys()
    assert [offers[NAME][param] for param in ("ctx", "tools_supported")] == [8192, True]
