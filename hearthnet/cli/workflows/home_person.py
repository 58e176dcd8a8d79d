"""Persons of a home other than its owner: making their keys, their links, and removing them.

What their keys sign waits in the home until the auth service has written it to the log: at once where the
node runs, else at its next start.

See: docs/persons.md, docs/protocol/persons.md#other-persons-of-a-home.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hearthnet.agent.devices.conversation_store import ConversationStore
from hearthnet.bus.session.keyring import create_identity, load_identity
from hearthnet.cli.input.local_call import call_local_node, running_node
from hearthnet.cli.input.member_lookup import roster_of
from hearthnet.cli.workflows import person_belongings
from hearthnet.cli.workflows.person_belongings import Keep
from hearthnet.core.errors import HearthNetError
from hearthnet.core.files import remove_overwritten
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms
from hearthnet.gateway.auth.client_store import ClientStore
from hearthnet.gateway.auth.home_persons import HomePerson, HomePersons, Limits
from hearthnet.service.community.queued_statements import queue_statements
from hearthnet.supervisor.os.disk import file_errors
from hearthnet.trust.community import person_statements
from hearthnet.trust.keys import Identity

if TYPE_CHECKING:
    from hearthnet.trust.community.person_statements import Statement


def create(home: Home, name: str, limits: Limits | None) -> HomePerson:
    """Make the keys of a new person, and have the community know of it.

    A call that was cut off is completed by the next one.

    Raises:
        HearthNetError: `bad_request` for a name that cannot be used, or that a client has as a guest; the
            errors of the auth service.
    """
    persons = HomePersons(home)
    persons.check_new(name)
    _check_no_client(home, name)
    with file_errors(home.persons):
        home.persons.mkdir(mode=0o700, exist_ok=True)
        recovery, _ = _key(persons.recovery_key(name)), _key(persons.person_key(name))
        entry = HomePerson(name=name, person=recovery.node_id, created_at=now_ms(), limits=limits)
        persons.save(entry)
    introduce(home, entry)
    return entry


def _check_no_client(home: Home, name: str) -> None:
    """Check that no client is a guest of this name, which would see what the person asks.

    Raises:
        HearthNetError: `bad_request` if one is.
    """
    for one in ClientStore(home).entries():
        if one.principal.casefold() == name.casefold():
            raise HearthNetError(
                "bad_request",
                f"the client {one.id} has the conversations of guest {one.principal}; take another name, or "
                f"remove it before: hearthnet clients remove {one.id}",
            )


def introduce(home: Home, entry: HomePerson) -> None:
    """Write the statement that begins a person to the log, where it is missing and its keys are here."""
    roster, persons = roster_of(home), HomePersons(home)
    path = persons.recovery_key(entry.name)
    if roster.person(entry.person) is not None or not path.exists():
        return
    key = load_identity(persons.person_key(entry.name))
    _queue(home, person_statements.keyed(roster.community_id, load_identity(path), 1, key.node_id))
    _carry(home)


def set_limits(home: Home, entry: HomePerson, limits: Limits | None) -> HomePerson:
    """Replace the limits of a person; None makes an adult of a child."""
    changed = msgspec.structs.replace(entry, limits=limits)
    with file_errors(home.persons):
        HomePersons(home).save(changed)
    return changed


def remove(home: Home, entry: HomePerson, keep: Keep = Keep()) -> dict[str, Any]:  # noqa: B008 - frozen
    """Cut off the pages of a person, and remove their data here; return the counts.

    Its name is not used again. What the keys sign is on the disk before they go, so that it is written to the
    log later where the auth service is away. A call that was cut off is completed by the next one.

    Raises:
        HearthNetError: The errors of the auth service, when all else is done.
    """
    persons, book = HomePersons(home), ClientStore(home)
    with file_errors(home.persons):
        persons.save(msgspec.structs.replace(entry, removed_at=entry.removed_at or now_ms()))
    for one in book.entries():
        if one.principal == entry.name:
            book.remove(one.id)
    devices = _remove_devices(home, entry)
    ConversationStore.of_guest(home, load_identity(home.device_key), entry.name).erase()
    for file in () if keep.keys else (persons.recovery_key(entry.name), persons.person_key(entry.name)):
        with file_errors(file):
            remove_overwritten(file)
    done: dict[str, Any] = {"devices": devices, "unfinished": ""}
    try:
        done["runs_removed"] = person_belongings.remove_runs(home, entry.name)
        done["mutes_removed"] = person_belongings.remove_mutes(home, entry.name)
        done |= person_belongings.remove(home, entry.name, keep)
    except HearthNetError as error:
        done["unfinished"] = person_belongings.unfinished(entry.name, error)
    _carry(home)
    return done


def _remove_devices(home: Home, entry: HomePerson) -> list[str]:
    """Sign that the devices of a person are removed; return their keys, none without the person key."""
    roster, path = roster_of(home), HomePersons(home).person_key(entry.name)
    devices = [one.key for one in roster.devices(entry.person)]
    if not (path.exists() and devices):
        return []
    key, community = load_identity(path), roster.community_id
    _queue(
        home,
        *(
            person_statements.device_removed(community, entry.person, key, one, (), "left the home")
            for one in devices
        ),
    )
    return devices


def check_guest(home: Home, name: str) -> None:
    """Check that `name` is no person of the home, whose runs another client would see.

    Raises:
        HearthNetError: `unauthorized` if it is, or was.
    """
    if HomePersons(home).find(name) is not None:
        raise HearthNetError(
            "unauthorized",
            f"{name} is a person of this home, and nobody else sees what is theirs; for a page of {name}: "
            f"hearthnet person link {name}",
        )


def _key(path: Path) -> Identity:
    return load_identity(path) if path.exists() else create_identity(path)


def _queue(home: Home, *statements: Statement) -> None:
    with file_errors(home.recovery_statements):
        queue_statements(home, statements)


def _carry(home: Home) -> None:
    """Have the running node write the queued statements to the log."""
    if home.recovery_statements.exists() and running_node(home) is not None:
        call_local_node(home, "community.person.recover@1.0", {})
