"""Approval by a person over MCP: the question, and the seal that binds the answer to it.

A client of the older protocols answers while its call waits. A client of the protocol of 2026-07-28 gets
the question as the answer to its call, and calls again with the reply and the seal. The seal names the
caller, the exact call and an expiry, and is valid once. Pure but for the key.
"""

from __future__ import annotations

import hmac
import json
import os
from typing import Any, Final

import blake3
import msgspec

from hearthnet.contracts.contract import Contract
from hearthnet.core import ids
from hearthnet.core.canonical_json import canonical_json, digest, read_json
from hearthnet.core.errors import HearthNetError

LIFE_MS: Final = 600_000
"""The time that a question waits for its answer."""
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


class SignedQuestion(msgspec.Struct, frozen=True):
    """The content of a seal."""

    id: str
    caller: str
    capability: str
    digest: str
    client_id: str
    expires: int


class ElicitationSigner:
    """The seals of this process, each valid once."""

    def __init__(self) -> None:
        self._key = os.urandom(32)
        self._open: dict[str, int] = {}

    def seal(self, caller: str, contract: Contract, body: dict[str, Any], client_id: str, now: int) -> str:
        """Return a seal for exactly this call.

        Raises:
            HearthNetError: `capacity_exceeded` while too many questions wait.
        """
        self._open = {name: until for name, until in self._open.items() if until > now}
        if len(self._open) >= MOST_OPEN:
            raise HearthNetError("capacity_exceeded", "too many questions wait for an answer; try later")
        sealed = SignedQuestion(
            ids.new_ulid(now), caller, contract.id, digest(body), client_id, now + LIFE_MS
        )
        self._open[sealed.id] = sealed.expires
        data = canonical_json(msgspec.to_builtins(sealed))
        return f"{ids.b64(data)}.{self._mac(data)}"

    def open(self, text: str, caller: str, contract: Contract, now: int) -> SignedQuestion:
        """Return the content of a seal and use it up.

        Raises:
            HearthNetError: `unauthorized` for text that is no seal, or one for another call; `expired` for a
                seal that was used or waited too long.
        """
        head, _, mac = text.partition(".")
        try:
            data = ids.unb64(head)
        except (HearthNetError, ValueError) as error:
            raise _refused() from error
        if not hmac.compare_digest(mac, self._mac(data)):
            raise _refused()
        sealed = read_json(data, msgspec.json.Decoder(SignedQuestion))
        if (sealed.caller, sealed.capability) != (caller, contract.id):
            raise _refused()
        if self._open.pop(sealed.id, 0) <= now:
            raise HearthNetError("expired", "this question was answered, or waited too long; call again")
        return sealed

    def _mac(self, data: bytes) -> str:
        return blake3.blake3(data, key=self._key).hexdigest()


def question(contract: Contract, body: dict[str, Any], client_id: str) -> str:
    """Return the text for a person: all that would be sent, invisible characters as codes."""
    about = "" if not client_id else f"\nIt is done once, under the key {client_id}."
    return f"{contract.summary}\n{contract.id} would be sent exactly this:\n{_plain(body)}{about}"


def is_approved(action: str, content: Any) -> bool:
    """Return whether the reply approves the call."""
    return action == "accept" and isinstance(content, dict) and content.get(FIELD) is True


def _plain(body: dict[str, Any]) -> str:
    text = json.dumps(body, indent=1, ensure_ascii=False)
    return "".join(letter if letter.isprintable() or letter == "\n" else _code(letter) for letter in text)


def _code(letter: str) -> str:
    return f"\\u{ord(letter):04x}"


def _refused() -> HearthNetError:
    return HearthNetError("unauthorized", "this is no question that was asked for this call; call again")
