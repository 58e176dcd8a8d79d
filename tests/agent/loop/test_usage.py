"""Which tools a model was shown, chose and left alone: in `done`, counted, and never what was asked."""

from __future__ import annotations

from typing import Any

import pytest

from hearthnet.agent.loop.state import Limits, RunState, new_run
from hearthnet.agent.loop.usage import Selection, Usage, count, selection_of, usage_of
from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.tools.types import CallRecord
from hearthnet.bus.session.tracing import Traces
from hearthnet.cli.commands.tools import _used
from tests.agent.bench import QUERY, RUN
from tests.agent.runtime.test_executor import tools
from tests.agent.scripted import ScriptedBus, calls, done, gives, says

pytestmark = pytest.mark.req("TOOL-66")
BODY: dict[str, Any] = {"params": {}, "input": {"messages": [{"role": "user", "content": "my secret"}]}}


def ran(shown: list[str], *called: str) -> RunState:
    """A run whose model called these."""
    state = new_run(RUN, [], "auto", Limits())
    state.shown = shown
    state.records = [
        CallRecord(tool_call_id=str(at), name=name, status="completed", ms=1, bytes=1)
        for at, name in enumerate(called)
    ]
    return state


def test_what_was_shown_is_chosen_or_unused_and_what_was_made_up_is_neither() -> None:
    state = ran(["a", "b", "c"], "b", "my own words", "b")
    assert selection_of(state) == Selection(3, {"b": 2}, ["a", "c"])
    assert selection_of(ran([])) == Selection(0, {}, [])


def test_several_runs_add_up() -> None:
    used = usage_of([ran(["a", "b"], "a", "a"), ran(["a"]), ran([])])
    assert used == {"a": Usage(2, 2, 1), "b": Usage(1, 0, 1)}


def test_it_is_counted_where_somebody_listens_and_tools_were_shown() -> None:
    class Peer:
        traces = Traces()

    heard: list[Any] = []
    count(object(), ran(["a"]))
    count(Peer, ran(["a"]))
    Peer.traces.on_selection = lambda called, unused: heard.append((called, unused))
    count(Peer, ran([], "a"))
    count(Peer, ran(["a", "b"], "b"))
    assert heard == [({"b": 1}, ["a"])]


@pytest.mark.asyncio
async def test_done_says_it_without_what_was_asked() -> None:
    bus = ScriptedBus(
        [calls("search_corpus", QUERY, "r"), calls("made up", {}, "m"), done("tool_calls")],
        [says("Well."), done()],
        tools={"rag.query@1.0": gives({"chunks": []})},
    )
    outcome = await ToolExecutor(bus, tools("search_corpus", "market_post")).open_run(BODY).drive()
    assert outcome.done is not None
    assert outcome.done["selection"] == {
        "shown": 2,
        "chosen": {"search_corpus": 1},
        "unused": ["market_post"],
    }


@pytest.mark.parametrize(
    ("used", "said"),
    [
        ({"shown": 0, "called": 0, "unused": 0}, ""),
        ({"shown": 1, "called": 4, "unused": 0}, "; shown in 1 run, called 4 times, unused in 0"),
    ],
)
def test_the_command_says_it_where_there_is_something_to_say(used: dict[str, int], said: str) -> None:
    assert _used(used) == said
