"""A tool whose schema one vendor does not take goes alone: who is meant, and what comes of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet_llm.interface.frames import Done, Frame, Notice, TextDelta
from hearthnet_llm.interface.request import ChatRequest, Message, Named, ServerTool, Tool
from hearthnet_llm.responses import retry_without_tool
from hearthnet_llm.responses.retry_without_tool import DROPPED, MOST, refused_tool

pytestmark = pytest.mark.req("LLM-98")
SEARCH = Tool("web_search", server=ServerTool("web_search"))
TOOLS = [SEARCH, Tool("look"), Tool("book")]
ASKED = ChatRequest(messages=[Message("user", "?")], tools=TOOLS)


def error(said: str, code: str = "bad_request", **details: Any) -> HearthNetError:
    return HearthNetError(code, f"m: the server answered 400: {said}", details={"status": 400, **details})


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("Invalid schema for function 'book': array schema missing items", "book"),
        ("tools.2.custom.input_schema: JSON schema is invalid", "book"),
        ("Invalid JSON payload: tools[0].function_declarations[1].parameters: unknown field", "book"),
        ("Value at 'toolConfig.tools.2.member.toolSpec.inputSchema' failed: schema", "look"),
        ('Unsupported JSON schema keyword in tool "look"', "look"),
        ("Invalid schema for functions 'book' and 'look'", None),
        ("tools.1.input_schema and tools.2.input_schema: invalid", None),
        ("tools.9.input_schema: invalid", None),
        ("tools.0.member.inputSchema: schema", None),
        ("no tool call found for function 'book'", None),
        ("the schema is invalid", None),
    ],
)
def test_which_tool_a_server_means(said: str, name: str | None) -> None:
    found = refused_tool(ASKED, error(said))
    assert (None if found is None else found.name) == name


def test_what_is_no_refusal_of_the_request_names_no_tool() -> None:
    said = "Invalid schema for function 'book'"
    assert refused_tool(ASKED, error(said, "internal_error")) is None
    assert refused_tool(ASKED, HearthNetError("bad_request", said)) is None


class Server:
    """Refuses these tools, one after the other, and says hello without them."""

    def __init__(self, *unfit: str, spoken: bool = False) -> None:
        self.unfit = unfit
        self.spoken = spoken
        self.asked: list[ChatRequest] = []

    async def __call__(self, request: ChatRequest) -> AsyncGenerator[Frame, None]:
        self.asked.append(request)
        names = [tool.name for tool in request.tools or ()]
        if self.spoken:
            yield TextDelta("Hel")
        for name in self.unfit:
            if name in names:
                raise error(f"Invalid schema for function {name!r}")
        yield TextDelta("lo")
        yield Done("end", 1, 1)


async def heard(server: Server, request: ChatRequest = ASKED) -> list[Frame]:
    return [frame async for frame in retry_without_tool.stream(request, "m", server)]


@pytest.mark.asyncio
async def test_the_others_go_on_and_a_notice_says_so() -> None:
    server = Server("book", "look")
    frames = await heard(server)
    dropped = [frame.text for frame in frames if isinstance(frame, Notice) and frame.code == DROPPED]
    assert [text.split(": ")[0] for text in dropped] == [
        "the tool book is left out",
        "the tool look is left out",
    ]
    assert [len(request.tools or ()) for request in server.asked] == [3, 2, 1]
    assert frames[-2:] == [TextDelta("lo"), Done("end", 1, 1)]


@pytest.mark.asyncio
async def test_without_the_last_tool_it_is_a_single_shot() -> None:
    server = Server("book")
    await heard(server, ChatRequest(messages=ASKED.messages, tools=[TOOLS[2]], tool_choice="auto"))
    assert (server.asked[-1].tools, server.asked[-1].tool_choice) == (None, None)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("choice", "tools"), [(Named("book"), TOOLS), (Named("look", ["book"]), TOOLS), ("required", [TOOLS[2]])]
)
async def test_a_tool_that_is_demanded_is_an_error(choice: Any, tools: list[Tool]) -> None:
    server = Server("book")
    with pytest.raises(HearthNetError, match="Invalid schema"):
        await heard(server, ChatRequest(messages=ASKED.messages, tools=tools, tool_choice=choice))
    assert len(server.asked) == 1


@pytest.mark.asyncio
async def test_nothing_is_asked_twice_once_something_was_said() -> None:
    server = Server("book", spoken=True)
    with pytest.raises(HearthNetError, match="Invalid schema"):
        await heard(server)
    assert len(server.asked) == 1


@pytest.mark.asyncio
async def test_there_is_an_end_of_it() -> None:
    many = [Tool(f"t{number}") for number in range(MOST + 5)]
    server = Server(*(tool.name for tool in many))
    with pytest.raises(HearthNetError, match="Invalid schema"):
        await heard(server, ChatRequest(messages=ASKED.messages, tools=many))
    assert len(server.asked) == MOST + 1
