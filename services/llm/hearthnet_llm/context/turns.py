"""A conversation in the pieces that can be left out without tearing anything apart.

A turn is what a user says and all that follows until a user speaks again. What is said right after a tool's
result (that a limit is reached, say) is part of the turn of that call. A round is an assistant's message with
the results of its calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import msgspec

from hearthnet_llm.request import Message

Turn = list[int]
"""The places of messages among all, in order."""


class Pieces(msgspec.Struct, frozen=True):
    """The system messages at the head, and the turns after them, oldest first."""

    head: list[int]
    turns: list[Turn]


def pieces(messages: Sequence[Message]) -> Pieces:
    """The pieces of a conversation in order."""
    head = [place for place, message in enumerate(messages) if message.role == "system"]
    turns: list[Turn] = []
    for place, message in enumerate(messages):
        if message.role == "system":
            continue
        before = messages[place - 1].role if turns else ""
        if not turns or (message.role == "user" and before == "assistant"):
            turns.append([])
        turns[-1].append(place)
    return Pieces(head, turns)


def rounds(messages: Sequence[Message], turn: Turn) -> list[list[int]]:
    """The rounds of a turn, oldest first; what users say is in none."""
    found: list[list[int]] = []
    for role, places in groupby(turn, lambda place: messages[place].role):
        if role == "assistant":
            found += [[place] for place in places]
        elif role == "tool" and found:
            found[-1] += places
    return found
