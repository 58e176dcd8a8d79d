"""What was confirmed, what happened, and what of it is wrong. Pure."""

from __future__ import annotations

from collections import Counter

import msgspec

from tests.chaos.plan import Plan

HAPPENED = frozenset({"completed"})
DID_NOT = frozenset({"denied", "expired", "failed", "refused", "cancelled"})


class Ledger(msgspec.Struct):
    """What is known of one schedule, from outside the product.

    `asked` are the calls whose question was seen; `told` is what a client was told stands, by call; `posts`
    are the titles in the market's log; `statuses` how the run says that its calls ended, and `results` what
    the model was told; `ended` whether the run came to an end.
    """

    asked: set[str] = msgspec.field(default_factory=set)
    told: dict[str, str] = msgspec.field(default_factory=dict)
    contradicted: list[str] = msgspec.field(default_factory=list)
    posts: list[str] = msgspec.field(default_factory=list)
    statuses: dict[str, str] = msgspec.field(default_factory=dict)
    results: list[str] = msgspec.field(default_factory=list)
    ended: bool = False
    troubles: list[str] = msgspec.field(default_factory=list)

    def tell(self, key: str, word: str) -> None:
        """A client was told that `word` stands about the call `key`."""
        if self.told.setdefault(key, word) != word:
            self.contradicted.append(f"{key}: {self.told[key]}, and {word}")


class Verdict(msgspec.Struct, frozen=True):
    """Titles of effects that happened twice, are missing, were confirmed by nobody; and other troubles."""

    twice: tuple[str, ...]
    missing: tuple[str, ...]
    unconfirmed: tuple[str, ...]
    troubles: tuple[str, ...]

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.twice or self.missing or self.unconfirmed or self.troubles)


def judge(plan: Plan, ledger: Ledger) -> Verdict:
    """Compares what happened with what people said."""
    due = confirmed(plan, ledger)
    happened = Counter(ledger.posts)
    troubles = [*ledger.troubles, *(f"two answers about {one}" for one in ledger.contradicted)]
    troubles += _misreported(plan, ledger, happened)
    if not ledger.ended:
        troubles.append("the run came to no end")
    return Verdict(
        twice=tuple(title for title, count in happened.items() if count > 1),
        missing=tuple(sorted(due - set(happened))),
        unconfirmed=tuple(sorted(set(happened) - due)),
        troubles=tuple(troubles),
    )


def confirmed(plan: Plan, ledger: Ledger) -> set[str]:
    """The titles of the posts to which a person has said yes, in time.

    Where clients decide, what they were told counts. A yes at the executor itself is said again to whoever
    asks again: at the end it counts once it was asked for.
    """
    titles = set()
    for key, call in plan.calls.items():
        if call.how == "here":
            yes = key in ledger.asked and not plan.late and call.word in ("yes", "edit")
        else:
            yes = ledger.told.get(key) in ("approved", "edited")
        if yes:
            titles.add(call.title)
    return titles


def _misreported(plan: Plan, ledger: Ledger, happened: Counter[str]) -> list[str]:
    """What the run says about its calls and is not so."""
    lines = []
    for key, status in ledger.statuses.items():
        call = plan.calls[key]
        there = any(title in happened for title in (key, call.title))
        if (status in HAPPENED and not there) or (status in DID_NOT and there):
            lines.append(
                f"{key} is said to be {status}, and its effect is {'there' if there else 'not there'}"
            )
    return lines
