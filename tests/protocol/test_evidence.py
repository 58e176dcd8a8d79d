"""An audit entry and the caller's frame in it say the same, or it is told what differs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hearthnet.core import ids
from hearthnet.core.canonical_json import content_hash, digest
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol import evidence, frame
from hearthnet.protocol.header import Header
from hearthnet.trust import audit_chain
from hearthnet.trust.audit_chain import AuditEntry
from hearthnet.trust.authorization.approval import ANY_PROVIDER, Approval, sign_approval
from hearthnet.trust.authorization.grant import Grant, sign_grant
from hearthnet.trust.authorization.token import Scope, decode, mint
from hearthnet.trust.keys import Identity

ANNA, BERTA, ROOT = (Identity(bytes([number]) * 32) for number in (1, 2, 3))
CALL, RUN, KEY = (ids.new_ulid(number) for number in (1, 2, 3))
BODY: dict[str, Any] = {"params": {}, "input": {"client_id": KEY}}
TOKEN = mint(
    ANNA,
    subject=ANNA.node_id,
    audience=ROOT.node_id,
    scope=Scope(("market.post",)),
    now_ms=0,
    ttl_seconds=60,
    run=RUN,
)
APPROVAL = sign_approval(
    ANNA,
    Approval(
        id=ids.new_ulid(4),
        community=ROOT.node_id,
        approver=ANNA.node_id,
        actor=ANNA.node_id,
        provider=BERTA.node_id,
        capability="market.post@1.0",
        arguments_digest=digest(BODY),
        idempotency_key=KEY,
        run=RUN,
        tool_call_id="call_1",
        time=0,
        expires=1,
    ),
)

GRANT = sign_grant(
    ANNA,
    Grant(
        id=ids.new_ulid(5),
        community=ROOT.node_id,
        approver=ANNA.node_id,
        actor=ANNA.node_id,
        provider=BERTA.node_id,
        capability="market.post@1.0",
        params_constraints={},
        tool_hash="",
        max_uses=3,
        time=0,
        expires=1,
    ),
)
GRANTED: dict[str, Any] = {"approval": None, "grant": msgspec.to_builtins(GRANT), "use": 2}


def proof(**header: Any) -> str:
    """Anna's signed frame of the call, less what a test changes about its header."""
    said: dict[str, Any] = {
        "kind": "call",
        "id": CALL,
        "sender": ANNA.node_id,
        "community": ROOT.node_id,
        "time": 1,
        "from_instance": "a1b2c3d4",
        "to": BERTA.node_id,
        "to_instance": "e5f6g7h8",
        "capability": "market.post@1.0",
        "token": TOKEN,
        "run": RUN,
        "idempotency_key": KEY,
        "approval": msgspec.to_builtins(APPROVAL),
    }
    body = header.pop("body", BODY)
    return audit_chain.evidence(frame.signed(Header(**{**said, **header}), msgspec.json.encode(body), ANNA))


def entry(**changes: Any) -> AuditEntry:
    """Berta's entry of that call."""
    fields: dict[str, Any] = {
        "node": BERTA.node_id,
        "community": ROOT.node_id,
        "sequence": 1,
        "previous": "",
        "time": 1,
        "kind": "began",
        "call": CALL,
        "instance": "e5f6g7h8",
        "service": "market",
        "capability": "market.post@1.1",
        "caller": ANNA.node_id,
        "principal": ANNA.node_id,
        "token": decode(TOKEN).jti,
        "run": RUN,
        "approval": APPROVAL.id,
        "digest": digest(BODY),
        "idempotency_key": KEY,
        "frame": proof(),
    }
    return AuditEntry(**{**fields, **changes})


@pytest.mark.req("AUDIT-3")
def test_an_entry_and_its_evidence_agree() -> None:
    assert evidence.problem(entry()) == ""
    direct = proof(token="", run="", approval=None)
    assert evidence.problem(entry(token="", run="", approval="", frame=direct)) == ""
    granted = entry(approval="", grant=GRANT.id, use=2, frame=proof(**GRANTED))
    assert evidence.problem(granted) == ""


@pytest.mark.req("AUDIT-3")
@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"call": RUN}, "call"),
        ({"node": ANNA.node_id}, "node"),
        ({"instance": "i9j0k1l2"}, "process"),
        ({"community": ANNA.node_id}, "community"),
        ({"capability": "market.expire@1.0"}, "capability"),
        ({"token": RUN}, "token"),
        ({"token": "", "frame": proof()}, "token"),
        ({"run": ""}, "run"),
        ({"idempotency_key": RUN}, "idempotency key"),
        ({"digest": digest({})}, "arguments"),
        ({"frame": proof(body={"params": {}, "input": {}})}, "arguments"),
        ({"approval": ""}, "approval"),
        ({"frame": proof(approval=None)}, "approval"),
        ({"approval": "", "grant": GRANT.id, "use": 1, "frame": proof(**GRANTED)}, "standing grant"),
        ({"approval": "", "frame": proof(**GRANTED)}, "standing grant"),
        ({"grant": GRANT.id, "use": 2}, "standing grant"),
        ({"principal": BERTA.node_id}, "principal"),
        ({"principal": f"{ANNA.node_id}/carl"}, "principal"),
    ],
)
def test_an_entry_that_says_something_else_is_told(changes: dict[str, Any], what: str) -> None:
    assert evidence.problem(entry(**changes)) == f"the caller's frame says otherwise: {what}"


