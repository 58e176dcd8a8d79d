"""`hearthnet backup`: encrypted backups of this home, and restoring one (docs/operations.md, "Backups")."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from hearthnet.cli.input.options import Commands, common_options
from hearthnet.cli.output import terminal
from hearthnet.cli.output.durations import format_time
from hearthnet.cli.output.text import counted, one_line, size
from hearthnet.core import ids
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms

if TYPE_CHECKING:
    from hearthnet.backup.reader import BackupEntry, Checked
    from hearthnet.backup.writer import Made

_HEADINGS: Final = ("id", "made", "computer", "files", "size", "note")
_folder: Final = click.argument("folder", type=click.Path(path_type=Path))
_words: Final = click.option(
    "--words",
    metavar="FILE",
    help="A file with the recovery words, or - for stdin. Default: the key of this home, else a question.",
)
_node: Final = click.option(
    "--node", default="", metavar="NODE", help="The node whose backup it is, by its id."
)
_backup: Final = click.option(
    "--backup", "backup_id", default="", metavar="ID", help="The backup. Default: the newest one."
)


@click.group("backup", cls=Commands)
def command() -> None:
    """Back up this home, encrypted for the recovery words of its person, and restore it.

    \b
    hearthnet backup create /media/backups
    hearthnet backup verify /media/backups
    hearthnet backup restore /media/backups --home /home/anna/new
    """


@command.command()
@_folder
@click.option(
    "--keep", type=click.IntRange(min=0), default=0, help="Keep only so many of the newest. 0: all."
)
@common_options
def create(folder: Path, keep: int, home: Home, json: bool) -> None:
    """Make a backup in FOLDER, while the node runs or not.

    Unchanged content is not written again. A running node stands still for a moment, at
    most a second, so that the backup is of one moment.
    """
    from hearthnet.cli.workflows import backup_flow

    try:
        made, note = backup_flow.create(home, folder, keep, backup_flow.shown_progress("backing up"))
    finally:
        backup_flow.ended_progress()
    import msgspec

    terminal.result(json, msgspec.to_builtins(made) | {"note": note}, lambda: _print_made(made, folder))
    if note:
        terminal.info(one_line(note))


@command.command("list")
@_folder
@_node
@common_options
def list_(folder: Path, node: str, home: Home, json: bool) -> None:
    """List the backups in FOLDER; needs no words."""
    from hearthnet.backup import reader

    found = reader.listing(folder, node)
    empty = f"there is no backup in {one_line(str(folder))}; make one with: hearthnet backup create FOLDER"
    terminal.listing(json, [_as_json(one) for one in found], _HEADINGS, [_row(one) for one in found], empty)


@command.command()
@_folder
@_backup
@_node
@_words
@common_options
def verify(folder: Path, backup_id: str, node: str, words: str | None, home: Home, json: bool) -> None:
    """Read a whole backup and check it; the exit code is not 0 if anything is wrong with it.

    Without the recovery words, or the key in this home, it is checked that nothing is missing or altered;
    with them also that it can be decrypted.
    """
    import contextlib

    from hearthnet.backup import backup_key, reader
    from hearthnet.cli.workflows import backup_flow, recovery_words
    from hearthnet.core.errors import HearthNetError

    found = reader.choose(folder, backup_id, node)
    recovery = recovery_words.recovery_of(home, words, backup_flow.person_of(found)) if words else None
    if recovery is None:
        with contextlib.suppress(HearthNetError):
            key = backup_key.recovery_key(home)
            recovery = key if key.node_id == backup_flow.person_of(found) else None
    try:
        checked = reader.verify(found, recovery, backup_flow.shown_parts("verifying"))
    finally:
        backup_flow.ended_progress()
    import msgspec

    terminal.result(json, msgspec.to_builtins(checked), lambda: _print_checked(checked))


@command.command()
@_folder
@_backup
@_node
@_words
@common_options
def restore(folder: Path, backup_id: str, node: str, words: str | None, home: Home, json: bool) -> None:
    """Restore a backup into an empty home: --home, or the default one.

    Takes the recovery words. The node of the backup must not run any more, on no computer: this one takes its
    place.
    """
    from hearthnet.backup import reader
    from hearthnet.cli.workflows import backup_flow, recovery_words

    reader.check_empty(home)
    found = reader.choose(folder, backup_id, node)
    recovery = recovery_words.recovery_of(None, words, backup_flow.person_of(found))
    try:
        header, mark = reader.restore(found, recovery, home, backup_flow.shown_progress("restoring"))
    finally:
        backup_flow.ended_progress()
    page = {
        "id": header.id,
        "node": header.node,
        "person": header.person,
        "time": header.time,
        "restored_at": mark.restored_at,
        "files": header.files,
        "size": header.size,
        "home": str(home.path),
    }
    terminal.result(json, page, lambda: _print_restored(found, home))


@command.command()
@_words
@common_options
def allow(words: str | None, home: Home, json: bool) -> None:
    """Let this home make backups for the person of the recovery words.

    Needed once, where the recovery key was removed from this computer before its first backup.
    """
    from hearthnet.backup import backup_key
    from hearthnet.bus.session.keyring import load_identity
    from hearthnet.cli.workflows import recovery_words

    node = load_identity(home.device_key).node_id
    recovery = recovery_words.recovery_of(home, words)
    backup_key.make(home, node, recovery)
    page = {"person": recovery.node_id, "node": node}
    terminal.result(json, page, f"this home makes backups for the person {ids.short_id(recovery.node_id)}")


@command.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@common_options
def alone(yes: bool, home: Home, json: bool) -> None:
    """After a restore: write events of the community without having heard from another member.

    For a community whose other members are gone. Events that this node wrote after the backup, and others
    still hold, then compete with the new ones.
    """
    import msgspec

    from hearthnet.cli.input.yes_no import confirm
    from hearthnet.core.errors import NotFound
    from hearthnet.core.restore_mark import read_mark, write_mark
    from hearthnet.supervisor.os.disk import file_errors

    mark = read_mark(home)
    if mark is None:
        raise NotFound(f"{home.path} was not restored from a backup; there is nothing to do")
    question = "No other member will come that knows what this node wrote after the backup?"
    confirm(question, confirmed=yes or mark.may_write_events, option="--yes")
    if not mark.may_write_events:
        with file_errors(home.restored):
            write_mark(home, msgspec.structs.replace(mark, alone=True))
    terminal.result(json, {"alone": True}, "this node writes events of its community again")


def _print_made(made: Made, folder: Path) -> None:
    written = f"{counted(made.written_chunks, 'new part')}, {size(made.written_bytes)}"
    terminal.line(f"backup {made.id} of {counted(made.files, 'file')} and {size(made.size)}: {written}")
    if made.pause_ms:
        terminal.line(f"the node stood still for {made.pause_ms} ms")
    if made.removed:
        terminal.line(f"removed {counted(len(made.removed), 'older backup')}")
    terminal.line(f"not in it: {', '.join(made.left_out)}")
    terminal.line(f"check it now and then: hearthnet backup verify {one_line(str(folder))}")


def _print_checked(checked: Checked) -> None:
    parts = f"{counted(checked.chunks, 'part')}, {size(checked.bytes)}"
    if checked.with_key:
        terminal.line(f"backup {checked.id} is whole and can be restored: {parts}, all decrypted")
    else:
        terminal.line(f"backup {checked.id} is whole: {parts}, nothing missing or altered")
        terminal.line("not checked without the recovery words: that it can be decrypted (--words FILE)")


def _print_restored(found: BackupEntry, home: Home) -> None:
    header = found.header
    if header is None:
        return
    terminal.line(f"{one_line(header.display_name)} ({ids.short_id(header.node)}) is restored in {home.path}")
    terminal.line(f"as it was {format_time(header.time, now_ms())}; what it did later is not known to it")
    terminal.line("start it with: hearthnet up --home " + one_line(str(home.path)))
    terminal.line("the old node must not run any more, on no computer")


def _as_json(found: BackupEntry) -> dict[str, Any]:
    header = found.header
    page: dict[str, Any] = {"id": found.id, "node": found.folder.node, "problem": found.problem}
    if header is not None:
        names = ("person", "display_name", "time", "hearthnet", "files", "size", "pause_ms")
        page |= {name: getattr(header, name) for name in names} | {"chunks": len(header.chunks)}
    return page


def _row(found: BackupEntry) -> tuple[str, ...]:
    header = found.header
    if header is None:
        return found.id, "-", ids.short_id(found.folder.node), "-", "-", one_line(found.problem)
    made = format_time(header.time, now_ms())
    return found.id, made, one_line(header.display_name), str(header.files), size(header.size), ""
