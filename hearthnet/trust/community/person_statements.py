"""Statements of persons about their keys and devices: their contents, signatures and checks.

Events of any author carry them. They prove themselves, so it does not matter who writes them or how often;
which of them count is found from all of them together (trust/community/persons.py).

See: docs/protocol/persons.md#statements, docs/decisions/0203-persons.md.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, assert_never

import msgspec

from hearthnet.core import ids
from hearthnet.core.canonical_json import canonical_json
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.keys import Identity, verify

KEY_PURPOSE: Final = "person key"
DEVICE_PURPOSE: Final = "person device"
CONSENT_PURPOSE: Final = "device consent"
REMOVAL_PURPOSE: Final = "person device removal"

KEYED: Final = "community.person.keyed"
DEVICE_ADDED: Final = "community.person.device_added"
DEVICE_REMOVED: Final = "community.person.device_removed"

MAX_DEVICES: Final = 24
"""Maximum number of devices of a person.

An event that names all of them has less than 2,048 bytes, and so has every other one with a statement:
earlier versions pass on no larger ones of kinds unknown to them.
"""

MAX_HEADS: Final = 8
"""Maximum number of branches of a removed node that are named, for the same reason."""

REMOVED_DEVICE: Final = "this device was removed by its person and never comes back"
"""Reason against a key that was a device."""

DeviceKind = Literal["node", "browser", "phone", "program"]
TokenForm = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{43}\Z")]
Hash = Annotated[str, msgspec.Meta(pattern=r"^blake3:[0-9a-f]{64}\Z")]

Epoch = Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]


class Statement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A statement of the person with this id, which is the public half of its recovery key."""

    person: str
    signature: str


class PersonKeyed(Statement, frozen=True, kw_only=True):
    """The person key `key` from `epoch` on, and the devices of earlier epochs that stay, in token form.

    Signed by the recovery key.
    """

    epoch: Epoch
    key: str
    devices: Annotated[tuple[TokenForm, ...], msgspec.Meta(max_length=MAX_DEVICES)]


class DeviceAdded(Statement, frozen=True, kw_only=True):
    """A device of the person, signed by the person key `key` and by the device's own key."""

    key: str
    device: str
    kind: DeviceKind
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    device_signature: str


class DeviceRemoved(Statement, frozen=True, kw_only=True):
    """The removal of a device, signed by `key`: the person key, or the recovery key.

    Of the events of a node, those up to `target_heads` count as before.
    """

    key: str
    device: str
    target_heads: Annotated[tuple[Hash, ...], msgspec.Meta(max_length=MAX_HEADS)]
    reason: Annotated[str, msgspec.Meta(max_length=64)]


Content = PersonKeyed | DeviceAdded | DeviceRemoved
CONTENTS: Final[dict[str, Any]] = {
    KEYED: PersonKeyed,
    DEVICE_ADDED: DeviceAdded,
    DEVICE_REMOVED: DeviceRemoved,
}


def statement_bytes(community: str, statement: Statement) -> bytes:
    """Return the signed bytes: the statement without signatures, and the community it is for.

    Named with the community, a statement counts in no other one: a device that was removed here could be
    added there by repeating what is old.
    """
    members = msgspec.to_builtins(statement)
    unsigned = {name: value for name, value in members.items() if not name.endswith("signature")}
    return canonical_json({**unsigned, "community_id": community})


def keyed(
    community: str, recovery: Identity, epoch: int, key: str, devices: tuple[str, ...] = ()
) -> PersonKeyed:
    """Return the signed statement that `key` is the person key from `epoch` on; `devices` (node ids) stay."""
    bare = PersonKeyed(
        person=recovery.node_id,
        epoch=epoch,
        key=key,
        devices=tuple(sorted(map(ids.token_form, devices))),
        signature="",
    )
    signature = signature_of(recovery, KEY_PURPOSE, statement_bytes(community, bare))
    return msgspec.structs.replace(bare, signature=signature)


def offered_device(
    community: str, person: str, key: Identity, device: str, kind: DeviceKind, name: str
) -> DeviceAdded:
    """Return the statement that `device` is the person's, signed by the person key and not by the device."""
    bare = DeviceAdded(
        person=person,
        key=key.node_id,
        device=device,
        kind=kind,
        name=name,
        signature="",
        device_signature="",
    )
    signature = signature_of(key, DEVICE_PURPOSE, statement_bytes(community, bare))
    return msgspec.structs.replace(bare, signature=signature)


