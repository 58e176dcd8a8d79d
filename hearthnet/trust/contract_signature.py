"""Signatures by which a contract of a package is shared between homes (docs/decisions/0187).

At other homes `hello.greet` is `experimental.key.<label of the key>.hello.greet`, with a version derived from
the contract. The signature says who wrote the contract, not who runs the program behind it.

See: docs/protocol/discovery.md#signed-contracts.
"""

from __future__ import annotations

import base64
import re
from typing import Any, Final

import blake3
import msgspec

from hearthnet.contracts import Contract
from hearthnet.contracts.dynamic import versioned
from hearthnet.contracts.namespaces import PREFIX, is_home_only
from hearthnet.core import ids
from hearthnet.core.canonical_json import digest
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.errors import HearthNetError
from hearthnet.trust import signed_document
from hearthnet.trust.keys import Identity

PURPOSE: Final = "contract"
_LABEL_CHARACTERS: Final = 26
_SHARED: Final = re.compile(re.escape(PREFIX) + r"key\.([a-z2-7]{26})\.(.+)")


class ContractSignature(signed_document.Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The signature of `key` over the digest of the contract of `capability` (`name@major.minor`)."""

    capability: str
    contract: str
    key: str
    v: int = 1


def sign_contract(identity: Identity, contract: Contract) -> ContractSignature:
    """Sign the contract of a package.

    Raises:
        HearthNetError: `bad_request` for a contract in a namespace of HearthNet.
    """
    if not is_home_only(contract.name):
        raise HearthNetError("bad_request", f"{contract.name} is in a namespace of HearthNet itself")
    draft = ContractSignature(capability=contract.id, contract=_digest(contract), key=identity.node_id)
    return signed_document.sign(draft, identity, PURPOSE)


def decode(value: Any) -> ContractSignature:
    """Read the JSON value of a signature.

    Raises:
        HearthNetError: `invalid_signature` if it is malformed.
    """
    try:
        signature = msgspec.convert(value, ContractSignature)
        ids.public_key(signature.key)
        parse_capability(signature.capability)
    except (msgspec.ValidationError, HearthNetError) as error:
        raise HearthNetError(
            "invalid_signature", f"the contract's signature is malformed: {error}"
        ) from error
    return signature


def check_contract(signature: ContractSignature, contract: Contract) -> None:
    """Check that `signature` is valid for exactly this contract.

    Raises:
        HearthNetError: `invalid_signature` if not.
    """
    signed_document.check(signature, signature.key, PURPOSE)
    if (signature.v, signature.capability, signature.contract) != (1, contract.id, _digest(contract)):
        raise HearthNetError("invalid_signature", f"the signature is for another contract than {contract.id}")


def key_label(key: str) -> str:
    """Return the 26 letters and digits that stand for a public key in names: 130 bits of its BLAKE3."""
    hashed = blake3.blake3(ids.public_key(key)).digest()
    return base64.b32encode(hashed).decode("ascii").lower()[:_LABEL_CHARACTERS]


def shared_contract(contract: Contract, key: str) -> Contract:
    """Return the contract of a package under its name between homes.

    Raises:
        HearthNetError: `bad_request` if that name is too long.
    """
    name = f"{PREFIX}key.{key_label(key)}.{contract.name}"
    return versioned(msgspec.structs.replace(contract, name=name))


def plain_name(name: str) -> str:
    """Return the name at home of a capability shared under a key; empty for any other."""
    found = _SHARED.fullmatch(name)
    return found[2] if found else ""


def check_shared(contract: Contract, value: Any) -> None:
    """Check a contract under its name between homes; `value` is the signature that its provider supplied.

    Raises:
        HearthNetError: `invalid_signature` if the key in the name did not sign it.
    """
    found = _SHARED.fullmatch(contract.name)
    signature = decode(value)
    if found is None or key_label(signature.key) != found[1]:
        raise HearthNetError("invalid_signature", f"the key in {contract.name} did not sign its contract")
    version = signature.capability.rpartition("@")[2]
    check_contract(signature, msgspec.structs.replace(contract, name=found[2], version=version))


def _digest(contract: Contract) -> str:
    return digest(msgspec.to_builtins(contract))
