"""Recovery words: the 32 bytes of a recovery key as 24 English words on paper.

The form is BIP-39: 2,048 words of which the first four letters are enough, and a checksum of 8 bits. The
checksum says that a word is wrong, not which; where the person id is known, the wrong word is found by trying
each place (`from_words`).

See: docs/decisions/0204-backups.md.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from hearthnet.core.errors import InvalidRequest
from hearthnet.trust.keys import Identity

WORDS: Final = 24
SEED_BYTES: Final = 32
_BITS: Final = 11
_CHECK_BITS: Final = 8
_PREFIX: Final = 4
_RULE: Final = "recovery_words"
_HEADING: Final = re.compile(r"^\s*person ed25519:\S*\s*$", re.MULTILINE)
"""`person` is a recovery word, too; one with an id behind it is none."""


@lru_cache(maxsize=1)
def word_list() -> tuple[str, ...]:
    """Return the 2,048 words in their order."""
    from mnemonic import Mnemonic

    return tuple(Mnemonic("english").wordlist)


def to_words(seed: bytes) -> tuple[str, ...]:
    """Return the words of a seed of 32 bytes."""
    from mnemonic import Mnemonic

    return tuple(Mnemonic("english").to_mnemonic(seed).split())


def without_heading(text: str) -> str:
    """Return `text` without the line that `hearthnet person words` prints above the words."""
    return _HEADING.sub("", text)


def from_words(text: str, person: str = "") -> Identity:
    """Return the recovery key of the words in `text`.

    Numbers, punctuation, capital letters and a heading are ignored; four letters of a word are enough. With
    `person`, the id that the key must have, the error for a single wrong word, or two neighbours in the
    wrong order, names its place.

    Raises:
        InvalidRequest: Not 24 words, words that are not in the list (`details.words` has their places, from
            1), words that do not fit each other, or those of another person.
    """
    typed = _typed(text)
    numbers = _numbers(typed)
    seed = _seed(numbers)
    if seed is not None:
        found = Identity(seed)
        if person in ("", found.node_id):
            return found
    if person and (place := _wrong_place(numbers, person)):
        raise _wrong(place, typed)
    if seed is not None:
        raise InvalidRequest(
            "these are the recovery words of another person; look for the right sheet", rule=_RULE
        )
    raise InvalidRequest(
        "the recovery words do not fit each other: one is wrong or in the wrong place; compare each with the "
        "paper",
        rule=_RULE,
    )


def _typed(text: str) -> list[str]:
    text = without_heading(text).lower()
    typed = "".join(sign if sign.isalpha() else " " for sign in text).split()
    if len(typed) != WORDS:
        raise InvalidRequest(
            f"there are {len(typed)} recovery words and not {WORDS}; type all of them, in their order",
            rule=_RULE,
        )
    return typed


def _numbers(typed: Sequence[str]) -> list[int]:
    known = {word: number for number, word in enumerate(word_list())}
    known |= {word[:_PREFIX]: number for word, number in known.items() if len(word) > _PREFIX} | known
    found = [known.get(word, -1) for word in typed]
    unknown = [place for place, number in enumerate(found) if number < 0]
    if unknown:
        hints = "; ".join(_hint(place, typed[place]) for place in unknown[:4])
        raise InvalidRequest(
            f"not in the list of recovery words: {hints}",
            rule=_RULE,
            details={"words": [place + 1 for place in unknown]},
        )
    return found


def _hint(place: int, word: str) -> str:
    near = difflib.get_close_matches(word, word_list(), 3, 0.7)
    return f"word {place + 1}, {word[:20]!r}" + (f" (perhaps {', '.join(near)})" if near else "")


def _seed(numbers: Sequence[int]) -> bytes | None:
    """Return the seed, None where the checksum does not fit."""
    value = 0
    for number in numbers:
        value = value << _BITS | number
    seed = (value >> _CHECK_BITS).to_bytes(SEED_BYTES, "big")
    return seed if hashlib.sha256(seed).digest()[0] == value & 0xFF else None


def _wrong_place(numbers: Sequence[int], person: str) -> tuple[int, ...]:
    """Return the places in which the words differ from those of `person`; none if they differ more."""
    for places, tried in _variants(numbers):
        seed = _seed(tried)
        if seed is not None and Identity(seed).node_id == person:
            return places
    return ()


def _variants(numbers: Sequence[int]) -> Iterator[tuple[tuple[int, ...], list[int]]]:
    """Yield what may have been meant: neighbours exchanged, or another word in one place."""
    for place in range(WORDS - 1):
        tried = list(numbers)
        tried[place], tried[place + 1] = tried[place + 1], tried[place]
        yield (place, place + 1), tried
    for place in range(WORDS):
        for number in range(1 << _BITS):
            tried = list(numbers)
            tried[place] = number
            yield (place,), tried


def _wrong(places: tuple[int, ...], typed: Sequence[str]) -> InvalidRequest:
    details = {"words": [place + 1 for place in places]}
    if len(places) > 1:
        first, second = places
        text = f"the recovery words {first + 1} and {second + 1} are in the wrong order"
    else:
        text = (
            f"recovery word {places[0] + 1} ({typed[places[0]][:20]!r}) is wrong; compare it with the paper"
        )
    return InvalidRequest(text, rule=_RULE, details=details)
