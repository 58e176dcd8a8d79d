"""The recovery key as words at the command line: reading them, and leaving the paper alone with them."""

from __future__ import annotations

import contextlib
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hearthnet.backup import backup_key
from hearthnet.backup.words import WORDS, from_words, to_words, without_heading
from hearthnet.bus.session.keyring import load_identity
from hearthnet.cli.output import terminal
from hearthnet.core.errors import REFUSED, UNCONFIRMED, HearthNetError, NotFound, Unauthorized
from hearthnet.core.files import remove_overwritten, sync_folder
from hearthnet.core.home import Home
from hearthnet.supervisor.os.disk import file_errors
from hearthnet.trust.keys import Identity

ASKED: Final = 4
"""How many words are asked for."""
_LINES: Final = 60
"""By so many empty lines the words are moved off the screen before some are asked for."""


def recovery_of(home: Home | None, source: str | None, person: str = "") -> Identity:
    """Return the recovery key: of the words in the file `source` (`-`: stdin), of the home, or as typed.

    With `person`, words that are nearly those of this person are reported by their place.

    Raises:
        HearthNetError: `bad_request` for wrong words; `unauthorized` (exit code 7) without a terminal.
    """
    if source is not None:
        return _read(source, person)
    if home is not None:
        with contextlib.suppress(HearthNetError):
            found = backup_key.recovery_key(home)
            if person in ("", found.node_id):
                return found
    screen = terminal.screen()
    if screen is None:
        raise Unauthorized(
            "this takes the recovery words, and there is no terminal to ask at; use --words FILE",
            exit_status=UNCONFIRMED,
        )
    screen.write(f"Type the {WORDS} recovery words, on one line or several:\n")
    screen.flush()
    typed: list[str] = []
    while len(typed) < WORDS and (line := sys.stdin.readline()):
        typed += [word for word in without_heading(line).split() if any(map(str.isalpha, word))]
    return from_words(" ".join(typed), person)


def _read(source: str, person: str) -> Identity:
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotFound(f"cannot read the recovery words in {source}: {error}") from error
    if text.startswith("hearthnet-key-"):
        return Identity.from_text(text) if source == "-" else load_identity(Path(source))
    return from_words(text, person)


def forget(recovery: Identity, remove: Callable[[], None]) -> None:
    """Ask for some of the words, then `remove` the recovery key.

    Raises:
        HearthNetError: `unauthorized`, with exit code 7 without a terminal, and 4 for a word that is wrong.
            Then the key is still there.
    """
    screen = terminal.screen()
    if screen is None:
        raise Unauthorized(
            "the key is removed once some of the words are typed, and there is no terminal",
            exit_status=UNCONFIRMED,
        )
    found = to_words(recovery.seed)
    screen.write("Write all of them down, in their order. Then press Enter.")
    screen.flush()
    sys.stdin.readline()
    screen.write("\n" * _LINES)
    for place in sorted(secrets.SystemRandom().sample(range(WORDS), ASKED)):
        screen.write(f"word {place + 1}: ")
        screen.flush()
        if sys.stdin.readline().strip().lower() != found[place]:
            raise Unauthorized(
                f"word {place + 1} is another one; nothing was removed, compare the paper",
                exit_status=REFUSED,
            )
    remove()


def remove_owners(home: Home, recovery: Identity) -> None:
    """Remove the recovery key of the home's owner; the home can still make backups."""
    node = load_identity(home.device_key).node_id
    if not home.backup_key.exists():
        backup_key.make(home, node, recovery)
    path = home.recovery_key
    with file_errors(path):
        remove_overwritten(path)
        sync_folder(home.keys)
