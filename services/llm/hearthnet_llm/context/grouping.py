"""Division of a conversation into pieces that can be left out separately.

A turn is a user's message and everything up to the next one. A user message directly after a tool's result (a
note about a limit, for instance) belongs to the turn of that call. A round is an assistant's message with the
results of its calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import msgspec

from hearthnet_llm.interface.request import Message

Turn = list[int]
"""Indexes of messages, in order."""


class MessageGroups(msgspec.Struct, frozen=True):
    """The system messages at the head, and the turns after them, oldest first."""

    head: list[int]
    turns: list[Turn]


def pieces(messages: Sequence[Message]) -> MessageGroups:
    """Return the pieces of a conversation in order."""
    head = [place for place, message in enumerate(messages) if message.role == "system"]
    turns: list[Turn] = []
    for place, message in enumerate(messages):
        if message.role == "system":
            continue
        before = messages[place - 1].role if turns else ""
        if not turns or (message.role == "user" and before == "assistant"):
            turns.append([])
        turns[-1].append(place)
    return MessageGroups(head, turns)


def rounds(messages: Sequence[Message], turn: Turn) -> list[list[int]]:
    """Return the rounds of a turn, oldest first; user messages are in none."""
    found: list[list[int]] = []
    for role, places in groupby(turn, lambda place: messages[place].role):
        if role == "assistant":
            found += [[place] for place in places]
        elif role == "tool" and found:
            found[-1] += places
    return found
