"""A model that says what stands in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hearthnet.core.config import ScriptedConfig
from hearthnet.core.errors import HearthNetError
from hearthnet_llm.backends.scripted import Scripted
from hearthnet_llm.interface.frames import Done, Frame, ReasoningDelta, TextDelta, ToolCall
from hearthnet_llm.interface.request import ChatRequest, CompleteRequest, Message
from hearthnet_llm.interface.validation import check
from tests.helpers.mesh import Mesh
from tests.helpers.offers import offered
from tests.services.llm.test_service import CHAT, ask, running, tool

pytestmark = pytest.mark.req("LLM-52")
SCRIPT = """
[[questions]]
turns = [{ text = "Who knows?" }]

[[questions]]
asked = "How do I keep water clean?"
[[questions.turns]]
thinking = "Hm."
text = "I will look."
calls = [{ tool = "search", arguments = { query = "water" } }, { tool = "clock" }]
[[questions.turns]]
text = "Boil it for one minute."

[[questions]]
asked = "Fail"
turns = [{ text = "Well,", error = "rate_limited" }]
"""
WATER = Message("user", "How do I keep water clean?")


@pytest.fixture
def model(tmp_path: Path) -> Scripted:
    """The model of the script."""
    (tmp_path / "demo.toml").write_text(SCRIPT)
    return Scripted(ScriptedConfig("demo", "demo.toml"), tmp_path)


async def answer(model: Scripted, *messages: Message, **fields: Any) -> list[Frame]:
    """All frames of an answer."""
    return [frame async for frame in model.stream(ChatRequest(messages=list(messages), **fields))]


def text(frames: list[Frame]) -> str:
    """What was said."""
    return "".join(frame.text for frame in frames if isinstance(frame, TextDelta))


def ended(frames: list[Frame]) -> str:
    """Why it ended."""
    assert isinstance(frames[-1], Done)
    return frames[-1].stop_reason


@pytest.mark.asyncio
async def test_it_says_its_turns_in_order_and_calls_tools_between_them(model: Scripted) -> None:
    first = await answer(model, WATER)
    assert first[0] == ReasoningDelta("Hm.")
    assert text(first) == "I will look."
    calls = [frame for frame in first if isinstance(frame, ToolCall)]
    assert calls == [ToolCall("call_1", "search", {"query": "water"}), ToolCall("call_2", "clock", {})]
    assert ended(first) == "tool_calls"

    results = [Message("tool", "{}", tool_call_id=call.id) for call in calls]
    spoken = [WATER, Message("assistant", "I will look.", calls), *results]
    check(ChatRequest(messages=spoken), model.profile)
    assert text(await answer(model, *spoken)) == "Boil it for one minute."
    assert text(await answer(model, *spoken, Message("user", "[no more calls]"))) == "Boil it for one minute."
    done = [*spoken, Message("assistant", "Boil it for one minute.")]
    assert text(await answer(model, *done, Message("user", "And then?"))) == "Who knows?"
    again = await answer(model, *done, WATER)
    assert [frame.id for frame in again if isinstance(frame, ToolCall)] == ["call_3", "call_4"]


@pytest.mark.asyncio
async def test_it_keeps_to_what_is_asked_of_it(model: Scripted) -> None:
    free = await answer(model, WATER, tool_choice="none")
    assert (text(free), ended(free)) == ("I will look.", "end")
    stopped = await answer(model, WATER, stop=["will"])
    assert (text(stopped), ended(stopped)) == ("I ", "stop_sequence")
    short = await answer(model, Message("user", "x"), max_tokens=1)
    assert (text(short), ended(short)) == ("Who ", "max_tokens")
    whole = [frame async for frame in model.complete(CompleteRequest(prompt="x"))]
    assert text(whole) == "Who knows?"
    with pytest.raises(HearthNetError, match="demo: the script fails here") as failed:
        await answer(model, Message("user", "Fail"))
    assert failed.value.code == "rate_limited"


@pytest.mark.asyncio
async def test_what_is_changed_in_the_file_counts_at_once_and_what_is_wrong_is_said(
    model: Scripted, tmp_path: Path
) -> None:
    file = tmp_path / "demo.toml"
    file.write_text('pause_ms = 1\n[[questions]]\nasked = "Other"\nturns = []')
    assert text(await answer(model, WATER)) == "The script has nothing to say to that."
    for wrong, why in (
        ("questions = 1", r"Expected `array`, got `int` - at `\$\.questions`"),
        ("[[", r"Invalid initial character for a key part \(at end of document\)"),
        ('[[questions]]\nturns = [{ error = "no such code" }]', "there is no wire code no such code"),
    ):
        file.write_text(wrong)
        with pytest.raises(HearthNetError, match=rf"demo\.toml cannot be used: .*{why}") as refused:
            await answer(model, WATER)
        assert refused.value.code == "not_implemented"


@pytest.mark.asyncio
async def test_it_is_offered_and_asked_like_any_model(mesh: Mesh) -> None:
    (mesh.home.path / "demo.toml").write_text(SCRIPT)
    config = '[llm]\nbuiltin = false\n[[llm.scripted]]\nname = "demo"\nfile = "demo.toml"\n'
    async with running(mesh, config) as (llm, bus):
        assert llm.note is None
        offers = await offered(bus, CHAT)
        assert [(one.params["model"], one.params["backend"]) for one in offers] == [("demo", "scripted")]
        body = ask(str(WATER.content), tools=[tool("search")], model="demo", max_tokens=50)
        said = (await bus.call(CHAT, body)).body
        assert said["output"]["tool_calls"][0] == msgspec.to_builtins(
            ToolCall("call_1", "search", {"query": "water"})
        )
