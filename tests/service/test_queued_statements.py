"""A recovery by helpers, as those are told who may object."""

from __future__ import annotations

import pytest

from hearthnet.core.times import from_rfc3339, rfc3339
from hearthnet.service.community.queued_statements import as_json
from hearthnet.trust.community.recovery_statements import BEGUN
from tests.helpers.members import NOW, act
from tests.trust.people import PAPER, begun, carried, helping, settled
from tests.trust.town import MAX, NORA, QUINN, SAM, TILDA, town, with_events

DAY_MS = 86_400_000


@pytest.mark.req("PERSON-85", "ATTACK-117")
@pytest.mark.parametrize(("fast_ms", "promised_ms"), [(-DAY_MS, -DAY_MS), (0, 0), (365 * DAY_MS, 0)])
def test_a_fast_clock_promises_no_more_time(fast_ms: int, promised_ms: int) -> None:
    held = settled(town(), MAX)
    held = carried(held, MAX, helping(held, QUINN, SAM, TILDA))
    held = with_events(held, act(held, NORA, BEGUN, begun(held), now_ms=NOW + fast_ms))
    person = held.person(PAPER.node_id)
    assert person is not None
    (recovery,) = person.recoveries
    now = from_rfc3339(rfc3339(NOW))
    page = as_json(held, recovery, now)
    assert page["not_before"] == now + promised_ms + recovery.wait_seconds * 1000
    assert (page["begun_by"], page["begun_at"]) == (NORA.node_id, rfc3339(NOW + fast_ms))
