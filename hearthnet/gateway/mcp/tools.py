"""Capabilities as MCP tools: names, short schemas, hints, and results of `tools/call`. Pure.

A client's model reads the list with each question, so that its size is limited. Capabilities that serve the
mesh itself are left out of it, and so are fields that only programs set; a call may still have all that the
contract accepts. Outputs are shown by names and types (docs/decisions/0151).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import blake3

from hearthnet.agent.tools.dynamic import MOST_DESCRIBED
from hearthnet.agent.tools.names import MAX_LENGTH, NameMap, sanitize
from hearthnet.contracts.contract import Contract
from hearthnet.contracts.namespaces import is_derived, is_provider_defined
from hearthnet.contracts.tool_schema import declared
from hearthnet.core.errors import HearthNetError
from hearthnet.core.visible import shown_line

Schema = dict[str, Any]
UNLISTED: Final = frozenset(
    {
        "community.join",
        "community.sync",
        "embed.text",
        "file.advertise",
        "market.export",
        "market.hide",
        "market.lend",
        "market.mute",
        "market.reserve",
        "market.unhide",
        "node.contract",
        "rag.progress",
    }
)
"""Capabilities for programs, moderators and the mesh, listed only for clients whose scope names them."""
_FIELDS: Final = {
    "llm.chat": ("model", "messages", "max_tokens", "temperature"),
    "rag.query": ("corpus", "query", "k", "filter", "include_text"),
    "rag.list_documents": ("corpus", "limit"),
    "rag.share": ("corpus", "shared"),
    "llm.complete": ("model", "prompt", "max_tokens", "temperature", "stop"),
}
_SHORT_SCHEMAS: Final[dict[tuple[str, str], Schema]] = {
    ("llm.chat", "messages"): {
        "type": "array",
        "minItems": 1,
        "description": "The conversation; the last message is what is answered",
        "items": {
            "type": "object",
            "required": ["role", "content"],
            "properties": {
                "role": {"enum": ["system", "user", "assistant"]},
                "content": {"type": "string"},
            },
            "additionalProperties": False,
        },
    }
}
"""Replacements for a contract's schema of a field; values that fit them fit the contract too."""
_GENERATED: Final = "client_id"
_WRAPPERS: Final = frozenset({"llm.tools.call"})
"""Capabilities that call any other one."""
_NO_CONTROL: Final = frozenset({"stream"})
"""Arguments that are determined by the way in which a tool is called."""
_HAPPENED: Final = "hearthnet/happened"
_MEDIA: Final = ("image", "audio")
_HASH_LENGTH: Final = 20
"""Hexadecimal characters in the name of another home's tool: 80 bits, so that nobody finds a second node."""


def input_schema(contract: Contract, hidden: frozenset[str]) -> Schema:
    """Return the schema of an installed capability's arguments, without the `hidden` ones."""
    schema = contract.tool_schema(None, hidden)
    every: dict[str, Any] = schema["properties"]
    names = [name for name in _FIELDS.get(contract.name, every) if name in every]
    return {
        **schema,
        "properties": {name: _SHORT_SCHEMAS.get((contract.name, name), every[name]) for name in names},
        "required": [name for name in schema["required"] if name in names],
    }


def output_schema(contract: Contract) -> Schema | None:
    """Return the fields and types of an installed capability's output.

    None if the output is not an object.
    """
    output = contract.response_schema["properties"].get("output", {})
    if not isinstance(output, dict) or output.get("type") != "object":
        return None
    fields = output.get("properties", {}).items()
    return {
        "type": "object",
        "properties": {
            name: {"type": inner["type"]} if isinstance(inner, dict) and "type" in inner else {}
            for name, inner in fields
        },
        "required": output.get("required", []),
    }


