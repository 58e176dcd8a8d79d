"""What a hostile model, provider or client may send: the loop takes it in, and the run goes on."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from hearthnet.agent.loop.events import Start
from hearthnet.agent.loop.loop import ToolLoop
from hearthnet.agent.loop.state import Limits, RunState, new_run
from hearthnet.agent.persistence.run_record import unseal
from hearthnet.agent.runtime import model_turns
from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.tools.result_text import DEEPEST, too_deep
from hearthnet.agent.tools.toolbox import Toolbox
from hearthnet.agent.tools.types import Approve, Decision, Edit, PendingApproval
from hearthnet.core.errors import HearthNetError
from tests.agent.bench import LOOK, QUESTION, RUN, Bench, asked, paired
from tests.agent.keeping import QUESTION as OF_NODE
from tests.agent.keeping import Node
from tests.agent.runtime.test_executor import tools
from tests.agent.scripted import ScriptedBus, calls, done, gives, says
from tests.helpers.memory_runs import MemoryRuns

pytestmark = pytest.mark.req("TOOL-67")
ANYTHING = msgspec.structs.replace(LOOK, name="free", parameters_schema={"type": "object"})
EFFECT = msgspec.structs.replace(ANYTHING, name="act", side_effects=True)


def nested(levels: int, kind: type[Any] = dict) -> dict[str, Any]:
    """An object with so many levels in all."""
    value: Any = {}
    for _ in range(levels - 2):
        value = {"a": value} if kind is dict else [value]
    return {"x": value}


def free() -> Bench:
    """A bench whose tools take any object."""
    bench = Bench(start=False)
    bench.loop = ToolLoop(new_run(RUN, QUESTION, "auto", Limits()), Toolbox([ANYTHING, EFFECT]))
    bench.feed(Start(now=bench.now))
    return bench


@pytest.mark.parametrize("kind", [dict, list])
def test_depth_is_counted(kind: type[Any]) -> None:
    # The outermost value is nested in nothing.
    assert not too_deep(nested(DEEPEST + 1, kind))
    assert too_deep(nested(DEEPEST + 2, kind))
    assert not too_deep("text")


@pytest.mark.parametrize("levels", [100, 900, 5_000, 50_000])
@pytest.mark.parametrize("name", ["free", "act", "nothing"])
def test_arguments_nested_without_end_are_refused_and_not_kept(name: str, levels: int) -> None:
    """Kept, they could be saved with the run and not be read again: a run that waits would be lost."""
    bench = free()
    bench.call(name, nested(levels), "c")
    bench.model_done("tool_calls")
    (result,) = bench.results()
    unknown = "unknown_tool: there is no tool 'nothing'; there are: free, act"
    deep = f"invalid_arguments: /: nested deeper than {DEEPEST} levels (rule: depth)"
    assert result["content"] == (unknown if name == "nothing" else deep)
    saved = msgspec.json.encode(bench.loop.state)
    messages = msgspec.json.decode(saved, type=RunState).messages
    paired(messages)
    assert messages[-2]["tool_calls"] == [{"id": "c", "name": name, "arguments": {}}]


def test_an_edit_that_is_nested_without_end_is_asked_about_again() -> None:
    bench = free()
    question = asked(bench.call("act", {"x": 1}, "c")).pending
    again = asked(bench.decided(question.confirmation_id, Edit(nested(5_000)))).pending
    assert "nested deeper" in again.problem
    assert again.arguments == {"x": 1}


NO_TEXT = "internal_error: what the tool gave back has no JSON text"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (nested(5_000), NO_TEXT),
        ("\ud800", NO_TEXT),
        ({"\ud800": 1}, NO_TEXT),
        (object(), NO_TEXT),
        (float("nan"), "null"),
        ({1, 2}, "[1,2]"),
    ],
    ids=range(6),
)
def test_whatever_a_client_gives_is_a_result(content: Any, said: str) -> None:
    bench = free()
    bench.call("free", {}, "c")
    bench.answered("c", content)
    bench.model_done("tool_calls")
    (result,) = bench.results()
    assert (result["tool_call_id"], result["content"]) == ("c", said)
    assert result["is_error"] is (said == NO_TEXT)
    msgspec.json.encode(bench.loop.state)


@pytest.mark.asyncio
async def test_a_store_of_results_that_breaks_loses_no_outcome() -> None:
    """The effect has happened: its run must hear of it, or it would wait for ever."""

    class Broken:
        async def put(self, data: bytes, by: str) -> str:
            raise OSError("no disk")

        async def read(self, cid: str, offset: int, length: int) -> tuple[bytes, int]:
            raise OSError("no disk")

    bus = ScriptedBus(
        [calls("market_post", {"category": "offer", "title": "T", "body": "B"}, "p"), done("tool_calls")],
        [says("Posted."), done()],
        tools={"market.post@1.0": gives({"event_id": "e", "more": "x" * 50_000})},
    )

    async def yes(_pending: PendingApproval) -> Decision:
        return Approve()

    executor = ToolExecutor(bus, tools("market_post"), results=Broken())
    outcome = await executor.open_run(OF_NODE, decide=yes).drive()
    assert outcome.message["content"] == "Posted."
    (result,) = [message for message in outcome.messages if message["role"] == "tool"]
    assert json.loads(result["content"])["truncated"] is True


@pytest.mark.asyncio
async def test_a_model_that_says_more_than_any_model_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_turns, "MAX_TURN_BYTES", 1_000)
    for line in (
        says("x" * 300),
        ("thought", {"text": "x" * 300}),
        calls("search_corpus", {"query": "x" * 300}, ""),
    ):
        bus = ScriptedBus([line] * 5)
        with pytest.raises(HearthNetError, match="the model said more than") as stopped:
            await ToolExecutor(bus, tools("search_corpus")).run_chat_with_tools(OF_NODE)
        assert stopped.value.code == "payload_too_large"
        assert bus.turns[0].left


@pytest.mark.asyncio
async def test_a_saved_run_with_the_deepest_arguments_is_read_again() -> None:
    node = Node(
        MemoryRuns(), [calls("market_post", nested(900), "deep"), calls("market_post", _post(), "p"), done()]
    )
    answer = await node.executor().run_chat_with_tools(OF_NODE)
    kept = await node.store.load(answer["run"])
    assert kept is not None
    record = unseal(kept.data, answer["run"], node.peer.identity)
    assert [one.tool_call_id for one in record.pending] == ["p"]


def _post() -> dict[str, Any]:
    return {"category": "offer", "title": "T", "body": "B"}
