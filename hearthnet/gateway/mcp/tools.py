"""Capabilities as MCP tools: names, schemas, hints. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from hearthnet.agent.tools.names import NameMap
from hearthnet.contracts.contract import Contract
from hearthnet.contracts.dynamic import is_derived, is_told
from hearthnet.contracts.tool_schema import declared
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.api.capabilities import covered
from hearthnet.gateway.mcp import lean_schemas
from hearthnet.trust.authorization.token import Scope

_GENERATED: Final = "client_id"
_WRAPPERS: Final = frozenset({"llm.tools.call"})
"""Capabilities that call any other one."""
_NO_CONTROL: Final = frozenset({"stream"})
"""Arguments that are determined by the way in which a tool is called."""


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
        """Return the schema of the arguments; that of a foreign tool is as its server has it."""
        if self._foreign:
            found: dict[str, Any] = self.contract.request_schema["properties"]["input"]
            return found
        return lean_schemas.input_schema(self.contract, self._hidden)

    def _output(self) -> dict[str, Any] | None:
        """Return the schema of the value in every result; None where there is none."""
        if is_derived(self.contract.name):
            return promised(self.contract)
        return None if self.takes_progress else lean_schemas.output_schema(self.contract)


def promised(contract: Contract) -> dict[str, Any] | None:
    """Return the output schema that an MCP server declares for its tool; None if it has none."""
    output = contract.response_schema.get("properties", {}).get("output")
    fields = output.get("properties") if isinstance(output, dict) else None
    value = fields.get("structured") if isinstance(fields, dict) else None
    given = value.get("allOf") if isinstance(value, dict) else None
    return given[0] if isinstance(given, list) and given and isinstance(given[0], dict) else None


def tools_of(contracts: Iterable[Contract]) -> dict[str, McpTool]:
    """Return the tools of these contracts, by names that every MCP client accepts.

    Of several versions of a capability, the last one is used.
    """
    by_name = {contract.name: contract for contract in contracts if _fits(contract)}
    names = NameMap(by_name)
    return {names.to_safe(name): McpTool(names.to_safe(name), one) for name, one in by_name.items()}


def may_be_called(contract: Contract) -> bool:
    """Return whether a token can carry this capability."""
    return covered(Scope((contract.name,)), contract)


def _fits(contract: Contract) -> bool:
    """Return whether a call has only arguments and one result."""
    if contract.name in _WRAPPERS:
        return False
    if contract.stream_schema is not None and contract.side_effects and not is_told(contract.name):
        return False  # it takes input while it answers
    try:
        contract.tool_schema(None, _hidden(contract))
    except HearthNetError:
        return False
    return True


def _hidden(contract: Contract) -> frozenset[str]:
    """Return the arguments that are filled in here."""
    hidden = {_GENERATED} if contract.idempotent == "client_id" else set()
    if contract.stream_schema is not None and not is_told(contract.name):
        fields = contract.request_schema["properties"]["input"].get("properties", {})
        hidden |= _NO_CONTROL & fields.keys()
    return frozenset(hidden)


def _hints(contract: Contract) -> dict[str, Any]:
    """Return the contract's properties as MCP's hints.

    Each call has a new `client_id`, so that a repetition has another effect.
    """
    if not contract.side_effects:
        return {"readOnlyHint": True, "openWorldHint": is_told(contract.name)}
    return {
        "readOnlyHint": False,
        "destructiveHint": contract.idempotent != "client_id",
        "idempotentHint": contract.idempotent == "natural",
        "openWorldHint": is_told(contract.name),
    }
