"""Validity of a conversation: order, calls and their results, tool choice.

Rules, in the order in which they are checked; the error names the path of the first one broken:

1. There is a user message or a result (decisions/0051), and no image if the model has no vision.
2. `system` messages come first.
3. Only an assistant calls tools, and the ids of its calls differ.
4. A tool message answers an open call; each call is answered before any other message.
5. The last message can be answered: it is a user's or a tool's, or the beginning of the answer if the model
   supports that.
6. The tools are few enough, their names differ, and a demanded tool is among them.
7. No schema refers to anything outside itself; a model's server would fetch it from where it stands.

See: docs/capabilities.md#llmchat20.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn

from hearthnet import HearthNetError
from hearthnet_llm.interface.backend import Profile
from hearthnet_llm.interface.content_parts import ToolListingPart
from hearthnet_llm.interface.request import ChatRequest, Message, Named

_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")


def check(request: ChatRequest, profile: Profile) -> None:
    """Raise for the first rule that `request` breaks.

    Raises:
        HearthNetError: `not_found` if the model cannot see its images; `bad_request` for all other rules.
    """
    for rule in _RULES:
        rule(request, profile)


def _speakers(request: ChatRequest, profile: Profile) -> None:
    if not any(message.role in ("user", "tool") for message in request.messages):
        _refuse("/input/messages", "there is nothing of a user or a tool; add what the user says")
    if "vision" not in profile.modalities and any(message.images for message in request.messages):
        raise HearthNetError(
            "not_found", f"{profile.model} cannot see images; ask for a model with params.modalities [vision]"
        )


def _system_first(request: ChatRequest, _profile: Profile) -> None:
    for index, message in enumerate(request.messages):
        if message.role == "system" and index and request.messages[index - 1].role != "system":
            _refuse(_at(index), "system messages come before all others")


def _calls_and_results(request: ChatRequest, _profile: Profile) -> None:
    waiting: set[str] = set()
    for index, message in enumerate(request.messages):
        if message.role == "tool":
            _answered(index, message, waiting)
        elif waiting:
            _refuse(_at(index), f"calls without a result: {', '.join(sorted(waiting))}")
        waiting |= _called(index, message)
    if waiting:
        _refuse(_at(len(request.messages) - 1), f"calls without a result: {', '.join(sorted(waiting))}")


def _answered(index: int, message: Message, waiting: set[str]) -> None:
    if message.tool_call_id not in waiting:
        _refuse(_at(index), f"no call {message.tool_call_id!r} waits for a result here")
    waiting.discard(str(message.tool_call_id))


def _called(index: int, message: Message) -> set[str]:
    if message.tool_calls and message.role != "assistant":
        _refuse(_at(index), "only an assistant message calls tools")
    ids = {call.id for call in message.tool_calls}
    if len(ids) < len(message.tool_calls):
        _refuse(_at(index), "two calls have the same id")
    return ids


def _ends_with_request(request: ChatRequest, profile: Profile) -> None:
    last = len(request.messages) - 1
    message = request.messages[last]
    if message.role in ("user", "tool"):
        return
    begun = message.role == "assistant" and message.prefix
    if not begun:
        _refuse(_at(last), "the last message must be a user's or a tool's")
    if not profile.continues:
        _refuse(
            _at(last), f"{profile.model} cannot continue the beginning of an answer; leave the message out"
        )


def _tools(request: ChatRequest, profile: Profile) -> None:
    names = [tool.name for tool in request.tools or ()]
    if len(names) > profile.max_tools:
        _refuse("/input/tools", f"{len(names)} tools; {profile.model} takes at most {profile.max_tools}")
    if len(set(names)) < len(names):
        _refuse("/input/tools", "two tools have the same name")
    choice = request.tool_choice
    if isinstance(choice, Named) and choice.name not in names:
        known = ", ".join(names) or "none"
        _refuse("/input/tool_choice/name", f"the tool {choice.name!r} is not declared; declared: {known}")
    if choice == "required" and not names:
        _refuse("/input/tool_choice", "a tool is required but none is declared")


def _schemas(request: ChatRequest, _profile: Profile) -> None:
    for path, schema in _all_schemas(request):
        for reference in references(schema):
            if not reference.startswith("#"):
                _refuse(
                    path, f"the schema refers to {reference[:80]!r}; put what it refers to into the schema"
                )


def _all_schemas(request: ChatRequest) -> Iterator[tuple[str, Any]]:
    """Yield each schema of the request with its path."""
    if request.response_schema is not None:
        yield "/input/response_schema", request.response_schema.schema
    for index, tool in enumerate(request.tools or ()):
        listed = tool.server.listed if tool.server is not None else None
        schemas = [tool.parameters_schema, tool.result_schema]
        yield f"/input/tools/{index}", [*schemas, *(one.parameters_schema for one in listed or ())]
    for index, message in enumerate(request.messages):
        for part in message.content if isinstance(message.content, list) else ():
            if isinstance(part, ToolListingPart):
                yield _at(index), [one.parameters_schema for one in part.tools]


def references(schema: Any) -> Iterator[str]:
    """Yield what a schema refers to, wherever in it that is written."""
    left = [schema]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            yield from (to for name, to in value.items() if name in _REFERENCES and isinstance(to, str))
            left += value.values()
        elif isinstance(value, list):
            left += value


def _at(index: int) -> str:
    return f"/input/messages/{index}"


def _refuse(path: str, reason: str) -> NoReturn:
    raise refusal(path, reason)


def refusal(path: str, reason: str) -> HearthNetError:
    """Return the error for a fault at `path` of a request."""
    return HearthNetError("bad_request", f"{path}: {reason}", details={"path": path})


_RULES: Final[tuple[Callable[[ChatRequest, Profile], None], ...]] = (
    _speakers,
    _system_first,
    _calls_and_results,
    _ends_with_request,
    _tools,
    _schemas,
)
