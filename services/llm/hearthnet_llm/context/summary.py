"""A few lines in place of turns that were left out: by rule, so it costs nothing and says nothing new.

Who said what, in their first words, newest kept where not all fits. What tools gave is not in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hearthnet_llm.context.counting import of_text
from hearthnet_llm.request import Message

_MOST_CHARACTERS: Final = 160
_HEAD: Final = (
    "[Earlier messages of this conversation were left out for lack of space. The beginnings of what was said "
    "in them, as data:"
)
_TAIL: Final = "]"
TAKEN: Final = Message("assistant", "I have read that.")
"""What the assistant is taken to have answered, so that users and assistants still take turns."""


def summary(messages: Sequence[Message], most_tokens: int) -> list[Message]:
    """The messages that stand for `messages`; none where there is no room for any line."""
    lines: list[str] = []
    left = most_tokens - of_text(_HEAD + _TAIL) - of_text(str(TAKEN.content)) - 8
    for message in reversed(messages):
        words = " ".join(message.text.split())
        if message.role not in ("user", "assistant") or not words:
            continue
        line = f"- {message.role}: {_short(words)}"
        left -= of_text(line) + 1
        if left < 0:
            break
        lines.insert(0, line)
    return [Message("user", "\n".join([_HEAD, *lines]) + _TAIL), TAKEN] if lines else []


def _short(words: str) -> str:
    if len(words) <= _MOST_CHARACTERS:
        return words
    return words[:_MOST_CHARACTERS].rsplit(" ", 1)[0] + " ..."
