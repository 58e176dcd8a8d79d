"""The helpers' key as three shares of 33 words, of which any two make it again (SLIP-39).

The arithmetic is done in a process of its own (`share_process`).

See: docs/protocol/persons.md#shares.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Final

from hearthnet.backup.share_process import THRESHOLD
from hearthnet.core.errors import HearthNetError, InvalidRequest
from hearthnet.trust.keys import Identity

MAX_SHARE_LENGTH: Final = 400
"""Maximum length of a share; 33 words have up to 297 characters."""
_SECONDS: Final = 30
_RULE: Final = "shares"


def split(key: Identity) -> tuple[str, ...]:
    """Return the three shares of `key`.

    Raises:
        HearthNetError: `internal_error` if the process fails.
    """
    return tuple(map(str, _answered({"seed": key.seed.hex()})["shares"]))


def combined(shares: Sequence[str], node_id: str) -> Identity:
    """Return the key with this id, of any two of `shares`; one that is wrong spoils no others.

    Raises:
        InvalidRequest: No two of them make it.
        HearthNetError: `internal_error` if the process fails.
    """
    for pair in itertools.combinations(shares, THRESHOLD):
        seed = bytes.fromhex(_answered({"shares": pair}).get("seed", ""))
        if len(seed) == 32 and (key := Identity(seed)).node_id == node_id:
            return key
    raise InvalidRequest(
        "these shares do not make the helpers' key of that person: one is wrong, or of before other helpers "
        "were chosen",
        rule=_RULE,
    )


def _answered(request: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "hearthnet.backup.share_process"],
        input=json.dumps(request) + "\n",
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode:
        raise HearthNetError("internal_error", f"the process for shares failed: {done.stderr[-200:]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
