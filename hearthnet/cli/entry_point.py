"""From arguments to an exit code: errors become one line and a number.

People never see a traceback. An unforeseen error is written to `logs/cli.log` under an id, and the line has
that id.

See: docs/protocol/errors.md#mapping-to-exit-codes.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sys
from collections.abc import Sequence
from typing import Final, TextIO

from click import Abort, ClickException, UsageError

from hearthnet.cli.app import app
from hearthnet.cli.input.options import CommandSettings
from hearthnet.cli.output import terminal
from hearthnet.cli.output.text import one_line
from hearthnet.core.errors import INTERRUPTED, OK, OTHER, HearthNetError, first_of
from hearthnet.core.home import Home

PROGRAM: Final = "hearthnet"
_NOWHERE: Final = logging.NullHandler()
"""Drops the log of libraries: a person reads the line of the error, not each attempt to reconnect."""


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; all output is written before it returns."""
    terminal.prepare()
    logging.getLogger().addHandler(_NOWHERE)
    settings = CommandSettings()
    try:
        code = _invoke(list(arguments), settings)
        sys.stdout.flush()
    except BrokenPipeError:
        _silence(sys.stdout)
        code = OTHER
    with contextlib.suppress(BrokenPipeError):
        sys.stderr.flush()
    return code


def _invoke(arguments: list[str], settings: CommandSettings) -> int:
    try:
        outcome = app(arguments, prog_name=PROGRAM, standalone_mode=False, obj=settings)
    except (Exception, KeyboardInterrupt, BaseExceptionGroup) as raised:
        settings.json |= "--json" in arguments  # unread where another argument is wrong
        return _failed(first_of(raised), settings)
    return outcome if isinstance(outcome, int) else OK


def _failed(error: BaseException, settings: CommandSettings) -> int:
    """Report the error of a command and return its exit code; no other place does so."""
    match error:
        case HearthNetError():
            return report(error, settings)
        case ClickException():
            return report(_misused(error), settings)
        case KeyboardInterrupt() | Abort():
            return INTERRUPTED
        case BrokenPipeError():
            raise error
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            return report(_full(error), settings)
        case Exception():
            return report(_unforeseen(error, settings), settings)
    raise error


def _full(error: OSError) -> HearthNetError:
    where = f" of {error.filename}" if error.filename else ""
    return HearthNetError("capacity_exceeded", f"the disk{where} is full; make room, then try again")


def _misused(error: ClickException) -> HearthNetError:
    context = error.ctx if isinstance(error, UsageError) else None
    command = PROGRAM if context is None else context.command_path
    message = one_line(error.format_message()).removesuffix(".")
    text = f"{message[:1].lower()}{message[1:]} (see: {command} --help)"
    return HearthNetError("bad_request", text, exit_status=error.exit_code)


def report(error: HearthNetError, settings: CommandSettings) -> int:
    """Print an error on stderr, with --json also on stdout; return the exit code."""
    if settings.frames:
        terminal.json_line({"event": "error", "data": error.to_body()})
    elif settings.json:
        terminal.json_line(error.to_body())
    sys.stdout.flush()
    terminal.error(one_line(error.message))
    return error.exit_status


def _unforeseen(error: Exception, settings: CommandSettings) -> HearthNetError:
    import traceback

    from hearthnet.core.ids import new_ulid
    from hearthnet.core.times import now_ms
    from hearthnet.supervisor.os.log_file import LogFile

    incident = new_ulid()
    path = Home.resolve(settings.home).log("cli")
    text = f"{now_ms()} {incident} {' '.join(sys.argv[1:2])}\n{''.join(traceback.format_exception(error))}"
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        LogFile(path).write(text.encode("utf-8", "backslashreplace"))
    where = (
        f"details in {path}"
        if path.exists()
        else f"{type(error).__name__}: {error}; {path} cannot be written"
    )
    return HearthNetError(
        "internal_error",
        f"something went wrong that should not have: {incident} ({where})",
        details={"incident": incident},
    )


def _silence(stream: TextIO) -> None:
    """Discard output that is buffered for a closed reader, which would fail at exit."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())
