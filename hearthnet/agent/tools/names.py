"""Tool names that every vendor accepts, and the way back.

A name is declared once, for people and for the run's records. Vendors accept only `[a-zA-Z0-9_-]{1,64}`, so
a name of another form is shown to the model under a safe one. The way back is a look-up, never a guess from
dots and underscores, and no two names share a safe one.

See: docs/protocol/agent.md#names.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Final

import blake3

from hearthnet.core.errors import HearthNetError

MAX_LENGTH: Final = 64
_SAFE: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_UNSAFE: Final = re.compile(r"[^a-zA-Z0-9_-]")
_HASH_LENGTH: Final = 8


def is_safe(name: str) -> bool:
    """Return whether every vendor accepts `name` as it is."""
    return _SAFE.fullmatch(name) is not None


def sanitize(name: str) -> str:
    """Return `name` in safe characters and length: readable, but not unique."""
    return _UNSAFE.sub("_", name)[:MAX_LENGTH] or "_"


def placeholder(name: str) -> str:
    """Return `name` where it is safe, else a safe name derived from it alone, with a hash.

    So a name that a model invents is never taken for that of another tool.
    """
    return name if is_safe(name) else f"{stem(name)}-{_hash(name)[:_HASH_LENGTH]}"


def stem(name: str) -> str:
    """Return the part of a safe name before the hash."""
    return sanitize(name)[: MAX_LENGTH - _HASH_LENGTH - 1]


def _hash(name: str) -> str:
    return blake3.blake3(name.encode("utf-8", "surrogatepass")).hexdigest()


def unknown_tool(name: str, there: Iterable[str]) -> HearthNetError:
    """Return the error for a tool that is not among `there`, with the nearest names in `alt`."""
    names = list(there)
    near = difflib.get_close_matches(name, names, 3, 0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(names) or 'none'}"
    return HearthNetError("not_found", f"there is no tool {name[:80]!r}; {hint}", alt=near)


class NameMap:
    """The names of one tool set: declared to safe, and back."""

    def __init__(self, names: Iterable[str]) -> None:
        declared = list(names)
        if repeated := sorted({name for name in declared if declared.count(name) > 1}):
            raise HearthNetError("bad_request", f"the tool {repeated[0]!r} is declared twice; rename one")
        self._safe = {name: name for name in declared if is_safe(name)}
        for name in declared:
            if name not in self._safe:
                self._safe[name] = self._free_name(name)
        self._declared = {safe: name for name, safe in self._safe.items()}
        for name in declared:
            self._declared.setdefault(placeholder(name), name)

    def _free_name(self, name: str) -> str:
        """Return a safe name that no other tool has, with a hash where the plain one is taken."""
        taken = set(self._safe.values())
        plain = sanitize(name)
        if plain not in taken and name == name[:MAX_LENGTH]:
            return plain
        head, digest = stem(name), _hash(name)
        candidates = (f"{head}-{digest[at : at + _HASH_LENGTH]}" for at in range(len(digest) - _HASH_LENGTH))
        return next(candidate for candidate in candidates if candidate not in taken)

    def to_safe(self, declared: str) -> str:
        """Return the name that is shown to the model."""
        return self._safe[declared]

    def to_declared(self, name: str) -> str | None:
        """Return the declared name for a safe name, a declared name or its `placeholder`; else None."""
        return self._declared.get(name, name if name in self._safe else None)
