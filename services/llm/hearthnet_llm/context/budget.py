"""Reduction of a conversation to a model's context.

The rules:

1. Tokens for the answer are reserved, at most half of the context; tools and schemas count as well.
2. A conversation that fits stays unchanged.
3. Whole turns are left out, oldest first, never the latest. A short summary replaces them: the model's own if
   there is one, else one by rule (summary.py). The notice gives the number of messages that the summary
   lacks too.
4. If the latest turn alone is too long, its oldest rounds are left out, never the last; a call and its
   results stay together. Messages of users and of the system stay.
5. If the rest is still too long, the request is refused with its size and its longest message.

A turn is a user's message and everything up to the next one. A user message directly after a tool's result (a
note about a limit, for instance) belongs to the turn of that call. A round is an assistant's message with the
results of its calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, groupby
from typing import Final

import msgspec

from hearthnet import HearthNetError
from hearthnet.core import CONTEXT_LENGTH
from hearthnet_llm.context.summary import Written, as_messages, summary
from hearthnet_llm.context.token_count import of_answer, of_message, of_rest
from hearthnet_llm.interface.backend import Profile
from hearthnet_llm.interface.frames import Notice
from hearthnet_llm.interface.request import ChatRequest, Message

CODE: Final = "context_cut"
_SUMMARY_SHARE: Final = 10
_MOST_SUMMARY: Final = 600
_NOTHING: Final = "nothing stands in their place"
Turn = list[int]
"""Indexes of messages, in order."""


class TrimmedRequest(msgspec.Struct, frozen=True):
    """The request that fits, and the notice for the caller if something was left out.

    A summary of up to `most_summary` tokens may replace the messages `left_out`.
    """

    request: ChatRequest
    notice: Notice | None = None
    left_out: tuple[Message, ...] = ()
    most_summary: int = 0


def trim(
    request: ChatRequest, profile: Profile, ratio: float = 1.0, written: Written | None = None
) -> TrimmedRequest:
    """Return the request reduced to the model's context.

    `ratio` is that of real tokens to estimated ones; `written` is the model's summary of the messages left
    out.

    Raises:
        HearthNetError: `bad_request`, with the sizes, if it cannot be made to fit.
    """
    return _Fitting(request, profile, ratio, written).done()


class _Fitting:
    def __init__(self, request: ChatRequest, profile: Profile, ratio: float, written: Written | None) -> None:
        self._request = request
        self._written = written
        self._profile = profile
        self._messages = request.messages
        self._sizes = [round(of_message(one, profile.most_result) * ratio) for one in request.messages]
        self._rest = round(of_rest(request) * ratio)
        self._reserve = of_answer(request, profile.ctx)
        self._room = profile.ctx - self._reserve - self._rest

    def done(self) -> TrimmedRequest:
        """Return the result of `trim`."""
        if self._size(range(len(self._messages))) <= self._room:
            return TrimmedRequest(self._request)
        found = pieces(self._messages)
        within = self._room - self._most_summary
        latest = self._latest(found, within)
        left = self._room - self._size(chain(found.head, *latest))
        if left >= 0:
            return self._whole_turns(found, latest, min(left, self._most_summary))
        return self._last_turn(found)

    @property
    def _most_summary(self) -> int:
        return min(max(self._room, 0) // _SUMMARY_SHARE, _MOST_SUMMARY)

    def _latest(self, found: MessageGroups, within: int) -> list[Turn]:
        """Return as many of the latest turns as fit, at least the last."""
        latest = found.turns[-1:]
        for turn in reversed(found.turns[:-1]):
            if self._size(chain(found.head, turn, *latest)) > within:
                break
            latest = [turn, *latest]
        return latest

    def _whole_turns(self, found: MessageGroups, latest: list[Turn], most_summary: int) -> TrimmedRequest:
        left_out = self._at(chain(*found.turns[: -len(latest)]))
        if self._written is not None and self._written.text:
            replacement = as_messages(self._written, most_summary)
            in_place = "the model's summary of them stands in their place"
        else:
            replacement = summary(left_out, most_summary)
            in_place = "the beginnings of what was said in them stand in their place"
        if not replacement.messages:
            in_place = _NOTHING
        elif replacement.silent:
            in_place += f", but of the oldest {replacement.silent} nothing is left"
        messages = [*self._at(found.head), *replacement.messages, *self._at(chain(*latest))]
        cut = self._cut(messages, f"the oldest {len(left_out)} of {self._total} messages", in_place)
        return msgspec.structs.replace(cut, left_out=tuple(left_out), most_summary=most_summary)

    def _last_turn(self, found: MessageGroups) -> TrimmedRequest:
        """Reduce the request to its last turn, or to a part of that."""
        last = found.turns[-1]
        out: set[int] = set()
        for one in rounds(self._messages, last)[:-1]:
            if self._size(chain(found.head, set(last) - out)) <= self._room:
                break
            out |= set(one)
        remaining = [*found.head, *(place for place in last if place not in out)]
        if self._size(remaining) > self._room:
            raise self._too_long(remaining)
        left_out = self._total - len(remaining)
        return self._cut(self._at(remaining), f"{left_out} of {self._total} messages, the oldest", _NOTHING)

    def _cut(self, messages: list[Message], what: str, in_place: str) -> TrimmedRequest:
        size = self._rest + self._size(range(self._total))
        text = (
            f"The conversation has about {size} tokens; {self._profile.model} takes {self._profile.ctx}, of "
            f"which {self._reserve} are kept for the answer. Left out: {what}; {in_place}."
        )
        return TrimmedRequest(msgspec.structs.replace(self._request, messages=messages), Notice(CODE, text))

    def _too_long(self, remaining: Sequence[int]) -> HearthNetError:
        longest = max(remaining, key=lambda place: self._sizes[place])
        path, size = f"/input/messages/{longest}", self._sizes[longest]
        needed = self._size(remaining) + self._rest + self._reserve
        advice = "shorten it, or ask a model with a larger context"
        if self._rest > size:
            path, size, advice = "/input/tools", self._rest, "declare fewer tools"
        return HearthNetError(
            "bad_request",
            f"{path}: the context is too long: about {needed} tokens are needed, {self._reserve} of them for "
            f"the answer, and {self._profile.model} takes {self._profile.ctx}; the most, about {size}, are "
            f"here: {advice}",
            details={
                "path": path,
                "rule": CONTEXT_LENGTH,
                "tokens": size,
                "needed": needed,
                "limit": self._profile.ctx,
            },
        )

    @property
    def _total(self) -> int:
        return len(self._messages)

    def _size(self, places: Iterable[int]) -> int:
        return sum(self._sizes[place] for place in places)

    def _at(self, places: Iterable[int]) -> list[Message]:
        return [self._messages[place] for place in places]


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
