"""What one call leaves behind at each end of it."""

from __future__ import annotations

from typing import Literal

import msgspec

Side = Literal["caller", "provider", "run"]


class Entry(msgspec.Struct, gc=False):
    """One step of a trace: a call at its caller, the same call at its provider, or a run of the tool loop.

    Made when it begins and filled in until it ends. Never holds input, output, token or key.

    `traceparent` names this step and `above` the one over it, empty at the root. `handler` is the span of the
    provider's method, under which lie the calls that it makes. Times are of the steady clock in nanoseconds;
    with `epoch_ns` added they are since 1970. `code` is empty where it worked, `cancelled` where it was
    stopped. Bytes are those of bodies; `frames` counts those of a stream.
    """

    side: Side
    capability: str
    traceparent: str
    above: str
    run: str
    epoch_ns: int
    began_ns: int
    peer: str = ""
    call: str = ""
    code: str = ""
    took_ns: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    attempts: int = 0
    frames: int = 0
    handler: str = ""
    handler_began_ns: int = 0
    handler_took_ns: int = 0
