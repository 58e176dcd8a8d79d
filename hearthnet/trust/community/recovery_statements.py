"""Statements about a recovery by helpers: their contents, signatures and checks.

What helpers hold is no recovery key. It signs the announcement of a recovery, which counts once witnesses,
whom the person has named with the recovery key, have seen the waiting time pass without an objection.

See: docs/protocol/persons.md#helpers, docs/decisions/0208-recovery-by-helpers.md.
"""

from __future__ import annotations

import base64
from typing import Annotated, Any, Final, TypeVar, assert_never

import blake3
import msgspec

from hearthnet.core import ids
from hearthnet.core.canonical_json import content_hash
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.community import person_statements
from hearthnet.trust.community.person_statements import (
    MAX_DEVICES,
    Epoch,
    Hash,
    Statement,
    TokenForm,
    check_apart,
    check_signature,
    signature_of,
    statement_bytes,
)
from hearthnet.trust.keys import Identity

Signed = TypeVar("Signed", bound=Statement)
HELPERS_PURPOSE: Final = "person helpers"
BEGUN_PURPOSE: Final = "person recovery"
WITNESS_PURPOSE: Final = "recovery witness"
OBJECTION_PURPOSE: Final = "recovery objection"

HELPERS_NAMED: Final = "community.person.helpers_named"
BEGUN: Final = "community.person.recovery_begun"
WITNESSED: Final = "community.person.recovery_witnessed"
OBJECTED: Final = "community.person.recovery_objected"

REQUIRED_WITNESSES: Final = 3
"""Witnesses that a recovery takes: one more than the helpers who could collude."""
MAX_WITNESSES: Final = 12
MAX_EPOCHS: Final = 64
"""Maximum number of epochs that a recovery by helpers may be above the last one of the recovery key.

The recovery key always finds a higher one.
"""
_CODE_LENGTH: Final = 12
MAX_WAIT_SECONDS: Final = 30 * 86_400


class HelpersNamed(Statement, frozen=True, kw_only=True):
    """The key that the helpers of the person hold together, and the nodes that witness what it announces.

    Of several, that with the highest `number` counts. `epoch` is the person's at that time: what earlier
    helpers begin counts up to it. Signed by the recovery key.
    """

    number: Epoch
    epoch: Epoch
    key: str
    # One second is as safe as a year: who could sign it has the recovery key, and needs no helper.
    wait_seconds: Annotated[int, msgspec.Meta(ge=1, le=MAX_WAIT_SECONDS)]
    witnesses: Annotated[tuple[TokenForm, ...], msgspec.Meta(max_length=MAX_WITNESSES)]


class RecoveryBegun(Statement, frozen=True, kw_only=True):
    """The announcement that `key` is to be the person key from `epoch` on.

    Signed by the helpers' key `helpers`.
    `base` is the last epoch that the recovery key had signed. `devices`, in token form, stay.
    """

    helpers: str
    base: Epoch
    epoch: Epoch
    key: str
    devices: Annotated[tuple[TokenForm, ...], msgspec.Meta(max_length=MAX_DEVICES)]


class _AboutRecovery(Statement, frozen=True, kw_only=True):
    """A statement by `key` about the announcement with this hash (`recovery_id`)."""

    key: str
    recovery: Hash


class RecoveryWitnessed(_AboutRecovery, frozen=True, kw_only=True):
    """The word of a witness that it has held the announcement for the waiting time, and no objection."""


class RecoveryObjected(_AboutRecovery, frozen=True, kw_only=True):
    """The word of a device of the person that the announcement is not to take effect."""


Content = HelpersNamed | RecoveryBegun | RecoveryWitnessed | RecoveryObjected
CONTENTS: Final[dict[str, Any]] = {
    HELPERS_NAMED: HelpersNamed,
    BEGUN: RecoveryBegun,
    WITNESSED: RecoveryWitnessed,
    OBJECTED: RecoveryObjected,
}
STATEMENTS: Final[dict[str, Any]] = {**person_statements.CONTENTS, **CONTENTS}
"""All kinds of statements of persons."""


def recovery_id(community: str, begun: RecoveryBegun) -> str:
    """Return the hash by which statements name the announcement `begun`."""
    return content_hash(statement_bytes(community, begun))


