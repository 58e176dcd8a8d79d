"""Answers to operators over `$SRV` (documents: service/hosting/micro.py)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from hearthnet.bus.session.session import Session
from hearthnet.core.errors import HearthNetError
from hearthnet.core.tasks import TaskSet
from hearthnet.core.times import now_ms, rfc3339, steady_ms
from hearthnet.service.hosting import micro
from hearthnet.service.hosting.micro import About, Served
from hearthnet.service.hosting.service import Service

MOST_A_SECOND: Final = 50
_MOST_BYTES: Final = 1024
_log = logging.getLogger(__name__)


class Monitor:
    """The `$SRV` side of one service process; `served` returns its present offers.

    At most `MOST_A_SECOND` requests per second are answered, the others dropped.

    Raises:
        HearthNetError: `bad_request` for a name or version of a service that cannot be reported.
    """

    def __init__(
        self, peer: Session, service: Service, served: Callable[[], Sequence[Served]], tasks: TaskSet
    ) -> None:
        micro.check(service.name, service.version)
        self._peer = peer
        self._about = About(
            name=service.name,
            id=peer.instance,
            version=service.version,
            description=(type(service).__doc__ or "").partition("\n")[0],
            node=peer.node_id,
            started=rfc3339(now_ms())[:-1] + ".000Z",
        )
        self._served = served
        self._tasks = tasks
        self._second = 0
        self._answers = 0

    async def open(self) -> None:
        """Start to answer."""
        for subject in micro.listened(self._about):
            await self._peer.link.subscribe_requests(subject, self._on_request)

    def _on_request(self, subject: str, reply: str, data: bytes) -> None:
        if len(data) > _MOST_BYTES or not micro.answerable(reply) or not self._has_time():
            return
        answer = micro.document(subject, self._about, self._served())
        if answer is not None:
            self._tasks.start(self._send(reply, msgspec.json.encode(answer)), "answer to an operator")

    def _has_time(self) -> bool:
        second = steady_ms() // 1000
        if second != self._second:
            self._second, self._answers = second, 0
        self._answers += 1
        return self._answers <= MOST_A_SECOND

    async def _send(self, reply: str, data: bytes) -> None:
        try:
            await self._peer.link.publish(reply, data)
        except HearthNetError as error:
            _log.info("an operator was not answered: %s", error)
