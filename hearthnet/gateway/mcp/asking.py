"""A person's yes over MCP: what is shown, and the seal that binds a later yes to it. Pure but for the key.

A client of today's protocol is asked while its call waits. One of the protocol of 2026-07-28 gets the
question as the answer to its call, and calls again with the reply and the seal: it says for whom, what
exactly, and until when, and counts once.
"""

from __future__ import annotations

import hmac
import json
import os
from typing import Any, Final

import blake3
import msgspec

from hearthnet import ids
from hearthnet.canonical import canonical_json, digest, read_json
from hearthnet.contracts import Contract
from hearthnet.errors import HearthNetError

LIFE_MS: Final = 600_000
"""So long a question waits for its answer."""
MOST_OPEN: Final = 4_096
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


class Sealed(msgspec.Struct, frozen=True):
    """What a seal says."""

    id: str
    caller: str
    capability: str
    digest: str
    client_id: str
    expires: int


class Seals:
    """Seals of this process, each good once."""

    def __init__(self) -> None:
        self._key = os.urandom(32)
        self._open: dict[str, int] = {}

    def seal(self, caller: str, contract: Contract, body: dict[str, Any], client_id: str, now: int) -> str:
        """A seal for exactly this call; `capacity_exceeded` while too many wait."""
        self._open = {name: until for name, until in self._open.items() if until > now}
        if len(self._open) >= MOST_OPEN:
            raise HearthNetError("capacity_exceeded", "too many questions wait for an answer; try later")
        sealed = Sealed(ids.new_ulid(now), caller, contract.id, digest(body), client_id, now + LIFE_MS)
        self._open[sealed.id] = sealed.expires
        data = canonical_json(msgspec.to_builtins(sealed))
        return f"{ids.b64(data)}.{self._mac(data)}"

    def open(self, text: str, caller: str, contract: Contract, now: int) -> Sealed:
        """What was sealed, which then counts no more; `unauthorized` for what is no seal for this."""
        head, _, mac = text.partition(".")
        try:
            data = ids.unb64(head)
        except (HearthNetError, ValueError) as error:
            raise _refused() from error
        if not hmac.compare_digest(mac, self._mac(data)):
            raise _refused()
        sealed = read_json(data, msgspec.json.Decoder(Sealed))
        if (sealed.caller, sealed.capability) != (caller, contract.id):
            raise _refused()
        if self._open.pop(sealed.id, 0) <= now:
            raise HearthNetError("expired", "this question was answered, or waited too long; call again")
        return sealed

    def _mac(self, data: bytes) -> str:
        return blake3.blake3(data, key=self._key).hexdigest()


def question(contract: Contract, body: dict[str, Any], client_id: str) -> str:
    """What a person is shown: all that would be sent, hidden characters as their codes."""
    about = "" if not client_id else f"\nIt is done once, under the key {client_id}."
    return f"{contract.summary}\n{contract.id} would be sent exactly this:\n{_plain(body)}{about}"


def is_yes(action: str, content: Any) -> bool:
    """Whether the reply says to send it."""
    return action == "accept" and isinstance(content, dict) and content.get(FIELD) is True


def _plain(body: dict[str, Any]) -> str:
    text = json.dumps(body, indent=1, ensure_ascii=False)
    return "".join(letter if letter.isprintable() or letter == "\n" else _code(letter) for letter in text)


def _code(letter: str) -> str:
    return f"\\u{ord(letter):04x}"


def _refused() -> HearthNetError:
    return HearthNetError("unauthorized", "this is no question that was asked for this call; call again")
