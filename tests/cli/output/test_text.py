"""Nothing from elsewhere steers a terminal."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthnet.cli.output import text

ESCAPE = "\x1b[2J"
BIDI = "\u202e"
HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Categories of Unicode that nobody sees; named here anew, and not as the product names them."""
ANY_TEXT = st.text(alphabet=st.characters(codec=None, exclude_categories=()))

INVISIBLE = set("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters and marks that nobody sees either."""

ANY_JSON = st.recursive(
    ANY_TEXT | st.integers() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.req("CLI-3")
@pytest.mark.parametrize(
    ("given_text", "shown"),
    [
        ("plain", "plain"),
        ("Grüße, 水 ❤️", "Grüße, 水 ❤️"),
        (f"a{ESCAPE}b", "a\\x1b[2Jb"),
        ("\x9b31m", "\\x9b31m"),
        (f"{BIDI}txt.exe", "\\u202etxt.exe"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("filler\u3164", "filler\\u3164"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("half\ud800", "half\\ud800"),
    ],
)
def test_hidden_characters_are_shown_as_codes(given_text: str, shown: str) -> None:
    assert text.one_line(given_text) == shown


def test_lines_keep_their_ends_and_joiners_but_nothing_else_hidden() -> None:
    assert text.many_lines("a\n\tb\u200c\u200d\x1b\r\u202e") == "a\n\tb\u200c\u200d\\x1b\\r\\u202e"


@pytest.mark.req("CLI-3")
@given(ANY_TEXT)
def test_no_text_gets_a_hidden_character_through(value: str) -> None:
    lines = [letter for letter in text.many_lines(value) if letter not in "\n\t\u200c\u200d"]
    for letter in (*text.one_line(value), *lines):
        assert unicodedata.category(letter) not in HIDDEN
        assert letter not in INVISIBLE


@pytest.mark.req("CLI-3")
@settings(max_examples=50)
@given(ANY_JSON)
def test_json_is_read_back_as_it_was_and_holds_nothing_hidden(value: object) -> None:
    for indent in (None, 2):
        shown = text.as_json(value, indent=indent)
        assert json.loads(shown) == json.loads(json.dumps(value))
        assert not [letter for letter in shown.replace("\n", "") if unicodedata.category(letter) in HIDDEN]
        assert not INVISIBLE & set(shown)


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (98_362_432, "98 MB"), (2 * 10**9, "2.0 GB")],
)
def test_sizes_for_people(count: int, shown: str) -> None:
    assert text.size(count) == shown


@pytest.mark.parametrize(
    ("ms", "shown"),
    [(0, "0 ms"), (2100, "2.1 s"), (180_000, "3 min"), (7_200_000, "2 h"), (200_000_000, "2 d")],
)
def test_durations_for_people(ms: int, shown: str) -> None:
    assert text.duration(ms) == shown


def test_what_is_too_long_is_cut_visibly() -> None:
    assert text.shorten("abcdef", 6) == "abcdef"
    assert text.shorten("abc defgh", 7) == "abc..."


def test_one_is_not_many() -> None:
    assert [text.counted(count, "file") for count in (0, 1, 2)] == ["0 files", "1 file", "2 files"]


def test_values_become_indented_lines() -> None:
    value = {
        "posts": [{"title": "A", "tags": ["x", "y"], "location": None}, {"title": "B\x1b"}],
        "text": "one\ntwo",
        "empty": [],
        "count": 2,
        "": "",
    }
    assert list(text.as_lines(value)) == [
        "posts:",
        "  - title: A",
        "    tags:",
        "      - x",
        "      - y",
        "    location: null",
        "  - title: B\\x1b",
        "text:",
        "  one",
        "  two",
        "empty: []",
        "count: 2",
        ": ",
    ]
    assert list(text.as_lines("word")) == ["word"]
    assert list(text.as_lines([[1, 2]])) == ["- - 1", "  - 2"]
