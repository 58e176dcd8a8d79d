"""Check of a server for models: its list of models, and a test of one with a tool call.

It runs in the service, so in the node's own environment: a key that is found here is found later too. Tool
abilities learned by testing are kept in a file over restarts.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from hearthnet import HearthNetError
from hearthnet.core import ModelConfig, ModelKind
from hearthnet.models import base_url, is_near
from hearthnet_llm.backends import backend_kinds
from hearthnet_llm.backends.backend_kinds import KINDS, profile_of, root
from hearthnet_llm.backends.endpoint import ModelEndpoint
from hearthnet_llm.backends.http_backend import Remote
from hearthnet_llm.interface.frames import TextDelta, ToolCall, ToolPath
from hearthnet_llm.interface.request import ChatRequest, Message, Named, Tool, ToolChoice
from hearthnet_llm.vendors.catalog import CatalogEntry

_TOKENS: Final = 8192
"""Enough for a model that thinks before it calls."""
_TOOL: Final = Tool(
    "take_note",
    "Takes a note.",
    {
        "type": "object",
        "properties": {"text": {"type": "string", "description": "What to note"}},
        "required": ["text"],
        "additionalProperties": False,
    },
)
_PROBE: Final = ChatRequest(
    messages=[Message("user", 'Take a note that says "hello". Use the tool for it.')],
    max_tokens=_TOKENS,
    temperature=0,
    tools=[_TOOL],
    tool_choice=Named(_TOOL.name),
)
_CHOICES: Final[dict[ToolPath, Sequence[ToolChoice | None]]] = {
    "native": (_PROBE.tool_choice, "auto"),
    "text": (_PROBE.tool_choice,),
}
_WAYS: Final[dict[bool | Literal["text"] | None, Sequence[ToolPath]]] = {
    None: ("native", "text"),
    True: ("native",),
    False: (),
    "text": ("text",),
}
"""The tool modes to try, by the config's statement."""
_GREETED: Final = ChatRequest(messages=[Message("user", "Say hello.")], max_tokens=_TOKENS, temperature=0)
_UNNAMED: Final = "?"


class ProbeRequest(msgspec.Struct, frozen=True):
    """The input of llm.models.check: a config of which anything may be missing."""

    kind: ModelKind | None = None
    url: str | None = None
    model: str | None = None
    name: str | None = None
    api_key_env: str | None = None
    api_version: str | None = None
    ctx: int | None = None
    tools: bool | Literal["text"] | None = None
    vision: bool | None = None


class ToolProbe(msgspec.Struct, frozen=True):
    """Result of the test of one model: its tool mode, or the `problem` that prevented a call."""

    model: str
    tool_call: bool
    answered: bool
    ms: int
    ctx: int
    tools: bool
    vision: bool
    requires_internet: bool
    problem: str
    tool_mode: ToolPath = "none"


class ProbeResult(msgspec.Struct, frozen=True):
    """The output of llm.models.check: a working config, the models, and the test of one."""

    kind: ModelKind
    url: str
    api_key_env: str | None
    models: list[CatalogEntry]
    tested: ToolProbe | None


async def check(wish: ProbeRequest, memory: ProbeCache) -> ProbeResult:
    """Find the server, list its models, and test the named one with a tool call.

    A model that answers without calling the tool is no failure. The learned tool mode is stored in `memory`.

    Raises:
        HearthNetError: the server's error, or that of its absence.
    """
    config, models = await _find_models(_config(wish))
    tested = None
    if wish.model is not None:
        config = msgspec.structs.replace(config, model=wish.model, name=wish.name or wish.model)
        if models and wish.model not in [model.name for model in models]:
            raise _no_such(config, models)
        tested = await _tested(config, await _described(config, models), memory)
    return ProbeResult(config.kind, config.url, config.api_key_env, models, tested)


def _config(wish: ProbeRequest) -> ModelConfig:
    """Return the wish with the defaults of its kind.

    Raises:
        HearthNetError: `bad_request` if there is no address or an invalid one.
    """
    kind = wish.kind or (backend_kinds.at(wish.url) if wish.url else None) or "openai"
    defaults = KINDS[kind]
    url = wish.url or defaults.url
    if not url:
        raise HearthNetError("bad_request", f"where is it? give the URL of your {kind} resource with --url")
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise HearthNetError("bad_request", "a URL begins with http:// or https:// and names a host")
    at_home = not defaults.url or urlsplit(url).hostname == urlsplit(defaults.url).hostname
    variable = wish.api_key_env or (defaults.variable if at_home else "") or None
    name = wish.name or wish.model or kind
    return ModelConfig(
        kind=kind,
        name=name,
        url=url,
        model=wish.model or _UNNAMED,
        api_key_env=variable,
        ctx=wish.ctx,
        tools=wish.tools,
        vision=wish.vision,
        api_version=wish.api_version or "",
    )


async def _find_models(config: ModelConfig) -> tuple[ModelConfig, list[CatalogEntry]]:
    """Return the config with the address of a list of models, and the list.

    A server that answers without having a list is accepted if a model is named.
    """
    problems: list[HearthNetError] = []
    for tried in _addresses(config):
        try:
            async with aclosing(ModelEndpoint(tried)) as endpoint:
                models = await endpoint.models()
        except HearthNetError as error:
            if error.code == "partition" and config.model == _UNNAMED:
                raise _nobody(tried, error) from error
            if error.code in ("partition", "timeout", "unauthorized", "rate_limited"):
                raise
            problems.append(error)
            continue
        return (await _as_ollama(tried)) or tried, models
    if config.model != _UNNAMED and all(error.details.get("status") in (403, 404, 405) for error in problems):
        return config, []
    raise problems[0]


