"""Which of many tools a model is shown (docs/tools.md)."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.tools.selection import question_of, select
from tests.agent.bench import LOOK
from tests.agent.scripted import ScriptedBus, done, says

TOOLS = [
    msgspec.structs.replace(LOOK, name=f"tool_{number}", description=f"Does job number {number}.")
    for number in range(498)
]
WATER = msgspec.structs.replace(LOOK, name="water.level", description="How full the rain barrel is.")
DOOR = msgspec.structs.replace(LOOK, name="front_door", description="Shut or open.")
ALL = [*TOOLS[:250], WATER, *TOOLS[250:], DOOR]
ASKED = "How much rain WATER is there in the barrel?"


@pytest.mark.req("TOOL-56")
def test_of_500_tools_those_are_shown_that_fit() -> None:
    chosen = select(ALL, ASKED)
    assert len(chosen) == 64
    assert WATER in chosen
    assert DOOR not in chosen
    assert select(ALL, ASKED, "front_door")[-1] == DOOR, "what is demanded is shown"
    assert select(ALL, ASKED, most=1) == [WATER]
    assert [ALL.index(tool) for tool in chosen] == sorted(ALL.index(tool) for tool in chosen)


@pytest.mark.req("TOOL-56")
def test_the_same_question_shows_the_same_tools() -> None:
    shuffled = random.Random(7).sample(ALL, len(ALL))
    assert WATER in select(shuffled, ASKED, most=1)
    assert select(ALL, ASKED) == select(ALL, ASKED)
    assert select(ALL, "") == ALL[:64]


@pytest.mark.req("TOOL-56")
def test_a_word_of_a_tools_name_counts_more_than_one_of_its_description() -> None:
    named = msgspec.structs.replace(LOOK, name="rain_meter", description="Tells how full it is.")
    told = msgspec.structs.replace(LOOK, name="other_thing", description="Tells of the rain.")
    assert select([told, named], "rain", most=1) == [named]


@pytest.mark.req("TOOL-56")
def test_few_tools_are_all_shown() -> None:
    assert select(TOOLS[:64], ASKED) == TOOLS[:64]
    nameless = [msgspec.structs.replace(LOOK, name="_", description="")] * 3
    assert len(select(nameless, ASKED, most=2)) == 2


@pytest.mark.req("TOOL-56")
@pytest.mark.parametrize(
    ("messages", "question"),
    [
        ([], ""),
        ([{"role": "user", "content": "first"}, {"role": "user", "content": "last"}], "last"),
        ([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}, "b"]}], "a "),
        ([{"role": "user", "content": None}], ""),
    ],
    ids=["none", "last", "parts", "nothing"],
)
def test_the_question_is_the_users_last(messages: list[dict[str, Any]], question: str) -> None:
    assert question_of(messages) == question


@pytest.mark.asyncio
@pytest.mark.req("TOOL-56")
@pytest.mark.parametrize(
    ("choice", "there"), [("auto", "water_level"), ({"name": "front_door"}, "front_door")]
)
async def test_the_model_is_shown_a_few_dozen(choice: Any, there: str) -> None:
    bus = ScriptedBus([says("Half full."), done()])
    messages = [
        {"role": "user", "content": "Is it shut or open?"},
        {"role": "assistant", "content": "Shut."},
        {"role": "user", "content": ASKED},
    ]
    body = {"params": {}, "input": {"messages": messages, "tool_choice": choice}}
    await ToolExecutor(bus, ALL).run_chat_with_tools(body)
    shown = [tool["name"] for tool in bus.requests[0]["tools"]]
    assert len(shown) == 64
    assert there in shown
    assert ("front_door" in shown) is (there == "front_door"), "the last question counts"
