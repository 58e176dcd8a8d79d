"""Capabilities as MCP tools: names, schemas, hints. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from hearthnet.contracts import Contract, is_told
from hearthnet.contracts.flat import declared
from hearthnet.errors import HearthNetError
from hearthnet.gateway.capabilities import covered
from hearthnet.gateway.mcp import lean
from hearthnet.tools.names import NameMap
from hearthnet.trust.token import Scope

_GENERATED: Final = "client_id"
_WRAPPERS: Final = frozenset({"llm.tools.call"})
"""Make calls for others: a tool that is any tool."""
_NO_CONTROL: Final = frozenset({"stream"})
"""Said by how a tool is called, and not by its arguments."""


class McpTool:
    """One capability as a tool."""

    def __init__(self, name: str, contract: Contract) -> None:
        self.name: Final = name
        self.contract: Final = contract
        self._hidden = _hidden(contract)
        self._foreign = is_told(contract.name) and not declared(
            contract.request_schema["properties"]["params"]
        )

    def body(self, arguments: dict[str, Any], client_id: str) -> dict[str, Any]:
        """The complete `{params, input}` for a model's arguments; `bad_request` names what does not fit."""
        hidden = {name: value for name, value in arguments.items() if name in self._hidden}
        if hidden:
            raise HearthNetError("bad_request", f"{self.name} has no argument {next(iter(hidden))!r}")
        # A foreign tool's arguments are judged by its own schema alone, which may leave room for any.
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
        """Whether it is called as a stream."""
        return self.contract.stream_schema is not None

    def listed(self, *, any_output: bool) -> dict[str, Any]:
        """It, as `tools/list` has it; `any_output`: a result's value need not be an object."""
        contract = self.contract
        described = contract.request_schema.get("description") if is_told(contract.name) else None
        tool = {
            "name": self.name,
            "title": contract.name,
            "description": described or contract.summary,
            "inputSchema": self._input(),
            "annotations": _hints(contract),
            "_meta": {"hearthnet/capability": contract.id},
        }
        output = self._output()
        if output is not None and (any_output or output.get("type") == "object"):
            tool["outputSchema"] = output
        return tool

    def _input(self) -> dict[str, Any]:
        """The schema of the arguments; of a foreign tool as its server has it."""
        if self._foreign:
            found: dict[str, Any] = self.contract.request_schema["properties"]["input"]
            return found
        return lean.input_schema(self.contract, self._hidden)

    def _output(self) -> dict[str, Any] | None:
        """The schema of the value in every result; None where there is none."""
        if is_told(self.contract.name):
            return promised(self.contract)
        return None if self.takes_progress else lean.output_schema(self.contract)


def promised(contract: Contract) -> dict[str, Any] | None:
    """The schema that an MCP server has for the values of this tool of its; None where it has none."""
    output = contract.response_schema.get("properties", {}).get("output")
    fields = output.get("properties") if isinstance(output, dict) else None
    value = fields.get("structured") if isinstance(fields, dict) else None
    given = value.get("allOf") if isinstance(value, dict) else None
    return given[0] if isinstance(given, list) and given and isinstance(given[0], dict) else None


def tools_of(contracts: Iterable[Contract]) -> dict[str, McpTool]:
    """The tools of these contracts by the names that every MCP client takes; of versions, the last counts."""
    by_name = {contract.name: contract for contract in contracts if _fits(contract)}
    names = NameMap(by_name)
    return {names.to_safe(name): McpTool(names.to_safe(name), one) for name, one in by_name.items()}


def may_be_called(contract: Contract) -> bool:
    """Whether a token may carry it at all."""
    return covered(Scope((contract.name,)), contract)


def _fits(contract: Contract) -> bool:
    """Whether a call with arguments and one result is all there is to it."""
    if contract.name in _WRAPPERS:
        return False
    if contract.stream_schema is not None and contract.side_effects and not is_told(contract.name):
        return False  # it takes what it needs while it answers
    try:
        contract.tool_schema(None, _hidden(contract))
    except HearthNetError:
        return False
    return True


def _hidden(contract: Contract) -> frozenset[str]:
    """Arguments that are filled in here."""
    hidden = {_GENERATED} if contract.idempotent == "client_id" else set()
    if contract.stream_schema is not None and not is_told(contract.name):
        fields = contract.request_schema["properties"]["input"].get("properties", {})
        hidden |= _NO_CONTROL & fields.keys()
    return frozenset(hidden)


def _hints(contract: Contract) -> dict[str, Any]:
    """What the contract says, in MCP's words. Each call makes its own `client_id`, so it acts once more."""
    if not contract.side_effects:
        return {"readOnlyHint": True, "openWorldHint": is_told(contract.name)}
    return {
        "readOnlyHint": False,
        "destructiveHint": contract.idempotent != "client_id",
        "idempotentHint": contract.idempotent == "natural",
        "openWorldHint": is_told(contract.name),
    }
