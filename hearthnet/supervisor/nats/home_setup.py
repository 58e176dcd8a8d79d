"""The first run, which makes a folder a home; later runs make only missing parts.

The order is: folders, settings, device key, root key, roster, then the keys of the owner's person. So the
next run completes one that was interrupted anywhere, and a roster without its device key is reported as a
loss and not treated as a first run. Nothing that exists is ever overwritten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hearthnet.bus.session import keyring
from hearthnet.core import ids
from hearthnet.core.config import Config
from hearthnet.core.config_loader import DEFAULT_CONFIG, load_config
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms
from hearthnet.supervisor.os.disk import check_space, file_errors, make_folder
from hearthnet.supervisor.os.trusted_path import check_trusted
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.community.names import usable
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity

Report = Callable[[str], None]
"""Takes one line for the person at the terminal."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The content of a complete home."""

    home: Home
    identity: Identity
    roster: Roster
    config: Config


def make_folders(home: Home) -> None:
    """Make the folders of a home, those with secrets in mode 0700.

    Raises:
        HearthNetError: `unauthorized` if other users can replace the home or its settings;
            `capacity_exceeded` if the disk has too little room.
    """
    check_trusted(home)
    # A refusal leaves nothing behind: the room is that of the folder in which the home will be.
    check_space(next(path for path in (home.path, *home.path.absolute().parents) if path.exists()))
    make_folder(home.path, private=False)
    for folder in (
        home.run,
        home.keys,
        home.roster.parent,
        home.nats,
        home.jetstream,
        home.services,
        home.logs,
    ):
        make_folder(folder)


def prepare(home: Home, report: Report) -> Prepared:
    """Complete the home, whose folders and lock exist, and load its content.

    `report` receives a line for everything that is made. Raises the error of a damaged file, with its name.
    """
    founded = home.roster.exists()
    config, identity = settings_and_key(home, report)
    if not founded:
        _found_community(home, identity, config.display_name, report)
    return Prepared(home, identity, load_own_roster(home.roster, identity), config)


def settings_and_key(home: Home, report: Report) -> tuple[Config, Identity]:
    """Return settings and device key, made where they are missing; raises as `prepare`.

    A home has these before it belongs to a community.
    """
    if home.roster.exists() and not home.device_key.exists():
        raise HearthNetError(
            "not_found",
            f"{home.device_key} is missing, but there is {home.roster}; put back a copy of the key, or move "
            "the roster away to found a new community",
        )
    if not home.config_file.exists():
        _write_new(home.config_file, DEFAULT_CONFIG.encode("utf-8"))
        report(f"settings written to {home.config_file}")
    return load_config(home), _identity(home.device_key, "device key", report)


def make_person(prepared: Prepared, report: Report) -> None:
    """Make the keys of the owner's person, once; not where the roster has this node as a device already.

    Nor where helpers recover a person at this home, whose node it is to be.
    The recovery key comes first, so that the person key is there only with a person to add devices for.
    """
    home, own = prepared.home, prepared.identity.node_id
    if home.person_key.exists() or home.recovering.exists() or prepared.roster.owner(own) != own:
        return
    with file_errors(home.recovery_key):
        is_new = not home.recovery_key.exists()
        person = (keyring.create_identity if is_new else keyring.load_identity)(home.recovery_key)
        keyring.create_identity(home.person_key)
    report(f"new person {ids.short_id(person.node_id)}; keep a copy of {home.recovery_key} elsewhere")


def _identity(path: Path, what: str, report: Report) -> Identity:
    if path.exists():
        return keyring.load_identity(path)
    with file_errors(path):
        identity = keyring.create_identity(path)
    report(f"new {what} {ids.short_id(identity.node_id)} in {path}")
    return identity


def _found_community(home: Home, identity: Identity, display_name: str, report: Report) -> None:
    root = _identity(home.community_key, "community root key", report)
    name = f"{display_name}'s community"
    now = now_ms()
    first = rosters.member(identity, "anchor", usable(display_name, identity.node_id), now)
    founded = rosters.seal(rosters.create(root, first, name, now), identity)
    _write_new(home.roster, rosters.encode(founded))
    report(f"founded {name}, a community of one")


def load_own_roster(path: Path, identity: Identity) -> Roster:
    """Return the roster in `path`, which must list this node with the login of its key.

    Raises:
        HearthNetError: `revoked` if this node is no member any more; `unauthorized` if it never was one with
            this key; as `load_roster`.
    """
    roster = keyring.load_roster(path, identity.node_id)
    if roster.is_revoked(identity.node_id):
        raise HearthNetError(
            "revoked",
            f"this node was put out of the community in {path}; join one with a new invite (hearthnet invite "
            "redeem TEXT), or move that file away to found a new community",
        )
    entry = roster.member(identity.node_id)
    if entry is None or entry.login != identity.login().public:
        raise HearthNetError(
            "unauthorized",
            f"{path} does not have this node ({ids.short_id(identity.node_id)}) as a member; put back the "
            "key and the roster that belong together",
        )
    return roster


def _write_new(path: Path, data: bytes) -> None:
    with file_errors(path):
        keyring.write_new(path, data)
