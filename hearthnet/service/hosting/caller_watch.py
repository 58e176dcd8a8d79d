"""Callers whose process is gone: noticed by the server's report, so that their calls release their places.

A caller that lost its link says nothing. Every second an empty message goes to the reply subject of each
remote process that has a call here; the server reports at once if there is no subscriber any more. A process
is gone at the second report in a row: a link that is made anew leaves it without a subscriber for a moment.
The receiver ignores the message, since it is about no call of its own.

See: docs/protocol/streams.md#signs-of-life, docs/decisions/0214.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from typing import Final

from hearthnet.bus.session.session import Session
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol import subjects
from hearthnet.protocol.frame import Frame
from hearthnet.service.hosting.call_execution import CallExecution

_log = logging.getLogger(__name__)
_REPORTS: Final = 2
"""Reports in a row at which a process is gone."""
Caller = tuple[str, str]
"""A process: its node and its instance."""


class CallerWatch:
    """The callers of the calls in `running`, by call id."""

    def __init__(self, peer: Session, running: Mapping[str, CallExecution]) -> None:
        self._peer = peer
        self._running = running
        self._watched: dict[Caller, _WatchedCaller] = {}

    def probe(self) -> None:
        """Probe each caller that was there at the last probe, too; to be called once a second."""
        headers = [one.header for one in self._running.values()]
        callers = {(one.sender, one.from_instance) for one in headers}
        for caller in self._watched.keys() - callers:
            self._peer.replies.forget(self._watched.pop(caller).probe_id)
        if not self._peer.link.is_connected:
            return
        for caller in callers:
            if caller in self._watched:
                self._watched[caller].begin_probe()
                self._send(caller, self._watched[caller].probe_id)
            elif not self._peer.sender.is_local(*caller):
                watched = self._watched[caller] = _WatchedCaller(self, caller)
                self._peer.replies.expect(watched.probe_id, watched)

    def _send(self, caller: Caller, probe_id: str) -> None:
        peer, (node, instance) = self._peer, caller
        nobody = subjects.reply(node, peer.node_id, peer.instance, probe_id)
        # Where too much waits for the server, the next one is in a second.
        with contextlib.suppress(HearthNetError):
            peer.link.send(subjects.reply(peer.node_id, node, instance, probe_id), b"", nobody)

    def stop_calls(self, caller: Caller) -> None:
        """Stop the calls of a process that is gone, except effects, which may be under way."""
        _log.info("a process of %s is gone, and its calls are stopped", ids.short_id(caller[0]))
        for running in list(self._running.values()):
            if (running.header.sender, running.header.from_instance) == caller and not running.has_effect:
                running.stop()


class _WatchedCaller:
    """The receiver of the server's report about one process."""

    def __init__(self, watch: CallerWatch, caller: Caller) -> None:
        self._watch = watch
        self._caller = caller
        self.probe_id = ids.new_ulid()
        self._reports = 0
        self._is_reported = False
        """Whether the server reported about the last probe."""

    def begin_probe(self) -> None:
        """Begin to count anew if the last probe had a receiver."""
        self._reports = self._reports if self._is_reported else 0
        self._is_reported = False

    def on_frame(self, frame: Frame) -> None:
        """Ignore frames: no process sends any under this id."""

    def on_no_responders(self, node: str) -> None:
        """Stop its calls, once. Only its own node can send the report in the server's place."""
        if node != self._caller[0] or self._is_reported:
            return
        self._is_reported = True
        self._reports += 1
        if self._reports == _REPORTS:
            self._watch.stop_calls(self._caller)

    def on_lost(self) -> None:
        """Keep watching: the connection comes back."""