@pytest.mark.req("AUDIT-3")
@pytest.mark.parametrize(
    "changes",
    [
        {"caller": BERTA.node_id},
        {"caller": "nobody"},
        {"frame": ""},
        {"frame": "not base64url!"},
        {"frame": ids.b64(b"HN1 p\n{}\n")},
        {"frame": proof(approval={**msgspec.to_builtins(APPROVAL), "expires": 2})},
        {"frame": proof(approval={})},
        {"approval": "", "frame": proof(**{**GRANTED, "grant": {**GRANTED["grant"], "max_uses": 4}})},
        {"frame": proof(token="hntoken://v1/x")},
    ],
)
def test_a_frame_that_proves_nothing_is_told(changes: dict[str, Any]) -> None:
    assert evidence.problem(entry(**changes)).startswith("the caller's frame proves nothing: ")


@pytest.mark.req("AUDIT-3")
def test_what_is_kept_as_a_hash_and_what_keeps_nothing_is_not_wrong() -> None:
    assert evidence.problem(entry(frame=content_hash(b"large"))) == ""
    assert evidence.problem(entry(kind="ended", frame="")) == ""


@pytest.mark.req("AUDIT-13")
def test_what_the_caller_signed_is_shown() -> None:
    for frame_of, approver, grantor in (
        (proof(), ANNA.node_id, ""),
        (proof(**GRANTED), "", ANNA.node_id),
        (proof(approval=None), "", ""),
    ):
        shown = evidence.signed_call(entry(frame=frame_of))
        assert shown is not None
        assert (shown.arguments, shown.approver, shown.grantor) == (BODY, approver, grantor)
    assert evidence.signed_call(entry(frame=content_hash(b"frame"))) is None
    assert evidence.signed_call(entry(kind="decided")) is None


@pytest.mark.req("AUDIT-13")
def test_an_approval_of_another_call_is_none_of_this_one() -> None:
    for change in ({"arguments_digest": digest({})}, {"idempotency_key": "x"}, {"run": "x"}):
        other = sign_approval(ANNA, msgspec.structs.replace(APPROVAL, **change))
        with pytest.raises(HearthNetError, match="is for another call"):
            evidence.signed_call(entry(frame=proof(approval=msgspec.to_builtins(other))))


@pytest.mark.req("AUDIT-13", "ATTACK-33")
def test_an_approval_that_the_provider_must_not_accept_approves_nothing() -> None:
    assert evidence.signed_call(entry()).other == ""  # type: ignore[union-attr]
    for change, other in (
        ({"actor": BERTA.node_id}, "actor"),
        ({"provider": ANNA.node_id}, "provider"),
        ({"community": ANNA.node_id}, "community"),
        ({"time": 10**15, "expires": 10**15}, "time"),
    ):
        given = sign_approval(ANNA, msgspec.structs.replace(APPROVAL, **change))
        shown = evidence.signed_call(entry(frame=proof(approval=msgspec.to_builtins(given))))
        assert shown is not None
        assert shown.other == other
    given = sign_approval(BERTA, msgspec.structs.replace(APPROVAL, approver=BERTA.node_id))
    shown = evidence.signed_call(entry(frame=proof(approval=msgspec.to_builtins(given))))
    assert shown is not None
    assert (shown.approver, shown.other) == (BERTA.node_id, "approver")


def lent(issuer: Identity, **more: str) -> str:
    """A token by which `issuer` lets Anna act for it, or for a guest of it."""
    scope = Scope(("market.post",))
    return mint(
        issuer,
        subject=ANNA.node_id,
        audience=ROOT.node_id,
        scope=scope,
        now_ms=0,
        ttl_seconds=60,
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.req("AUDIT-13")
@pytest.mark.parametrize(
    ("token", "by", "via", "other"),
    [
        ("", ANNA, "", ""),
        ("", BERTA, "", "approver"),
        (lent(BERTA), BERTA, "", ""),
        (lent(BERTA), ANNA, "", "approver"),
        (lent(ANNA, principal="carl"), ANNA, "gateway", ""),
        (lent(ANNA, principal="carl"), ANNA, "", "way of consent"),
        (lent(ANNA, principal="carl", cnf=BERTA.node_id), BERTA, "", ""),
        (lent(ANNA, principal="carl", cnf=BERTA.node_id), ANNA, "gateway", "approver"),
    ],
)
def test_an_approval_counts_of_whom_the_callers_token_names(
    token: str, by: Identity, via: str, other: str
) -> None:
    changed = msgspec.structs.replace(APPROVAL, approver=by.node_id, via=via or msgspec.UNSET)
    given = sign_approval(by, changed)
    shown = evidence.signed_call(entry(frame=proof(token=token, approval=msgspec.to_builtins(given))))
    assert shown is not None
    assert (shown.approver, shown.other) == (by.node_id, other)


@pytest.mark.req("AUDIT-13")
@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("community.promote@1.0", ""),
        ("market.post@1.0", "provider"),
        ("community.promote@9.0", "provider"),
        ("experimental.key.nobody.hello.greet@1.0", "provider"),
    ],
)
def test_an_approval_for_any_provider_is_for_shared_logs(name: str, other: str) -> None:
    changed = msgspec.structs.replace(APPROVAL, provider=ANY_PROVIDER, capability=name)
    given = msgspec.to_builtins(sign_approval(ANNA, changed))
    shown = evidence.signed_call(entry(capability=name, frame=proof(capability=name, approval=given)))
    assert shown is not None
    assert shown.other == other


@pytest.mark.req("AUDIT-3")
def test_a_guest_is_the_principal_of_its_call() -> None:
    token = lent(ANNA, principal="carl")
    guests = {
        "token": decode(token).jti,
        "run": "",
        "approval": "",
        "frame": proof(token=token, run="", approval=None),
    }
    assert evidence.problem(entry(principal=f"{ANNA.node_id}/carl", **guests)) == ""
    assert evidence.problem(entry(**guests)).endswith("principal")
