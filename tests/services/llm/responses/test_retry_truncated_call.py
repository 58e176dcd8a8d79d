"""A model whose only call never became whole is asked once more; what it costs and says is told once."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet_llm.interface.content_parts import ThinkingPart
from hearthnet_llm.interface.frames import Done, Frame, Notice, ReasoningBlock, TextDelta, ToolCall
from hearthnet_llm.interface.request import ChatRequest, Message, Tool
from hearthnet_llm.responses import retry_truncated_call
from hearthnet_llm.vendors.calls import AGAIN, Unclosed, incomplete

pytestmark = [pytest.mark.asyncio, pytest.mark.req("LLM-99")]
ASKED = ChatRequest(messages=[Message("user", "?")], tools=[Tool("look")])
CALL = ToolCall("c", "look", {})
BROKEN = incomplete("m", "look")
END = Done("end", 10, 4, "native")


class Server:
    """Gives one list of frames a request, watched as a server's answers are."""

    def __init__(self, *answers: list[Frame]) -> None:
        self.answers = list(answers)
        self.asked: list[ChatRequest] = []

    async def __call__(self, request: ChatRequest) -> AsyncGenerator[Frame, None]:
        self.asked.append(request)
        watch = Unclosed("m")
        for frame in self.answers.pop(0):
            yield watch.passed(frame)


async def heard(server: Server) -> list[Frame]:
    return [frame async for frame in retry_truncated_call.stream(ASKED, "m", server)]


async def test_it_is_told_why_and_its_call_is_taken() -> None:
    server = Server(
        [TextDelta("I look."), BROKEN, END], [TextDelta("I look."), CALL, Done("tool_calls", 20, 5)]
    )
    frames = await heard(server)
    first, second = server.asked
    assert first == ASKED
    assert second.messages[:-1] == ASKED.messages
    assert "no complete JSON object" in str(second.messages[-1].content)
    assert [frame for frame in frames if isinstance(frame, TextDelta)] == [TextDelta("I look.")]
    assert [frame.code for frame in frames if isinstance(frame, Notice)] == [BROKEN.code, AGAIN]
    assert frames[-2:] == [CALL, Done("tool_calls", 30, 9)]


@pytest.mark.parametrize("before", [[], [TextDelta("I look.")]])
async def test_what_it_answers_in_words_is_shown(before: list[Frame]) -> None:
    server = Server([*before, BROKEN, END], [TextDelta("No "), TextDelta("need."), Done("end", 1, 1)])
    frames = await heard(server)
    words = "".join(frame.text for frame in frames if isinstance(frame, TextDelta))
    assert words == "".join(frame.text for frame in before if isinstance(frame, TextDelta)) + "No need."
    assert frames[-1] == Done("end", 11, 5)


async def test_it_is_asked_once_and_no_more() -> None:
    server = Server([BROKEN, END], [BROKEN, END])
    with pytest.raises(HearthNetError, match="no complete JSON object"):
        await heard(server)
    assert len(server.asked) == 2


async def test_thoughts_that_are_wanted_back_stand_in_no_message_twice() -> None:
    server = Server([ReasoningBlock(ThinkingPart("hm")), BROKEN, END])
    with pytest.raises(HearthNetError, match="no complete JSON object"):
        await heard(server)
    assert len(server.asked) == 1


async def test_a_whole_answer_is_left_as_it_is() -> None:
    whole: list[Frame] = [TextDelta("Yes"), CALL, Done("tool_calls", 3, 2)]
    assert await heard(Server(whole)) == whole
