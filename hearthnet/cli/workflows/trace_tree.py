"""The steps of the node's processes: requested, sorted, made a tree."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from hearthnet.bus.bus import Bus
from hearthnet.bus.session.tracing import UNTRACED
from hearthnet.cli.output import terminal
from hearthnet.core import process_lock
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home

MOST: Final = 1000
"""Steps of one process, at a time."""
_ANSWER_SECONDS: Final = 5.0
Step = dict[str, Any]


class TreePosition(NamedTuple):
    """A step in a tree, and its depth."""

    step: Step
    depth: int


class CollectedSpans:
    """The steps of the node's processes, read repeatedly."""

    def __init__(self, bus: Bus, home: Home, wanted: dict[str, str]) -> None:
        """Create the reader; `wanted` filters: `trace`, `capability`, `code` of `node.trace.list`."""
        self._bus = bus
        self._home = home
        self._wanted = wanted
        self._newest: dict[str, int] = {}

    async def new(self, limit: int) -> list[Step]:
        """Return the steps since the last call, by start; at most `limit` of each process."""
        known = [path.name for path in process_lock.everybody(self._home)]
        found = await asyncio.gather(
            *(self._of(instance, limit) for instance in known if process_lock.lives(self._home, instance))
        )
        return sorted((step for steps in found for step in steps), key=lambda step: int(step["at"]))

    async def _of(self, instance: str, limit: int) -> list[Step]:
        """Return the new steps of one process; none if it ends, or does not serve calls yet."""
        given = {**self._wanted, "after": self._newest.get(instance, 0), "limit": limit}
        try:
            reply = await self._bus.call(
                UNTRACED,
                {"params": {}, "input": given},
                node=self._bus.peer.node_id,
                instance=instance,
                timeout_seconds=_ANSWER_SECONDS,
            )
        except HearthNetError as error:
            if error.code == "bad_request":
                raise
            if process_lock.lives(self._home, instance) and instance not in self._newest:
                terminal.info(f"one process says nothing of its traces yet: {error.message}")
            return []
        said = reply.output
        self._newest[instance] = int(said["newest"])
        known = {"service": said["service"], "instance": said["instance"]}
        return [{**known, **step} for step in said["steps"]]


def only(steps: list[Step], wanted: str) -> list[Step]:
    """Return `steps` if they belong to one trace, whose id begins with `wanted`.

    Raises:
        HearthNetError: `not_found` if there are none; `bad_request` for several traces.
    """
    traces = list(dict.fromkeys(step["trace"] for step in steps))
    if len(traces) > 1:
        raise HearthNetError(
            "bad_request", f"{len(traces)} traces begin with {wanted}: {', '.join(traces[:5])}", alt=traces
        )
    if not traces:
        raise HearthNetError(
            "not_found",
            f"no process of this node remembers a trace {wanted}; each keeps its newest 10,000 steps until "
            "it ends; see: hearthnet trace",
        )
    return steps


def tree(steps: list[Step]) -> Iterator[TreePosition]:
    """Yield the steps of a trace, each under its parent, siblings by time.

    A step with an unknown parent (its process has ended, or is another home's) is at the top.
    """
    owners = {span: step for step in steps for span in (step["span"], step["handler"]) if span}
    below: dict[str, list[Step]] = {}
    for step in steps:
        owner = owners.get(step["parent"])
        below.setdefault("" if owner is None or owner is step else owner["span"], []).append(step)
    waiting = [TreePosition(step, 0) for step in reversed(below.pop("", []))]
    while waiting:
        place = waiting.pop()
        yield place
        children = below.pop(place.step["span"], [])
        waiting += [TreePosition(child, place.depth + 1) for child in reversed(children)]
