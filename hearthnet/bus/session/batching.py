"""Batches of outgoing calls and answers, per receiving process (docs/decisions/0062).

Items are collected here; in the next turn of the loop, before the connection writes, each destination gets
one frame with all of its items. A single item is sent as an ordinary frame. Large items, and those that
cannot be encoded with others, are sent alone, after the items collected before them.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

import msgspec

from hearthnet.bus.session.reply_inbox import ReplyInbox
from hearthnet.bus.session.sender import Sender
from hearthnet.core import ids
from hearthnet.core.capability_name import Capability
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol import batch
from hearthnet.protocol.batch import Answered, BatchedCall
from hearthnet.protocol.frame import Frame
from hearthnet.protocol.header import Header

_log = logging.getLogger(__name__)
MOST_BYTES: Final = 131_072
"""Maximum size of the items of a batch, if the server accepts twice as much."""
ENOUGH: Final = 32
"""A batch with this number of items is sent at once, so that its receiver works while the next one is made.
"""
LARGEST: Final = 16_384
"""A larger body is sent alone, since batching it saves nothing."""
_DEEPEST: Final = 700
"""This number of brackets, however nested, does not prevent a reader from decoding the other items."""
_AROUND: Final = 320
"""Maximum bytes of an item besides its body and texts."""


class BatchCaller(Protocol):
    """A caller that waits for the answer to a call in a batch."""

    batch: SentBatch | None

    @property
    def is_waiting(self) -> bool:
        """True if the answer is still expected."""

    def fail(self, error: Exception) -> None:
        """Record that the call could not be sent."""

    def on_no_responders(self, node: str) -> None:
        """Record that the receiving process is gone."""


class SentBatch:
    """A batch of calls that was sent, which forwards the report that no process received it.

    It unregisters with the last of its calls.
    """

    def __init__(self, replies: ReplyInbox, batch_id: str, callers: list[BatchCaller]) -> None:
        self._replies = replies
        self._id = batch_id
        self._callers = set(callers)
        for caller in callers:
            caller.batch = self
        replies.expect(batch_id, self)

    def remove(self, caller: BatchCaller) -> None:
        """Remove one of its calls, so that its answer is not kept while the others wait."""
        self._callers.discard(caller)
        if not self._callers:
            self._replies.forget(self._id)

    def on_frame(self, frame: Frame) -> None:
        """Ignore frames for the batch itself, which has no answer."""

    def on_no_responders(self, node: str) -> None:
        """Forward the server's report to all calls."""
        for caller in list(self._callers):
            caller.on_no_responders(node)

    def on_lost(self) -> None:
        """Do nothing: each of its calls is notified separately."""


class _Calls:
    """Calls of one capability to one process, in order."""

    __slots__ = ("callers", "capability", "instance", "items", "name", "node", "size")

    def __init__(self, node: str, instance: str, name: str, capability: Capability) -> None:
        self.node = node
        self.instance = instance
        self.name = name
        self.capability = capability
        self.items: list[BatchedCall] = []
        self.callers: list[BatchCaller] = []
        self.size = 0


class _Replies:
    """Replies and frames to one process, in order."""

    __slots__ = ("instance", "items", "node", "size")

    def __init__(self, node: str, instance: str) -> None:
        self.node = node
        self.instance = instance
        self.items: list[Answered] = []
        self.size = 0


