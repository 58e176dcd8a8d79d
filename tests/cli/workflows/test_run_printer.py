"""A run on the screen, frame by frame."""

from __future__ import annotations

import io
import json
import sys
from typing import Any, cast

import pytest

from hearthnet.cli.commands.caps import contract_of, params_text
from hearthnet.cli.entry_point import report
from hearthnet.cli.input.options import CommandSettings
from hearthnet.cli.workflows.ask_flow import Run
from hearthnet.cli.workflows.question_plan import ModelOffer, Plan
from hearthnet.cli.workflows.run_printer import Show
from hearthnet.core.errors import HearthNetError
from tests.cli.output.test_terminal import Tty

LONG = "Water. " * 200
WIPE = "\r\x1b[K"
READING = ("progress", {"stage": "reading", "current": 374, "total": 830})
UNKNOWN = ["", "Happened, by signed records", "  unknown"]
"""Below words of a model of which no list came."""


def shown(capsys: pytest.CaptureFixture[str], *frames: tuple[str, dict[str, Any]], **params: Any) -> str:
    """What a person sees of these frames from a model with these params."""
    show = Show(Plan(ModelOffer({"model": "m", **params}), (), "auto"))
    show.opening()
    for event, data in frames:
        show.frame(event, data)
    show.ending()
    return capsys.readouterr().out


def result(content: Any, **more: Any) -> tuple[str, dict[str, Any]]:
    """The result of a tool."""
    return "tool_result", {
        "status": "completed",
        "ms": 12,
        "bytes": 34,
        "is_error": False,
        "content": content,
        **more,
    }


def chunk(title: str, text: str, **more: Any) -> dict[str, Any]:
    """A passage."""
    return {"text": text, "metadata": {"doc_title": title, "doc_cid": title, "heading": "Boiling", **more}}


def test_notes_stand_on_lines_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(
        capsys,
        ("token", {"text": "Wait"}),
        ("tool_progress", {"stage": "reading\x1b", "current": 1, "total": 2}),
        ("notice", {"code": "slow", "text": "this takes\na while"}),
        ("token", {"text": " for it.\n"}),
        ("iteration", {}),
        ("done", {"stop_reason": "max_tokens", "limit": "max_calls"}),
    )
    assert out.splitlines() == [
        "Wait",
        "  reading\\x1b 1/2",
        "note: this takes\\na while",
        " for it.",
        "(the answer is cut off: the model reached its limit of tokens)",
        "(no further tools: the limit max_calls was reached)",
        *UNKNOWN,
    ]


@pytest.mark.req("ASK-12")
def test_how_far_the_model_has_read_stands_there_until_it_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "30")
    screen = Tty()
    monkeypatch.setattr(sys, "stdout", screen)
    show = Show(Plan(ModelOffer({"model": "m"}), (), "auto"))
    far = ("progress", {"stage": "r\x1b" * 9, "current": 9, "total": 3})
    none = ("progress", {"stage": "reading", "current": 0, "total": 0})
    for event, data in (READING, ("iteration", {}), READING, far, none, ("token", {"text": "Yes"}), READING):
        show.frame(event, data)
    assert screen.getvalue() == f"{WIPE}reading 45 %{WIPE}{('r' + chr(92) + 'x1b') * 9:.26}...{WIPE}Yes"
    show.frame("iteration", {})
    show.frame(*READING)
    show.ending()
    listed = "".join(f"{line}\n" for line in UNKNOWN)
    assert screen.getvalue().endswith(f"Yes\n{WIPE}reading 45 %{WIPE}{listed}")


@pytest.mark.req("ASK-12")
@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_nothing_of_it_where_nobody_looks_or_no_line_can_be_taken_back(
    monkeypatch: pytest.MonkeyPatch, term: str
) -> None:
    monkeypatch.setenv("TERM", term)
    screen = Tty() if term == "dumb" else io.StringIO()
    monkeypatch.setattr(sys, "stdout", screen)
    show = Show(Plan(ModelOffer({"model": "m"}), (), "auto"))
    for event, data in (("iteration", {}), READING, ("token", {"text": "Yes"})):
        show.frame(event, data)
    assert screen.getvalue() == "Yes"


