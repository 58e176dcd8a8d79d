"""The owner's settings for tool calls, each with what it does; and the tools that cannot be called now."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hearthnet.agent.loop.state import Limits
from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.runtime.settings import ToolSettings, tool_settings
from hearthnet.agent.tools import builtin
from hearthnet.agent.tools.builtin import available_tools, builtin_tools, listed_tools
from hearthnet.agent.tools.types import ToolCall
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.config import LlmConfig
from hearthnet.core.config_loader import DEFAULT_CONFIG, parse_config
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol.offer import OfferRecord
from tests.agent.bench import QUERY
from tests.agent.scripted import PROVIDER, ScriptedBus, calls, done, gives, says

BODY: dict[str, Any] = {"params": {}, "input": {"messages": [{"role": "user", "content": "How?"}]}}
SEARCH = builtin_tools(["search_corpus"], {"search_corpus": {"corpus": "system"}})
SEARCHES = calls("search_corpus", QUERY)


def written(**lines: Any) -> ToolSettings:
    """The settings of a file with these lines."""
    text = "[llm]\n" + "".join(f"tools_{name} = {value}\n" for name, value in lines.items())
    return tool_settings(parse_config(text, Path("hearthnet.toml")).llm)


def executor_of(settings: ToolSettings, bus: ScriptedBus, limits: Limits | None = None) -> ToolExecutor:
    return ToolExecutor(bus, SEARCH, **settings.limits_of(SEARCH), limits=limits)


def refused(**lines: Any) -> str:
    """Why a file with these lines is refused."""
    with pytest.raises(HearthNetError) as error:
        written(**lines)
    assert error.value.code == "bad_request"
    return error.value.message


def offer(capability: str) -> OfferView:
    """Somebody offers it."""
    record = OfferRecord(
        capability=capability,
        instance="abcdefgh",
        schema_hash="",
        params={},
        max_concurrent=1,
        in_flight=0,
        issued_at=0,
        expires_at=1,
    )
    return OfferView(PROVIDER, parse_capability(capability), record)


@pytest.mark.req("TOOL-58")
def test_the_defaults_are_those_of_the_specification_and_stand_in_the_file() -> None:
    usual = tool_settings(LlmConfig())
    assert usual == ToolSettings() == tool_settings(parse_config(DEFAULT_CONFIG, Path("x")).llm)
    assert (usual.enabled, usual.max_iterations, usual.per_tool_timeout_seconds, usual.max_parallel) == (
        True,
        6,
        30,
        4,
    )
    assert usual.default_set == ("search_corpus", "list_corpora", "translate", "list_marketplace")
    assert "tools_require_confirmation_for_side_effects = true" in DEFAULT_CONFIG


@pytest.mark.req("TOOL-58")
@pytest.mark.asyncio
async def test_rounds_are_limited_as_is_set() -> None:
    for rounds in (1, 2):
        turns = [[SEARCHES, done()] for _ in range(rounds)]
        bus = ScriptedBus(*turns, [says("Enough."), done()], tools={"rag.query@1.0": gives({"chunks": []})})
        executor = executor_of(written(max_iterations=rounds), bus, limits=Limits(max_equal_calls=9))
        assert (await executor.run_chat_with_tools(BODY))["content"] == "Enough."
        assert bus.requests[-1]["tool_choice"] == "none"
        assert len(bus.requests) == rounds + 1


@pytest.mark.req("TOOL-58")
@pytest.mark.asyncio
async def test_so_many_calls_run_at_once_as_is_set() -> None:
    for most in (1, 3):
        running = highest = 0

        async def search(_body: dict[str, Any]) -> dict[str, Any]:
            nonlocal running, highest
            running += 1
            highest = max(highest, running)
            for _ in range(20):
                await asyncio.sleep(0)
            running -= 1
            return {"chunks": []}

        wanted = [calls("search_corpus", {"query": f"q{n}"}, f"c{n}") for n in range(4)]
        bus = ScriptedBus([*wanted, done()], [says("So."), done()], tools={"rag.query@1.0": search})
        await executor_of(written(max_parallel=most), bus).run_chat_with_tools(BODY)
        assert highest == most


@pytest.mark.req("TOOL-58")
@pytest.mark.asyncio
async def test_one_call_may_take_as_long_as_is_set() -> None:
    bus = ScriptedBus(tools={"rag.query@1.0": gives({"chunks": []})})
    for seconds in (7, 90):
        executor = executor_of(written(per_tool_timeout_seconds=seconds), bus)
        await executor.dispatch(ToolCall("a", "search_corpus", QUERY))
        assert bus.calls[-1].timeout == pytest.approx(seconds)


@pytest.mark.req("TOOL-58")
def test_switched_off_no_tool_is_given_to_a_model() -> None:
    off = written(enabled="false")
    with pytest.raises(HearthNetError, match=r"switched off on this node.*tools_enabled = true") as error:
        off.limits_of(SEARCH)
    assert error.value.code == "bad_request"
    assert ToolExecutor(ScriptedBus(), [], **off.limits_of([])).definitions == []


@pytest.mark.req("TOOL-59")
def test_that_effects_are_confirmed_is_not_switched_off() -> None:
    name = "require_confirmation_for_side_effects"
    assert written(**{name: "true"}) == ToolSettings()
    said = refused(**{name: "false"})
    assert "is always true" in said
    assert "hearthnet grants add" in said
    assert "line 1" in said


@pytest.mark.req("TOOL-58")
@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ({"max_iterations": 0}, "llm.tools_max_iterations: Expected `int` >= 1"),
        ({"max_iterations": 101}, "llm.tools_max_iterations: Expected `int` <= 100"),
        ({"per_tool_timeout_seconds": 0}, "llm.tools_per_tool_timeout_seconds: Expected `int` >= 1"),
        ({"per_tool_timeout_seconds": 3601}, "llm.tools_per_tool_timeout_seconds: Expected `int` <= 3600"),
        ({"max_parallel": 0}, "llm.tools_max_parallel: Expected `int` >= 1"),
        ({"max_parallel": 65}, "llm.tools_max_parallel: Expected `int` <= 64"),
        ({"per_tool_timeout_seconds": '"long"'}, "llm.tools_per_tool_timeout_seconds: Expected `int`"),
        (
            {"default_set": '["serch_corpus"]'},
            "llm.tools_default_set: there is no tool 'serch_corpus'",
        ),
        ({"max_iteration": 3}, "there is no setting llm.tools_max_iteration"),
    ],
)
def test_what_cannot_be_set_is_said(lines: dict[str, Any], said: str) -> None:
    assert said in refused(**lines)


# --- what cannot be called now


@pytest.mark.req("TOOL-51")
def test_every_tool_of_the_seed_is_listed_and_says_why_it_is_not_available() -> None:
    listed = {tool.name: tool for tool in listed_tools([offer("rag.query@1.0"), offer("trans.text@1.2")])}
    seed = {"search_corpus", "list_corpora", "translate", "find_neighbour", "list_marketplace",
            "describe_image", "transcribe_audio"}  # fmt: skip
    assert seed <= listed.keys()
    assert (listed["search_corpus"].available, listed["search_corpus"].nodes) == (True, [PROVIDER])
    assert listed["list_corpora"].reason == "nobody offers rag.list_corpora now"
    assert listed["describe_image"].reason == "nobody offers img.describe now"
    assert listed["market_post"].side_effects is True
    assert all(tool.available == (tool.reason == "") for tool in listed.values())
    assert listed["transcribe_audio"].notice == (
        "the tool transcribe_audio is not available: nobody offers stt.transcribe now"
    )


@pytest.mark.req("TOOL-51")
def test_a_tool_without_a_contract_here_is_not_declared_whoever_offers_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recipe = builtin._Recipe("odd.thing@1.0", "Does an odd thing.")
    monkeypatch.setitem(builtin._RECIPES, "search_corpus", recipe)
    (listed,) = [tool for tool in listed_tools([offer("odd.thing@1.0")]) if tool.name == "search_corpus"]
    assert (listed.available, listed.nodes) == (False, [PROVIDER])
    assert listed.reason == "this version of HearthNet has no contract for odd.thing@1.0"
    assert "search_corpus" not in builtin.builtin_names()
    with pytest.raises(
        HearthNetError, match=r"needs odd.thing@1.0, and this version.*leave the tool out"
    ) as gone:
        builtin_tools(["search_corpus"])
    assert gone.value.code == "not_found"


@pytest.mark.req("TOOL-51")
def test_of_tools_asked_for_by_name_those_that_are_not_there_are_told() -> None:
    offers = [offer("rag.query@1.0"), offer("market.list@2.0")]
    chosen = available_tools(
        ["search_corpus", "list_marketplace"], offers, {"search_corpus": {"corpus": "a"}}
    )
    assert [tool.bound_params for tool in chosen.tools] == [{"corpus": "a"}]
    assert [tool.notice for tool in chosen.missing] == [
        "the tool list_marketplace is not available: nobody offers market.list now"
    ]
    with pytest.raises(HearthNetError, match="there is no tool 'serch_corpus'"):
        available_tools(["serch_corpus"], offers)
