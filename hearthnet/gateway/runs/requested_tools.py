"""The tools of a request, in its `input.tools` (docs/gateway.md, "Runs").

"search_corpus"                                     a built-in tool
"market.post", "market.post@1.0"                    a capability as it is
{"use": "search_corpus", "params": {...}}           either of them, with params that the model cannot change
{"use": "...", "provider": "ed25519:..."}           that of another node, which alone carries out its calls
{"name", "description", "parameters_schema"}        the client's own: the call goes back to the client
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Final

import msgspec

from hearthnet.agent.tools.builtin import builtin_names, builtin_tools, capability_tool
from hearthnet.agent.tools.types import ToolDefinition
from hearthnet.contracts.contract import Contract
from hearthnet.contracts.namespaces import is_provider_defined
from hearthnet.contracts.registry import contracts
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError

MOST_TOOLS: Final = 512
CHAT: Final = "llm.chat@2.0"
"""The capability of runs, and of chats without tools of the mesh."""
_CHAT: Final = "llm.chat"


class ToolUse(msgspec.Struct):
    """A built-in tool or a capability, with params that the model cannot change.

    `provider` is the node that carries it out; for an effect and for a contract that providers define.
    """

    use: str
    params: dict[str, Any] = {}
    provider: str = ""


class OwnTool(msgspec.Struct):
    """A tool that the client runs."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    parameters_schema: dict[str, Any]
    description: str = ""
    side_effects: bool = False


def is_run(contract: Contract, body: Mapping[str, Any]) -> bool:
    """Return whether a call is a run of the tool loop: a chat with tools and an answer."""
    return _names_tools(contract, body) and not _is_empty_answer(body)


def is_prewarming(contract: Contract, body: Mapping[str, Any]) -> bool:
    """Return whether a call is such a chat with `max_tokens` 0, without an answer.

    The model then only reads its beginning in advance (docs/decisions/0078).
    """
    return _names_tools(contract, body) and _is_empty_answer(body)


def provider_defined_names(asked: Any) -> dict[str, str]:
    """Return the capabilities in `asked` whose contracts must be learned first, with the named providers."""
    listed = asked[:MOST_TOOLS] if isinstance(asked, list) else []
    return {name: _provider(one) for one in listed if (name := _provider_defined_name(one))}


def _provider(one: Any) -> str:
    """Return the node that `one` names, empty where it names none; a malformed one is refused later."""
    node = one.get("provider") if isinstance(one, dict) else ""
    return node if isinstance(node, str) else ""


def _provider_defined_name(one: Any) -> str:
    name = one.get("use") if isinstance(one, dict) else one
    return name if isinstance(name, str) and is_provider_defined(name) else ""


def tools_of(
    asked: Any, learned: Mapping[str, ToolDefinition] | None = None, uncovered: Collection[str] = ()
) -> list[ToolDefinition]:
    """Return the tools in `asked`, in order.

    `learned` are those of `provider_defined_names`, by capability, without the `uncovered` ones, which are
    left out.

    Raises:
        HearthNetError: `bad_request` if `asked` is not a list of tools; `not_found` for an unknown name.
    """
    if not isinstance(asked, list):
        raise _wrong("", "tools is a list of names and objects")
    if len(asked) > MOST_TOOLS:
        raise _wrong("", f"at most {MOST_TOOLS} tools are taken")
    return [
        _tool(one, f"/{place}", learned or {})
        for place, one in enumerate(asked)
        if _provider_defined_name(one) not in uncovered
    ]


def _names_tools(contract: Contract, body: Mapping[str, Any]) -> bool:
    given = body.get("input")
    return contract.name == _CHAT and isinstance(given, dict) and bool(given.get("tools"))


def _is_empty_answer(body: Mapping[str, Any]) -> bool:
    most = body["input"].get("max_tokens")
    return most == 0 and not isinstance(most, bool)


def _tool(one: Any, path: str, learned: Mapping[str, ToolDefinition]) -> ToolDefinition:
    if isinstance(one, str):
        return _named(one, {}, learned)
    if not isinstance(one, dict):
        raise _wrong(path, "a tool is a name, or an object")
    kind: type[ToolUse | OwnTool] = ToolUse if "use" in one else OwnTool
    unknown = sorted(one.keys() - set(kind.__struct_fields__))
    if unknown:
        raise _wrong(f"{path}/{unknown[0]}", f"a tool has no member {unknown[0][:40]!r}")
    try:
        read = msgspec.convert(one, kind)
    except msgspec.ValidationError as error:
        raise _wrong(path, f"the tool is malformed: {error}") from error
    if isinstance(read, ToolUse):
        return _of_provider(_named(read.use, read.params, learned), read.provider, path)
    return ToolDefinition(read.name, read.description, read.parameters_schema, None, None, read.side_effects)


def _of_provider(tool: ToolDefinition, node: str, path: str) -> ToolDefinition:
    """Return `tool` as one of `node`, where that is given."""
    if node == tool.provider or not node:
        return tool
    if tool.provider:
        raise _wrong(f"{path}/provider", f"{tool.name} is there with another provider already; leave one out")
    try:
        ids.public_key(node)
    except HearthNetError as error:
        raise _wrong(f"{path}/provider", "a provider is the full id of a node") from error
    if not tool.side_effects:
        raise _wrong(f"{path}/provider", f"{tool.name} only reads; it is answered by whoever offers it")
    return msgspec.structs.replace(tool, provider=node)


def _named(name: str, params: dict[str, Any], learned: Mapping[str, ToolDefinition]) -> ToolDefinition:
    if is_provider_defined(name):
        return _provider_tool(name, params, learned)
    if name in builtin_names() or "." not in name:
        return builtin_tools([name], {name: params})[0]
    return capability_tool(name, params)


def _provider_tool(
    name: str, params: dict[str, Any], learned: Mapping[str, ToolDefinition]
) -> ToolDefinition:
    """Return a foreign tool.

    Whether a call of it needs a decision is in its definition, and not left to its provider.
    """
    found = learned.get(name.partition("@")[0])
    if found is None:
        raise HearthNetError("not_found", f"nobody offers {name[:80]!r} now")
    if not params:
        return found
    schema = contracts().find(name.partition("@")[0], found.bound_version).tool_schema(params, frozenset())
    return msgspec.structs.replace(found, parameters_schema=schema, bound_params=params)


def _wrong(path: str, message: str) -> HearthNetError:
    return HearthNetError("bad_request", message, details={"path": f"/input/tools{path}"})
