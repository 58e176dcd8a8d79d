"""A chat completion request with its tools, and the request to the mesh made of it.

Members that are unknown here and change nothing (`user`, `metadata`, `store`) are ignored. Members that
would change the answer and are not supported are refused by name.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from hearthnet.gateway.openai.messages import ChatMessage, has_images, invalid_part, read_messages

_NO_ARGUMENTS: Final = {"type": "object", "properties": {}, "additionalProperties": False}
_ANY_TEXT: Final = {"syntax": "text"}
ANY_MODEL: Final = "mesh"
"""The name of the model that fits best."""
TOOLS_SUFFIX: Final = "+tools"
"""The end of a model's name that adds the tools of the mesh."""
_WHERE: Final = re.compile(r"(?P<what>.*) - at `\$(?P<path>[^`]*)`", re.DOTALL)
_STEP: Final = re.compile(r"\[(\d+)\]")
_NAMED_ALIKE: Final = (
    "temperature",
    "top_p",
    "frequency_penalty",
    "presence_penalty",
    "logit_bias",
    "seed",
    "parallel_tool_calls",
    "verbosity",
)


class _FunctionTool(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class _CustomTool(msgspec.Struct):
    name: str
    description: str | None = None
    format: dict[str, Any] | None = None


class OpenAITool(msgspec.Struct):
    """A tool as declared by the client, which runs it itself."""

    type: str = "function"
    function: _FunctionTool | None = None
    custom: _CustomTool | None = None


class _ToolName(msgspec.Struct):
    name: str


class _ToolChoice(msgspec.Struct):
    type: str = "function"
    function: _ToolName | None = None
    custom: _ToolName | None = None

    @property
    def name(self) -> str:
        named = self.function or self.custom
        return "" if named is None else named.name


class _AllowedTools(msgspec.Struct):
    mode: str
    tools: list[_ToolChoice]


class Choice(_ToolChoice):
    """The tool that must be called, or the tools that may be."""

    allowed_tools: _AllowedTools | None = None


def read_tools(tools: list[OpenAITool]) -> list[dict[str, Any]]:
    """Return the declarations as `llm.chat` takes them.

    Raises:
        HearthNetError: `bad_request` for an unknown type.
    """
    return [_tool(tool, f"/tools/{place}") for place, tool in enumerate(tools)]


def custom_names(tools: list[OpenAITool]) -> frozenset[str]:
    """Return the tools that take one text, whose calls are returned in another form."""
    return frozenset(tool.custom.name for tool in tools if tool.custom is not None)


def _tool(tool: OpenAITool, path: str) -> dict[str, Any]:
    if tool.function is not None:
        function = tool.function
        read: dict[str, Any] = {
            "name": function.name,
            "parameters_schema": function.parameters or _NO_ARGUMENTS,
        }
        if function.strict is not None:
            read["strict"] = function.strict
        return read | _described(function.description)
    if tool.custom is not None:
        custom = tool.custom
        return {"name": custom.name, "text": _form(custom.format)} | _described(custom.description)
    raise invalid_part(
        f"a tool of type {tool.type[:40]!r} cannot be declared here; function and custom can", path
    )


def _described(description: str | None) -> dict[str, Any]:
    return {"description": description} if description else {}


def _form(given: dict[str, Any] | None) -> dict[str, Any]:
    grammar = (given or {}).get("grammar")
    if not isinstance(grammar, dict):
        return _ANY_TEXT
    return {"syntax": grammar.get("syntax"), "definition": grammar.get("definition")}


def read_choice(choice: str | Choice) -> str | dict[str, Any]:
    """Return the choice as `llm.chat` takes it: a word, or `{"name"}` with allowed `others`."""
    if isinstance(choice, str):
        return choice
    if choice.allowed_tools is None:
        if not choice.name:
            raise invalid_part("this choice names no tool", "/tool_choice")
        return {"name": choice.name}
    names = [tool.name for tool in choice.allowed_tools.tools if tool.name]
    if not names:
        raise invalid_part(
            "this choice allows no tool; write none instead", "/tool_choice/allowed_tools/tools"
        )
    others = {"others": names[1:]} if names[1:] else {}
    return {"name": names[0], "required": choice.allowed_tools.mode == "required", **others}


class _JsonSchema(msgspec.Struct, omit_defaults=True):
    name: str
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class _ResponseFormat(msgspec.Struct):
    type: str
    json_schema: _JsonSchema | None = None


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class Extension(msgspec.Struct, forbid_unknown_fields=True):
    """The member `hearthnet` of a request.

    `tools` are tools of the mesh, by name or as `{"use": name, "params": {...}}`; `run` is the run that is
    continued; `events` adds each frame of a run to its chunk.
    """

    tools: list[str | dict[str, Any]] = []
    run: str = ""
    events: bool = False


class ChatCompletionRequest(msgspec.Struct):
    """A received request."""

    model: str
    messages: list[ChatMessage]
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    tools: list[OpenAITool] | None = None
    tool_choice: str | Choice | None = None
    parallel_tool_calls: bool | None = None
    response_format: _ResponseFormat | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    n: int | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    prompt_cache_key: str | None = None
    logprobs: bool | None = None
    modalities: list[str] | None = None
    audio: dict[str, Any] | None = None
    functions: list[Any] | None = None
    function_call: Any = None
    web_search_options: dict[str, Any] | None = None
    hearthnet: Extension | None = None


class OpenAIRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed request; `body` is that of `llm.chat`, without tools of the mesh.

    `mesh_tools` are the requested ones, `None` for all of them; `texts` are the client's tools that take one
    text.
    """

    model: str
    body: dict[str, Any]
    stream: bool
    include_usage: bool
    texts: frozenset[str]
    mesh_tools: list[str | dict[str, Any]] | None
    run: str
    events: bool
    last_answer: str
    stored: bool = False
    """Set where images are in this node's store, which only its own models can read."""

    @property
    def with_mesh(self) -> bool:
        """Return whether tools of the mesh are requested."""
        return self.mesh_tools is None or bool(self.mesh_tools)


def read_request(given: Any) -> OpenAIRequest:
    """Return the request in `given`, a JSON value.

    Raises:
        HearthNetError: `bad_request` with the path of an invalid member.
    """
    body = _converted(given)
    _refuse_impossible(body)
    extension = body.hearthnet or Extension()
    messages = read_messages(body.messages)
    name, all_tools = _model(body.model)
    return OpenAIRequest(
        model=body.model,
        body={"params": _params(name, messages), "input": {"messages": messages, **_input(body)}},
        stream=bool(body.stream),
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
        texts=custom_names(body.tools or []),
        mesh_tools=None if all_tools and not extension.tools else extension.tools,
        run=extension.run,
        events=extension.events,
        last_answer=_last_answer(messages),
    )


def _converted(given: Any) -> ChatCompletionRequest:
    try:
        return msgspec.convert(given, ChatCompletionRequest)
    except msgspec.ValidationError as error:
        found = _WHERE.fullmatch(str(error))
        if found is None:
            raise invalid_part(str(error), "") from error
        path = _STEP.sub(r".\1", found["path"]).replace(".", "/")
        raise invalid_part(found["what"], path) from error


def _refuse_impossible(body: ChatCompletionRequest) -> None:
    for asked_for, path, why in (
        (body.n not in (None, 1), "/n", "one answer comes to one request; leave n out"),
        (bool(body.logprobs), "/logprobs", "the likelihood of tokens is not told here"),
        (body.functions is not None, "/functions", "functions are declared as tools"),
        (body.function_call is not None, "/function_call", "say which one in tool_choice"),
        (body.audio is not None or "audio" in (body.modalities or ()), "/modalities", "answers are text"),
        (body.web_search_options is not None, "/web_search_options", "there is no web search here"),
    ):
        if asked_for:
            raise invalid_part(why, path, "unsupported")


def _model(name: str) -> tuple[str, bool]:
    """Return the name of an offered model, empty for any, and whether it has the suffix."""
    bare = name.removesuffix(TOOLS_SUFFIX)
    return ("" if bare == ANY_MODEL else bare), bare != name


def _params(name: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    seen = {"modalities": ["vision"]} if has_images(messages) else {}
    return ({"model": name} if name else {}) | seen


def _input(body: ChatCompletionRequest) -> dict[str, Any]:
    read = {name: value for name in _NAMED_ALIKE if (value := getattr(body, name)) is not None}
    most = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
    for name, value in (
        ("max_tokens", most),
        ("stop", [body.stop] if isinstance(body.stop, str) else body.stop),
        ("cache_key", body.prompt_cache_key),
        ("thinking", _thinking(body.reasoning_effort)),
        ("response_schema", _response_schema(body.response_format)),
        ("tools", read_tools(body.tools) if body.tools else None),
        ("tool_choice", None if body.tool_choice is None else read_choice(body.tool_choice)),
    ):
        if value is not None:
            read |= {name: value}
    return read


def _thinking(effort: str | None) -> dict[str, Any] | None:
    if effort is None:
        return None
    return {"mode": "off"} if effort == "none" else {"effort": effort}


def _response_schema(wanted: _ResponseFormat | None) -> dict[str, Any] | None:
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return {}
    if wanted.type == "json_schema" and wanted.json_schema is not None:
        read: dict[str, Any] = msgspec.to_builtins(wanted.json_schema)
        return {name: value for name, value in read.items() if value is not None}
    raise invalid_part(
        "an answer is text, json_object, or json_schema with its schema", "/response_format/type", "enum"
    )


def _last_answer(messages: list[dict[str, Any]]) -> str:
    """Return the text of the model's last message."""
    for message in reversed(messages):
        content = message.get("content")
        if message["role"] == "assistant" and isinstance(content, str):
            return content
    return ""