def _nobody(config: ModelConfig, error: HearthNetError) -> HearthNetError:
    """Return the error for a server without an answer, before a model was named.

    The usual error would blame the model.
    """
    host = urlsplit(config.url).netloc.rpartition("@")[2]
    message = f"the server cannot be reached at {host}; start it, or check the address"
    return HearthNetError(error.code, message, details={"rule": error.rule, "host": host})


def _addresses(config: ModelConfig) -> list[ModelConfig]:
    """Return possible addresses of the list: as written, and below /v1, which users omit."""
    if config.kind != "openai" or base_url(config.url).endswith("/v1"):
        return [config]
    below = base_url(config.url) + "/v1"
    return [msgspec.structs.replace(config, url=below), config]


async def _as_ollama(config: ModelConfig) -> ModelConfig | None:
    """Return the config with kind `ollama` if the server is one: it reports more than others."""
    if config.kind != "openai" or backend_kinds.at(config.url) or not is_near(config.url):
        return None
    root = base_url(config.url).removesuffix("/v1")
    ollama = msgspec.structs.replace(config, kind="ollama", url=root)
    with contextlib.suppress(HearthNetError):
        async with aclosing(ModelEndpoint(ollama)) as endpoint:
            return ollama if await endpoint.is_ollama() else None
    return None


async def _described(config: ModelConfig, models: list[CatalogEntry]) -> CatalogEntry:
    listed = next((model for model in models if model.name == config.model), CatalogEntry(config.model))
    with contextlib.suppress(HearthNetError):
        async with aclosing(ModelEndpoint(config)) as endpoint:
            return await endpoint.described(listed)
    return listed


async def _tested(config: ModelConfig, entry: CatalogEntry, memory: ProbeCache) -> ToolProbe:
    started = time.monotonic()
    mode, problem, answered = await _probed(config)
    if config.tools in (None, True):
        memory.keep(config, mode == "native")
    if mode == "text":
        config = msgspec.structs.replace(config, tools="text")
    entry = (await _described(config, [entry])).refined(CatalogEntry(config.model, tools=mode != "none"))
    profile = profile_of(config, entry)
    return ToolProbe(
        model=profile.model,
        tool_call=mode != "none",
        answered=answered or mode != "none",
        ms=int((time.monotonic() - started) * 1000),
        ctx=profile.ctx,
        tools=profile.supports_tools(),
        vision="vision" in profile.modalities,
        requires_internet=profile.requires_internet,
        problem="" if mode != "none" else problem,
        tool_mode=mode,
    )


async def _probed(config: ModelConfig) -> tuple[ToolPath, str, bool]:
    """Return the tool mode, the problem without one, and whether the model answers at all.

    Native calls are tried first, then calls in text, unless the config names the mode.
    """
    problem = "switched off"
    ways = _WAYS[config.tools]
    for way in ways:
        tried = msgspec.structs.replace(config, tools="text") if way == "text" else config
        async with aclosing(Remote(tried)) as remote:
            called, reason = await _calls(remote, way)
        if called:
            return way, "", True
        problem = reason if way == ways[0] else problem
    async with aclosing(Remote(msgspec.structs.replace(config, tools=False))) as remote:
        return "none", problem, await _answers(remote)


async def _calls(remote: Remote, way: ToolPath) -> tuple[bool, str]:
    """Return whether the model calls the tool, and else the reason.

    The tool is demanded by name; if that is refused, the choice is left to the model.
    """
    problem = "it answered in words instead of calling the tool"
    for choice in _CHOICES[way]:
        request = msgspec.structs.replace(_PROBE, tool_choice=choice)
        try:
            async with aclosing(remote.stream(request)) as frames:
                async for frame in frames:
                    if isinstance(frame, ToolCall) and isinstance(frame.arguments.get("text"), str):
                        return True, ""
            return False, problem
        except HearthNetError as error:
            if error.code not in ("bad_request", "internal_error", "not_implemented"):
                raise
            problem = error.message
    return False, problem


async def _answers(remote: Remote) -> bool:
    """Return whether the model answers with any text.

    Raises:
        HearthNetError: the model's error.
    """
    has_text = False
    async with aclosing(remote.stream(_GREETED)) as frames:
        async for frame in frames:
            has_text = has_text or isinstance(frame, TextDelta)
    return has_text


def _no_such(config: ModelConfig, models: list[CatalogEntry]) -> HearthNetError:
    names = [model.name for model in models]
    shown: Any = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    return HearthNetError(
        "not_found",
        f"the server at {urlsplit(config.url).netloc.rpartition('@')[2]} has no model {config.model!r}; "
        f"it has {shown}",
        details={"nearest": names[:20]},
    )


class ProbeCache:
    """The learned abilities.

    Losing them costs one test for each model, so a file that cannot be read or written is ignored.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._tools: dict[str, bool] = {}
        with contextlib.suppress(OSError, msgspec.DecodeError):
            self._tools = msgspec.json.decode(file.read_bytes(), type=dict[str, bool])

    def tools(self, config: ModelConfig) -> bool | None:
        """Return whether the model calls tools, or None if it was not tested yet."""
        return self._tools.get(_key(config))

    def keep(self, config: ModelConfig, tools: bool) -> None:
        """Record whether the model calls tools."""
        if self._tools.get(_key(config)) == tools:
            return
        self._tools[_key(config)] = tools
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_bytes(msgspec.json.encode(self._tools))


def _key(config: ModelConfig) -> str:
    return f"{config.kind} {root(config)} {config.model}"