class Batcher:
    """The batches of one process that are not sent yet."""

    def __init__(self, sender: Sender, inbox: ReplyInbox) -> None:
        self._sender = sender
        self._link = sender.link
        self._inbox = inbox
        self._calls: dict[tuple[str, str, str], _Calls] = {}
        self._replies: dict[tuple[str, str], _Replies] = {}
        self._is_scheduled = False

    def accepts(self, body: bytes) -> bool:
        """Return whether a call or a reply with this body may be in a batch."""
        size = len(body)
        if size > LARGEST or 8 * size > self._link.max_payload:
            return False
        return size < 2 * _DEEPEST or body.count(b"{") + body.count(b"[") <= _DEEPEST

    def add_call(
        self,
        node: str,
        instance: str,
        name: str,
        capability: Capability,
        item: BatchedCall,
        body_bytes: int,
        caller: BatchCaller,
    ) -> None:
        """Send a plain call of the contract `name` to a process that offers `capability`.

        The process accepts batches, and `accepts` allows the body. Errors are reported to `caller`.
        """
        key = node, instance, name
        calls = self._calls.get(key)
        if calls is None:
            calls = self._calls[key] = _Calls(node, instance, name, capability)
            self._schedule()
        calls.items.append(item)
        calls.callers.append(caller)
        calls.size += body_bytes + len(item.token) + len(item.run) + _AROUND
        if self._is_full(calls):
            del self._calls[key]
            self._send_calls(calls)
            self._link.flush()

    def add_reply(self, node: str, instance: str, item: Answered, body: bytes) -> None:
        """Send a reply or a frame of a stream to a process that accepts batches, in order.

        Raises:
            HearthNetError: `payload_too_large` if the server does not accept it; `partition` if the link is
                closed.
        """
        key = node, instance
        replies = self._replies.get(key)
        if not self.accepts(body):
            if replies is not None:
                del self._replies[key]
                self._send_replies(replies)
            self._send_reply(node, instance, item)
            return
        if replies is None:
            replies = self._replies[key] = _Replies(node, instance)
            self._schedule()
        replies.items.append(item)
        replies.size += len(body) + _AROUND
        if self._is_full(replies):
            del self._replies[key]
            self._send_replies(replies)
            self._link.flush()

    def flush(self) -> None:
        """Send all items."""
        self._is_scheduled = False
        while self._replies:
            self._send_replies(self._replies.popitem()[1])
        self.flush_calls()

    def flush_calls(self) -> None:
        """Send all calls, before a control frame about one of them that must not overtake it."""
        while self._calls:
            self._send_calls(self._calls.popitem()[1])

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._link.on_loop_end(self.flush)

    def _is_full(self, items: _Calls | _Replies) -> bool:
        return len(items.items) == ENOUGH or items.size > min(MOST_BYTES, self._link.max_payload // 2)

    def _send_calls(self, calls: _Calls) -> None:
        """Send the calls that are still waited for; errors are reported to each of them."""
        waiting = [pair for pair in zip(calls.items, calls.callers, strict=True) if pair[1].is_waiting]
        if len(waiting) > 1:
            try:
                self._send_batch(calls, [item for item, _ in waiting], [caller for _, caller in waiting])
                return
            except Exception as error:
                # The error of one call must not be reported to the others.
                _log.info("a batch of calls is sent one by one: %s", error)
        for item, caller in waiting:
            try:
                shared = self._header(calls, item.id)
                self._sender.send_call(calls.capability, batch.call_header(shared, item), bytes(item.body))
            except Exception as error:
                caller.fail(error)

    def _send_batch(self, calls: _Calls, items: list[BatchedCall], callers: list[BatchCaller]) -> None:
        header = self._header(calls, ids.new_ulid())
        self._sender.send_call(calls.capability, header, batch.encode(items))
        SentBatch(self._inbox, header.id, callers)

    def _header(self, calls: _Calls, frame_id: str) -> Header:
        return self._sender.header(
            "calls", frame_id, to=calls.node, to_instance=calls.instance, capability=calls.name
        )

    def _send_replies(self, replies: _Replies) -> None:
        """Send the replies; errors are logged, since their handlers have ended."""
        node, instance, items = replies.node, replies.instance, replies.items
        if len(items) > 1:
            try:
                header = self._sender.header("replies", ids.new_ulid(), to=node, to_instance=instance)
                self._sender.send_reply(header, batch.encode(items))
                return
            except (HearthNetError, UnicodeEncodeError, msgspec.EncodeError) as error:
                _log.info("a batch of replies is sent one by one: %s", error)
        for item in items:
            try:
                self._send_reply(node, instance, item)
            except (HearthNetError, UnicodeEncodeError, msgspec.EncodeError) as error:
                _log.warning("the call %s was not answered: %s", item.id, error)

    def _send_reply(self, node: str, instance: str, item: Answered) -> None:
        shared = self._sender.header("replies", item.id, to=node, to_instance=instance)
        self._sender.send_reply(batch.answer_header(shared, item), bytes(item.body))
