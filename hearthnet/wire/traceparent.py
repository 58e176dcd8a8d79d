"""`traceparent` of the W3C's Trace Context: which trace a call belongs to, and under which of its steps.

    00-<trace, 32 hexadecimal digits>-<span, 16>-<flags, 2>

Comes from others: what is malformed counts as absent and is no error.

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
    """`text` in the form of version 00; empty where it is malformed.

    A later version may say more after what is known of it, which is passed over.
    """
    if _FORM.match(text) is None:
        return ""
    if text[:2] == "00":
        return text if len(text) == _LENGTH else ""
    return f"00{text[2:_LENGTH]}" if text[_LENGTH : _LENGTH + 1] in ("", "-") else ""


def write(trace: str, span: str, flags: str = SAMPLED) -> str:
    """The text for a step `span` of `trace`."""
    return f"00-{trace}-{span}-{flags}"
