"""Contracts supplied by the provider of a capability instead of installed (decisions 0106, 0186).

Their names are outside the namespaces of installed contracts, so that none can replace an installed one.
Under `experimental.` the version is derived from the whole contract: a changed contract is another
capability, which no earlier consent, grant or token version covers. Elsewhere the version is the author's;
such a contract is taken from this node's own processes only. No I/O.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from hearthnet.contracts.contract import Contract
from hearthnet.contracts.namespaces import PREFIX, is_derived, is_home_only
from hearthnet.contracts.schema import compile_schema
from hearthnet.contracts.supplied_schema import Bounds
from hearthnet.core.canonical_json import canonical_json, content_hash
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.errors import HearthNetError

MOST_BYTES: Final = 64 * 1024
"""Maximum size of one contract, in canonical JSON."""
MAX_EVENTS: Final = 16
"""Maximum number of kinds of frames of one stream."""
_EVENT: Final = re.compile("[a-z][a-z0-9_]{0,63}")
"""The names of frames, which stand in lines of their own in server-sent events."""
_IDEMPOTENT: Final = {False: {"pure", "no"}, True: {"client_id", "natural", "no"}}
"""The values that fit a capability without and with side effects."""
_DRAFT: Final = "0.0"
_VERIFIED: Final = "_verified"
"""Set in a contract that was verified, and in no copy of it: schemas are compiled once until it is called.

What is compiled is not kept: it may take ten times the memory of the contract, and most are never called.
"""
_MAJORS: Final = 10**15 - 1
"""Number of possible versions: finding another contract with the same version would take years."""


def versioned(contract: Contract) -> Contract:
    """Return `contract` with the version derived from the rest of it.

    Raises:
        HearthNetError: `bad_request` for another kind of name, an invalid schema or more than `MOST_BYTES`.
    """
    draft = msgspec.structs.replace(contract, version=_DRAFT)
    if not is_derived(contract.name):
        raise HearthNetError("bad_request", f"{contract.name} is not under {PREFIX}")
    check_usable(draft)
    return msgspec.structs.replace(contract, version=_version(draft))


def verify(contract: Contract) -> None:
    """Check that a provider may supply `contract`.

    Raises:
        HearthNetError: `bad_request` if its version does not follow from its contents, if a schema is invalid
            or too large, or if contracts of that name are installed.
    """
    if contract.__dict__.get(_VERIFIED):
        return
    if is_home_only(contract.name):
        check_usable(contract)
    elif versioned(contract).version != contract.version:
        raise HearthNetError("bad_request", f"{contract.id} is not the version of what it says")
    contract.__dict__[_VERIFIED] = True


def checked(value: Any, capability: str) -> Contract:
    """Return the contract of `capability` that a provider supplied as the JSON `value`.

    `capability` is `name@major.minor`.

    Raises:
        HearthNetError: `bad_request` if it is another one, or no contract that a provider may supply.
    """
    if len(msgspec.json.encode(value)) > 2 * MOST_BYTES:  # before anything walks through it
        raise HearthNetError("bad_request", f"what was told of {capability} is larger than any contract")
    try:
        contract = msgspec.convert(value, Contract)
    except msgspec.ValidationError as error:
        raise HearthNetError(
            "bad_request", f"what was told of {capability} is no contract: {error}"
        ) from error
    if contract.id != capability:
        raise HearthNetError("bad_request", f"what was told is not the contract of {capability}")
    verify(contract)
    return contract


def _version(draft: Contract) -> str:
    hashed = content_hash(canonical_json(msgspec.to_builtins(draft)))
    return f"{1 + int(hashed.rpartition(':')[2], 16) % _MAJORS}.0"


def _check_schemas(contract: Contract) -> None:
    bounds = Bounds() if is_derived(contract.name) else None
    if bounds:
        for schema in contract.schemas():
            bounds.check(schema)
    size = len(canonical_json(msgspec.to_builtins(contract)))
    if size > MOST_BYTES:
        raise HearthNetError("bad_request", f"a contract of {size} bytes; {MOST_BYTES} at most")
    for schema in contract.schemas():
        compile_schema(schema, bounds.weight if bounds else None)


def check_usable(contract: Contract) -> None:
    """Check that a contract from outside this project can be called.

    Raises:
        HearthNetError: `bad_request` for an invalid name, a schema that is invalid or beyond the bounds
            (contracts/supplied_schema.py), more than `MOST_BYTES`, a request that is no object of params and
            input, a reply that is none with an output, other names of frames, a time or a number of places
            under 1, and an idempotency that does not fit its effects.
    """
    parse_capability(contract.id)
    _check_schemas(contract)
    try:
        contract.tool_schema(None, frozenset())
        required = contract.request_schema["properties"]["input"].get("required", ())
    except (KeyError, TypeError, AttributeError) as error:
        raise HearthNetError("bad_request", "the request is no object of params and input") from error
    outputs = contract.response_schema.get("properties")
    if not isinstance(outputs, dict) or "output" not in outputs:
        raise HearthNetError("bad_request", "the reply is no object with an output")
    events = contract.stream_schema or {}
    if len(events) > MAX_EVENTS or not all(map(_EVENT.fullmatch, events)):
        raise HearthNetError(
            "bad_request", f"the frames are not up to {MAX_EVENTS} of names like {_EVENT.pattern}"
        )
    if contract.timeout_seconds < 1 or contract.max_concurrent < 1:
        raise HearthNetError("bad_request", "timeout_seconds and max_concurrent are at least 1")
    if contract.idempotent not in _IDEMPOTENT[contract.side_effects]:
        effects = "with side effects" if contract.side_effects else "without side effects"
        raise HearthNetError("bad_request", f"a capability {effects} is not {contract.idempotent!r}")
    if contract.idempotent == "client_id" and "client_id" not in required:
        raise HearthNetError("bad_request", "its input has to require client_id, by which it happens once")
