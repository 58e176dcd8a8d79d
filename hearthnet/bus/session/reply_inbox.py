"""Answers to this process: one subscription; frames are opened, checked and dispatched."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol import batch, subjects
from hearthnet.protocol import frame as frames
from hearthnet.protocol.frame import BoxKeys, Frame, FrameError
from hearthnet.protocol.header import SUBJECT_KINDS

_log = logging.getLogger(__name__)
_ULID: Final = 26
_SENDER: Final = slice(len("hn.rep."), len("hn.rep.") + 43)
"""The position of the sender in a reply subject."""
_KINDS: Final = SUBJECT_KINDS["rep"] - {"replies"}
_PACK: Final = f".{subjects.PACK}"


class ReplyHandler(Protocol):
    """A waiter for frames under one id.

    All methods are called from the event loop and must not block.
    """

    def on_frame(self, frame: Frame) -> None:
        """Receive a frame for this id, opened and from the node in its subject."""

    def on_nobody(self, node: str) -> None:
        """Handle the report that there are no subscribers for the request of this id.

        The server sends it to the request's reply subject, which names `node`, and any client of `node` may
        send the same there. So it counts only for requests to that node alone.
        """

    def on_lost(self) -> None:
        """Handle the loss of the connection and of frames on their way."""


class ReplyInbox:
    """The waiters of this process by call id.

    Frames that do not open, have no waiter or come from nodes that are not members are dropped; faulty ones
    are counted.
    """

    def __init__(
        self, node: str, instance: str, community: str, keys: BoxKeys, is_member: Callable[[str], bool]
    ) -> None:
        self._node = node
        self._instance = instance
        self._community = community
        self._keys = keys
        self._is_member = is_member
        self._waiting: dict[str, ReplyHandler] = {}
        self.dropped = 0

    def expect(self, call_id: str, waiter: ReplyHandler) -> None:
        """Dispatch frames with `call_id` to `waiter` from now on."""
        self._waiting[call_id] = waiter

    def forget(self, call_id: str) -> None:
        """Remove the waiter for `call_id`."""
        self._waiting.pop(call_id, None)

    def on_message(self, subject: str, data: bytes, absent: bool) -> None:
        """Process one message on a reply subject of this process."""
        waiter = self._waiting.get(subject[-_ULID:])
        try:
            if waiter is None:
                if subject.endswith(_PACK):
                    self._on_pack(subject, data)
            elif absent:
                waiter.on_nobody(ids.PREFIX + subject[_SENDER])
            else:
                waiter.on_frame(self._open(subject, data))
        except (FrameError, HearthNetError) as error:
            self.dropped += 1
            _log.warning("dropped a reply: %s", error)

    def _on_pack(self, subject: str, data: bytes) -> None:
        """Dispatch the answers of a batch, each as if it had arrived alone."""
        sender = ids.from_token_form(subject[_SENDER])
        frame = self._read(sender, data)
        header = frame.header
        if header.kind != "replies" or header.to_instance != self._instance:
            raise FrameError("these are not answers to this process")
        if subject != subjects.replies(sender, self._node, self._instance):
            raise FrameError("the subject is none for answers to this process")
        for answer in batch.answers(frame):
            self.deliver(answer)

    def deliver(self, frame: Frame) -> None:
        """Dispatch a frame that was opened, or comes from this process (bus/session/loopback.py)."""
        waiter = self._waiting.get(frame.header.id)
        if waiter is not None:
            waiter.on_frame(frame)

    def on_lost(self) -> None:
        """Notify all waiters that the connection broke."""
        for waiter in list(self._waiting.values()):
            waiter.on_lost()

    def _open(self, subject: str, data: bytes) -> Frame:
        sender = ids.from_token_form(subject[_SENDER])
        frame = self._read(sender, data)
        header = frame.header
        wanted = subjects.reply(sender, self._node, self._instance, header.id)
        if header.kind not in _KINDS or subject != wanted:
            raise FrameError("the reply is for another call than its subject says")
        return frame

    def _read(self, sender: str, data: bytes) -> Frame:
        """Read the frame in `data`, from a member and for this node."""
        if not self._is_member(sender):
            raise FrameError("the answer is not a member's")
        frame = frames.opened(data, self._keys.of(sender), sender)
        if frame.header.to != self._node or frame.header.community != self._community:
            raise FrameError("the reply is for another node or community")
        return frame
