"""When a caller counts as gone, by the server's reports about probes."""

from __future__ import annotations

from typing import Any

import pytest

from hearthnet.service.hosting.caller_watch import Caller, _WatchedCaller
from hearthnet.trust.keys import Identity

NODE, OTHER = (Identity.generate().node_id for _ in range(2))


class Stopped:
    """Takes the callers whose calls are stopped."""

    def __init__(self) -> None:
        self.callers: list[Caller] = []

    def stop_calls(self, caller: Caller) -> None:
        self.callers.append(caller)


@pytest.mark.req("GATHER-11")
def test_a_caller_is_gone_at_the_second_report_in_a_row_and_stopped_once() -> None:
    stopped: Any = Stopped()
    watched = _WatchedCaller(stopped, (NODE, "1"))

    def probe(*reports: str) -> None:
        watched.begin_probe()
        for node in reports:
            watched.on_no_responders(node)

    probe(NODE, NODE)
    probe()
    probe(NODE)
    assert stopped.callers == [], "a link that was away for one probe"
    probe(OTHER)
    probe(OTHER)
    assert stopped.callers == [], "a report that another node made"
    probe(NODE)
    probe(NODE)
    probe(NODE)
    assert stopped.callers == [(NODE, "1")]
