"""The output of `hearthnet up`: progress of the start, running services, later events."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Final, NamedTuple, TextIO

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hearthnet.core import ids
from hearthnet.core.home import HOME_VARIABLE, Home
from hearthnet.core.node_state import NodeState, ServiceState

_NAME: Final = "hearthnet"


def program() -> str:
    """Return `hearthnet` where a shell finds this installation by that name, else its path.

    The path is relative to the current folder where that is shorter.
    """
    running = _running()
    found = shutil.which(_NAME)
    if found is not None and (running is None or os.path.realpath(found) == os.path.realpath(running)):
        return _NAME
    return _shorter(running) if running is not None else _NAME


def _running() -> Path | None:
    """Return the started command, else the one beside the interpreter, if there is one."""
    beside = Path(sys.executable).with_name(_NAME)
    for path in (Path(os.path.abspath(sys.argv[0])), beside):
        if path.name == _NAME and path.is_file() and os.access(path, os.X_OK):
            return path
    return None


def _shorter(path: Path) -> str:
    relative = os.path.relpath(path)
    if os.sep not in relative:
        relative = os.path.join(os.curdir, relative)
    return min(str(path), relative, key=len)


QUESTIONS: Final = (
    'ask "How do I make rainwater safe to drink?" --corpus system',
    'ask "I can lend a water filter to a neighbour" --tool market_post',
)
_PLAIN_WIDTH: Final = 140
_STYLES: Final = {"ready": "green", "starting": "yellow", "waiting": "red", "stopped": "dim"}


class ConsoleProgress(NamedTuple):
    """One process while the node starts: state, stage and detail (`loading model 1/2`)."""

    name: str
    state: str
    stage: str
    detail: str


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Redirect further output to /dev/null; Rich itself would end the process."""
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.file.fileno())
            os.close(nowhere)


class NodeConsole:
    """Writes to `stream`: a live display on a terminal, plain lines elsewhere.

    A stream that can no longer be written (a closed pipe) does not end the node.
    """

    def __init__(self, stream: TextIO) -> None:
        plain = not stream.isatty()
        self._console = _Console(file=stream, highlight=False, width=_PLAIN_WIDTH if plain else None)
        self._live: Live | None = None
        self._shown: dict[str, tuple[str, str]] = {}

    def line(self, text: str) -> None:
        """Write one line."""
        self._print(text)

    def progress(self, rows: list[ConsoleProgress]) -> None:
        """Show the progress of the start; to be called at each change."""
        if self._console.is_terminal:
            self._live_update(_progress_table(rows))
            return
        for row in rows:
            if self._shown.get(row.name) != (row.state, row.stage):
                self._shown[row.name] = (row.state, row.stage)
                detail = f", {row.detail}" if row.detail and not row.stage else ""
                self._print(f"{row.name}: {row.stage or row.state}{detail}")

    def table(self, home: Home, state: NodeState, page: str = "") -> None:
        """Show the services, addresses and next steps, after the display of the start.

        `page` is a one-time link.
        """
        self.end_progress()
        self._print(_service_table(state))
        for text in _footer(home, state, page):
            self._print(text)

    def end_progress(self) -> None:
        """End the display of the start."""
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.stop()
            self._live = None

    def _live_update(self, content: RenderableType) -> None:
        with contextlib.suppress(OSError):
            if self._live is None:
                self._live = Live(console=self._console, auto_refresh=False, transient=True)
                self._live.start()
            self._live.update(content, refresh=True)

    def _print(self, content: RenderableType) -> None:
        with contextlib.suppress(OSError):
            self._console.print(content, markup=False, soft_wrap=isinstance(content, str))
            self._console.file.flush()


def _progress_table(rows: list[ConsoleProgress]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for row in rows:
        table.add_row(Text(row.name), Text(row.state, _STYLES.get(row.state, "")), Text(row.detail))
    return table


def _service_table(state: NodeState) -> RenderableType:
    table = Table(title=f"{state.display_name} ({ids.short_id(state.node_id)})", title_justify="left")
    for heading in ("service", "state", "capabilities", "note"):
        table.add_column(heading, overflow="fold")
    for service in state.services:
        style = _STYLES.get(service.state, "")
        offers = service.address or "\n".join(service.offers)
        table.add_row(
            service.name, Text(_state_words(service), style), Text(offers), Text(service.note or "")
        )
    return table


def _state_words(service: ServiceState) -> str:
    words = "starts again soon" if service.state == "waiting" else service.state
    return f"{words} (restarted {service.restarts} x)" if service.restarts else words


def _page_lines(state: NodeState, page: str, command: str) -> list[str]:
    """Return the line about the gateway's page, with the one-time link if there is one."""
    if page:
        return [f"page      {page} (opens once, within ten minutes; another one: {command})"]
    return [f"page      {state.gateway_url} (a link to open it: {command})"] if state.gateway_url else []


def _footer(home: Home, state: NodeState, page: str) -> list[str]:
    # As needed in another shell, which may not have the HEARTHNET_HOME of this process.
    where = "" if home == Home.default() else f"{HOME_VARIABLE}={shlex.quote(str(home.path))} "
    name = shlex.quote(program())
    return [
        f"address   {state.server.url}",
        f"homes     {state.server.homes}",
        *_page_lines(state, page, f"{where}{name} link"),
        f"data      {home.path}",
        f"logs      {home.logs} ({where}{name} logs NAME)",
        "",
        "Ask something, in another terminal:",
        *(f"  {where}{name} {question}" for question in QUESTIONS),
        "",
        "Ctrl-C ends the node.",
    ]
