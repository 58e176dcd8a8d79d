"""Checks of the files of a home: folder, settings, keys, roster, links, backups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hearthnet.bus.session.keyring import load_identity
from hearthnet.cli.workflows.diagnosis.problem import Examined, Problem, fault, of_error, warning
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import ROOM_BYTES
from hearthnet.core.times import CLOCK, from_rfc3339, read_record

if TYPE_CHECKING:
    from hearthnet.trust.community.events import CommunityEvent
    from hearthnet.trust.community.roster import Roster

_HOUR_MS: Final = 3_600_000
_NAMED: Final = 8
LATER_REMEDY: Final = "upgrade HearthNet on this computer"
_AHEAD_MS: Final = 300_000
"""How far a time of the log may be ahead of the clock: the clocks of two homes differ."""


def folder(examined: Examined) -> Iterator[Problem]:
    """Check that the folder is there, is a folder, can be written, and only by its user."""
    from hearthnet.supervisor.os.trusted_path import check_trusted

    path = examined.home.path
    if not path.exists():
        yield warning("home.folder", f"there is no home in {path}", "make one: hearthnet up")
        return
    if not path.is_dir():
        yield fault("home.folder", f"{path} is a file", "name the folder of the home with --home")
        return
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        yield fault(
            "home.folder",
            f"this user cannot write to {path}",
            "run the command as the user of the node, or make the folder writable for this one",
        )
    try:
        check_trusted(examined.home)
    except HearthNetError as error:
        yield of_error("home.trust", error)


def settings(examined: Examined) -> Iterator[Problem]:
    """Check that the settings can be read."""
    from hearthnet.core.config_loader import load_config

    try:
        load_config(examined.home)
    except HearthNetError as error:
        yield of_error("home.settings", error)


def disk(examined: Examined) -> Iterator[Problem]:
    """Check that there is room on the disk."""
    from hearthnet.supervisor.os.disk import NEEDED_BYTES

    if not examined.home.path.is_dir():
        return
    free = examined.home.free_bytes()
    needed = ROOM_BYTES if examined.node is not None else NEEDED_BYTES
    if free < needed:
        what = "keep posts and documents" if examined.node is not None else "start"
        yield fault(
            "home.disk",
            f"{free // 1_000_000} MB are free where {examined.home.path} is, and a node needs "
            f"{needed // 1_000_000} MB to {what}",
            "make room on that disk, or move the home to another one",
        )


def keys(examined: Examined) -> Iterator[Problem]:
    """Check that the keys are whole, and readable for their user alone."""
    home = examined.home
    if home.roster.exists() and not home.device_key.exists():
        yield fault(
            "keys.device",
            f"{home.device_key} is missing, but there is a roster that names it",
            "put back a copy of the key, restore a backup (hearthnet backup restore), or recover the person "
            "on a new node (hearthnet recover)",
        )
    named = {
        "device": home.device_key,
        "community": home.community_key,
        "person": home.person_key,
        "recovery": home.recovery_key,
    }
    for name, path in named.items():
        if path.exists():
            try:
                load_identity(path)
            except HearthNetError as error:
                yield of_error(f"keys.{name}", error)


def roster(examined: Examined) -> Iterator[Problem]:
    """Check that the roster is whole and has this node."""
    from hearthnet.supervisor.nats.home_setup import load_own_roster

    home = examined.home
    if not (home.roster.exists() and home.device_key.exists()):
        return
    try:
        identity = load_identity(home.device_key)
    except HearthNetError:
        return  # `keys` reports it
    try:
        load_own_roster(home.roster, identity)
    except HearthNetError as error:
        yield of_error("community.roster", error)


def later_events(roster: Roster) -> list[CommunityEvent]:
    """Return the events of present and former members that this version cannot read, the oldest first.

    Their effect is missing here, which may be a removal.
    """
    known = {roster.community_id, *(one.node_id for one in roster.members)}
    known |= {one.node_id for one in roster.revoked}
    return [one for one in roster.history.events if one.content is None and one.author in known]


def later_version(roster: Roster) -> str:
    """Describe the events of a later version in one line; empty if there are none."""
    found = later_events(roster)
    kinds = ", ".join(dict.fromkeys(one.event_type for one in found[:_NAMED]))
    count = f"{len(found)} events of the community are" if len(found) > 1 else "1 event of the community is"
    return f"{count} of a later version: {kinds}" if found else ""


def community_version(examined: Examined) -> Iterator[Problem]:
    """Check that this version can read all events of the community."""
    text = "" if examined.roster is None else later_version(examined.roster)
    if text:
        yield warning("community.version", f"{text}; without effect here", LATER_REMEDY)


def upstream(examined: Examined) -> Iterator[Problem]:
    """Check that the file of the link to another home is whole."""
    from hearthnet.supervisor.nats.leaf_links import load_upstream

    try:
        load_upstream(examined.home)
    except HearthNetError as error:
        yield of_error("community.upstream", error)


def clock(examined: Examined) -> Iterator[Problem]:
    """Check the clock against other homes, and against the times of events and files of this home."""
    from hearthnet.cli.workflows.diagnosis.clock import clock_fault, span

    found = clock_fault(examined.home)
    if found is not None:
        yield fault("clock", found.cause, found.remedy)
        return
    if examined.now_ms - read_record(examined.home).confirmed_ms < _HOUR_MS:
        return  # another home agrees with it; what is dated later was written by a clock that was ahead
    behind = max(_behind(examined), default=0)
    if behind > _AHEAD_MS:
        yield fault(
            "clock",
            f"the clock is behind by {span(behind)} at least: the log of the community, or a file of the "
            "home, is of later",
            "set the clock of this computer, best by network time (timedatectl set-ntp true)",
        )


def _behind(examined: Examined) -> Iterator[int]:
    """Yield by how much times that have passed are ahead: of events that this node signed, and of files."""
    home = examined.home
    if examined.roster is not None:
        own = load_identity(home.device_key).node_id
        for event in examined.roster.history.events:
            if event.author == own:
                yield from_rfc3339(event.wall_clock) - examined.now_ms
    for path in (home.roster, home.device_key, home.config_file):
        if path.exists():
            # The system dates files by the computer's clock, not by the home's time.
            yield path.stat().st_mtime_ns // 1_000_000 - CLOCK.system()


def backups(examined: Examined) -> Iterator[Problem]:
    """Check that the scheduled backups are made."""
    from hearthnet.backup.history import read_last
    from hearthnet.cli.workflows.diagnosis.clock import span

    config = examined.config
    if config is None or not (config.backup.folder and config.backup.every_hours):
        return
    target, last = Path(config.backup.folder), read_last(examined.home)
    if not target.is_dir():
        yield fault(
            "backup.folder",
            f"the folder of the backups, {target}, is not there",
            "plug in the disk, or name another folder in [backup] of hearthnet.toml",
        )
    elif last.error:
        yield fault(
            "backup.last", f"the last backup was not made: {last.error}", "try: hearthnet backup create"
        )
    elif last.time and examined.now_ms > last.time + 2 * config.backup.every_hours * _HOUR_MS:
        age = span(examined.now_ms - last.time)
        yield warning("backup.last", f"the last backup is {age} old", "make one: hearthnet backup create")
