"""The two ends of a stream, alone and against each other over a wire that loses, repeats and reorders.

See: docs/protocol/streams.md#state-machines.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hearthnet.core.errors import HearthNetError
from hearthnet.protocol.stream import (
    ACK_EVERY,
    ACK_TIMEOUT_MS,
    KEEPALIVE_MS,
    SILENCE_MS,
    TERMINAL,
    WINDOW,
    Incoming,
    Outgoing,
)


@pytest.mark.req("WIRE-9")
def test_sixteen_frames_then_an_acknowledgement() -> None:
    out = Outgoing(0)
    assert [out.next_seq("token") for _ in range(WINDOW)] == list(range(1, 17))
    assert not out.may_send
    with pytest.raises(HearthNetError, match="beyond the window") as caught:
        out.next_seq("token")
    assert caught.value.code == "internal_error"
    out.acknowledge(8, 1)
    assert out.may_send
    assert [out.next_seq("token") for _ in range(8)] == list(range(17, 25))
    assert not out.may_send


@pytest.mark.req("WIRE-9")
@pytest.mark.parametrize("event", sorted(TERMINAL))
def test_the_terminal_frame_needs_no_room_and_is_the_last(event: str) -> None:
    out = Outgoing(0)
    for _ in range(WINDOW):
        out.next_seq("token")
    assert out.next_seq(event) == 17
    for after in ("token", "done", "error"):
        with pytest.raises(HearthNetError, match="after the end"):
            out.next_seq(after)
    assert not out.may_send
    assert not out.lost_caller(ACK_TIMEOUT_MS)


@pytest.mark.req("WIRE-9")
@pytest.mark.parametrize("upto", [-1, 0, 3, 6, 2**60])
def test_old_and_impossible_acknowledgements_change_nothing_but_are_signs_of_life(upto: int) -> None:
    out = Outgoing(0)
    for _ in range(5):
        out.next_seq("token")
    out.acknowledge(3, 0)
    out.acknowledge(upto, SILENCE_MS)
    assert (out.sent, out.acked) == (5, 3)
    assert not out.lost_caller(2 * SILENCE_MS - 1)
    assert out.lost_caller(2 * SILENCE_MS)


@pytest.mark.req("WIRE-9")
def test_a_caller_that_reads_nothing_is_given_up_sooner_than_a_silent_one() -> None:
    out = Outgoing(0)
    assert not out.lost_caller(SILENCE_MS - 1)
    assert out.lost_caller(SILENCE_MS)
    for _ in range(WINDOW):
        out.next_seq("token")
    assert not out.lost_caller(ACK_TIMEOUT_MS - 1)
    assert out.lost_caller(ACK_TIMEOUT_MS)
    out.record_activity(ACK_TIMEOUT_MS)
    assert not out.lost_caller(ACK_TIMEOUT_MS)


@pytest.mark.req("WIRE-9")
def test_two_signs_of_life_fit_into_the_shortest_patience() -> None:
    assert 2 * KEEPALIVE_MS < ACK_TIMEOUT_MS < SILENCE_MS


@pytest.mark.req("WIRE-9")
def test_frames_are_taken_once_and_in_order() -> None:
    incoming = Incoming(0)
    assert incoming.accept(1, "token", 0)
    assert not incoming.accept(1, "token", 0)
    assert not incoming.accept(0, "alive", 0)
    assert not incoming.accept(-1, "token", 0)
    assert incoming.accept(2, "done", 0)
    assert incoming.ended
    assert not incoming.accept(3, "token", 0)
    assert not incoming.accept(9, "token", 0)


@pytest.mark.req("WIRE-9")
def test_a_missing_frame_ends_the_stream() -> None:
    incoming = Incoming(0)
    incoming.accept(1, "token", 0)
    with pytest.raises(HearthNetError, match="2 is missing, 3 came") as caught:
        incoming.accept(3, "done", 0)
    assert caught.value.code == "partition"
    assert incoming.ended
    assert not incoming.accept(2, "token", 0)
    assert not incoming.lost_provider(10 * SILENCE_MS)


@pytest.mark.req("WIRE-9")
def test_an_acknowledgement_is_due_for_every_eighth_frame_once() -> None:
    incoming, due = Incoming(0), []
    for seq in range(1, 30):
        incoming.accept(seq, "token", 0)
        due += [seq for _ in range(2) if incoming.ack_due(seq)]
    assert due == [8, 16, 24]
    incoming.accept(30, "done", 0)
    assert not incoming.ack_due(40)


@pytest.mark.req("WIRE-9")
def test_a_silent_provider_is_noticed_and_any_frame_is_a_sign_of_life() -> None:
    incoming = Incoming(0)
    assert not incoming.lost_provider(SILENCE_MS - 1)
    assert incoming.lost_provider(SILENCE_MS)
    incoming.accept(0, "alive", SILENCE_MS)
    assert not incoming.lost_provider(2 * SILENCE_MS - 1)


class BackToBack(RuleBasedStateMachine):
    """A provider and a caller with two wires between them, which may do anything but invent frames."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.out, self.incoming = Outgoing(0), Incoming(0)
        self.frames: list[tuple[int, str]] = []
        self.acks: list[int] = []
        self.published: list[tuple[int, str]] = []
        self.taken: list[tuple[int, str]] = []
        self.consumed = 0
        self.cancels = 0
        self.broken = self.left = False

    @rule(event=st.sampled_from(["token", "progress", "done", "error"]))
    def send(self, event: str) -> None:
        """The provider sends whatever it may."""
        if self.out.ended or not (self.out.may_send or event in TERMINAL):
            before = self.out.sent
            with pytest.raises(HearthNetError):
                self.out.next_seq(event)
            assert self.out.sent == before
            return
        self.send_now(event)

    @rule()
    def flood(self) -> None:
        """The provider sends all that it may."""
        while self.out.may_send:
            self.send_now("token")

    @rule(event=st.sampled_from(["token", "done"]))
    def fail_to_send(self, event: str) -> None:
        """A frame is too large, or no JSON: it was never there."""
        if self.out.may_send:
            before = self.out.sent
            self.out.unsent(self.out.next_seq(event))
            assert (self.out.sent, self.out.ended) == (before, False)

    @precondition(lambda self: not self.incoming.ended)
    @rule()
    def leave(self) -> None:
        """The caller wants no more, and says so."""
        self.incoming.ended = self.left = True
        self.cancels += 1

    @precondition(lambda self: self.cancels)
    @rule(again=st.booleans())
    def cancelled(self, again: bool) -> None:
        """The provider hears of it, perhaps not for the last time: it ends once."""
        self.cancels -= not again
        if not self.out.ended:
            self.send_now("error")

    def send_now(self, event: str) -> None:
        """The provider sends what it may."""
        frame = (self.out.next_seq(event), event)
        self.published.append(frame)
        self.frames.append(frame)

    @rule()
    def sign_of_life(self) -> None:
        """The provider says that it still works."""
        self.frames.append((0, "alive"))

    @precondition(lambda self: self.frames)
    @rule(data=st.data(), ordered=st.booleans(), keep=st.booleans())
    def deliver(self, data: st.DataObject, ordered: bool, keep: bool) -> None:
        """One frame arrives: mostly the next one, sometimes another, sometimes not for the last time."""
        place = 0 if ordered else data.draw(st.integers(0, len(self.frames) - 1))
        self.take(self.frames[place] if keep else self.frames.pop(place))

    def take(self, frame: tuple[int, str]) -> None:
        """The caller's end of the wire gets it."""
        if not self.incoming.ended and frame[0] > len(self.taken) + 1:
            with pytest.raises(HearthNetError, match="lost a frame") as caught:
                self.incoming.accept(*frame, self.now)
            assert caught.value.code == "partition"
            self.broken = True
        elif self.incoming.accept(*frame, self.now):
            self.taken.append(frame)

    @precondition(lambda self: self.frames)
    @rule(number=st.integers(2, 2 * WINDOW), cut=st.booleans(), lost=st.booleans())
    def deliver_pack(self, number: int, cut: bool, lost: bool) -> None:
        """Frames that left together arrive together, in their order; or are lost so, or cut short."""
        pack, self.frames = self.frames[:number], self.frames[number:]
        assert sum(seq > self.out.acked and event not in TERMINAL for seq, event in set(pack)) <= WINDOW
        if lost:
            return
        for frame in pack[: len(pack) // 2] if cut else pack:
            self.take(frame)

    @precondition(lambda self: self.frames)
    @rule(data=st.data())
    def lose_frame(self, data: st.DataObject) -> None:
        """One frame is lost."""
        self.frames.pop(data.draw(st.integers(0, len(self.frames) - 1)))

    @rule(number=st.integers(1, 20))
    def consume(self, number: int) -> None:
        """The caller's consumer takes some of what came, and acknowledges where that is due."""
        for _ in range(min(number, len(self.taken) - self.consumed)):
            self.consumed += 1
            if self.incoming.ack_due(self.consumed):
                assert self.consumed % ACK_EVERY == 0
                self.acks.append(self.consumed)

    @rule()
    def keep_alive(self) -> None:
        """The caller's sign of life repeats how far it is, which mends lost acknowledgements."""
        self.acks.append(self.consumed)

    @precondition(lambda self: self.acks)
    @rule(data=st.data(), keep=st.booleans())
    def acknowledge(self, data: st.DataObject, keep: bool) -> None:
        """One acknowledgement arrives, in any order and perhaps again."""
        place = data.draw(st.integers(0, len(self.acks) - 1))
        self.out.acknowledge(self.acks[place] if keep else self.acks.pop(place), self.now)

    @rule(later=st.integers(0, SILENCE_MS))
    def wait(self, later: int) -> None:
        """Time passes."""
        self.now += later

    @invariant()
    def the_caller_sees_a_beginning_of_what_was_sent(self) -> None:
        """Nothing is repeated, reordered, left out or invented."""
        assert self.taken == self.published[: len(self.taken)]

    @invariant()
    def at_most_sixteen_are_unacknowledged(self) -> None:
        """The terminal frame alone may be one more."""
        ordinary = self.out.sent - (1 if self.out.ended else 0)
        assert ordinary - self.out.acked <= WINDOW
        assert self.out.acked <= max(self.consumed, 0) <= len(self.taken)

    @invariant()
    def there_is_one_terminal_frame_and_nothing_after_it(self) -> None:
        """On either side."""
        for seen in (self.published, self.taken):
            ends = [place for place, (_, event) in enumerate(seen) if event in TERMINAL]
            assert ends in ([], [len(seen) - 1])
        over = self.broken or self.left or any(event in TERMINAL for _, event in self.taken)
        assert self.incoming.ended == over

    def teardown(self) -> None:
        """Where the wire heals, both sides end: by the terminal frame, a gap, a cancel, or silence."""
        assert self.out.ended or self.out.lost_caller(self.now + SILENCE_MS)
        if not self.out.ended:
            self.send_now("done")
        for frame in self.frames:
            try:
                if self.incoming.accept(*frame, self.now):
                    self.taken.append(frame)
            except HearthNetError:
                self.broken = True
        self.there_is_one_terminal_frame_and_nothing_after_it()
        terminal_lost = self.published[-1] not in [*self.frames, *self.taken]
        assert self.incoming.ended or terminal_lost
        # What was lost without a trace is noticed by silence.
        assert self.incoming.ended or self.incoming.lost_provider(self.now + SILENCE_MS)


TestBackToBack = pytest.mark.req("WIRE-9")(BackToBack.TestCase)
TestBackToBack.settings = settings(max_examples=100, stateful_step_count=50)


@pytest.mark.req("WIRE-9")
def test_the_number_of_a_frame_that_was_not_sent_is_the_next_ones() -> None:
    """So that the caller misses none; a number with others after it stays used."""
    out = Outgoing(0)
    assert [out.next_seq("token"), out.next_seq("token")] == [1, 2]
    out.unsent(1)
    assert out.next_seq("done") == 3
    out.unsent(3)
    assert (out.ended, out.next_seq("error")) == (False, 3)


class Lossless:
    """Both ends, and wires that delay and repeat; only acknowledgements may be lost."""

    def __init__(self, seed: int, number: int) -> None:
        self.chance, self.number = Random(seed), number
        self.out, self.incoming = Outgoing(0), Incoming(0)
        self.frames: list[tuple[int, str]] = []
        self.acks: list[int] = []
        self.taken: list[int] = []
        self.consumed = 0

    def send(self) -> None:
        """The next frame, where there is room."""
        if self.out.may_send:
            event = "token" if self.out.sent < self.number else "done"
            self.frames.append((self.out.next_seq(event), event))

    def deliver(self) -> None:
        """The oldest frame arrives, perhaps once more later."""
        if self.frames:
            frame = self.frames[0] if self.chance.random() < 0.2 else self.frames.pop(0)
            if self.incoming.accept(*frame, 0):
                self.taken.append(frame[0])

    def consume(self) -> None:
        """One frame; its acknowledgement may be lost."""
        if self.consumed < len(self.taken):
            self.consumed += 1
            if self.incoming.ack_due(self.consumed) and self.chance.random() < 0.7:
                self.acks.append(self.consumed)

    def acknowledge(self) -> None:
        """Any acknowledgement arrives, perhaps once more later."""
        if self.acks:
            place = self.chance.randrange(len(self.acks))
            again = self.chance.random() < 0.2
            self.out.acknowledge(self.acks[place] if again else self.acks.pop(place), 0)

    def keep_alive(self) -> None:
        """Now and then the caller repeats how far it is."""
        if self.chance.random() < 0.2:
            self.acks.append(self.consumed)


@pytest.mark.req("WIRE-9")
@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 50))
def test_where_no_frame_is_lost_all_of_them_arrive(seed: int, number: int) -> None:
    """The window opens again each time, whatever became of acknowledgements."""
    pair = Lossless(seed, number)
    actions = (pair.send, pair.deliver, pair.consume, pair.acknowledge, pair.keep_alive)
    steps = 0
    while not pair.incoming.ended:
        pair.chance.choice(actions)()
        steps += 1
        assert steps < 10_000, "it stands still"
    assert pair.out.ended
    assert pair.taken == list(range(1, number + 2))
