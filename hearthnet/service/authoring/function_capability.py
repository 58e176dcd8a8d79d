"""A function as a capability: its contract, and the handler of its calls.

See: docs/services.md#a-function.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from hearthnet.contracts import Contract
from hearthnet.contracts.dynamic import checked
from hearthnet.contracts.namespaces import is_home_only, namespace
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.errors import HearthNetError
from hearthnet.service.authoring.signature import (
    Docstring,
    FunctionSignature,
    code_of,
    definition_error,
    read_docstring,
    read_signature,
)
from hearthnet.service.call import Call, Reply
from hearthnet.service.decorators import Endpoint
from hearthnet.trust.authorization.authority import SELF
from hearthnet.trust.community.roster import RANK

Idempotency = Literal["pure", "client_id", "natural", "no"]
_EMPTY: Final = {"type": "object", "properties": {}}
_META: Final = {
    "type": "object",
    "required": ["ms"],
    "properties": {"ms": {"type": "integer", "minimum": 0, "description": "Milliseconds of work"}},
}
_CLIENT_ID: Final = {
    "type": "string",
    "pattern": "^[0-7][0-9A-HJKMNP-TV-Z]{25}$",
    "description": "Made up by the caller: the same one again has no second effect",
}
_IDEMPOTENT: Final[dict[bool, tuple[Idempotency, ...]]] = {
    False: ("pure", "no"),
    True: ("client_id", "natural", "no"),
}
"""The values that a contract may have, without and with side effects; the first one is the default."""


class ContractTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a contract that no signature says (docs/contracts.md#the-parts)."""

    side_effects: bool
    trust: str
    idempotent: Idempotency | None
    effect_scope: Literal["community", "node"]
    timeout_seconds: int
    max_concurrent: int


class NoParams(msgspec.Struct, frozen=True):
    """Empty params."""


class FunctionCapability:
    """One capability that a function provides."""

    def __init__(self, name: str, function: Callable[..., Awaitable[Any]], terms: ContractTerms) -> None:
        """Make the contract `name` (`name@major.minor`) of `function`.

        Raises:
            HearthNetError: `bad_request` with file, line and remedy for a name of this project, and as for
                `read_signature`.
        """
        self.function: Final = function
        # A program is compiled under the name by which it was started, which may be a relative one.
        self.module: Final = Path(code_of(function).co_filename).resolve()
        self._docstring = read_docstring(function, otherwise=name)
        self._signature = read_signature(function, self._docstring)
        try:
            capability = parse_capability(name)
        except HearthNetError as error:
            raise definition_error(function, f"cannot provide {name!r}: {error.message}") from error
        if not is_home_only(capability.name):
            raise definition_error(
                function,
                f"cannot provide {name}: names in {namespace(capability.name)} are HearthNet's own; take a "
                "namespace of your own, such as that of your package",
            )
        self.contract: Final = self._contract(
            capability.name, f"{capability.major}.{capability.minor}", terms
        )
        try:
            checked(msgspec.to_builtins(self.contract), self.contract.id)
        except HearthNetError as error:
            raise definition_error(function, f"cannot provide {name}: {error.message}") from error
        self.endpoint: Final = Endpoint(
            contract=self.contract,
            method=self._run,
            params_type=NoParams,
            input_type=self._signature.input_type,
        )

    async def _run(self, call: Call[Any, msgspec.Struct]) -> Reply:
        arguments = {name: getattr(call.input, name) for name in call.input.__struct_fields__}
        first = (call,) if self._signature.takes_call else ()
        return Reply(await self.function(*first, **arguments))

    def _contract(self, name: str, version: str, terms: ContractTerms) -> Contract:
        effects = terms.side_effects
        idempotent = self._idempotency(terms)
        return Contract(
            name=name,
            version=version,
            stability="stable",
            summary=self._docstring.summary,
            trust_required=self._trust(terms.trust),
            side_effects=effects,
            idempotent=idempotent,
            timeout_seconds=terms.timeout_seconds,
            max_concurrent=terms.max_concurrent,
            request_schema=_request(self._signature, self._docstring, keyed=idempotent == "client_id"),
            response_schema={
                "type": "object",
                "required": ["output", "meta"],
                "properties": {"output": self._signature.output_schema, "meta": _META},
            },
            stream_schema=None,
            offer_params=_EMPTY,
            match={},
            errors=[],
            examples=[],
            effect_scope=terms.effect_scope if effects else None,
            approval="any" if effects else None,
        )

    def _idempotency(self, terms: ContractTerms) -> Idempotency:
        known = _IDEMPOTENT[terms.side_effects]
        wanted = terms.idempotent or known[0]
        if wanted not in known:
            state = "with" if terms.side_effects else "without"
            raise definition_error(
                self.function, f"is idempotent={wanted!r} {state} side effects; take {' or '.join(known)}"
            )
        return wanted

    def _trust(self, level: str) -> str:
        if level != SELF and level not in RANK:
            raise definition_error(self.function, f"has trust={level!r}; take {', '.join(RANK)} or {SELF}")
        return level


def _request(signature: FunctionSignature, docstring: Docstring, *, keyed: bool) -> dict[str, Any]:
    """Return the schema of a request; `keyed`: its effect happens once per `client_id`."""
    fields = signature.input_schema
    if keyed and "client_id" not in fields["properties"]:
        fields = {
            **fields,
            "required": [*fields["required"], "client_id"],
            "properties": {**fields["properties"], "client_id": _CLIENT_ID},
        }
    request = {
        "type": "object",
        "required": ["params", "input"],
        "properties": {"params": _EMPTY, "input": fields},
    }
    return {**request, "description": docstring.description} if docstring.description else request
