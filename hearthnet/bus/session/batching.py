"""Batches of outgoing calls and answers, per receiving process (docs/decisions/0062).

Items are collected here; in the next turn of the loop, before the connection writes, each destination gets
one frame with all of its items. A single item is sent as an ordinary frame. Large items, and those that
cannot be encoded with others, are sent alone, after the items collected before them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from hearthnet.core import ids
from hearthnet.core.capability_name import Capability
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol import batch as pack
from hearthnet.protocol import frame as frames
from hearthnet.protocol import subjects
from hearthnet.protocol.batch import Answered, BatchedCall
from hearthnet.protocol.frame import Frame

if TYPE_CHECKING:
    from hearthnet.bus.session.session import Session

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

    pack: SentBatch | None

    @property
    def waits(self) -> bool:
        """True if the answer is still expected."""

    def fail(self, error: Exception) -> None:
        """Record that the call could not be sent."""

    def on_nobody(self, node: str) -> None:
        """Record that the receiving process is gone."""


class SentBatch:
    """A batch of calls that was sent, which forwards the report that no process received it.

    It unregisters with the last of its calls.
    """

    def __init__(self, peer: Session, pack_id: str, askers: list[BatchCaller]) -> None:
        self._peer = peer
        self._id = pack_id
        self._askers = set(askers)
        for asker in askers:
            asker.pack = self
        peer.replies.expect(pack_id, self)

    def ended(self, asker: BatchCaller) -> None:
        """Remove one of its calls, so that its answer is not kept while the others wait."""
        self._askers.discard(asker)
        if not self._askers:
            self._peer.replies.forget(self._id)

    def on_frame(self, frame: Frame) -> None:
        """Ignore frames for the batch itself, which has no answer."""

    def on_nobody(self, node: str) -> None:
        """Forward the server's report to all calls."""
        for asker in list(self._askers):
            asker.on_nobody(node)

    def on_lost(self) -> None:
        """Do nothing: each of its calls is notified separately."""


class _Calls:
    """Calls of one capability to one process, in order."""

    __slots__ = ("askers", "capability", "instance", "items", "name", "node", "size")

    def __init__(self, node: str, instance: str, name: str, capability: Capability) -> None:
        self.node = node
        self.instance = instance
        self.name = name
        self.capability = capability
        self.items: list[BatchedCall] = []
        self.askers: list[BatchCaller] = []
        self.size = 0


class _Answers:
    """Answers to one process, in order."""

    __slots__ = ("instance", "items", "node", "size")

    def __init__(self, node: str, instance: str) -> None:
        self.node = node
        self.instance = instance
        self.items: list[Answered] = []
        self.size = 0


