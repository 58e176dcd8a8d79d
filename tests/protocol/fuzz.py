"""`make fuzz [FRAMES=n] [SEED=n]`: spoilt frames without end for the reader of frames.

Prints what came of them and the slowest; stops at anything but a frame or `FrameError`, with the frame.

See: docs/protocol/frames.md#opening.
"""

from __future__ import annotations

import gc
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from hearthnet.core.ids import is_ulid
from hearthnet.protocol import batch, frame, subjects
from hearthnet.protocol.frame import Frame, FrameError
from tests.protocol.mutants import ANNA, BERTA, KEY, spoilt

PACKS: Final[dict[str, Callable[[Frame], list[Frame]]]] = {"calls": batch.calls, "replies": batch.answers}
SLOWEST_SECONDS: Final = 0.05
"""More processor time than this no frame may take, however large and however it is made."""


@dataclass
class Outcome:
    """What came of a run."""

    seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Frames by the way they were spoilt, and what became of them: `read`, or why they were refused."""
    slowest_seconds: float = 0.0
    slowest: tuple[str, int] = ("", 0)
    """How the slowest was spoilt, and its bytes."""
    total_seconds: float = 0.0

    def count(self, way: str = "", came: str = "") -> int:
        """How many were spoilt that way, and came to that."""
        return sum(
            number
            for (spoilt_so, became), number in self.seen.items()
            if way in ("", spoilt_so) and came in ("", became)
        )


def opened(data: bytes) -> Frame | str:
    """The frame in `data`, or why it is none; anything but `FrameError` goes through. A pack is unpacked."""
    try:
        found = frame.read(frame.unbox(data, KEY), ANNA.node_id)
        unpack = PACKS.get(found.header.kind)
        for one in () if unpack is None else unpack(found):
            check(one)
        return found
    except FrameError as error:
        return str(error).partition(":")[0]


def check(got: Frame) -> None:
    """Fails where what was read cannot be sent on or answered, or is not of who sealed it."""
    told = got.header
    assert told.sender == ANNA.node_id
    assert is_ulid(told.id)
    assert frame.read(frame.plain(told, got.body), ANNA.node_id).header == told
    assert subjects.reply(BERTA.node_id, ANNA.node_id, told.from_instance, told.id)


def run(frames: int, seed: int) -> Outcome:
    """Reads so many spoilt frames; the frame is in the note of whatever is raised."""
    outcome, clock = Outcome(), time.process_time
    for way, data in islice(spoilt(seed), frames):
        try:
            began = clock()
            got = opened(data)
            took = clock() - began
            if took > SLOWEST_SECONDS:
                # The collector of garbage, or the machine: what is slow by itself is so again.
                began = clock()
                opened(data)
                took = min(took, clock() - began)
            if isinstance(got, Frame):
                check(got)
        except BaseException as error:
            error.add_note(f"seed {seed}, spoilt so: {way}; the frame: {data[:2000].hex()}")
            raise
        outcome.seen[way, got if isinstance(got, str) else "read"] += 1
        outcome.total_seconds += took
        if took > outcome.slowest_seconds:
            outcome.slowest_seconds, outcome.slowest = took, (way, len(data))
    return outcome


def main(frames: int, seed: int) -> int:
    """Prints the run; 1 where a frame took too long."""
    began = time.monotonic()
    gc.freeze()
    outcome = run(frames, seed)
    way, size = outcome.slowest
    lines = [f"seed {seed}: {frames:,} frames in {time.monotonic() - began:.0f} s"]
    lines += [f"{number:>9,}  {way}: {came}" for (way, came), number in sorted(outcome.seen.items())]
    read, each = outcome.count(came="read"), outcome.total_seconds / frames
    lines.append(f"read {read:,}, refused {frames - read:,}, nothing else; {each * 1e6:.0f} us a frame")
    lines.append(f"the slowest: {outcome.slowest_seconds * 1e3:.1f} ms, {size:,} bytes, {way}")
    sys.stdout.write("\n".join(lines) + "\n")
    return int(outcome.slowest_seconds > SLOWEST_SECONDS)


if __name__ == "__main__":
    given = [int(argument.replace("_", "").replace(",", "")) for argument in sys.argv[1:]]
    sys.exit(main(given[0] if given else 1_000_000, given[1] if given[1:] else random.randrange(2**32)))
