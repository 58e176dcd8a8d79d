"""hearthnet.toml as text, for commands that edit it without changing the person's layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthnet.core.errors import HearthNetError

if TYPE_CHECKING:
    from hearthnet.core.home import Home


def text_of(home: Home) -> str:
    """Return its text with its line ends, empty if there is no file."""
    try:
        return home.config_file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return ""


def write(home: Home, text: str) -> None:
    """Write the new text, unless it is no longer valid as settings."""
    from hearthnet.core.config_loader import parse_config
    from hearthnet.supervisor.os.atomic_files import file_errors, write_whole

    try:
        parse_config(text, home.config_file)
    except HearthNetError as error:
        raise HearthNetError(
            "bad_request",
            f"{home.config_file} cannot be edited by this command ({error.message}); edit it by hand",
        ) from error
    file = home.config_file.resolve()
    with file_errors(file):
        write_whole(file, text.encode("utf-8"), durable=True)
