"""Approval by a person over MCP: the question, and the seal that binds the answer to it.

A client of the older protocols answers while its call waits. A client of the protocol of 2026-07-28 gets
the question as the answer to its call, and calls again with the reply and the seal. A seal is for the caller
and the exact call, until it expires, and is valid once. Pure but for the key.
"""

from __future__ import annotations

import hmac
import os
from typing import Any, Final

import blake3
import msgspec

from hearthnet.contracts.contract import Contract
from hearthnet.core import ids
from hearthnet.core.canonical_json import digest
from hearthnet.core.errors import HearthNetError
from hearthnet.core.visible import exact_json, shown_line

LIFE_MS: Final = 600_000
"""The time that a question waits for its answer."""
MOST_OPEN: Final = 4_096
MAX_SUMMARY: Final = 200
"""Characters of a contract's summary in a question; its provider wrote it."""
_MAX_PLACE: Final = 160
"""The same for the line of the home: a display name, its short id, and the words before it."""
FIELD: Final = "send"
SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        FIELD: {"type": "boolean", "title": "Send exactly this", "description": "Nothing is sent otherwise"}
    },
    "required": [FIELD],
}
CANNOT_ASK: Final = (
    "needs a person's yes, and this MCP client cannot ask for one (elicitation by forms): nothing was sent. "
    "Do it on the gateway's page or with hearthnet ask, or use an MCP client that asks"
)


class OpenQuestion(msgspec.Struct, frozen=True):
    """A question that waits for its answer; `provider` carries it out, `expires` is in Unix ms."""

    caller: str
    capability: str
    provider: str
    digest: str
    client_id: str
    expires: int


class ElicitationSigner:
    """The seals of this process, each valid once: the signed ids of its open questions."""

    def __init__(self) -> None:
        self._key = os.urandom(32)
        self._open: dict[str, OpenQuestion] = {}

    def seal(
        self,
        caller: str,
        contract: Contract,
        body: dict[str, Any],
        client_id: str,
        now: int,
        *,
        provider: str = "",
    ) -> str:
        """Return a seal for exactly this call, at `provider`.

        Raises:
            HearthNetError: `capacity_exceeded` while too many questions wait.
        """
        self._open = {number: one for number, one in self._open.items() if one.expires > now}
        if len(self._open) >= MOST_OPEN:
            raise HearthNetError("capacity_exceeded", "too many questions wait for an answer; try later")
        number = ids.new_ulid(now)
        shown = digest(body)
        self._open[number] = OpenQuestion(caller, contract.id, provider, shown, client_id, now + LIFE_MS)
        return f"{number}.{self._mac(number)}"

    def open(self, text: str, caller: str, contract: Contract, now: int) -> OpenQuestion:
        """Return the question of a seal, which is used up.

        Raises:
            HearthNetError: `unauthorized` for text that is no seal, or one for another call; `expired` for a
                seal that was used or waited too long.
        """
        number, _, mac = text.partition(".")
        if not (text.isascii() and hmac.compare_digest(mac, self._mac(number))):
            raise _refused()
        waiting = self._open.get(number)
        if waiting is not None and (waiting.caller, waiting.capability) != (caller, contract.id):
            raise _refused()
        if waiting is None or waiting.expires <= now:
            raise HearthNetError("expired", "this question was answered, or waited too long; call again")
        del self._open[number]
        return waiting

    def _mac(self, number: str) -> str:
        return blake3.blake3(number.encode(), key=self._key).hexdigest()


def question(contract: Contract, body: dict[str, Any], client_id: str, place: str = "") -> str:
    """Return the text for a person: all that would be sent, hidden characters as codes, and its length.

    `place` names the home that carries it out; it comes before all that others wrote. The contract's summary
    is on one line behind all that is sent, so that it stands for no other part.
    """
    where = f"{shown_line(place, _MAX_PLACE)}\n" if place else ""
    about = "" if not client_id else f"\nIt is done once, under the key {client_id}."
    lines = []
    for section, members in body.items():
        lines += [
            f"{section}:",
            *(f" {exact_json(name, beside=True)}: {exact_json(one)}" for name, one in members.items()),
        ]
    text = "\n".join(lines)
    shown = f"{text}\nThis is the end of it: {len(text)} characters."
    described = f"\nIts description, in its provider's words: {shown_line(contract.summary, MAX_SUMMARY)}"
    return f"{where}{contract.id} would be sent exactly this:\n{shown}{about}{described}"


def is_approved(action: str, content: Any) -> bool:
    """Return whether the reply approves the call."""
    return action == "accept" and isinstance(content, dict) and content.get(FIELD) is True


def _refused() -> HearthNetError:
    return HearthNetError("unauthorized", "this is no question that was asked for this call; call again")
