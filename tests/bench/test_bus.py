"""What is measured is the whole call: box, schema, trust, replay check, rate and trace, none left out."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from hearthnet.bus.session.tracing import Traces
from hearthnet.contracts.schema import SchemaCheck
from hearthnet.protocol import frame
from hearthnet.protocol.replay import ReplayWindow
from hearthnet.service.hosting import admission
from hearthnet.service.hosting.peer_rates import PeerRates
from tests.bench.bus_peers import ANSWER, BACK, BODY, QUERY, REQUEST, BenchService
from tests.helpers.mesh import Mesh

CALLS = 20
AT_ONCE = 40
EACH = {"box": 2, "unbox": 2, "schema": 4, "trust": 1, "replay": 1, "rate": 1, "trace": 2}
"""How often a call does what: a request and a reply, each boxed, opened and checked by both."""


@pytest.mark.asyncio
@pytest.mark.req("BENCH-2")
async def test_a_measured_call_leaves_nothing_out(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: Counter[str] = Counter()

    def count(owner: Any, name: str, what: str) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        def counting(*given: Any, **named: Any) -> Any:
            counted[what] += 1
            return original(*given, **named)

        monkeypatch.setattr(owner, name, counting)

    mesh.home.config_file.write_text("[limits]\ncapability_soft = 0\ntotal_soft = 0\n")
    async with mesh.hosting(BenchService()), await mesh.guest_bus() as bus:
        assert (await bus.call(QUERY, REQUEST)).output == ANSWER
        count(frame, "box", "box")
        count(frame, "unbox", "unbox")
        count(SchemaCheck, "accepts", "schema")
        count(admission, "authorize", "trust")
        count(ReplayWindow, "check", "replay")
        count(PeerRates, "charge", "rate")
        count(Traces, "end", "trace")
        for _ in range(CALLS):
            await bus.call(QUERY, REQUEST)
        one_by_one = counted.copy()
        # Those that are made at once share a box between them, and nothing else.
        await asyncio.gather(*(bus.call(QUERY, REQUEST) for _ in range(AT_ONCE)))
        together = counted - one_by_one
        monkeypatch.undo()
    assert {what: one_by_one[what] for what in EACH} == {what: each * CALLS for what, each in EACH.items()}
    boxes = together.pop("box"), together.pop("unbox")
    assert together == {what: each * AT_ONCE for what, each in EACH.items() if "box" not in what}
    assert boxes[0] == boxes[1] <= 2 * AT_ONCE


@pytest.mark.req("BENCH-2")
def test_what_is_asked_and_answered_is_of_the_size_that_is_said() -> None:
    assert 180 <= len(BODY) <= 220
    assert 1000 <= len(BACK) <= 1100