class McpTool:
    """One capability as a tool.

    `provider` is the node whose tool it is, empty for an installed capability; `home` is the name of another
    home, empty for this one.
    """

    def __init__(self, name: str, contract: Contract, provider: str = "", home: str = "") -> None:
        self.name: Final = name
        self.contract: Final = contract
        self.provider: Final = provider
        self.home: Final = home
        self.is_asked: Final = contract.side_effects or bool(home)
        """Whether a person is asked before a call: about effects, and about all that leaves this home."""
        self.changes: Final = contract.side_effects or bool(home and is_provider_defined(contract.name))
        """Whether a call is an effect that is listed, as `BoundTool.changes`."""
        self._hidden = _hidden(contract)
        self._foreign = is_provider_defined(contract.name) and not declared(
            contract.request_schema["properties"]["params"]
        )

    def body(self, arguments: dict[str, Any], client_id: str) -> dict[str, Any]:
        """Return the complete `{params, input}` for a model's arguments.

        Raises:
            HearthNetError: `bad_request` for arguments that do not fit the schema.
        """
        hidden = {name: value for name, value in arguments.items() if name in self._hidden}
        if hidden:
            raise HearthNetError("bad_request", f"{self.name} has no argument {next(iter(hidden))!r}")
        # A foreign tool's arguments are checked by its own schema alone, which may allow any.
        body = (
            {"params": {}, "input": dict(arguments)}
            if self._foreign
            else self.contract.split_arguments(arguments, None)
        )
        if self.contract.idempotent == "client_id":
            body["input"][_GENERATED] = client_id
        self.contract.check_request(body)
        return body

    @property
    def takes_progress(self) -> bool:
        """Return whether it is called as a stream."""
        return self.contract.stream_schema is not None

    def listed(self, *, any_output: bool) -> dict[str, Any]:
        """Return its entry in `tools/list`; `any_output`: a result need not be an object."""
        contract = self.contract
        described = contract.request_schema.get("description") if is_provider_defined(contract.name) else None
        title, about = contract.name, described or contract.summary
        if self.home:
            title = f"{title}, of ANOTHER home: {self.home}"
            about = f"Of another home, {self.home}: {shown_line(str(about), MOST_DESCRIBED)}"
        of_node = {"hearthnet/provider": self.provider} if self.provider else {}
        tool = {
            "name": self.name,
            "title": title,
            "description": about,
            "inputSchema": self._input(),
            "annotations": _hints(contract, is_asked=self.is_asked),
            "_meta": {"hearthnet/capability": contract.id, **of_node},
        }
        output = self._output()
        if output is not None and (any_output or output.get("type") == "object"):
            tool["outputSchema"] = output
        return tool

    def _input(self) -> dict[str, Any]:
        """Return the schema of the arguments; that of a foreign tool is as its server has it."""
        if self._foreign:
            found: dict[str, Any] = self.contract.request_schema["properties"]["input"]
            return found
        return input_schema(self.contract, self._hidden)

    def _output(self) -> dict[str, Any] | None:
        """Return the schema of the value in every result; None where there is none."""
        if is_derived(self.contract.name):
            return promised(self.contract)
        return None if self.takes_progress else output_schema(self.contract)


def promised(contract: Contract) -> dict[str, Any] | None:
    """Return the output schema that an MCP server declares for its tool; None if it has none."""
    output = contract.response_schema.get("properties", {}).get("output")
    fields = output.get("properties") if isinstance(output, dict) else None
    value = fields.get("structured") if isinstance(fields, dict) else None
    given = value.get("allOf") if isinstance(value, dict) else None
    return given[0] if isinstance(given, list) and given and isinstance(given[0], dict) else None


class OtherHomesTool(NamedTuple):
    """A tool of another home: its contract, the node, and the home's name for people."""

    contract: Contract
    node: str
    home: str


def tools_of(
    contracts: Iterable[Contract], others: Iterable[OtherHomesTool] = (), own: str = ""
) -> dict[str, McpTool]:
    """Return the tools of these contracts, by names that every MCP client accepts.

    Of several versions of a capability, the last one is used. `contracts` are those of this node `own`, and
    installed ones. A tool of another home has a name of its own, with a hash of that node's id and of the
    capability with its version: a client's user who always allows a tool does so for one tool of one home.
    Names that are not unique are left out.
    """
    by_name = {contract.name: contract for contract in contracts if _fits(contract)}
    names = NameMap(by_name)
    foreign = [
        McpTool(_foreign_name(contract, node), contract, node, home)
        for contract, node, home in others
        if _fits(contract)
    ]
    count = Counter(tool.name for tool in foreign)
    tools = {tool.name: tool for tool in foreign if count[tool.name] == 1}
    for name, contract in by_name.items():
        provider = own if is_provider_defined(name) else ""
        tools[names.to_safe(name)] = McpTool(names.to_safe(name), contract, provider)
    return tools