def share_code(community: str, person: str, node: str) -> str:
    """Return the code by which a helper knows `node` as that of the person: 12 letters and digits."""
    digest = blake3.blake3(f"{community} {person} {node}".encode("ascii")).digest()
    return base64.b32encode(digest).decode("ascii")[:_CODE_LENGTH].lower()


def helpers_named(
    community: str,
    recovery: Identity,
    key: str,
    *,
    number: int,
    epoch: int,
    wait_seconds: int,
    witnesses: tuple[str, ...],
) -> HelpersNamed:
    """Return the statement, signed by the recovery key, that helpers hold `key`; `witnesses` are node ids."""
    bare = HelpersNamed(
        person=recovery.node_id,
        number=number,
        epoch=epoch,
        key=key,
        wait_seconds=wait_seconds,
        witnesses=tuple(sorted(map(ids.token_form, witnesses))),
        signature="",
    )
    return _signed(community, recovery, HELPERS_PURPOSE, bare)


def recovery_begun(
    community: str, person: str, helpers: Identity, key: str, *, base: int, epoch: int, stay: tuple[str, ...]
) -> RecoveryBegun:
    """Return the announcement of a recovery, signed by the helpers' key; the devices in `stay` stay."""
    bare = RecoveryBegun(
        person=person,
        helpers=helpers.node_id,
        base=base,
        epoch=epoch,
        key=key,
        devices=tuple(sorted(map(ids.token_form, stay))),
        signature="",
    )
    return _signed(community, helpers, BEGUN_PURPOSE, bare)


def witnessed(community: str, person: str, recovery: str, witness: Identity) -> RecoveryWitnessed:
    """Return the word of `witness` that the waiting time has passed without an objection."""
    bare = RecoveryWitnessed(person=person, key=witness.node_id, recovery=recovery, signature="")
    return _signed(community, witness, WITNESS_PURPOSE, bare)


def objected(community: str, person: str, recovery: str, device: Identity) -> RecoveryObjected:
    """Return the objection of `device` to a recovery of its person."""
    bare = RecoveryObjected(person=person, key=device.node_id, recovery=recovery, signature="")
    return _signed(community, device, OBJECTION_PURPOSE, bare)


def check_recovery_statement(community: str, statement: Content) -> None:
    """Check what a statement about a recovery says by itself.

    Raises:
        HearthNetError: `bad_request` if it contradicts itself; `invalid_signature` if it is not signed by
            the key that it names.
    """
    match statement:
        case HelpersNamed():
            check_apart(statement.person, statement.key)
            _check_tokens(statement.witnesses)
            signer, purpose = statement.person, HELPERS_PURPOSE
        case RecoveryBegun():
            _check_begun(statement)
            signer, purpose = statement.helpers, BEGUN_PURPOSE
        case RecoveryWitnessed():
            check_apart(statement.person, statement.key)
            signer, purpose = statement.key, WITNESS_PURPOSE
        case RecoveryObjected():
            check_apart(statement.person, statement.key)
            signer, purpose = statement.key, OBJECTION_PURPOSE
        case _:
            assert_never(statement)
    check_signature(signer, purpose, statement_bytes(community, statement), statement.signature)


def _check_begun(statement: RecoveryBegun) -> None:
    check_apart(statement.person, statement.key)
    check_apart(statement.person, statement.helpers)
    check_apart(statement.helpers, statement.key)
    _check_tokens(statement.devices)
    if not 0 < statement.epoch - statement.base <= MAX_EPOCHS:
        raise HearthNetError(
            "bad_request", f"a recovery by helpers is 1 to {MAX_EPOCHS} epochs above the recovery key's last"
        )


def _check_tokens(tokens: tuple[str, ...]) -> None:
    for token in tokens:
        ids.from_token_form(token)
    if len(set(tokens)) < len(tokens):
        raise HearthNetError("bad_request", "a key is named once in a list")


def _signed(community: str, signer: Identity, purpose: str, bare: Signed) -> Signed:
    signature = signature_of(signer, purpose, statement_bytes(community, bare))
    return msgspec.structs.replace(bare, signature=signature)
