"""Contracts that came with no installation, but are told by whoever offers the capability (decision 0106).

Their names begin with `experimental.`, so that none can take the place of one that was installed. The
version is made from all that the contract says: what changes is another capability, which no earlier
consent, grant or token version covers. Pure.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hearthnet.canonical import canonical_json, content_hash
from hearthnet.contracts.contract import Contract
from hearthnet.contracts.schema import compile_schema
from hearthnet.errors import HearthNetError
from hearthnet.types import parse_capability

PREFIX: Final = "experimental."
MOST_BYTES: Final = 64 * 1024
"""Of one contract, in canonical JSON."""
_DRAFT: Final = "0.0"
_MAJORS: Final = 10**15 - 1
"""As many as a version can say: who wants another contract under the same one would search for years."""


def is_told(name: str) -> bool:
    """Whether the contract of a capability, with or without version, is told and not installed."""
    return name.startswith(PREFIX)


def versioned(contract: Contract) -> Contract:
    """`contract` under the version that follows from all else it says.

    Raises `bad_request` for what is no such contract: another name, a schema that is none, more than
    `MOST_BYTES`.
    """
    draft = msgspec.structs.replace(contract, version=_DRAFT)
    _check(draft)
    return msgspec.structs.replace(contract, version=_version(draft))


def checked(value: Any, capability: str) -> Contract:
    """The contract of `capability` (`name@major.minor`) that a provider told; `bad_request` for another one,
    and for one that its own version does not follow from.
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