def test_results_say_how_long_and_how_large_and_errors_what(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(
        capsys,
        result({"event_id": "x" * 300}),
        result("denied: the user said no\x1b", status="denied", is_error=True),
    )
    first, second = out.splitlines()
    assert first.startswith('  completed (12 ms, 34 B): {"event_id":"xxx')
    assert first.endswith("...")
    assert second == "  denied (12 ms, 34 B): denied: the user said no\\x1b"


@pytest.mark.req("ASK-4")
def test_of_several_calls_each_result_says_whose_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    calls = [
        ("tool_call", {"id": name, "name": name, "arguments": {"text": name * 200}}) for name in ("a", "b")
    ]
    edited = ("tool_started", {"tool_call_id": "a", "name": "a", "arguments": {"text": "mine"}})
    ends = [result(number, tool_call_id=call) for number, call in enumerate("baa")]
    out = shown(capsys, *calls, edited, *ends).splitlines()[2:]
    assert out[0] == "  completed (12 ms, 34 B): 0", "right below its call"
    assert out[1:] == [
        'tool a {"text":"mine"}',
        "  completed (12 ms, 34 B): 1",
        "  completed (12 ms, 34 B): 2",
    ]
    out = shown(capsys, *calls, ("token", {"text": "Wait\n"}), ends[0]).splitlines()
    assert out[-len(UNKNOWN) :] == UNKNOWN
    del out[-len(UNKNOWN) :]
    assert out[-2].startswith('tool b {"text":"bbb')
    assert len(out[-2]) <= 103


def test_a_run_that_goes_on_says_whose_result_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    show = Show(Plan(ModelOffer({"model": "m"}), (), "auto"), {"a": ("market_post", {"title": "Saw"})})
    show.frame(*result({}, tool_call_id="a"))
    assert capsys.readouterr().out.splitlines()[0] == 'tool market_post {"title":"Saw"}'


@pytest.mark.req("ASK-4")
def test_passages_are_shown_for_a_model_to_try_things_out_only(capsys: pytest.CaptureFixture[str]) -> None:
    found = {"chunks": [chunk("Rain", f"# Rain\n\n{LONG}"), chunk("Snow", f"Snow\n{LONG}")]}
    out = shown(capsys, result(found), advice="Only to try.")
    assert out.startswith("Only to try.\n  completed (12 ms, 34 B): 2 passages\n")
    passages, _, sources = out.partition("\nSources\n")
    assert "  Rain: Boiling\n  Water." in passages
    assert passages.count("Water.") > 250, "the best passage is shown whole, the other one's beginning"
    assert "..." in passages.partition("Snow: Boiling")[2]
    assert sources == "[1] Rain\n[2] Snow\n"
    assert "Water." not in shown(capsys, result(found))


@pytest.mark.req("ASK-8")
def test_sources_are_each_document_once_with_date_and_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    found = [
        chunk("Rain\x1b[2J", "a", date="2026-01-31", sources=["https://who.example/\u202ex"]),
        chunk("Snow", "b", date="2025\x1b[2J"),
    ]
    out = shown(capsys, result({"chunks": found}), result({"chunks": [*reversed(found), chunk("Hail", "c")]}))
    assert out.partition("\nSources\n")[2].splitlines() == [
        "[1] Rain\\x1b[2J (2026-01-31)",
        "    https://who.example/\\u202ex",
        "[2] Snow (2025\\x1b[2J)",
        "[3] Hail",
    ]


def test_a_search_that_found_nothing_says_so_before_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    nothing = "0 passages; what follows does not come from the documents"
    assert shown(capsys, result({"chunks": []}), advice="Only to try.").endswith(f": {nothing}\n")
    assert nothing not in shown(capsys, result({"posts": []}))


def test_what_the_advice_says_already_is_not_said_again(capsys: pytest.CaptureFixture[str]) -> None:
    notice = ("notice", {"code": "tools_ignored", "text": "takes no tools"})
    assert shown(capsys, notice, tools_supported=True, tools_by_name_only=True) == ""
    assert shown(capsys, notice, tools_supported=True) == "note: takes no tools\n"


def test_params_of_an_offer_for_people() -> None:
    assert (
        params_text({"corpus": "a\x1b", "k_max": 20, "models": ["x"]})
        == 'corpus=a\\x1b, k_max=20, models=["x"]'
    )
    assert params_text({}) == "-"
    assert params_text({"advice": "x" * 100}) == f"advice={'x' * 57}..."


def test_a_capability_of_a_newer_version_has_no_contract_here() -> None:
    assert contract_of("rag.query@9.0") is None
    assert contract_of("new.thing@1.0") is None


@pytest.mark.asyncio
async def test_frames_are_all_that_is_printed_of_a_model_that_fails(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command prints the error itself, as the last frame."""
    details = {"happened": [{"state": "unknown", "name": "market_post"}]}
    error = {"error": "timeout", "message": "no", "details": details}
    token = {"event": "token", "data": {"text": "I "}}

    async def opened(hear: Any) -> Any:
        class Failing:
            async def drive(self) -> None:
                await hear(token)
                await hear({"event": "error", "data": error})
                raise HearthNetError.from_body(error)

        return Failing()

    run = Run(CommandSettings(frames=True), Plan(ModelOffer({"model": "m"}), (), "auto"))
    with pytest.raises(HearthNetError) as failed:
        await run.drive(cast("Any", None), opened)
    assert failed.value.details == details
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [token]


@pytest.mark.asyncio
@pytest.mark.req("PERSON-84")
@pytest.mark.parametrize("has_spoken", [True, False])
async def test_frames_end_as_words_do_where_a_run_breaks_off(
    capsys: pytest.CaptureFixture[str], has_spoken: bool
) -> None:
    """The store of runs is lost, which is no failure of the model with a list of its own."""
    for frames in (True, False):

        async def opened(hear: Any) -> Any:
            class Lost:
                async def drive(self) -> None:
                    if has_spoken:
                        await hear({"event": "token", "data": {"text": "I posted it."}})
                    raise HearthNetError("partition", "the store is away", exit_status=6)

            return Lost()

        run = Run(CommandSettings(frames=frames), Plan(ModelOffer({"model": "m"}), (), "auto"))
        with pytest.raises(HearthNetError) as failed:
            await run.drive(cast("Any", None), opened)
        report(failed.value, CommandSettings(frames=frames))
        out = capsys.readouterr().out
        if frames:
            end = json.loads(out.splitlines()[-1])
            found = (end["data"].get("details") or {}).get("happened")
            assert (end["event"], found) == ("error", [{"state": "unknown"}] if has_spoken else None)
        else:
            assert ("  unknown\n" in out) is has_spoken
