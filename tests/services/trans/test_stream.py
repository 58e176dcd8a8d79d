"""Texts in Apertium's stream format: what goes in comes back."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hearthnet_trans.apertium.stream import Lost, decode, encode, parts


def there_and_back(text: str) -> str:
    """As programs would answer that change nothing."""
    encoded = encode(text)
    return decode(encoded.stream, encoded.kept).text


def shown(text: str) -> str:
    """What Apertium gets to see."""
    return encode(text).stream


@pytest.mark.req("TRANS-6")
@given(
    st.text(alphabet=st.characters(exclude_categories=["Cs"]))
    | st.text(alphabet="ab .[]^$/<>{}\\@*#~_`\n\t&;0")
)
@example("\\")
@example("[0]")
@example(".[]")
@example("a.[]b")
@example("<b")
@example("`` ` ```")
@example("&amp;&eacute;&nosuch;")
def test_whatever_it_is_it_comes_back(text: str) -> None:
    expected = unicodedata.normalize("NFC", there_and_back(text))
    assert there_and_back(expected) == expected
    if "&" not in text and unicodedata.is_normalized("NFC", text):
        assert there_and_back(text) == text


@pytest.mark.req("TRANS-6")
@given(st.text(alphabet="ab .[]^$/<>{}\\@*#~_`\n\t0"))
def test_pieces_make_up_the_whole(text: str) -> None:
    assert "".join(part for _, part in parts(text)) == text


@pytest.mark.req("TRANS-6")
@pytest.mark.parametrize(
    ("text", "stream"),
    [
        ("The house.", "The house..[]"),
        ("Two  spaces", "Two[0]spaces.[]"),
        ("a [b] c/d $5", r"a \[b\] c\/d \$5.[]"),
        ("One\n\nTwo\n", "One.[][0]Two.[][1]"),
        ("- One\n- Two", "[0]One.[][1]Two.[]"),
        ("<p>One</p><p>Two</p>", "[0]One.[][1]Two.[][2]"),
        ("a <b>red</b> car", "a[0]red[1]car.[]"),
        ("[the page](https://a.b/c?d)", "[0]the page.[][1]"),
        ("see https://example.org/a_b, please", "see[0], please.[]"),
        ("mail a.b@example.org now", "mail[0]now.[]"),
        ("run `rm -rf` or\n```\ncode\n```", "run[0]or.[][1]"),
        ("Dear {name}, %s and {{x}}", "Dear[0],[1]and.[][2]"),
        ("caf&eacute; &amp; bar", "café[0]bar.[]"),
        ("<code>the house</code> here", "[0]here.[]"),
        ("cafe\u0301", "café.[]"),
        ("a\x00b 😀", "a[0]b.[][1]"),
        ("x" * 81, "[0]"),
        ("", ""),
        (" \n", "[0]"),
    ],
)
def test_only_words_are_shown(text: str, stream: str) -> None:
    assert shown(text) == stream


@pytest.mark.req("TRANS-6")
def test_marks_are_counted_and_taken_off() -> None:
    encoded = encode("The xyzzy house 7.")
    assert encoded.words == 3
    decoded = decode(r"La *xyzzy @casa \@#grande 7..[]", encoded.kept)
    assert (decoded.text, decoded.marked) == ("La xyzzy casa grande 7.", 4)


@pytest.mark.req("TRANS-6")
@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("a[1]b[0]c", "markup has changed places"),
        ("a[0]b", r"2 blanks went in, and came back as \[0\]"),
        ("a[0]b[0]c[1]", r"2 blanks went in, and came back as \[0, 0, 1\]"),
        ("a[0]b[1]c[2]", r"2 blanks went in, and came back as \[0, 1, 2\]"),
        ("a[0]b[7]c", r"2 blanks went in, and came back as \[0, 7\]"),
    ],
)
def test_what_loses_or_moves_markup_is_not_taken(said: str, why: str) -> None:
    with pytest.raises(Lost, match=why):
        decode(said, ("<b>", "</b>"))


@pytest.mark.req("TRANS-6")
def test_a_line_break_may_go_with_its_words_but_no_paragraph() -> None:
    assert decode("a[1]b[0]c", ("\n", "<b>")).text == "a<b>b\nc"
    with pytest.raises(Lost, match="markup has changed places"):
        decode("a[1]b[0]c", ("\n\n", "<b>"))
