"""Approvals: a person's signed consent to one exact call.

See: docs/protocol/approvals.md#approval.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final, Literal

import msgspec

from hearthnet.core import ids
from hearthnet.core.capability_name import Count
from hearthnet.core.errors import HearthNetError
from hearthnet.trust import signed_document
from hearthnet.trust.authorization.token import MAX_TTL_SECONDS
from hearthnet.trust.keys import Identity

PURPOSE: Final = "approval"
ANY_PROVIDER: Final = "*"
Via = Literal["", "gateway"]
"""Origin of the consent: the person's own key, or the gateway of a guest without a key."""
SKEW_MS: Final = 60_000
MAX_LIFE_MS: Final = MAX_TTL_SECONDS * 1000
"""The longest life of an approval: whoever gets hold of an older one cannot use it."""
MAX_NAME: Final = 64
"""Maximum of characters in the names that an approval gives itself, since it is recorded."""


class Consent(signed_document.Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The members that an approval and a standing grant share.

    `time` and `expires` are milliseconds since the epoch. `person` is set only if the approver is another
    device of the person whose device has to approve.
    """

    KIND: ClassVar[str]

    id: str
    community: str
    approver: str
    actor: str
    provider: str
    capability: str
    time: Count
    expires: Count
    v: int = 1
    person: str | msgspec.UnsetType = msgspec.UNSET

    def approver_for(self, call: Claimed) -> str:
        """Return the approver if its consent counts for `call`, else the one that is required.

        The approver is the required key itself, or another device of the same person, which is named then.
        That takes a key of the person's own: what a gateway approves for a guest, it approves itself.
        """
        if self.person is msgspec.UNSET or self.approver == call.approver or call.via:
            return call.approver if self.person is msgspec.UNSET else ""
        devices = (call.approver, self.approver)
        return self.approver if all(call.is_device(key, self.person) for key in devices) else ""

    def check_members(self, *members: tuple[str, object, object]) -> None:
        """Check `members` in their order: name, consented value, claimed value.

        Raises:
            HearthNetError: `unauthorized` for the first one that differs.
        """
        for what, consented, claimed in members:
            if consented != claimed:
                raise HearthNetError(
                    "unauthorized", f"the {self.KIND} is for another {what}; ask the person again", rule=what
                )

    def check_time(self, now_ms: int) -> None:
        """Check that the consent is valid at `now_ms`.

        Not called for a repetition, whose recorded outcome never expires.

        Raises:
            HearthNetError: `expired` outside its lifetime, or if that is over a day.
        """
        alive = self.time <= now_ms + SKEW_MS and now_ms <= self.expires + SKEW_MS
        if not alive or self.expires - self.time > MAX_LIFE_MS:
            raise HearthNetError(
                "expired",
                f"the {self.KIND} {self.id} is no longer valid; ask the person again",
                details={"now": now_ms},
            )


class Approval(Consent, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signed consent to one call.

    `arguments_digest` is BLAKE3 over the canonical JSON of the complete `{params, input}` as it will be sent.
    `provider` is `*` only for an effect on a log that all nodes share (`Contract.is_shared_effect`). `via` is
    set only if a gateway approved for one of its guests.
    """

    KIND = "approval"

    arguments_digest: str
    idempotency_key: str
    run: str
    tool_call_id: str
    via: Literal["gateway"] | msgspec.UnsetType = msgspec.UNSET


def _no_device(key: str, person: str) -> bool:
    """Return False: without a roster there are no devices."""
    return False


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """The call that claims an approval or a standing grant, as the provider authenticated it.

    `approver` is the key whose consent counts for the call's principal, `via` its required origin
    (trust/authorization/authority.py); `is_device` tells whether a key is a device of a person now.
    """

    community: str
    approver: str
    via: Via
    actor: str
    provider: str
    capability: str
    arguments_digest: str
    idempotency_key: str
    run: str
    shared_effect: bool
    is_device: Callable[[str, str], bool] = _no_device


def sign_approval(identity: Identity, approval: Approval) -> Approval:
    """Sign the approval with `identity`, which must be its approver.

    Raises:
        HearthNetError: `unauthorized` if it is not.
    """
    if identity.node_id != approval.approver:
        raise HearthNetError("unauthorized", "an approval is signed by the one who approves")
    return signed_document.sign(approval, identity, PURPOSE)


def check_binding(approval: Approval, call: Claimed) -> None:
    """Check that the right key signed this approval for exactly this call; ignores time.

    Raises:
        HearthNetError: `bad_request` for names that are too long to be recorded; `unauthorized` if it is for
            another call; `invalid_signature` if its approver did not sign it.
    """
    if max(len(approval.id), len(approval.tool_call_id)) > MAX_NAME:
        raise HearthNetError(
            "bad_request", f"the names in an approval, id and tool_call_id, have up to {MAX_NAME} characters"
        )
    signed_document.check(approval, approval.approver, PURPOSE)
    may_be_any = call.shared_effect and approval.provider == ANY_PROVIDER
    approval.check_members(
        ("version", approval.v, 1),
        ("approver", approval.approver, approval.approver_for(call)),
        ("way of consent", approval.via or "", call.via),
        ("community", approval.community, call.community),
        ("actor", approval.actor, call.actor),
        ("provider", call.provider if may_be_any else approval.provider, call.provider),
        ("capability", approval.capability, call.capability),
        ("arguments", approval.arguments_digest, call.arguments_digest),
        ("idempotency key", approval.idempotency_key, call.idempotency_key),
        ("run", approval.run, call.run),
    )


def decode(value: object) -> Approval:
    """Read the approval in a header.

    Raises:
        HearthNetError: `bad_request` if it is malformed.
    """
    try:
        approval = msgspec.convert(value, type=Approval)
        ids.public_key(approval.approver)
    except msgspec.ValidationError as error:
        raise HearthNetError("bad_request", f"the approval is malformed: {error}") from error
    return approval
