"""Capability names of tools: `experimental.mcp.SERVER.TOOL`, unique for each tool. Pure.

A tool whose name is valid on the bus keeps it. Any other gets a normalized form with a piece of the hash of
its real name, so that `readFile` and `readfile` get different names, independently of the server's other
tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import blake3

PREFIX: Final = "experimental.mcp."
LONGEST_TOOL: Final = 64
_FITS: Final = re.compile(r"[a-z0-9_-]{1,64}")
_OTHER: Final = re.compile(r"[^a-z0-9_-]+")
_HASH: Final = 8


def capabilities(server: str, tools: Iterable[str]) -> dict[str, str]:
    """Return the capability of each tool of `server`, by tool name; duplicates count once."""
    names = list(dict.fromkeys(tools))
    taken = {name for name in names if _FITS.fullmatch(name)}
    found = {}
    for name in names:
        if name in taken:
            segment = name
        else:
            segment = _segment(name, taken)
            taken.add(segment)
        found[name] = f"{PREFIX}{server}.{segment}"
    return found


def _segment(name: str, taken: set[str]) -> str:
    hashed = blake3.blake3(name.encode("utf-8", "surrogatepass")).hexdigest()
    stem = _OTHER.sub("_", name.lower()).strip("_")[: LONGEST_TOOL - _HASH - 1] or "tool"
    forms = (f"{stem}-{hashed[at : at + _HASH]}" for at in range(len(hashed) - _HASH))
    return next(form for form in forms if form not in taken)