def _foreign_name(contract: Contract, node: str) -> str:
    """Return the name of the tool of another home's `node`."""
    digest = blake3.blake3(f"{node} {contract.id}".encode()).hexdigest()[:_HASH_LENGTH]
    return f"{foreign_stem(contract.name)}-{digest}"


def foreign_stem(name: str) -> str:
    """Return the part of the name of another home's tool before the hash."""
    return sanitize(name)[: MAX_LENGTH - _HASH_LENGTH - 1]


def _fits(contract: Contract) -> bool:
    """Return whether a call has only arguments and one result."""
    if contract.name in _WRAPPERS:
        return False
    if (
        contract.stream_schema is not None
        and contract.side_effects
        and not is_provider_defined(contract.name)
    ):
        return False  # it takes input while it answers
    try:
        contract.tool_schema(None, _hidden(contract))
    except HearthNetError:
        return False
    return True


def _hidden(contract: Contract) -> frozenset[str]:
    """Return the arguments that are filled in here."""
    hidden = {_GENERATED} if contract.idempotent == "client_id" else set()
    if contract.stream_schema is not None and not is_provider_defined(contract.name):
        fields = contract.request_schema["properties"]["input"].get("properties", {})
        hidden |= _NO_CONTROL & fields.keys()
    return frozenset(hidden)


def _hints(contract: Contract, *, is_asked: bool) -> dict[str, Any]:
    """Return the contract's properties as MCP's hints.

    Each call has a new `client_id`, so that a repetition has another effect. That another home's tool only
    reads is no hint: a client might call it without a question.
    """
    if not is_asked:
        return {"readOnlyHint": True, "openWorldHint": is_provider_defined(contract.name)}
    return {
        "readOnlyHint": False,
        "destructiveHint": contract.side_effects and contract.idempotent != "client_id",
        "idempotentHint": contract.idempotent in ("natural", "pure"),
        "openWorldHint": is_provider_defined(contract.name),
    }


def tool_result(
    contract: Contract,
    output: Any,
    meta: dict[str, Any],
    happened: list[dict[str, Any]],
    *,
    any_output: bool = False,
) -> dict[str, Any]:
    """Return a result: the output as a value and as text, or the parts of a foreign tool.

    `any_output`: the value need not be an object.
    """
    if is_derived(contract.name) and isinstance(output, dict) and isinstance(output.get("content"), list):
        found = {
            "content": [_block(part) for part in output["content"]],
            "isError": output.get("is_error") is True,
        }
        if isinstance(output.get("structured"), dict) or (any_output and "structured" in output):
            found["structuredContent"] = output["structured"]
        elif promised(contract) is not None:
            # The value is missing, for its size or since it does not fit the schema; the parts say why.
            # Clients reject a result without the value that the list promises, unless it is an error.
            found["isError"] = True
    else:
        found = {"content": [_text(_json(output))], "isError": False}
        if isinstance(output, dict):
            found["structuredContent"] = output
    return {**found, "_meta": {"hearthnet/meta": meta, _HAPPENED: happened}}


def tool_failure(error: HearthNetError, happened: list[dict[str, Any]]) -> dict[str, Any]:
    """Return an error result: code and message as text, the whole error in `_meta`."""
    return {
        "content": [_text(f"{error.code}: {error.message}")],
        "isError": True,
        "_meta": {"hearthnet/error": error.to_body(), _HAPPENED: happened},
    }


def _block(part: dict[str, Any]) -> dict[str, Any]:
    kind = part.get("type")
    if kind == "text":
        return _text(str(part.get("text", "")))
    if kind in _MEDIA:
        return {"type": kind, "data": part.get("data", ""), "mimeType": part.get("media_type", "")}
    if kind == "document" and ("text" in part or "data" in part):
        resource = {"uri": part.get("url") or "about:blank"}
        if part.get("media_type"):
            resource["mimeType"] = part["media_type"]
        resource |= {"text": part["text"]} if "text" in part else {"blob": part["data"]}
        return {"type": "resource", "resource": resource}
    if kind == "link" and part.get("url"):
        return {"type": "resource_link", "uri": part["url"], "name": part.get("name") or part["url"]}
    return _text(_json(part))


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
