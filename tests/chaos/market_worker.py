"""The provider that may be killed: the real market service, with steps around what it does for a run."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from hearthnet.core import ids
from hearthnet.core.home import Home
from hearthnet.service.call import Call
from hearthnet.service.effects.event_log import EventLog
from hearthnet.service.effects.journal import Records
from hearthnet.service.hosting.main import serve
from hearthnet.service.hosting.reply_sender import ReplySender
from hearthnet.service.hosting.status import Status
from hearthnet_market.service import MarketService
from tests.chaos import steps
from tests.chaos.hooks import around, replace
from tests.chaos.line import Line
from tests.chaos.nursery import Order


class _Telling(Status):
    """Says to the harness when the market is ready."""

    def __init__(self, line: Line) -> None:
        super().__init__(None)
        self._line = line

    def ready(self, offers: list[str], note: str | None, address: str = "") -> None:
        self._line.tell(ready=True)


def _put_steps(line: Line) -> None:
    """A step counts where the call belongs to a run: the harness's own calls have none."""
    asked: set[str] = set()

    def at(name: str) -> Any:
        def report(_owner: Any, call: Call[Any, Any], *_args: Any, **_named: Any) -> None:
            if call.run:
                asked.add(call.id)
                line.step(name, run=call.run, client_id=call.idempotency_key)

        return report

    def replied(outbox: Any, *_args: Any, **_named: Any) -> None:
        if outbox._to.id in asked:
            asked.discard(outbox._to.id)
            line.step(steps.REPLIED)

    around(Records, "begin", at(steps.RECEIVED), at(steps.BEGAN))
    around(EventLog, "append", at(steps.APPENDING), at(steps.APPENDED))
    around(Records, "end", at(steps.CONCLUDING), at(steps.CONCLUDED))
    around(ReplySender, "reply", None, replied)


def _forget_keys() -> None:
    """Every effect has a place of its own, whatever key it came with."""

    def anywhere(log: EventLog, principal: str, _client_id: str) -> str:
        return f"{log._prefix}.{ids.subject_token(principal)}.{ids.new_ulid()}"

    replace(EventLog, "_place_of", anywhere)


def work(order: Order) -> None:
    """Serves until it is killed."""
    line = Line(order.socket, order.token)
    _put_steps(line)
    if order.sabotage == "keys are forgotten":
        _forget_keys()
    asyncio.run(serve(MarketService(), Home(Path(order.home)), _Telling(line), asyncio.Event()))
    os._exit(0)