def consented(community: str, offered: DeviceAdded, device: Identity) -> DeviceAdded:
    """Return the statement `offered` with the signature of the device's own key."""
    signature = signature_of(device, CONSENT_PURPOSE, statement_bytes(community, offered))
    return msgspec.structs.replace(offered, device_signature=signature)


def device_removed(
    community: str, person: str, signer: Identity, device: str, heads: tuple[str, ...], reason: str = ""
) -> DeviceRemoved:
    """Return the signed statement that `device` is removed; `signer` is the person key or the recovery key.

    `heads` are the hashes of the last events of the device that count, of each branch of its chain.
    """
    bare = DeviceRemoved(
        person=person, key=signer.node_id, device=device, target_heads=heads, reason=reason, signature=""
    )
    signature = signature_of(signer, REMOVAL_PURPOSE, statement_bytes(community, bare))
    return msgspec.structs.replace(bare, signature=signature)


def check_statement(community: str, author: str, statement: Content) -> None:
    """Check what the statement of an event by `author` says by itself.

    Raises:
        HearthNetError: `bad_request` if it contradicts itself; `invalid_signature` if a signature is not
            by the key that the statement names.
    """
    match statement:
        case PersonKeyed():
            _check_keyed(statement)
            signers = [(statement.person, KEY_PURPOSE, statement.signature)]
        case DeviceAdded():
            _check_added(author, statement)
            signers = [
                (statement.key, DEVICE_PURPOSE, statement.signature),
                (statement.device, CONSENT_PURPOSE, statement.device_signature),
            ]
        case DeviceRemoved():
            check_apart(statement.person, statement.device)
            check_apart(statement.key, statement.device)
            signers = [(statement.key, REMOVAL_PURPOSE, statement.signature)]
        case _:
            assert_never(statement)
    data = statement_bytes(community, statement)
    for signer, purpose, signature in signers:
        check_signature(signer, purpose, data, signature)


def _check_keyed(statement: PersonKeyed) -> None:
    check_apart(statement.person, statement.key)
    for token in statement.devices:
        ids.from_token_form(token)
    if len(set(statement.devices)) < len(statement.devices):
        raise HearthNetError("bad_request", "a device that stays is named once")
    if statement.epoch == 1 and statement.devices:
        raise HearthNetError("bad_request", "no device is there before the first epoch of a person")


def _check_added(author: str, statement: DeviceAdded) -> None:
    check_apart(statement.person, statement.key)
    check_apart(statement.person, statement.device)
    check_apart(statement.key, statement.device)
    # Its own chain shows which of two persons a node named first; an event of others could be dated back.
    if (statement.kind == "node") != (author == statement.device):
        raise HearthNetError(
            "bad_request", "a node is added by its own event, and other devices by a member's"
        )


def check_apart(one: str, other: str) -> None:
    """Check that both are ids of keys, and different ones.

    Raises:
        HearthNetError: `bad_request` if not.
    """
    ids.public_key(one)
    ids.public_key(other)
    if one == other:
        raise HearthNetError("bad_request", "recovery key, person key and device keys are different ones")


def check_signature(signer: str, purpose: str, data: bytes, signature: str) -> None:
    """Check a signature in its text form.

    Raises:
        HearthNetError: `invalid_signature` if it is not that of `signer`.
    """
    if not verify(signer, purpose, data, _bytes_of(signature)):
        raise HearthNetError("invalid_signature", f"the {purpose} is not signed by {ids.short_id(signer)}")


def signature_of(signer: Identity, purpose: str, data: bytes) -> str:
    """Return the signature of `signer` in its text form."""
    return ids.PREFIX + ids.b64(signer.sign(purpose, data))


def _bytes_of(signature: str) -> bytes:
    """Return the bytes of a signature; none if the text is not in its one form."""
    try:
        return ids.unb64(signature.removeprefix(ids.PREFIX)) if signature.startswith(ids.PREFIX) else b""
    except HearthNetError:
        return b""
