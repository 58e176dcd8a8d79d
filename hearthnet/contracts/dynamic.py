"""Contracts supplied by the provider of a capability instead of installed (decision 0106).

Their names begin with `experimental.`, so that none can replace an installed one. The version is derived from
the whole contract: a changed contract is another capability, which no earlier consent, grant or token version
covers. No I/O.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hearthnet.contracts.contract import Contract
from hearthnet.contracts.schema import compile_schema
from hearthnet.core.canonical_json import canonical_json, content_hash
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.errors import HearthNetError

PREFIX: Final = "experimental."
MOST_BYTES: Final = 64 * 1024
"""Maximum size of one contract, in canonical JSON."""
_DRAFT: Final = "0.0"
_MAJORS: Final = 10**15 - 1
"""Number of possible versions: finding another contract with the same version would take years."""


def is_told(name: str) -> bool:
    """Return whether providers supply the contract of `name`, with or without version."""
    return name.startswith(PREFIX)


def versioned(contract: Contract) -> Contract:
    """Return `contract` with the version derived from the rest of it.

    Raises:
        HearthNetError: `bad_request` for another kind of name, an invalid schema or more than `MOST_BYTES`.
    """
    draft = msgspec.structs.replace(contract, version=_DRAFT)
    _check(draft)
    return msgspec.structs.replace(contract, version=_version(draft))


def checked(value: Any, capability: str) -> Contract:
    """Return the contract of `capability` that a provider supplied as the JSON `value`.

    `capability` is `name@major.minor`.

    Raises:
        HearthNetError: `bad_request` if it is another one, or its version does not follow from its contents.
    """
    try:
        contract = msgspec.convert(value, Contract)
    except msgspec.ValidationError as error:
        raise HearthNetError(
            "bad_request", f"what was told of {capability} is no contract: {error}"
        ) from error
    if contract.id != capability or versioned(contract).version != contract.version:
        raise HearthNetError("bad_request", f"what was told is not the contract of {capability}")
    return contract


def _version(draft: Contract) -> str:
    hashed = content_hash(canonical_json(msgspec.to_builtins(draft)))
    return f"{1 + int(hashed.rpartition(':')[2], 16) % _MAJORS}.0"


def _check(contract: Contract) -> None:
    if not is_told(contract.name):
        raise HearthNetError("bad_request", f"{contract.name} is not under {PREFIX}")
    parse_capability(contract.id)
    size = len(canonical_json(msgspec.to_builtins(contract)))
    if size > MOST_BYTES:
        raise HearthNetError("bad_request", f"a contract of {size} bytes; {MOST_BYTES} at most")
    streams = (contract.stream_schema or {}).values()
    for schema in (contract.request_schema, contract.response_schema, contract.offer_params, *streams):
        compile_schema(schema)
    try:
        contract.tool_schema(None, frozenset())
    except (KeyError, TypeError, AttributeError) as error:
        raise HearthNetError("bad_request", "the request is no object of params and input") from error
