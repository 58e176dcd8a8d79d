"""The addresses at which homes answered that this one knew at others, kept in `community/addresses.json`.

Each was verified by the fingerprint of the home's key before it came in. They are tried before the address
in an invite or in the roster, which stays.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

import msgspec

from hearthnet.core.errors import HearthNetError
from hearthnet.core.files import write_whole
from hearthnet.supervisor.nats import address
from hearthnet.supervisor.nats.address import Address
from hearthnet.supervisor.os.disk import file_errors

MAX_ADDRESSES: Final = 3
"""The maximum of addresses of one home; the oldest are removed."""
MAX_HOMES: Final = 32


class FoundAddresses:
    """Addresses by the fingerprint of the key that answered there; a damaged file is ignored."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[str, tuple[str, ...]] = {}
        with contextlib.suppress(OSError, msgspec.DecodeError):
            self._found = msgspec.json.decode(path.read_bytes(), type=dict[str, tuple[str, ...]])

    def of(self, fingerprint: str) -> tuple[Address, ...]:
        """Return the addresses of the home with `fingerprint`, the last found first."""
        found = []
        for text in self._found.get(fingerprint, ())[:MAX_ADDRESSES]:
            with contextlib.suppress(HearthNetError):
                found.append(address.parse(text))
        return tuple(found)

    def add(self, fingerprint: str, place: Address) -> None:
        """Put `place` first among the addresses of the home with `fingerprint`.

        Raises:
            HearthNetError: `capacity_exceeded` for a full disk.
        """
        others = (one for one in self._found.pop(fingerprint, ()) if one != str(place))
        self._found[fingerprint] = (str(place), *others)[:MAX_ADDRESSES]
        while len(self._found) > MAX_HOMES:
            self._found.pop(next(iter(self._found)))
        with file_errors(self._path):
            write_whole(self._path, msgspec.json.encode(self._found) + b"\n")
