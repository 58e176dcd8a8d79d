"""Approvals: a signed yes to one exact call.

See: docs/protocol/approvals.md#approval.
"""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest

from hearthnet.core import ids
from hearthnet.core.canonical_json import digest
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.authorization import approval
from hearthnet.trust.authorization.approval import ANY_PROVIDER, MAX_LIFE_MS, SKEW_MS, Approval, Claimed
from hearthnet.trust.keys import Identity

ANNA, BERTA, CARLA = (Identity(bytes([number]) * 32) for number in (1, 2, 3))
NOW = 1_795_292_100_000
BODY = {"params": {}, "input": {"client_id": "c", "title": "Kerzen"}}
CALL = Claimed(
    community=CARLA.node_id,
    approver=ANNA.node_id,
    via="",
    actor=BERTA.node_id,
    provider=CARLA.node_id,
    capability="market.post@1.0",
    arguments_digest=digest(BODY),
    idempotency_key="c",
    run="r",
    shared_effect=False,
)
UNSIGNED = Approval(
    id="01HZX3Q4R5S6T7V8W9XA0BC1DE",
    community=CARLA.node_id,
    approver=ANNA.node_id,
    actor=BERTA.node_id,
    provider=CARLA.node_id,
    capability="market.post@1.0",
    arguments_digest=digest(BODY),
    idempotency_key="c",
    run="r",
    tool_call_id="tc_1",
    time=NOW,
    expires=NOW + 120_000,
)
GOOD = approval.sign_approval(ANNA, UNSIGNED)
replace = msgspec.structs.replace


@pytest.mark.req("TRUST-8")
def test_an_approval_holds_for_exactly_its_call_also_after_its_journey() -> None:
    approval.check_binding(GOOD, CALL)
    approval.check_binding(approval.decode(msgspec.to_builtins(GOOD)), CALL)


@pytest.mark.req("TRUST-8")
def test_only_the_approver_signs() -> None:
    with pytest.raises(HearthNetError, match="the one who approves") as caught:
        approval.sign_approval(BERTA, UNSIGNED)
    assert caught.value.code == "unauthorized"


@pytest.mark.req("TRUST-8")
@pytest.mark.parametrize(
    ("rule", "call"),
    [
        ("approver", {"approver": BERTA.node_id}),
        ("community", {"community": ANNA.node_id}),
        ("actor", {"actor": ANNA.node_id}),
        ("provider", {"provider": BERTA.node_id}),
        ("provider", {"provider": BERTA.node_id, "shared_effect": True}),
        ("capability", {"capability": "market.expire@1.0"}),
        ("capability", {"capability": "market.post@1.1"}),
        ("arguments", {"arguments_digest": digest({**BODY, "input": {"client_id": "c", "title": "Brot"}})}),
        ("idempotency key", {"idempotency_key": "d"}),
        ("run", {"run": ""}),
        ("way of consent", {"via": "gateway"}),
    ],
    ids=range(11),
)
def test_it_holds_for_no_other_call(rule: str, call: dict[str, Any]) -> None:
    with pytest.raises(HearthNetError, match=f"another {rule}") as caught:
        approval.check_binding(GOOD, replace(CALL, **call))
    assert caught.value.code == "unauthorized"
    assert caught.value.details == {"rule": rule}


@pytest.mark.req("TRUST-8", "ATTACK-32")
@pytest.mark.parametrize("name", ["id", "tool_call_id"])
def test_names_that_are_too_long_to_be_recorded_are_refused(name: str) -> None:
    for length, fits in ((approval.MAX_NAME, True), (approval.MAX_NAME + 1, False)):
        given = approval.sign_approval(ANNA, replace(UNSIGNED, **{name: "x" * length}))
        with contextlib.nullcontext() if fits else pytest.raises(HearthNetError, match="64 characters"):
            approval.check_binding(given, CALL)


@pytest.mark.req("TRUST-8")
def test_another_version_means_something_else() -> None:
    newer = approval.sign_approval(ANNA, replace(UNSIGNED, v=2))
    with pytest.raises(HearthNetError, match="another version"):
        approval.check_binding(newer, CALL)


@pytest.mark.req("TRUST-8")
def test_any_provider_only_where_the_effect_is_the_communitys() -> None:
    anywhere = approval.sign_approval(ANNA, replace(UNSIGNED, provider=ANY_PROVIDER))
    approval.check_binding(anywhere, replace(CALL, shared_effect=True))
    approval.check_binding(GOOD, replace(CALL, shared_effect=True))
    with pytest.raises(HearthNetError, match="another provider"):
        approval.check_binding(anywhere, CALL)


@pytest.mark.req("TRUST-8")
def test_a_gateways_yes_is_one_only_where_a_gateway_approves() -> None:
    by_gateway = approval.sign_approval(ANNA, replace(UNSIGNED, via="gateway"))
    call = replace(CALL, via="gateway")
    approval.check_binding(by_gateway, call)
    approval.check_binding(approval.decode(msgspec.to_builtins(by_gateway)), call)
    with pytest.raises(HearthNetError, match="another way of consent"):
        approval.check_binding(by_gateway, CALL)


