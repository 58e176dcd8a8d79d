"""Reading documents: front matter, headings, titles, and files that are no text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.core.errors import HearthNetError
from hearthnet_rag.readers import read_document
from hearthnet_rag.readers.documents import MARKDOWN, PLAIN, TITLE_LIMIT, Heading, file_name
from hearthnet_rag.readers.markdown import find_headings

TOML = b"""+++
title = "Rain  barrels"
date = 2026-01-31
language = "en"
sources = ["WHO: https://www.who.int/", "", 7]
+++

# A barrel

Keep the lid on.
"""


def refusal(data: bytes, name: str | None = None) -> HearthNetError:
    with pytest.raises(HearthNetError) as caught:
        read_document(data, name=name)
    assert "\n" not in caught.value.message
    return caught.value


@pytest.mark.req("RAG-5")
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (b" \n\t\n", "is empty"),
        (b"\x89PNG\r\n\x1a\n\0\0", "is a PNG image"),
        (b"a\0b", "is not text"),
        ("Grüße".encode("cp437"), "is not UTF-8 text (byte 2)"),
        (b"+++\ntitle =\n+++\ntext", "has front matter that is not TOML"),
        (b'+++\ntitle = "nothing else"\n+++\n', "has no text in it"),
        (b"\xef\xbb\xbf", "has no text in it"),
    ],
)
def test_a_file_that_is_no_text_is_refused_in_one_line(data: bytes, reason: str) -> None:
    error = refusal(data, "photo.md")
    assert error.code == "bad_request"
    assert error.message.startswith(f"photo.md {reason}")


def test_without_a_name_the_line_says_the_document() -> None:
    assert refusal(b"").message == "the document is empty"


@pytest.mark.req("RAG-3")
def test_toml_front_matter() -> None:
    document = read_document(TOML)
    assert document.title == "Rain barrels"
    assert document.date == "2026-01-31"
    assert document.language == "en"
    assert document.sources == ("WHO: https://www.who.int/",)
    assert document.body == "# A barrel\n\nKeep the lid on.\n"
    assert document.headings == (Heading(1, "A barrel", 0),)


def test_of_yaml_front_matter_three_lines_are_read() -> None:
    document = read_document(b"---\nTitle: 'Soup'\ndate: 2026-01-02\ntags: [a, b]\n---\nBoil it.\n")
    assert (document.title, document.date, document.body) == ("Soup", "2026-01-02", "Boil it.\n")


@pytest.mark.req("ATTACK-45")
def test_long_toml_front_matter_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(HearthNetError, match="front matter of 16385 characters, more than 16384") as caught:
        read_document(b"+++\n" + b"#" * 16384 + b"\n+++\ntext")
    assert (caught.value.code, caught.value.details["limit"]) == ("bad_request", 16384)


RULES = "---\n" + "word " * 4_000 + "\n---\nmore\n"


@pytest.mark.parametrize("text", ["---\nno end\n", "+++\nno end\n", "----\ntitle: x\n----\n", RULES])
def test_what_only_looks_like_front_matter_is_text(text: str) -> None:
    assert read_document(text.encode()).body == text


def test_plain_text_has_neither_front_matter_nor_headings() -> None:
    document = read_document(TOML, PLAIN, "barrel.txt")
    assert document.title == "barrel"
    assert document.headings == ()
    assert document.body.startswith("+++\n")


@pytest.mark.parametrize(
    ("text", "name", "title"),
    [
        ("some text\n## Second\n# First", "file.md", "Second"),
        ("no heading", "C:\\docs\\soup.v2.md", "soup.v2"),
        ("\n  no heading, no name  \nmore", None, "no heading, no name"),
        ("x" * 1000, None, "x" * TITLE_LIMIT),
    ],
)
def test_titles(text: str, name: str | None, title: str) -> None:
    assert read_document(text.encode(), MARKDOWN, name).title == title


def test_line_ends_of_all_systems() -> None:
    assert read_document(b"a\r\nb\rc\n").body == "a\nb\nc\n"


def test_headings_of_both_kinds_and_none_in_code() -> None:
    text = (
        "# One #\n"
        "Two\n---\n"
        "Three\n===\n"
        "```\n# code\n~~~\n```\n"
        "~~~~\n# code\n~~~\n# code\n~~~~\n"
        "#hashtag\n####### seven\n    # indented\n# \n###### Six ##x\n"
        "\n---\n"
    )
    assert [(heading.level, heading.text) for heading in find_headings(text)] == [
        (1, "One"),
        (2, "Two"),
        (1, "Three"),
        (6, "Six ##x"),
    ]


def test_a_heading_is_where_its_line_begins() -> None:
    text = "intro\n\n## Größe\n\nUnder\n-----\nend"
    assert [text[heading.start :].split("\n")[0] for heading in find_headings(text)] == ["## Größe", "Under"]


def test_the_file_name_of_a_path_of_any_system() -> None:
    assert [file_name(path) for path in ("a/b.md", "C:\\a\\b.md", "b.md")] == ["b.md"] * 3


@given(st.binary(max_size=200))
def test_any_bytes_are_a_document_or_refused(data: bytes) -> None:
    refused: HearthNetError | None = None
    try:
        document = read_document(data)
    except HearthNetError as error:
        refused = error
    if refused is not None:
        assert (refused.code, "\n" in refused.message) == ("bad_request", False)
        return
    assert document.title.strip()
    assert document.body.strip()


@given(st.text(alphabet="#=- \n`~ab\u2028\x0c", max_size=80))
def test_headings_lie_in_the_text_in_order(text: str) -> None:
    found = find_headings(text)
    starts = [heading.start for heading in found]
    assert starts == sorted(set(starts))
    assert all(heading.text in text[heading.start :] and heading.text for heading in found)


@pytest.mark.req("RAG-39")
@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("latin-1", "Maß"),
        ("latin-1", "Grüße aus Köln, liebe Ada. Bring the ladder back."),
        ("cp1252", "Das kostet 5 €, „ganz“ sicher; don\u2019t wait for 20 °C."),
        ("cp1252", "Menü2: the iPhone of Zoë, „Ähre“, ÄPFEL"),
        ("cp1250", "Studnia daje czystą wodę, jeśli jest wyłożona kamieniem."),
    ],
)
def test_old_encodings_with_few_letters_are_read(encoding: str, text: str) -> None:
    assert read_document(text.encode(encoding)).body == text


@pytest.mark.req("RAG-39")
@pytest.mark.parametrize("data", ["Grüße".encode("cp850"), "Привет".encode("cp1251"), b"\xff", b"a\x01\xe4b"])
def test_bytes_that_make_no_words_are_refused(data: bytes) -> None:
    with pytest.raises(HearthNetError, match="is not UTF-8 text"):
        read_document(data)


@pytest.mark.req("RAG-39")
@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("mac_roman", "In this long letter only the word Grün has an umlaut."),
        ("cp850", "Nous avons bu un café dans la rue avec nos amis et nos voisins."),
        ("cp850", "It costs £5 at the market."),
        ("cp850", "At 20 °C the water is fine."),
    ],
)
def test_few_letters_of_other_old_encodings_are_refused(encoding: str, text: str) -> None:
    with pytest.raises(HearthNetError, match="is not UTF-8 text"):
        read_document(text.encode(encoding))
