"""Recovery words, and what is said of wrong ones."""

from __future__ import annotations

import pytest

from hearthnet.backup import words
from hearthnet.core import ids
from hearthnet.core.errors import InvalidRequest
from hearthnet.trust.keys import Identity

KEY = Identity(bytes(range(32)))
WORDS = list(words.to_words(KEY.seed))


def refused(typed: list[str], person: str = "") -> InvalidRequest:
    """The error for these words."""
    with pytest.raises(InvalidRequest) as raised:
        words.from_words(" ".join(typed), person)
    assert raised.value.rule == "recovery_words"
    return raised.value


@pytest.mark.req("BACKUP-6", "BACKUP-13")
def test_words_of_a_key_lead_back_to_it() -> None:
    assert len(WORDS) == 24
    assert len(words.word_list()) == 2048
    assert words.from_words(" ".join(WORDS)).node_id == KEY.node_id
    paper = "\n".join(f"{number}. {word[:4].upper()}," for number, word in enumerate(WORDS, 1))
    assert words.from_words(paper, KEY.node_id).seed == KEY.seed
    heading = ids.short_id(KEY.node_id)
    assert words.from_words(f"person {heading}\n\n{paper}", KEY.node_id).seed == KEY.seed


@pytest.mark.req("BACKUP-6")
def test_unknown_words_are_named_with_places() -> None:
    error = refused([*WORDS[:2], "abandonn", *WORDS[3:-1], "qqqq"])
    assert error.details["words"] == [3, 24]
    assert "word 3, 'abandonn' (perhaps abandon" in error.message


@pytest.mark.req("BACKUP-6")
@pytest.mark.parametrize("place", [0, 11, 23])
def test_wrong_word_is_named_by_the_person(place: int) -> None:
    typed = [*WORDS]
    typed[place] = "zoo" if WORDS[place] != "zoo" else "able"
    error = refused(typed, KEY.node_id)
    assert error.details["words"] == [place + 1]
    assert f"recovery word {place + 1} " in error.message


@pytest.mark.req("BACKUP-6")
def test_exchanged_words_are_named() -> None:
    typed = [*WORDS[:4], WORDS[5], WORDS[4], *WORDS[6:]]
    assert refused(typed, KEY.node_id).details["words"] == [5, 6]


@pytest.mark.req("BACKUP-6")
def test_words_of_another_person_are_told_apart() -> None:
    assert "another person" in refused(WORDS, Identity.generate().node_id).message
    several = ["zoo", "able", *WORDS[2:]]
    assert "do not fit each other" in refused(several, KEY.node_id).message
    assert "do not fit each other" in refused(["zoo", *WORDS[1:]]).message


@pytest.mark.req("BACKUP-6")
@pytest.mark.parametrize("count", [0, 12, 23, 25])
def test_number_of_words_is_checked(count: int) -> None:
    assert f"there are {count} recovery words" in refused((WORDS * 2)[:count]).message
