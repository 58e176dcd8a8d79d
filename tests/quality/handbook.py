"""Debian's handbook (package `debian-handbook`) as a test of retrieval on text that no one here wrote.

Its pages are read where the package put them, in English and German. A section is known by the id of its
heading, which is the same in both languages, and by its words, its subsections' included. A passage is right
for a section where the two share enough runs of words; how it was cut, and by what, does not matter.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias
from xml.etree import ElementTree

ROOT: Final = Path("/usr/share/doc/debian-handbook/html")
FOLDERS: Final = {"en": "en-US", "de": "de-DE"}
PACKAGE: Final = "debian-handbook"

_RUN: Final = 8  # words
_ENOUGH: Final = 40  # runs, or half of a short section's
_XHTML: Final = "{http://www.w3.org/1999/xhtml}"
_KINDS: Final = frozenset({"section", "chapter", "appendix", "preface"})
_HEADINGS: Final = frozenset(f"{_XHTML}h{level}" for level in range(1, 7))
_NUMBER: Final = re.compile(r"^(?:(?:Chapter|Kapitel|Appendix|Anhang)\s+)?(?:[A-Z]\.|\d+\.)(?:\d+\.)*\s+")
_WORD: Final = re.compile(r"\w+")

Run: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class Section:
    """A section of one page: its id, its title without the number before it, and its runs of words."""

    id: str
    page: str
    title: str
    runs: frozenset[Run] = field(repr=False)

    def is_in(self, runs: frozenset[Run]) -> bool:
        """Whether a passage of these runs holds a good part of this section."""
        return len(self.runs & runs) >= max(1, min(_ENOUGH, len(self.runs) // 2))


@dataclass(frozen=True)
class Question:
    """What is asked, in which language, and the id of the section it belongs to."""

    text: str
    language: str
    section: str


def is_installed() -> bool:
    """Whether the package is on this machine, in both languages."""
    return all((ROOT / folder / "index.html").exists() for folder in FOLDERS.values())


def pages(language: str) -> list[Path]:
    """The files of the book in one language, without the table of contents."""
    return sorted(file for file in (ROOT / FOLDERS[language]).glob("*.html") if file.stem != "index")


def sections(language: str) -> list[Section]:
    """All sections of the book that have words, in the order of its files."""
    return [section for page in pages(language) for section in _sections(page) if section.runs]


def written_questions() -> list[Question]:
    """The fifty questions of handbook_questions.toml, which are only ever measured."""
    return _questions("handbook_questions.toml")


def practice_questions() -> list[Question]:
    """The hundred of handbook_practice.toml, to tune on."""
    return _questions("handbook_practice.toml")


def title_questions(language: str) -> list[Question]:
    """Every section's title as a question for that section."""
    return [Question(section.title, language, section.id) for section in sections(language)]


def runs_of(text: str) -> frozenset[Run]:
    """Each eight words that follow each other in `text`."""
    words = _WORD.findall(text.casefold())
    return frozenset(tuple(words[at : at + _RUN]) for at in range(len(words) - _RUN + 1))


def _questions(name: str) -> list[Question]:
    file = Path(__file__).with_name(name)
    return [Question(**entry) for entry in tomllib.loads(file.read_text(encoding="utf-8"))["question"]]


def _sections(page: Path) -> Iterator[Section]:
    for part in ElementTree.parse(page).iter(f"{_XHTML}div"):
        if not _KINDS.intersection((part.get("class") or "").split()[:1]):
            continue
        heading = next((element for element in part.iter() if element.tag in _HEADINGS), None)
        if heading is None:
            continue
        name = next((element.get("id") for element in heading.iter() if element.get("id")), None)
        if name is not None:
            title = _NUMBER.sub("", " ".join("".join(heading.itertext()).split()))
            yield Section(name, page.name, title, runs_of(" ".join(_texts(part))))


def _texts(element: ElementTree.Element) -> Iterator[str]:
    """The text below `element`, without headings and tables of contents."""
    if element.tag in _HEADINGS or (element.get("class") or "") == "toc":
        return
    yield element.text or ""
    for child in element:
        yield from _texts(child)
        yield child.tail or ""
