"""Standing grants: a signed yes to some uses of one tool.

See: docs/protocol/approvals.md#standing-grant.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hearthnet.core import ids
from hearthnet.core.canonical_json import digest
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.authorization import grant as grants
from hearthnet.trust.authorization.approval import ANY_PROVIDER, MAX_LIFE_MS, SKEW_MS, Claimed
from hearthnet.trust.authorization.grant import MOST_USES, Grant
from hearthnet.trust.keys import Identity

ANNA, BERTA, CARLA = (Identity(bytes([number]) * 32) for number in (1, 2, 3))
NOW = 1_795_292_100_000
HOUR = 3_600_000
TOOL = "blake3:" + "a" * 64
BODY = {"params": {}, "input": {"client_id": "c", "category": "offer", "title": "Kerzen"}}
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
    shared_effect=True,
)
UNSIGNED = Grant(
    id="01HZX3Q4R5S6T7V8W9XA0BC1DE",
    community=CARLA.node_id,
    approver=ANNA.node_id,
    actor=BERTA.node_id,
    provider=CARLA.node_id,
    capability="market.post@1.0",
    params_constraints={"input.category": ["offer", "request"]},
    tool_hash=TOOL,
    max_uses=5,
    time=NOW,
    expires=NOW + HOUR,
)
GOOD = grants.sign_grant(ANNA, UNSIGNED)
replace = msgspec.structs.replace


def check(use: int = 1, grant: Grant = GOOD, call: Claimed = CALL, tool: str = TOOL, **body: Any) -> None:
    """What a provider asks of a call that names the grant."""
    grants.check_binding(grant, use, call, tool, {**BODY, **body})


@pytest.mark.req("GRANT-1")
@pytest.mark.parametrize("use", [1, 3, 5])
def test_a_grant_holds_for_its_uses_also_after_its_journey(use: int) -> None:
    check(use)
    check(use, grants.decode(msgspec.to_builtins(GOOD)))
    check(use, call=replace(CALL, run="another", idempotency_key="d", arguments_digest="x"))
    check(use, input={"category": "request", "title": "Brot"})


@pytest.mark.req("GRANT-1")
def test_only_the_approver_signs() -> None:
    with pytest.raises(HearthNetError, match="the one who approves") as caught:
        grants.sign_grant(BERTA, UNSIGNED)
    assert caught.value.code == "unauthorized"


@pytest.mark.req("GRANT-1")
@pytest.mark.parametrize("use", [0, -1, 6, MOST_USES + 1])
def test_it_has_no_other_uses(use: int) -> None:
    with pytest.raises(HearthNetError, match="has 5 uses") as caught:
        check(use)
    assert (caught.value.code, caught.value.details) == ("unauthorized", {"rule": "use"})


@pytest.mark.req("GRANT-1")
@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        ("approver", {"call": replace(CALL, approver=BERTA.node_id)}),
        ("community", {"call": replace(CALL, community=ANNA.node_id)}),
        ("actor", {"call": replace(CALL, actor=ANNA.node_id)}),
        ("provider", {"call": replace(CALL, provider=BERTA.node_id)}),
        ("capability", {"call": replace(CALL, capability="market.expire@1.0")}),
        ("capability", {"call": replace(CALL, capability="market.post@1.1")}),
        ("tool", {"tool": "blake3:" + "b" * 64}),
        ("arguments", {"input": {"category": "event"}}),
        ("arguments", {"input": {"title": "Kerzen"}}),
        ("arguments", {"params": {"category": "offer"}, "input": {}}),
    ],
    ids=range(10),
)
def test_it_holds_for_no_other_call(rule: str, changes: dict[str, Any]) -> None:
    with pytest.raises(HearthNetError, match=f"another {rule}") as caught:
        check(**changes)
    assert (caught.value.code, caught.value.details) == ("unauthorized", {"rule": rule})


@pytest.mark.req("GRANT-1")
def test_it_is_for_one_node_also_where_an_approval_might_be_for_any() -> None:
    anywhere = grants.sign_grant(ANNA, replace(UNSIGNED, provider=ANY_PROVIDER))
    with pytest.raises(HearthNetError, match="another provider"):
        check(grant=anywhere)


@pytest.mark.req("GRANT-1")
def test_another_version_means_something_else() -> None:
    with pytest.raises(HearthNetError, match="another version"):
        check(grant=grants.sign_grant(ANNA, replace(UNSIGNED, v=2)))


@pytest.mark.req("GRANT-1")
@pytest.mark.parametrize("field", [name for name in Grant.__struct_fields__ if name != "signature"])
def test_every_member_is_under_the_signature(field: str) -> None:
    value = getattr(GOOD, field)
    changed: Any = BERTA.node_id if field in ("approver", "person") else {}
    if field not in ("approver", "person", "params_constraints"):
        changed = value + (1 if isinstance(value, int) else "x")
    with pytest.raises(HearthNetError, match="not signed by") as caught:
        check(grant=replace(GOOD, **{field: changed}))
    assert caught.value.code == "invalid_signature"


@pytest.mark.req("GRANT-1")
def test_a_signature_made_for_something_else_is_no_grant() -> None:
    data = UNSIGNED.signing_bytes()
    for signature in (ANNA.sign("approval", data), ANNA.sign_raw(data), BERTA.sign(grants.PURPOSE, data)):
        with pytest.raises(HearthNetError, match="not signed by"):
            check(grant=replace(UNSIGNED, signature=ids.PREFIX + ids.b64(signature)))


@pytest.mark.req("GRANT-1")
@pytest.mark.parametrize(
    ("now", "valid"),
    [
        (NOW, True),
        (NOW - SKEW_MS, True),
        (NOW - SKEW_MS - 1, False),
        (NOW + HOUR + SKEW_MS, True),
        (NOW + HOUR + SKEW_MS + 1, False),
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


@pytest.mark.req("GRANT-1")
def test_it_lives_a_day_at_most() -> None:
    replace(GOOD, expires=NOW + MAX_LIFE_MS).check_time(NOW)
    with pytest.raises(HearthNetError, match="no longer valid"):
        replace(GOOD, expires=NOW + MAX_LIFE_MS + 1).check_time(NOW)


@pytest.mark.req("GRANT-1")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"more": 1}, "unknown field `more`"),
        ({"max_uses": 0}, "Expected `int` >= 1 - at `$.max_uses`"),
        ({"max_uses": MOST_USES + 1}, "Expected `int` <= 10000 - at `$.max_uses`"),
        ({"max_uses": 1.5}, "got `float` - at `$.max_uses`"),
        ({"time": -1}, "Expected `int` >= 0 - at `$.time`"),
        ({"expires": 2**53}, "Expected `int` <= 9007199254740991 - at `$.expires`"),
        ({"approver": "somebody"}, "'somebody' is not a node id"),
        ({"approver": ANNA.node_id + "="}, "=' is not a node id"),
        ({"id": "always"}, "its id is no ULID"),
        ({"id": None}, "got `null` - at `$.id`"),
        ({"params_constraints": {"k": 1}}, "Expected `array`, got `int` - at `$.params_constraints[...]`"),
        ({"v": "1"}, "got `str` - at `$.v`"),
    ],
    ids=range(12),
)
def test_another_shape_is_no_grant(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(HearthNetError) as caught:
        grants.decode({**msgspec.to_builtins(GOOD), **changes})
    assert caught.value.code == "bad_request"
    assert said in caught.value.message


@pytest.mark.req("GRANT-1")
@pytest.mark.parametrize("value", [None, {}, [], "x", 1, {1: 2}], ids=str)
def test_other_things_are_no_grant(value: object) -> None:
    with pytest.raises(HearthNetError, match="malformed") as caught:
        grants.decode(value)
    assert caught.value.code == "bad_request"
