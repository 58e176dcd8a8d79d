"""The turn as users of pydantic-ai and LangGraph write it, with a model that says the same words.

Their tools are typed functions of this process, so that arguments are checked against the same schemas, and
return at once; nothing is logged, traced or stored.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from typing import Annotated, Any, Literal

from pydantic import Field

from tests.bench.loop_turn import ANSWER, CALLS, CHUNKS, CORPORA, POSTS, QUESTION

Turn = Callable[[], Awaitable[str]]
"""Runs the whole turn and returns the answer."""


async def search_corpus(
    query: Annotated[str, Field(min_length=1, max_length=4000)], k: Annotated[int, Field(ge=1, le=20)] = 5
) -> dict[str, Any]:
    """Searches a collection of documents."""
    return CHUNKS


async def list_corpora() -> dict[str, Any]:
    """Lists the document collections."""
    return CORPORA


async def search_marketplace(
    query: Annotated[str, Field(min_length=1, max_length=1000)], k: Annotated[int, Field(ge=1, le=50)] = 10
) -> dict[str, Any]:
    """Searches what neighbours offer."""
    return POSTS


async def list_marketplace(
    category: Literal["offer", "request", "info", "emergency"] | None = None,
    tags: Annotated[list[str] | None, Field(max_length=16)] = None,
    limit: Annotated[int, Field(ge=1, le=500)] = 50,
) -> dict[str, Any]:
    """Lists what neighbours offer."""
    return POSTS


Tool = Callable[..., Awaitable[dict[str, Any]]]
TOOLS: list[Tool] = [
    search_corpus,
    list_corpora,
    search_marketplace,
    list_marketplace,
]


def pydantic_ai_streamed(tools: list[Tool]) -> Turn:
    """`Agent.run` with a handler that sees every event as it comes, as an application shows them."""
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

    async def say(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        if len(messages) == 1:
            for index, (id, name, arguments) in enumerate(CALLS):
                yield {index: DeltaToolCall(name, json.dumps(arguments), tool_call_id=id)}
        else:
            yield ANSWER

    agent = Agent(FunctionModel(stream_function=say), tools=tools)

    async def show(_context: object, events: AsyncIterable[object]) -> None:
        async for _event in events:
            pass

    async def turn() -> str:
        return str((await agent.run(QUESTION, event_stream_handler=show)).output)

    return turn


def pydantic_ai(tools: list[Tool]) -> Turn:
    """`Agent.run` with a model that gives each of its messages in one piece."""
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    async def say(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) == 1:
            return ModelResponse(
                parts=[ToolCallPart(name, given, tool_call_id=id) for id, name, given in CALLS]
            )
        return ModelResponse(parts=[TextPart(ANSWER)])

    agent = Agent(FunctionModel(say), tools=tools)

    async def turn() -> str:
        return str((await agent.run(QUESTION)).output)

    return turn


def langgraph(tools: list[Tool]) -> Turn:
    """The prebuilt agent, with a chat model that gives each of its messages in one piece."""
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.tools import tool
    from langgraph.prebuilt import create_react_agent

    class Scripted(BaseChatModel):  # type: ignore[misc]
        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, tools: Any, **_: Any) -> Any:
            return self

        def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> Any:
            asked = len(messages) == 1
            calls = [{"id": id, "name": name, "args": given} for id, name, given in CALLS] if asked else []
            message = AIMessage(content="" if asked else ANSWER, tool_calls=calls)
            return ChatResult(generations=[ChatGeneration(message=message)])

        async def _agenerate(self, messages: Any, *given: Any, **named: Any) -> Any:
            return self._generate(messages)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its successor is another package, with the same graph inside
        agent = create_react_agent(Scripted(), [tool(function) for function in tools])

    async def turn() -> str:
        said = await agent.ainvoke({"messages": [HumanMessage(QUESTION)]})
        return str(said["messages"][-1].content)

    return turn


RIVALS: dict[str, Callable[[list[Tool]], Turn]] = {
    "pydantic_ai": pydantic_ai_streamed,
    "pydantic_ai_plain": pydantic_ai,
    "langgraph": langgraph,
}
