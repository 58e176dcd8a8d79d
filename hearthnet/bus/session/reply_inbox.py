"""Answers to this process: one subscription; frames are opened, checked and dispatched."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

from hearthnet.bus.session.frame_budget import FrameBudget
from hearthnet.bus.session.sender import Sender
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.rationed_log import RationedLog
from hearthnet.protocol import batch, subjects
from hearthnet.protocol import frame as frames
from hearthnet.protocol.frame import Frame, FrameError
from hearthnet.protocol.header import SUBJECT_KINDS

_log = logging.getLogger(__name__)
_ULID: Final = 26
_MAX_SIGNS: Final = 1_024
"""Maximum of processes whose signs of life are kept."""
_SENDER: Final = slice(len("hn.rep."), len("hn.rep.") + 43)
"""The position of the sender in a reply subject."""
_KINDS: Final = SUBJECT_KINDS["rep"] - {"replies"}
_PACK: Final = f".{subjects.PACK}"
_BURST: Final = 1_000
_PER_SECOND: Final = 500
"""Frames of another node that were not waited for and are opened all the same: signs of life, and others'
answers to a find.
"""


class ReplyHandler(Protocol):
    """A receiver of the frames under one id.

    All methods are called from the event loop and must not block.
    """

    def on_frame(self, frame: Frame) -> bool | None:
        """Receive a frame for this id, opened and from the node in its subject.

        Return True if it was waited for: it is then not charged to its sender.
        """

    def on_no_responders(self, node: str) -> None:
        """Handle the report that there are no subscribers for the request of this id.

        The server sends it to the request's reply subject, which names `node`, and any client of `node` may
        send the same there. So it counts only for requests to that node alone.
        """

    def on_lost(self) -> None:
        """Handle the loss of the connection and of frames on their way."""


class ReplyInbox:
    """The receivers of answers to this process, by call id.

    Frames that do not open, have no handler or come from nodes that are not members are dropped; faulty ones
    are counted.
    """

    def __init__(self, own: Sender, is_member: Callable[[str], bool]) -> None:
        self._own = own
        self._is_member = is_member
        self._handlers: dict[str, ReplyHandler] = {}
        self._signs: dict[tuple[str, str], float] = {}
        self.budget = FrameBudget(own.node_id, "rep", _BURST, _PER_SECOND)
        self._drop_log = RationedLog(_log)
        self.dropped = 0

    def expect(self, call_id: str, handler: ReplyHandler) -> None:
        """Dispatch frames with `call_id` to `handler` from now on."""
        self._handlers[call_id] = handler

    def forget(self, call_id: str) -> None:
        """Remove the handler for `call_id`."""
        self._handlers.pop(call_id, None)

    def record_sign(self, node: str, instance: str, now: float) -> None:
        """Record that a process has answered an ordinary call at the loop time `now`."""
        if len(self._signs) > _MAX_SIGNS:
            self._signs.clear()
        self._signs[node, instance] = now

    def last_sign(self, node: str, instance: str) -> float:
        """Return the loop time at which a process last answered an ordinary call; 0.0 if none is recorded."""
        return self._signs.get((node, instance), 0.0)

    def on_message(self, subject: str, data: bytes, absent: bool) -> None:
        """Process one message on a reply subject of this process."""
        handler = self._handlers.get(subject[-_ULID:])
        if absent:
            if handler is not None:
                handler.on_no_responders(ids.PREFIX + subject[_SENDER])
            return
        if handler is None and not subject.endswith(_PACK):
            return
        if not self.budget.admits(subject, len(data)):
            return
        try:
            if handler is None:
                is_expected = self._on_pack(subject, data)
            else:
                is_expected = handler.on_frame(self._open(subject, data)) is True
            if is_expected:
                self.budget.refund(subject, len(data))
        except (FrameError, HearthNetError) as error:
            self.dropped += 1
            self._drop_log.write("dropped a reply: %s", error)

    def _on_pack(self, subject: str, data: bytes) -> bool:
        """Dispatch the answers of a batch, each as if it had arrived alone; True if one was waited for."""
        sender = ids.from_token_form(subject[_SENDER])
        frame = self._read(sender, data)
        header = frame.header
        if header.kind != "replies" or header.to_instance != self._own.instance:
            raise FrameError("these are not answers to this process")
        if subject != subjects.replies(sender, self._own.node_id, self._own.instance):
            raise FrameError("the subject is none for answers to this process")
        faults = list[None]()

        def on_fault() -> None:
            faults.append(None)
            self.budget.charge(subject, batch.MOST)

        expected = 0
        for answer in batch.answers(frame, on_fault):
            expected += self.deliver(answer)
        return expected > 0 and not faults

    def deliver(self, frame: Frame) -> bool:
        """Dispatch a frame that was opened, or comes from this process; True if it was waited for."""
        handler = self._handlers.get(frame.header.id)
        return handler is not None and handler.on_frame(frame) is True

    def on_lost(self) -> None:
        """Notify all handlers that the connection broke."""
        for handler in list(self._handlers.values()):
            handler.on_lost()

    def _open(self, subject: str, data: bytes) -> Frame:
        sender = ids.from_token_form(subject[_SENDER])
        frame = self._read(sender, data)
        header = frame.header
        expected = subjects.reply(sender, self._own.node_id, self._own.instance, header.id)
        if header.kind not in _KINDS or subject != expected:
            raise FrameError("the reply is for another call than its subject says")
        return frame

    def _read(self, sender: str, data: bytes) -> Frame:
        """Read the frame in `data`, from a member and for this node."""
        if not self._is_member(sender):
            raise FrameError("the answer is not a member's")
        frame = frames.opened(data, self._own.keys.of(sender), sender)
        if frame.header.to != self._own.node_id or frame.header.community != self._own.community:
            raise FrameError("the reply is for another node or community")
        return frame
