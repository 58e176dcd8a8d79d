"""`hearthnet translate`: translates a text of any length (docs/trans.md)."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from hearthnet.cli.input.local_call import on_bus
from hearthnet.cli.input.options import common_options
from hearthnet.cli.output import terminal
from hearthnet.cli.output.text import many_lines, one_line
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home

if TYPE_CHECKING:
    from hearthnet.text.translate_long import Done

MOST_BYTES: Final = 4 << 20


@click.command("translate")
@click.argument("file", default="-", metavar="[FILE|-]")
@click.option(
    "--from",
    "source",
    default="auto",
    metavar="LANGUAGE",
    help="Code such as en, or its English name. Default: found out.",
)
@click.option(
    "--to", "target", required=True, metavar="LANGUAGE", help="Code such as es or nds, or its name."
)
@click.option(
    "--backend", metavar="NAME", help="What translates, such as apertium. Default: the first there is."
)
@common_options
def command(file: str, source: str, target: str, backend: str | None, home: Home, json: bool) -> None:
    """Translate a text file, or text from stdin, and print the translation.

    Markup, line breaks and addresses stay as they are. A long text is sent in parts, split between sentences.
    """
    from hearthnet.text.language_codes import meant
    from hearthnet.text.translate_long import translate

    source, target = "auto" if source == "auto" else meant(source), meant(target)
    text = read(file)
    with progress(json) as done:
        translated = on_bus(
            home, lambda bus: translate(bus, text, source, target, backend=backend, done=done)
        )
    if json:
        import msgspec

        terminal.json_page(msgspec.to_builtins(translated))
    else:
        terminal.write(printable(translated.text))


def read(file: str) -> str:
    """Return the text in `file`, or on stdin for `-`.

    Raises:
        HearthNetError: `bad_request` if it is not UTF-8 text or is too long; `not_found` for a missing file.
    """
    where = "stdin" if file == "-" else one_line(file)
    try:
        with contextlib.ExitStack() as opened:
            source = sys.stdin.buffer if file == "-" else opened.enter_context(Path(file).open("rb"))
            data = source.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise HearthNetError("bad_request", f"{where} has more than {MOST_BYTES >> 20} MiB; split it")
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise HearthNetError(
            "bad_request", f"{where} is no text: byte {error.start + 1} is not UTF-8"
        ) from error
    except FileNotFoundError as error:
        how = "a text itself comes on stdin: echo 'TEXT' | hearthnet translate --to CODE"
        raise HearthNetError("not_found", f"there is no file {where}; {how}") from error
    except OSError as error:
        raise HearthNetError("bad_request", f"{where} cannot be read: {error.strerror}") from error


def printable(text: str) -> str:
    """Return the text for output: unchanged for a program, harmless for a terminal.

    On a terminal it ends with a line break.
    """
    if not terminal.is_tty(sys.stdout):
        return text
    lines = many_lines(text)
    return lines if lines.endswith("\n") else f"{lines}\n"


@contextlib.contextmanager
def progress(quiet: bool) -> Iterator[Done]:
    """Show a bar on stderr if that is a terminal and there is more than one part."""
    if quiet or not terminal.is_tty(sys.stderr):
        yield lambda number, of: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("translating", visible=False)
        yield lambda number, of: bar.update(task, completed=number, total=of, visible=of > 1)
