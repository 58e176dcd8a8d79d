"""The check of installed packages when a node starts."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

import msgspec

from hearthnet.contracts.packages import PackagedContracts, packaged_contracts, read_seen
from hearthnet.core.entry_points import scan_entry_points
from hearthnet.core.errors import HearthNetError
from hearthnet.core.files import write_whole
from hearthnet.core.home import Home
from hearthnet.service.hosting.active_offers import packaged_signature
from hearthnet.supervisor.os.disk import file_errors

_log: Final = logging.getLogger(__name__)


def check_packages(home: Home) -> tuple[str, ...]:
    """Return an error for each part of a package that is refused, and remember the contracts that are not.

    Raises:
        HearthNetError: The home's file of contracts is damaged or cannot be written.
    """
    packaged = packaged_contracts()
    seen = read_seen(home.seen_contracts)
    packaged.refuse_changed(seen, home.seen_contracts)
    _remember(home, packaged, seen)
    return (*scan_entry_points().errors, *packaged.refused.values(), *_unsigned(packaged))


def _unsigned(packaged: PackagedContracts) -> Iterator[str]:
    """Iterate over the errors of signatures that do not fit their contracts."""
    for one in packaged.found.values():
        try:
            packaged_signature(one)
        except HearthNetError as error:
            _log.error("%s", error.message)
            yield error.message


def _remember(home: Home, packaged: PackagedContracts, seen: dict[str, str]) -> None:
    known = seen | {str(capability): one.digest for capability, one in packaged.found.items()}
    if known != seen:
        with file_errors(home.seen_contracts):
            data = msgspec.json.format(msgspec.json.encode(known, order="sorted"), indent=1)
            write_whole(home.seen_contracts, data + b"\n")