@pytest.mark.req("TRUST-8")
@pytest.mark.parametrize("field", [name for name in Approval.__struct_fields__ if name != "signature"])
def test_every_member_is_under_the_signature(field: str) -> None:
    value = getattr(GOOD, field)
    changed = {"via": "gateway", "approver": BERTA.node_id, "person": BERTA.node_id}.get(field)
    if changed is None:
        changed = value + (1 if isinstance(value, int) else "x")
    with pytest.raises(HearthNetError, match="not signed by") as caught:
        approval.check_binding(replace(GOOD, **{field: changed}), CALL)
    assert caught.value.code == "invalid_signature"


@pytest.mark.req("TRUST-8")
def test_a_signature_made_for_something_else_is_no_approval() -> None:
    data = UNSIGNED.signing_bytes()
    for signature in (ANNA.sign("frame", data), ANNA.sign_raw(data), BERTA.sign(approval.PURPOSE, data)):
        with pytest.raises(HearthNetError, match="not signed by"):
            approval.check_binding(replace(UNSIGNED, signature=ids.PREFIX + ids.b64(signature)), CALL)


@pytest.mark.req("TRUST-9")
@pytest.mark.parametrize(
    ("now", "valid"),
    [
        (NOW, True),
        (NOW - SKEW_MS, True),
        (NOW - SKEW_MS - 1, False),
        (NOW + 120_000 + SKEW_MS, True),
        (NOW + 120_001 + SKEW_MS, False),
        (0, False),
    ],
)
def test_it_has_a_beginning_and_an_end_with_a_minute_for_clocks(now: int, valid: bool) -> None:
    if valid:
        GOOD.check_time(now)
    else:
        with pytest.raises(HearthNetError, match="no longer valid") as caught:
            GOOD.check_time(now)
        assert (caught.value.code, caught.value.details) == ("expired", {"now": now})


@pytest.mark.req("TRUST-9")
@pytest.mark.parametrize(("life_ms", "valid"), [(MAX_LIFE_MS, True), (MAX_LIFE_MS + 1, False)])
def test_it_lives_a_day_at_most(life_ms: int, valid: bool) -> None:
    long = msgspec.structs.replace(GOOD, expires=GOOD.time + life_ms)
    if valid:
        long.check_time(NOW)
    else:
        with pytest.raises(HearthNetError, match="no longer valid"):
            long.check_time(NOW)


@pytest.mark.req("TRUST-8")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"more": 1}, "unknown field `more`"),
        ({"grant": "g"}, "unknown field `grant`"),
        ({"time": -1}, "Expected `int` >= 0 - at `$.time`"),
        ({"expires": 2**53}, "Expected `int` <= 9007199254740991 - at `$.expires`"),
        ({"expires": "soon"}, "got `str` - at `$.expires`"),
        ({"time": 1.5}, "got `float` - at `$.time`"),
        ({"approver": "somebody"}, "'somebody' is not a node id"),
        ({"approver": ANNA.node_id + "="}, "=' is not a node id"),
        ({"id": None}, "got `null` - at `$.id`"),
        ({"v": "1"}, "got `str` - at `$.v`"),
        ({"via": ""}, "at `$.via`"),
        ({"via": "telephone"}, "'telephone' - at `$.via`"),
    ],
    ids=range(12),
)
def test_another_shape_is_no_approval(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(HearthNetError) as caught:
        approval.decode({**msgspec.to_builtins(GOOD), **changes})
    assert caught.value.code == "bad_request"
    assert said in caught.value.message


@pytest.mark.req("TRUST-8")
@pytest.mark.parametrize("value", [None, {}, [], "x", 1, {1: 2}], ids=str)
def test_other_things_are_no_approval(value: object) -> None:
    with pytest.raises(HearthNetError, match="malformed") as caught:
        approval.decode(value)
    assert caught.value.code == "bad_request"


PERSON = "ed25519:" + "P" * 43


def by_device(**changes: Any) -> Approval:
    """Berta's consent in the person's name, where Anna's key has to approve."""
    unsigned = replace(UNSIGNED, **{"approver": BERTA.node_id, "person": PERSON, **changes})
    return approval.sign_approval(BERTA, unsigned)


@pytest.mark.req("PERSON-9")
def test_another_device_of_the_person_approves_in_its_name() -> None:
    devices = {(ANNA.node_id, PERSON), (BERTA.node_id, PERSON)}
    call = replace(CALL, is_device=lambda key, person: (key, person) in devices)
    approval.check_binding(by_device(), call)
    approval.check_binding(GOOD, call)
    own = approval.sign_approval(ANNA, replace(UNSIGNED, person=PERSON))
    for wrong, claimed in (
        (by_device(person=msgspec.UNSET), call),
        (by_device(person=""), call),
        (own, call),
        (by_device(via="gateway"), replace(call, via="gateway")),
        (by_device(), CALL),
        (by_device(), replace(call, is_device=lambda key, person: key == ANNA.node_id)),
        (by_device(), replace(call, is_device=lambda key, person: key == BERTA.node_id)),
    ):
        with pytest.raises(HearthNetError) as caught:
            approval.check_binding(wrong, claimed)
        assert (caught.value.code, caught.value.rule) == ("unauthorized", "approver")
