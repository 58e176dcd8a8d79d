"""Answers to operators and NATS's own tools over `$SRV.PING|INFO|STATS` (ADR-32).

    $SRV.VERB                 every service process answers
    $SRV.VERB.<name>          every process of that service
    $SRV.VERB.<name>.<id>     that process; its id is its instance, as in its offers

An endpoint is a capability that is offered now. Its subject is for display only: calls are encrypted frames,
which no other client can make.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from hearthnet.bus.session.session import Session
from hearthnet.core.capability_name import Capability
from hearthnet.core.errors import HearthNetError
from hearthnet.core.tasks import TaskSet
from hearthnet.core.times import now_ms, rfc3339, steady_ms
from hearthnet.protocol import subjects
from hearthnet.service.decorators import Statistics
from hearthnet.service.hosting.service import Service
from hearthnet.trust.authorization.permissions import OPERATOR_INBOX

PREFIX: Final = "$SRV"
MOST_ENDPOINTS: Final = 100
"""Maximum of listed endpoints, so that no answer is larger than 64 KiB."""
_TEXT: Final = 200
_REPLY: Final = re.compile(re.escape(OPERATOR_INBOX) + r"(?:\.[^\s.*>]{1,64}){1,4}")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NUMBER: Final = r"(?:0|[1-9][0-9]{0,8})"
_VERSION: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?(?:\+[0-9A-Za-z.-]+)?"
)
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_-]")
MOST_A_SECOND: Final = 50
_MOST_BYTES: Final = 1024
_log = logging.getLogger(__name__)


class About(NamedTuple):
    """One process of a service.

    `started` is `2026-11-21T20:15:00.000Z`, `node` the full id.
    """

    name: str
    id: str
    version: str
    description: str
    node: str
    started: str


class Served(NamedTuple):
    """One capability that is offered now, the number of its running calls, and its counts."""

    capability: Capability
    schema_hash: str
    in_flight: int
    statistics: Statistics


def check(name: str, version: str) -> None:
    """Check that NATS's tools accept the name and version of a service.

    Raises:
        HearthNetError: `bad_request` if they do not.
    """
    if not _NAME.fullmatch(name):
        raise HearthNetError(
            "bad_request", f"{name[:80]!r} is no name of a service; use letters, digits, - and _"
        )
    if not _VERSION.fullmatch(version):
        raise HearthNetError(
            "bad_request", f"{version[:80]!r} is no version of the service {name}; write one such as 1.2.3"
        )


def answerable(reply: str) -> bool:
    """Return whether `reply` is an operator's inbox; no other subject is answered."""
    return _REPLY.fullmatch(reply) is not None


def listened(about: About) -> tuple[str, str, str]:
    """Return the subjects to subscribe to: each verb for all, for the name, for the process."""
    return f"{PREFIX}.*", f"{PREFIX}.*.{about.name}", f"{PREFIX}.*.{about.name}.{about.id}"


def document(subject: str, about: About, served: Sequence[Served]) -> dict[str, Any] | None:
    """Return the answer to a request on `subject`, None for an unknown verb."""
    build = _DOCUMENTS.get(subject.split(".", 2)[1])
    return None if build is None else build(about, served[:MOST_ENDPOINTS])


def _ping(about: About, served: Sequence[Served]) -> dict[str, Any]:
    return _identity("ping", about)


def _info(about: About, served: Sequence[Served]) -> dict[str, Any]:
    return {
        **_identity("info", about),
        "description": about.description[:_TEXT],
        "endpoints": [
            {
                **_endpoint(about, each),
                "metadata": {"capability": str(each.capability), "schema_hash": each.schema_hash},
            }
            for each in served
        ],
    }


def _stats(about: About, served: Sequence[Served]) -> dict[str, Any]:
    return {
        **_identity("stats", about),
        "started": about.started,
        "endpoints": [{**_endpoint(about, each), **_counts(each)} for each in served],
    }


def _identity(kind: str, about: About) -> dict[str, Any]:
    return {
        "type": f"io.nats.micro.v1.{kind}_response",
        "name": about.name,
        "id": about.id,
        "version": about.version,
        "metadata": {"node": about.node},
    }


def _endpoint(about: About, served: Served) -> dict[str, Any]:
    """Describe an endpoint.

    There are no queue groups, since the caller's router chooses the process.

    See: docs/protocol/discovery.md#choosing.
    """
    return {
        "name": _UNFIT.sub("-", str(served.capability)),
        "subject": subjects.calls_of(about.node, about.id, served.capability),
        "queue_group": "",
    }


def _counts(served: Served) -> dict[str, Any]:
    counted = served.statistics
    requests, nanoseconds = counted.requests, counted.nanoseconds
    return {
        "num_requests": requests,
        "num_errors": counted.errors,
        "last_error": f"{counted.last_error}: {served.capability}" if counted.last_error else "",
        "processing_time": nanoseconds,
        "average_processing_time": nanoseconds // requests if requests else 0,
        "data": {"in_flight": served.in_flight},
    }


_DOCUMENTS: Final = {"PING": _ping, "INFO": _info, "STATS": _stats}


class Monitor:
    """The `$SRV` side of one service process; `served` returns its present offers.

    At most `MOST_A_SECOND` requests per second are answered, the others dropped.

    Raises:
        HearthNetError: `bad_request` for a name or version of a service that cannot be reported.
    """

    def __init__(
        self, peer: Session, service: Service, served: Callable[[], Sequence[Served]], tasks: TaskSet
    ) -> None:
        check(service.name, service.version)
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
        for subject in listened(self._about):
            await self._peer.link.subscribe_requests(subject, self._on_request)

    def _on_request(self, subject: str, reply: str, data: bytes) -> None:
        if len(data) > _MOST_BYTES or not answerable(reply) or not self._has_time():
            return
        answer = document(subject, self._about, self._served())
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
