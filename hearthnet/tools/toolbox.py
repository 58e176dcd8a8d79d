"""The tools of one run: their names, bindings, and what is wrong with a call (tools.md, "One turn" 1-3).

Pure: contracts and schemas are compiled when the toolbox is made, nothing is sent. A call is *prepared*,
which gives the complete body as it would be sent, or the words that tell the model what to mend.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from hearthnet.canonical import digest
from hearthnet.contracts import Contract, SchemaCheck, compile_schema, contracts
from hearthnet.errors import HearthNetError
from hearthnet.tools.names import NameMap, unknown_tool
from hearthnet.tools.transcript import error_text
from hearthnet.tools.types import ToolDefinition

DEFAULT_TOOL_SECONDS: Final = 30
INVALID: Final = "invalid_arguments"
_MOST_PROBLEMS: Final = 3


class Prepared(msgspec.Struct, frozen=True):
    """A call that may be sent: its complete body, and that body's digest where a person must confirm it."""

    body: dict[str, Any]
    arguments_digest: str


class BoundTool:
    """One tool with its contract, its compiled schema and its safe name."""

    def __init__(self, definition: ToolDefinition, contract: Contract, safe_name: str) -> None:
        self.definition: Final = definition
        self.contract: Final = contract
        self.safe_name: Final = safe_name
        self.capability: Final = str(contract.capability)
        self.effect: Final = definition.side_effects or contract.side_effects
        self._keyed = contract.idempotent == "client_id"
        self.repeatable_effect: Final = contract.side_effects and contract.idempotent != "no"
        self.memorable: Final = contract.idempotent == "pure" and not self.effect
        self._schema = _compile(definition)

    def timeout_ms(self, per_tool_seconds: float) -> int:
        """How long one call may take (resolution 18).

        A contract that needs longer than the default gets it, unless the caller allows less than the default.
        """
        needed = self.contract.timeout_seconds if per_tool_seconds >= DEFAULT_TOOL_SECONDS else 0
        return int(max(per_tool_seconds, needed) * 1000)

    def prepare(self, arguments: Any, client_id: str) -> Prepared | str:
        """What would be sent for `arguments`, or what is wrong: `invalid_arguments:`, path and rule."""
        if not self._schema.accepts(arguments):
            wrong = self._schema.errors(arguments)[:_MOST_PROBLEMS]
            found = (f"{path or '/'}: {message} (rule: {rule})" for path, rule, message in wrong)
            return error_text(INVALID, "; ".join(found))
        try:
            body = self.contract.split_arguments(arguments, self.definition.bound_params)
            if self._keyed:
                body["input"]["client_id"] = client_id
            self.contract.check_request(body)
            return Prepared(body, digest(body) if self.effect else "")
        except HearthNetError as error:
            return error_text(INVALID, error.message)


class Toolbox:
    """The declared tools of one run, by name."""

    def __init__(self, definitions: Iterable[ToolDefinition]) -> None:
        """Raises `bad_request` for a tool that cannot be offered, `not_found` for an unknown capability."""
        declared = list(definitions)
        self._names = NameMap(definition.name for definition in declared)
        self._tools = {
            definition.name: BoundTool(
                definition, _contract(definition), self._names.to_safe(definition.name)
            )
            for definition in declared
        }

    def __iter__(self) -> Iterator[BoundTool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __getitem__(self, declared: str) -> BoundTool:
        return self._tools[declared]

    @property
    def native_definitions(self) -> list[dict[str, Any]]:
        """The tools as `llm.chat` takes them: safe name, description, schema.

        What they are bound to stays here.
        """
        return [
            {
                "name": tool.safe_name,
                "description": tool.definition.description,
                "parameters_schema": tool.definition.parameters_schema,
            }
            for tool in self._tools.values()
        ]

    def find(self, name: str) -> BoundTool | None:
        """The tool that is declared, or shown to the model, as `name`."""
        declared = self._names.to_declared(name)
        return None if declared is None else self._tools[declared]

    def unknown(self, name: str) -> HearthNetError:
        """The error for a name that no tool has, with the nearest ones."""
        return unknown_tool(name, self._tools)


def _contract(definition: ToolDefinition) -> Contract:
    if definition.bound_capability is None or definition.bound_version is None:
        raise HearthNetError(
            "bad_request", f"the tool {definition.name!r} is bound to no capability, so nothing would run it"
        )
    return contracts().find(definition.bound_capability, definition.bound_version)


def _compile(definition: ToolDefinition) -> SchemaCheck:
    try:
        return compile_schema(definition.parameters_schema)
    except HearthNetError as error:
        raise HearthNetError(
            error.code, f"the tool {definition.name!r}: {error.message}", details=error.details
        ) from error
