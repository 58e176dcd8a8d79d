"""Names and versions of capabilities, and bounded integers.

See: docs/protocol/README.md#capability-names, docs/protocol/README.md#versioning.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Final, NamedTuple

import msgspec

from hearthnet.core.errors import HearthNetError

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
"""A number or a time read from outside: not negative, and exact for every reader of JSON."""

LONGEST_CAPABILITY: Final = 140
"""Maximum length of a capability with its version, in characters; longer text is refused and not cached."""
_FORM: Final = re.compile(
    r"(?P<name>[a-z][a-z0-9_-]*(?:\.[a-z0-9_-]+)+)"
    r"(?:@(?P<major>0|[1-9][0-9]{0,14})\.(?P<minor>0|[1-9][0-9]{0,3}))?"
)


class Capability(NamedTuple):
    """A parsed `name@major.minor`."""

    name: str
    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.name}@{self.major}.{self.minor}"

    def serves(self, wanted: Capability) -> bool:
        """Return whether an offer of this version answers a request for `wanted`.

        It does with the same major version and at least that minor version.
        """
        return self.name == wanted.name and self.major == wanted.major and self.minor >= wanted.minor


@lru_cache(maxsize=1024)
def split_name(text: str) -> tuple[str, tuple[int, int] | None]:
    """Split `rag.query` or `rag.query@1.0` into name and version; None for a missing version.

    Raises:
        HearthNetError: `bad_request` if `text` is not a capability.
    """
    found = _FORM.fullmatch(text) if len(text) <= LONGEST_CAPABILITY else None
    if found is None:
        raise HearthNetError(
            "bad_request",
            f"{text[:80]!r} is not a capability; write a name such as rag.query or rag.query@1.0",
        )
    version = (int(found["major"]), int(found["minor"])) if found["major"] is not None else None
    return found["name"], version


@lru_cache(maxsize=1024)
def parse_capability(text: str) -> Capability:
    """Parse `name@major.minor`.

    Raises:
        HearthNetError: `bad_request` if the version is missing or `text` is not a capability.
    """
    name, version = split_name(text)
    if version is None:
        raise HearthNetError("bad_request", f"{text!r} needs its version, such as {text}@1.0")
    return Capability(name, *version)
