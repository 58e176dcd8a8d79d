"""The tools of one run: names, bindings, and the checks of a call.

Pure: contracts and schemas are compiled when the toolbox is made, nothing is sent. A call is *prepared*,
which gives the complete body as it would be sent, or the text from which the model can correct it.

See: docs/protocol/agent.md#tool-definitions, docs/protocol/agent.md#judging-a-call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from hearthnet.agent.tools.names import NameMap, unknown_tool
from hearthnet.agent.tools.result_text import (
    DEFINITION,
    INVALID,
    READ_RESULT,
    TOO_DEEP,
    USUAL_READ,
    error_text,
    too_deep,
)
from hearthnet.agent.tools.types import ToolDefinition
from hearthnet.contracts.contract import Contract
from hearthnet.contracts.namespaces import is_derived, is_provider_defined
from hearthnet.contracts.registry import contracts
from hearthnet.contracts.request_schemas import RequestSchemas
from hearthnet.contracts.schema import SchemaCheck, compile_schema
from hearthnet.core.canonical_json import digest
from hearthnet.core.capability_name import split_name
from hearthnet.core.errors import HearthNetError

DEFAULT_TOOL_SECONDS: Final = 30
_MOST_PROBLEMS: Final = 3
TOOLS_CALL: Final = "llm.tools.call"
TOOLS_CALL_ID: Final = "llm.tools.call@1.0"
_TARGET: Final = "target_capability"
SEARCH: Final = "rag.query"
HOME: Final = "home"
"""The argument by which a model names the home of an effect (providers.py); no field of the call."""


class Prepared(msgspec.Struct, frozen=True):
    """A call that may be sent.

    It has the complete body, and that body's digest where a person must confirm it.
    """

    body: dict[str, Any]
    arguments_digest: str


class BoundTool:
    """One tool with its contract, its compiled schema and its safe name.

    `composed`: it is bound to `llm.tools.call`, which makes the call; contract, body, authority and effect
    are those of the target, which the definition fixes (decision 0072).
    """

    is_client: Final = False

    def __init__(
        self,
        definition: ToolDefinition,
        contract: Contract,
        safe_name: str,
        *,
        composed: bool = False,
        schemas: RequestSchemas | None = None,
    ) -> None:
        self.definition: Final = definition
        self.composed: Final = composed
        self.contract: Final = contract
        self.bound_params: Final = {
            name: value
            for name, value in definition.bound_params.items()
            if not (composed and name == _TARGET)
        }
        self.safe_name: Final = safe_name
        self.capability: Final = str(contract.capability)
        self.effect: Final = definition.side_effects or contract.side_effects
        self.changes: Final = contract.side_effects or (self.effect and is_provider_defined(contract.name))
        """Whether a call may change something; `effect` is set also for reads that a person decides about."""
        self.provider: Final = definition.provider
        self.names_home: Final = contract.side_effects and takes_home(definition, contract)
        self._keyed = contract.idempotent == "client_id"
        self.repeatable_effect: Final = contract.side_effects and contract.idempotent != "no"
        self.foreign: Final = is_provider_defined(contract.name) or (
            not contract.side_effects and contract.trust_required != "self"
        )
        """Set where a result holds words of others.

        That is every read that others answer or fill (decision 0073), and every result of a program of others
        (decision 0106).
        """
        self.memorable: Final = contract.idempotent == "pure" and not self.effect
        self._schema = _compile(
            definition, (schemas or RequestSchemas()) if is_derived(contract.name) else None
        )

    def timeout_ms(self, per_tool_seconds: float) -> int:
        """Return the time limit of one call in milliseconds (docs/protocol/agent.md#limits).

        A contract that needs longer than the default gets it, unless the caller allows less than the default.
        """
        needed = self.contract.timeout_seconds if per_tool_seconds >= DEFAULT_TOOL_SECONDS else 0
        return int(max(per_tool_seconds, needed) * 1000)

    def prepare(self, arguments: Any, client_id: str) -> Prepared | str:
        """Return the call for `arguments`, or `invalid_arguments:` with path and rule."""
        if wrong := _wrong(self._schema, arguments):
            return wrong
        try:
            fields = {name: one for name, one in arguments.items() if not (self.names_home and name == HOME)}
            body = self.contract.split_arguments(fields, self.bound_params)
            if self._keyed:
                body["input"]["client_id"] = client_id
            self.contract.check_request(_with_plain_corpus(body) if self.contract.name == SEARCH else body)
            return Prepared(body, digest(body) if self.effect else "")
        except HearthNetError as error:
            return error_text(INVALID, error.message)


def _with_plain_corpus(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body of a search as one home gets it: it may leave its corpus open, or name its home."""
    corpus = body["params"].get("corpus", "any")
    plain = corpus.partition("@")[0] if isinstance(corpus, str) else corpus
    return {**body, "params": {**body["params"], "corpus": plain}}


def takes_home(definition: ToolDefinition, contract: Contract) -> bool:
    """Return whether the argument `HOME` of a tool is that of providers.py, and no field of its contract."""
    properties = definition.parameters_schema.get("properties")
    if not isinstance(properties, dict) or HOME not in properties:
        return False
    return HOME not in contract.tool_schema({}, frozenset())["properties"]


class _UnboundTool:
    """A tool that is bound to no capability."""

    capability: Final = ""
    foreign: Final = True
    memorable: Final = False
    repeatable_effect: Final = False

    def __init__(
        self, definition: ToolDefinition, safe_name: str, schemas: RequestSchemas | None = None
    ) -> None:
        self.definition: Final = definition
        self.safe_name: Final = safe_name
        self.effect: Final = definition.side_effects
        self.changes: Final = definition.side_effects
        self._schema = _compile(definition, schemas)

    def timeout_ms(self, per_tool_seconds: float) -> int:
        """Return the given limit; a client does not use it, since it has the time of a person."""
        return int(per_tool_seconds * 1000)


class ClientTool(_UnboundTool):
    """A tool of the client's own: its body is the arguments alone."""

    is_client: Final = True

    def prepare(self, arguments: Any, client_id: str) -> Prepared | str:
        """Return the call for `arguments`, or the error text for invalid ones."""
        if wrong := _wrong(self._schema, arguments):
            return wrong
        try:
            return Prepared(arguments, digest(arguments) if self.effect else "")
        except HearthNetError as error:
            return error_text(INVALID, error.message)


class ReaderTool(_UnboundTool):
    """The tool `read_result`, which the run executes itself."""

    is_client: Final = False

    def __init__(self) -> None:
        super().__init__(DEFINITION, READ_RESULT)

    def prepare(self, arguments: Any, client_id: str) -> Prepared | str:
        """Return the body of the read, or the error text for invalid arguments."""
        wrong = _wrong(self._schema, arguments)
        return wrong or Prepared({"length": USUAL_READ, **arguments}, "")

    def refusal(self, body: dict[str, Any], results: dict[str, int]) -> str:
        """Return the reason why this run may not read the result, empty where it may.

        A run may read only the results of its own tools.
        """
        if body["cid"] in results:
            return ""
        return error_text("not_found", "no result of this conversation has that cid; copy it from the result")


Tool = BoundTool | ClientTool | ReaderTool


class Toolbox:
    """The declared tools of one run, by name."""

    def __init__(self, definitions: Iterable[ToolDefinition]) -> None:
        """Check and compile the definitions.

        Raises:
            HearthNetError: `bad_request` for a tool that cannot be offered; `not_found` for an unknown
                capability.
        """
        declared = list(definitions)
        self._readers = {READ_RESULT: ReaderTool()}
        self._names = NameMap(definition.name for definition in declared)
        schemas = RequestSchemas()
        self._tools = {
            definition.name: _tool(definition, self._names.to_safe(definition.name), schemas)
            for definition in declared
        }

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __getitem__(self, declared: str) -> Tool:
        return self._tools.get(declared) or self._readers[declared]

    def bound(self, declared: str) -> BoundTool:
        """Return the tool `declared`, which is bound to a capability.

        Raises:
            HearthNetError: `bad_request` for one of the client's own tools.
        """
        tool = self._tools[declared]
        if not isinstance(tool, BoundTool):
            raise HearthNetError("bad_request", f"{declared!r} is bound to no capability; the client runs it")
        return tool

    def find(self, name: str) -> Tool | None:
        """Return the tool that is declared, or shown to the model, as `name`."""
        declared = self._names.to_declared(name)
        if declared is not None:
            return self._tools[declared]
        return self._readers.get(name)

    def unknown(self, name: str) -> HearthNetError:
        """Return the error for a name that no tool has, with the nearest names."""
        return unknown_tool(name, self._tools)


def native(definition: ToolDefinition, safe_name: str = "") -> dict[str, Any]:
    """Return a tool as `llm.chat` takes it."""
    return {
        "name": safe_name or definition.name,
        "description": definition.description,
        "parameters_schema": definition.parameters_schema,
    }


def natives(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Return these tools as `llm.chat` takes them: safe name, description, schema, and no binding."""
    return [native(tool.definition, tool.safe_name) for tool in tools]


def _wrong(schema: SchemaCheck, arguments: Any) -> str:
    """Return path and rule of the first problems of `arguments`, or an empty string."""
    if too_deep(arguments):
        return TOO_DEEP
    if schema.accepts(arguments):
        return ""
    wrong = schema.errors(arguments)[:_MOST_PROBLEMS]
    found = (f"{path or '/'}: {message} (rule: {rule})" for path, rule, message in wrong)
    return error_text(INVALID, "; ".join(found))


def _tool(definition: ToolDefinition, safe_name: str, schemas: RequestSchemas) -> Tool:
    if definition.bound_capability is None and definition.bound_version is None:
        return ClientTool(definition, safe_name, schemas)
    contract, composed = _bound_to(definition)
    return BoundTool(definition, contract, safe_name, composed=composed, schemas=schemas)


def _contract(definition: ToolDefinition) -> Contract:
    if definition.bound_capability is None or definition.bound_version is None:
        raise HearthNetError(
            "bad_request",
            f"the tool {definition.name!r} names a capability without its version, or the other way round",
        )
    return contracts().find(definition.bound_capability, definition.bound_version)


def _bound_to(definition: ToolDefinition) -> tuple[Contract, bool]:
    """Return the contract of the final call, and whether llm.tools.call makes that call."""
    contract = _contract(definition)
    if contract.name != TOOLS_CALL:
        return contract, False
    target = definition.bound_params.get(_TARGET)
    if not isinstance(target, str) or split_name(target)[0] == TOOLS_CALL:
        raise HearthNetError(
            "bad_request",
            f"the tool {definition.name!r} is bound to {TOOLS_CALL}; fix {_TARGET} in its bound_params to "
            "what is called in the end",
            details={"path": "/bound_params/" + _TARGET},
        )
    return contracts().get(target), True


def _compile(definition: ToolDefinition, schemas: RequestSchemas | None) -> SchemaCheck:
    """Compile the schema of the arguments, with `schemas` within the bounds of schemas from outside.

    Beyond them any object is accepted: a client checks what it is called with, a provider by its contract.
    """
    schema: Any = definition.parameters_schema
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise HearthNetError(
            "bad_request",
            f'the tool {definition.name!r}: its parameters_schema must say "type": "object", since '
            "arguments are one object and vendors refuse anything else",
            details={"path": "/parameters_schema/type", "rule": "schema"},
        )
    try:
        return compile_schema(schema) if schemas is None else schemas.compile(schema)
    except HearthNetError as error:
        if error.rule == "size":
            return compile_schema({"type": "object"})
        raise HearthNetError(
            error.code, f"the tool {definition.name!r}: {error.message}", details=error.details
        ) from error
