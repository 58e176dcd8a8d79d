"""Confirmation of a call with side effects by a person at the terminal.

The person sees exactly what would be sent, whole, with hidden characters as codes. Only a typed `a` approves
it: not an empty line, not the end of the input, not text that was typed before the question appeared. Lines
are read in the event loop, so that a question can be cancelled.

See: docs/protocol/approvals.md#when-consent-is-required, docs/protocol/agent.md#consent-to-effects.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import sys
import termios
from collections.abc import Sequence
from typing import Any, Final, Self, TextIO

from hearthnet.agent.tools.toolbox import Prepared, Tool, Toolbox
from hearthnet.agent.tools.types import Approve, Decision, Deny, Edit, PendingApproval, ToolDefinition
from hearthnet.bus.bus import find_contract
from hearthnet.cli.input.argument_form import Field, fields
from hearthnet.cli.output import terminal
from hearthnet.cli.output.text import as_json, counted, one_line
from hearthnet.core import ids
from hearthnet.core.visible import exact_json

_CHUNK: Final = 4096


class Keyboard:
    """A terminal as a context manager."""

    def __init__(self, stream: TextIO) -> None:
        self._descriptor = stream.fileno()
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._rest = b""
        self._ended = False

    def __enter__(self) -> Self:
        asyncio.get_running_loop().add_reader(self._descriptor, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)

    def forget(self) -> None:
        """Discard all input so far."""
        with contextlib.suppress(termios.error):
            termios.tcflush(self._descriptor, termios.TCIFLUSH)
        self._rest = b""
        while not self._lines.empty():
            self._lines.get_nowait()

    async def line(self) -> str | None:
        """Return the next line without its end; None at the end of the input."""
        if self._ended and self._lines.empty():
            return None
        line = await self._lines.get()
        return line.decode("utf-8", "replace").rstrip("\r\n") if line else None

    def _read(self) -> None:
        if not select.select([self._descriptor], [], [], 0)[0]:
            return  # the input was discarded since the loop saw it; reading would block
        try:
            data = os.read(self._descriptor, _CHUNK)
        except OSError:
            data = b""
        if not data:
            self._ended = True
            asyncio.get_running_loop().remove_reader(self._descriptor)
            self._lines.put_nowait(b"")
            return
        *complete, self._rest = (self._rest + data).split(b"\n")
        for line in complete:
            self._lines.put_nowait(line + b"\n")


_QUESTION: Final = "[a]pprove, [e]dit or [r]efuse? "
_ANSWERS: Final = {
    "a": "a",
    "approve": "a",
    "e": "e",
    "edit": "e",
    "r": "r",
    "refuse": "r",
    "n": "r",
    "no": "r",
}
_DIGEST_LENGTH: Final = 23
_WIDEST_NAME: Final = 24
"""Columns up to which the values are aligned, so that no name moves them out of sight."""
_UNTRUSTED: Final = "  The model has read what others wrote, which may have led it: did you ask for this?"


class Person:
    """The person at the terminal, with the approvals given on the command line."""

    def __init__(
        self,
        node: str,
        tools: Sequence[ToolDefinition],
        yes_to: Sequence[str],
        *,
        can_ask: bool,
        chosen: str = "",
    ) -> None:
        """Create the person; `yes_to` names capabilities, with or without version.

        They are approved where this `node` or the `chosen` one carries them out, and at no other.

        Raises:
            HearthNetError: `not_found` for an unknown capability.
        """
        self._node = node
        self._toolbox = Toolbox(tools)
        self._yes_to = {find_contract(name).name for name in yes_to}
        self._can_ask = can_ask
        self._yes_at = {"", node, chosen}
        self._one_at_a_time = asyncio.Lock()

    async def decide(self, pending: PendingApproval) -> Decision | None:
        """Return the decision about one call; None without a terminal or at the end of the input."""
        name = pending.capability.partition("@")[0]
        if name in self._yes_to and pending.provider in self._yes_at:
            terminal.info(f"approved by --yes-to {name}: {pending.name} {as_json(pending.body)}")
            return Approve()
        screen = terminal.screen() if self._can_ask else None
        if screen is None:
            return None
        async with self._one_at_a_time:
            with Keyboard(sys.stdin) as keyboard:
                dialogue = Dialogue(screen, keyboard, self._node, self._toolbox[pending.name])
                return await dialogue.decide(pending)


def place_of(pending: PendingApproval, own: str) -> str:
    """Return the home that carries out a call; `own` is this node.

    The words that tell this home from others stand before its name, so that no name reads like them.
    """
    which = "this home" if pending.provider == own else "another home"
    return f"at {which}: {one_line(pending.home)}"


def exact_lines(members: Sequence[tuple[str, Any]]) -> list[str]:
    """Return the lines that show exactly what would be sent: the members, each on a line, and their end."""
    shown = [(exact_json(name, beside=True), exact_json(value)) for name, value in members]
    width = min(max((len(name) for name, _ in shown), default=0), _WIDEST_NAME)
    written = sum(len(value) for _, value in shown)
    lines = [f"  {name.ljust(width)}  {value}" for name, value in shown]
    return [*lines, f"  end of what would be sent: {counted(written, 'character')} in the values"]


class Dialogue:
    """One question: shown, answered, shown again after an edit."""

    def __init__(self, screen: TextIO, keyboard: Keyboard, node: str, tool: Tool) -> None:
        self._screen = screen
        self._keyboard = keyboard
        self._node = node
        self._tool = tool

    async def decide(self, pending: PendingApproval) -> Decision | None:
        """Ask until there is an answer; return None at the end of the input."""
        arguments = pending.arguments
        shown = Prepared(pending.body, pending.arguments_digest)
        while True:
            self._show(shown, pending)
            answer = await self._answer()
            if answer is None:
                return None
            if answer == "r":
                return Deny()
            if answer == "a":
                return Approve() if arguments == pending.arguments else Edit(arguments)
            edited = await self._edit(arguments, pending.client_id)
            if edited is None:
                return None
            arguments, shown = edited

    def _show(self, shown: Prepared, pending: PendingApproval) -> None:
        self._print("")
        self._print(
            terminal.styled(
                f"The model wants to call {self._tool.capability} in your name", "bold", self._screen
            )
            + f" ({ids.short_id(self._node)}). Exactly this would be sent:"
        )
        for line in exact_lines(
            [member for section in ("params", "input") for member in shown.body[section].items()]
        ):
            self._print(line)
        self._print(f"  digest {shown.arguments_digest[:_DIGEST_LENGTH]}")
        if pending.home:
            self._print(f"  {place_of(pending, self._node)}")
        if pending.untrusted:
            self._print(terminal.styled(_UNTRUSTED, "bold", self._screen))

    async def _answer(self) -> str | None:
        while True:
            self._keyboard.forget()
            typed = await self._ask(_QUESTION)
            if typed is None:
                return None
            if answer := _ANSWERS.get(typed.strip().lower()):
                return answer

    async def _edit(
        self, arguments: dict[str, Any], client_id: str
    ) -> tuple[dict[str, Any], Prepared] | None:
        """Edit field by field until all of it is valid; return None at the end of the input."""
        self._print("Enter keeps a value, - leaves an optional one out.")
        edited = dict(arguments)
        while True:
            for field in fields(self._tool.definition.parameters_schema):
                if not await self._edit_field(field, edited):
                    return None
            prepared = self._tool.prepare(edited, client_id)
            if isinstance(prepared, Prepared):
                return edited, prepared
            self._print(one_line(prepared))

    async def _edit_field(self, field: Field, edited: dict[str, Any]) -> bool:
        current = as_json(edited[field.name]) if field.name in edited else "-"
        while True:
            typed = await self._ask(f"  {field.name}{field.hint} [{current}]: ")
            if typed is None:
                return False
            try:
                field.apply(typed, edited)
            except ValueError as error:
                self._print(f"    {one_line(str(error))}")
            else:
                return True

    async def _ask(self, prompt: str) -> str | None:
        self._screen.write(prompt)
        self._screen.flush()
        typed = await self._keyboard.line()
        if typed is None:
            self._print("")
        return typed

    def _print(self, text: str) -> None:
        self._screen.write(f"{text}\n")
        self._screen.flush()