class Batcher:
    """The batches of one process that are not sent yet."""

    def __init__(self, peer: Session) -> None:
        self._peer = peer
        self._calls: dict[tuple[str, str, str], _Calls] = {}
        self._answers: dict[tuple[str, str], _Answers] = {}
        self._due = False

    def takes(self, body: bytes) -> bool:
        """Return whether a call or an answer with this body may be in a batch."""
        size = len(body)
        if size > LARGEST or 8 * size > self._peer.link.max_payload:
            return False
        return size < 2 * _DEEPEST or body.count(b"{") + body.count(b"[") <= _DEEPEST

    def call(
        self,
        node: str,
        instance: str,
        name: str,
        capability: Capability,
        item: BatchedCall,
        body_bytes: int,
        asker: BatchCaller,
    ) -> None:
        """Send a plain call of the contract `name` to a process that offers `capability`.

        The process accepts batches, and `takes` allows the body. Errors are reported to `asker`.
        """
        key = node, instance, name
        calls = self._calls.get(key)
        if calls is None:
            calls = self._calls[key] = _Calls(node, instance, name, capability)
            self._wake()
        calls.items.append(item)
        calls.askers.append(asker)
        calls.size += body_bytes + len(item.token) + len(item.run) + _AROUND
        if len(calls.items) == ENOUGH or calls.size > self._most():
            del self._calls[key]
            self._send_calls(calls)
            self._peer.link.flush()

    def answer(self, node: str, instance: str, item: Answered, body: bytes) -> None:
        """Send a reply or a frame of a stream to a process that accepts batches, in order.

        Raises:
            HearthNetError: `payload_too_large` if the server does not accept it; `partition` if the link is
                closed.
        """
        key = node, instance
        answers = self._answers.get(key)
        if not self.takes(body):
            if answers is not None:
                del self._answers[key]
                self._send_answers(answers)
            self._send_answer(node, instance, item)
            return
        if answers is None:
            answers = self._answers[key] = _Answers(node, instance)
            self._wake()
        answers.items.append(item)
        answers.size += len(body) + _AROUND
        if len(answers.items) == ENOUGH or answers.size > self._most():
            del self._answers[key]
            self._send_answers(answers)
            self._peer.link.flush()

    def flush(self) -> None:
        """Send all items."""
        self._due = False
        while self._answers:
            self._send_answers(self._answers.popitem()[1])
        self.flush_calls()

    def flush_calls(self) -> None:
        """Send all calls, before a control frame about one of them that must not overtake it."""
        while self._calls:
            self._send_calls(self._calls.popitem()[1])

    def _wake(self) -> None:
        if not self._due:
            self._due = True
            self._peer.link.at_end_of_turn(self.flush)

    def _most(self) -> int:
        return min(MOST_BYTES, self._peer.link.max_payload // 2)

    def _send_calls(self, calls: _Calls) -> None:
        """Send the calls; errors are reported to each of them."""
        together = [
            (item, asker) for item, asker in zip(calls.items, calls.askers, strict=True) if asker.waits
        ]
        if len(together) > 1:
            items, askers = [item for item, _ in together], [asker for _, asker in together]
            try:
                self._send_pack(calls, items, askers)
                return
            except Exception as error:
                # The error of one call must not be reported to the others.
                _log.info("a pack of calls is sent one by one: %s", error)
        for item, asker in together:
            try:
                self._send_call(calls, item)
            except Exception as error:
                asker.fail(error)

    def _send_pack(self, calls: _Calls, items: list[BatchedCall], askers: list[BatchCaller]) -> None:
        peer, node, pack_id = self._peer, calls.node, ids.new_ulid()
        header = peer.header("calls", pack_id, to=node, to_instance=calls.instance, capability=calls.name)
        data = frames.sealed(header, pack.encode(items), peer.keys.to(node))
        nobody = subjects.reply(node, peer.node_id, peer.instance, pack_id)
        peer.link.send(subjects.call(peer.node_id, node, calls.instance, calls.capability), data, nobody)
        SentBatch(peer, pack_id, askers)

    def _send_call(self, calls: _Calls, item: BatchedCall) -> None:
        peer, node = self._peer, calls.node
        shared = peer.header("calls", item.id, to=node, to_instance=calls.instance, capability=calls.name)
        data = frames.sealed(pack.call_header(shared, item), bytes(item.body), peer.keys.to(node))
        nobody = subjects.reply(node, peer.node_id, peer.instance, item.id)
        peer.link.send(subjects.call(peer.node_id, node, calls.instance, calls.capability), data, nobody)

    def _send_answers(self, answers: _Answers) -> None:
        """Send the answers; errors are logged, since their handlers have ended."""
        node, instance, items = answers.node, answers.instance, answers.items
        if len(items) > 1:
            try:
                self._send_replies(node, instance, items)
                return
            except (HearthNetError, UnicodeEncodeError, msgspec.EncodeError) as error:
                _log.info("a pack of answers is sent one by one: %s", error)
        for item in items:
            try:
                self._send_answer(node, instance, item)
            except (HearthNetError, UnicodeEncodeError, msgspec.EncodeError) as error:
                _log.warning("the call %s was not answered: %s", item.id, error)

    def _send_replies(self, node: str, instance: str, items: list[Answered]) -> None:
        peer = self._peer
        header = peer.header("replies", ids.new_ulid(), to=node, to_instance=instance)
        data = frames.sealed(header, pack.encode(items), peer.keys.to(node))
        peer.link.send(subjects.replies(peer.node_id, node, instance), data)

    def _send_answer(self, node: str, instance: str, item: Answered) -> None:
        peer = self._peer
        shared = peer.header("replies", item.id, to=node, to_instance=instance)
        data = frames.sealed(pack.answer_header(shared, item), bytes(item.body), peer.keys.to(node))
        peer.link.send(subjects.reply(peer.node_id, node, instance, item.id), data)
