"""The ends of chains, by which nodes tell each other what they hold; for the roster and for all topics.

See: docs/protocol/community.md#heads.
"""

from __future__ import annotations

import re
from typing import Final

from hearthnet.core.errors import HearthNetError

Heads = dict[str, list[str]]
"""The ends of each author's chain, as `<sequence>:<hash>`; several after two events in one place."""

Place = tuple[int, int, str]
"""The place of an entry in the order of pages: its time, its sequence and its hash."""

MAX_ENDS: Final = 64
_HEAD: Final = re.compile("([1-9][0-9]{0,15}):(blake3:[0-9a-f]{64})")
_PLACE: Final = re.compile("([0-9]{1,16}):([1-9][0-9]{0,15}):(blake3:[0-9a-f]{64})")


def read_head(text: str) -> tuple[int, str]:
    """Return the sequence and the hash in the text of a head.

    Raises:
        HearthNetError: `bad_request` if it is malformed.
    """
    found = _HEAD.fullmatch(text)
    if found is None:
        raise HearthNetError(
            "bad_request", f"{text[:80]!r} is not a head (sequence, colon, hash of an event)"
        )
    return int(found[1]), found[2]


def read_place(text: str) -> Place:
    """Return the place in a text `<time>:<sequence>:<hash>`.

    Raises:
        HearthNetError: `bad_request` if it is malformed.
    """
    found = _PLACE.fullmatch(text)
    if found is None:
        raise HearthNetError("bad_request", f"{text[:110]!r} is not a place (time, sequence and hash)")
    return int(found[1]), int(found[2]), found[3]
