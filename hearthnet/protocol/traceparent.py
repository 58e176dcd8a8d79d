"""`traceparent` of the W3C's Trace Context: the trace of a call, and its parent step.

    00-<trace, 32 hexadecimal digits>-<span, 16>-<flags, 2>

The value comes from other nodes: a malformed one counts as absent and is no error.

See: docs/protocol/frames.md#header.
"""

from __future__ import annotations

import re
from typing import Final

SAMPLED: Final = "01"
UNSAMPLED: Final = "00"
_LENGTH: Final = 55
_FORM: Final = re.compile(
    "(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII
)


def read(text: str) -> str:
    """Return `text` in the form of version 00; empty if it is malformed.

    Further fields of a later version are dropped.
    """
    if _FORM.match(text) is None:
        return ""
    if text[:2] == "00":
        return text if len(text) == _LENGTH else ""
    return f"00{text[2:_LENGTH]}" if text[_LENGTH : _LENGTH + 1] in ("", "-") else ""


def write(trace: str, span: str, flags: str = SAMPLED) -> str:
    """Return the text for the step `span` of `trace`."""
    return f"00-{trace}-{span}-{flags}"
