"""The content of a stream so far, for a reader whose place in it is no longer kept."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from hearthnet.gateway.socket.protocol import TERMINAL

MOST_CHARACTERS: Final = 1 << 20
"""The most characters of text that are kept; older text is dropped."""
_WAITING: Final = frozenset({"waiting", "wanted"})


class Summary:
    """The text so far, the status of each call, and the calls that wait for the client."""

    def __init__(self) -> None:
        self._pieces: deque[str] = deque()
        self._characters = 0
        self._truncated = False
        self._calls: dict[str, dict[str, Any]] = {}
        self._pending: dict[str, dict[str, Any]] = {}
        self._wanted: dict[str, dict[str, Any]] = {}

    def take(self, event: str, data: dict[str, Any]) -> None:
        """Add one frame; frames that show only progress are ignored."""
        match event:
            case "token":
                self._say(str(data.get("text", "")))
            case "tool_call":
                self._call(str(data.get("id", "")), name=data.get("name"), arguments=data.get("arguments"))
            case "tool_status":
                self._stands(data)
            case "confirmation_required" | "confirmation_edited":
                self._pending[str(data.get("tool_call_id", ""))] = data
            case "tool_wanted":
                self._wanted[str(data.get("tool_call_id", ""))] = data
            case _ if event in TERMINAL:
                self._pending.clear()
                self._wanted.clear()
            case _:
                pass

    def data(self) -> dict[str, Any]:
        """Return the data of the frame `snapshot`.

        It has `text` (with `truncated` where its beginning is missing), `calls`, and the calls that wait for
        the client: `pending` and `wanted`, as in the frames that announced them.
        """
        return {
            "text": "".join(self._pieces),
            "truncated": self._truncated,
            "calls": list(self._calls.values()),
            "pending": list(self._pending.values()),
            "wanted": list(self._wanted.values()),
        }

    def _say(self, text: str) -> None:
        self._pieces.append(text)
        self._characters += len(text)
        while self._characters > MOST_CHARACTERS:
            self._characters -= len(self._pieces.popleft())
            self._truncated = True

    def _stands(self, data: dict[str, Any]) -> None:
        call, status = str(data.get("tool_call_id", "")), data.get("status")
        self._call(call, name=data.get("name"), status=status, text=data.get("text"))
        if status not in _WAITING:
            self._pending.pop(call, None)
            self._wanted.pop(call, None)

    def _call(self, call: str, **said: Any) -> None:
        known = self._calls.setdefault(call, {"tool_call_id": call})
        known.update({name: value for name, value in said.items() if value is not None})
