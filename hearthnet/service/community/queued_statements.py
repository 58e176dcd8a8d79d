"""Statements of persons on their way to the log, and the description of a recovery that has begun.

The auth service takes the statements from a file of the home: what a command or a page has signed is written
also where that service is away for a moment.

See: docs/protocol/persons.md#objection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from hearthnet.core.files import write_whole
from hearthnet.core.home import Home
from hearthnet.core.times import from_rfc3339
from hearthnet.trust.community.person_statements import Statement
from hearthnet.trust.community.recoveries import Recovery
from hearthnet.trust.community.recovery_statements import BEGUN, STATEMENTS
from hearthnet.trust.community.roster import Roster


def as_pages(statements: Sequence[Statement]) -> bytes:
    """Return statements of persons as they wait in a file: a JSON array."""
    kinds = {kind: name for name, kind in STATEMENTS.items()}
    pages = [{"event_type": kinds[type(one)], "data": msgspec.to_builtins(one)} for one in statements]
    return msgspec.json.encode(pages)


def queue_statements(home: Home, statements: Sequence[Statement]) -> None:
    """Write statements of persons to the file from which the auth service takes them to the log.

    Those that wait there already stay, and are not there twice. Raises OSError.
    """
    added = msgspec.json.decode(as_pages(statements))
    with home.changing_statements() as path:
        waiting = msgspec.json.decode(path.read_bytes()) if path.exists() else []
        new = [one for one in added if one not in waiting]
        write_whole(path, msgspec.json.encode([*waiting, *new]), durable=True)


def as_json(roster: Roster, one: Recovery, now_ms: int) -> dict[str, Any]:
    """Return a recovery that has begun, with the earliest time in milliseconds at which it is completed.

    The time is by the clock of the node `begun_by`, whose event announced it; each witness goes by its own.
    A clock that is fast, as a thief may set it, promises no more time than a witness of now would wait.
    """
    signature = one.begun.signature
    events = (event for event in roster.events if event.event_type == BEGUN)
    event = next(event for event in events if event.data["signature"] == signature)
    begun_ms = min(from_rfc3339(event.wall_clock), now_ms)
    return {
        "recovery": one.recovery,
        "key": one.begun.key,
        "begun_at": event.wall_clock,
        "begun_by": event.author,
        "not_before": begun_ms + one.wait_seconds * 1000,
        "witnessed": len(one.witnessed),
        "objected": list(one.objected),
    }
