"""Every link between the pages, and every page that code and tests name, leads somewhere.

Anchors are those that GitHub makes of headings: lower case, without punctuation, blanks as hyphens, and `-1`,
`-2` and so on for repetitions; beside these the ids and names of HTML anchors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = sorted(
    [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")],
    key=lambda path: path.relative_to(ROOT).as_posix(),
)
NAMING: Final = ("hearthnet", "services", "tests", "tools", "contracts", "Makefile", "pyproject.toml")
"""Where pages are named outside of pages."""
SUFFIXES: Final = frozenset({".py", ".js", ".mjs", ".html", ".css", ".toml", ".json", ".sh", ".md", ""})
LEFT_OUT: Final = frozenset({"node_modules", "__pycache__", ".venv", "build", ".git"})
HERE: Final = Path(__file__).resolve()
MODULE: Final = re.compile(r"(?<![\w/.{}$*-])(?:[\w-]+/)*[\w-]+\.py\b")
EXAMPLES: Final = frozenset({"hello.py", "module.py"})
"""Modules that a reader is told to write."""
EXTERNAL: Final = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)
HTML_ANCHOR: Final = re.compile(r"""<a\s[^>]*\b(?:id|name)=["']([^"']+)["']""", re.IGNORECASE)
HTML_LINK: Final = re.compile(r"""<(?:a|img)\s[^>]*\b(?:href|src)=["']([^"']+)["']""", re.IGNORECASE)
NAMED: Final = re.compile(r"(?<![\w/.-])docs/[\w./-]*?\w\.md(?:#([\w-]+))?")
SECTION: Final = re.compile(r'(?<![\w/.-])(docs/[\w./-]*?\w\.md), "([^"]+)"')
RECORD: Final = re.compile(r"(?<![\w/.-])(?:docs/)?decisions/(\d{4})(?![\w-])")


class Link(NamedTuple):
    """Where something refers to, from which line of which file."""

    source: Path
    line: int
    target: str

    def __str__(self) -> str:
        return f"{self.source.relative_to(ROOT)}:{self.line}: {self.target}"


@cache
def tokens(page: Path) -> list[Token]:
    """The page as Markdown, tables included."""
    return MarkdownIt("commonmark").enable("table").parse(page.read_text("utf-8"))


def slug(heading: str) -> str:
    """The anchor that GitHub makes of a heading's text."""
    kept = (char for char in heading.strip().lower() if char.isalnum() or char in " -_")
    return "".join(kept).replace(" ", "-")


@cache
def anchors(page: Path) -> frozenset[str]:
    """All that a link into `page` may name after its #."""
    found: set[str] = set()
    counts: dict[str, int] = {}
    every = tokens(page)
    for opening, inline in pairwise(every):
        if opening.type == "heading_open":
            plain = slug("".join(words(inline)))
            number = counts[plain] = counts.get(plain, -1) + 1
            found.add(f"{plain}-{number}" if number else plain)
    for html in html_of(page):
        found.update(HTML_ANCHOR.findall(html))
    return frozenset(found)


def words(inline: Token) -> Iterator[str]:
    """The text of a heading without its markup."""
    for child in inline.children or ():
        if child.type in ("text", "code_inline"):
            yield child.content
        elif child.type == "image":
            yield from words(child)


def html_of(page: Path) -> Iterator[str]:
    """The HTML in a page, outside of code."""
    for token in tokens(page):
        if token.type == "html_block":
            yield token.content
        for child in token.children or ():
            if child.type == "html_inline":
                yield child.content


def links(page: Path) -> Iterator[Link]:
    """The relative links of a page."""
    line = 1
    for token in tokens(page):
        line = token.map[0] + 1 if token.map else line
        for child in token.children or ():
            target = child.attrGet("href") or child.attrGet("src")
            if isinstance(target, str) and not EXTERNAL.match(target):
                yield Link(page, line, target)
    for html in html_of(page):
        yield from (Link(page, 1, one) for one in HTML_LINK.findall(html) if not EXTERNAL.match(one))


def complaint(link: Link, base: Path) -> str:
    """What is wrong with a link that is read from `base`; empty where it leads somewhere."""
    place, _, anchor = unquote(link.target).partition("#")
    there = (base / place).resolve() if place else link.source
    if not there.is_relative_to(ROOT):
        return f"{link}: leads out of the repository"
    if not there.exists():
        return f"{link}: there is no such file"
    if anchor and there.suffix == ".md" and anchor not in anchors(there):
        return f"{link}: {there.relative_to(ROOT)} has no heading of that anchor"
    return ""


def naming() -> Iterator[Path]:
    """The files outside of docs/ that may name a page."""
    for name in NAMING:
        top = ROOT / name
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            if path.is_file() and path.suffix in SUFFIXES and LEFT_OUT.isdisjoint(path.parts):
                yield path


def named(path: Path) -> Iterator[Link]:
    """The pages that a file names as docs/....md, with section where one follows in quotes, and the records
    that it names as decisions/NNNN.
    """
    text = path.read_text("utf-8", "replace")
    for found in NAMED.finditer(text):
        yield Link(path, text.count("\n", 0, found.start()) + 1, found.group())
    for found in SECTION.finditer(text):
        target = f"{found.group(1)}#{slug(' '.join(found.group(2).split()))}"
        yield Link(path, text.count("\n", 0, found.start()) + 1, target)
    for found in RECORD.finditer(text):
        yield Link(path, text.count("\n", 0, found.start()) + 1, f"docs/decisions/{found.group(1)}")


def misnamed(path: Path) -> list[str]:
    """What is wrong with the pages that a file names."""
    found = (record(link) if RECORD.fullmatch(link.target) else complaint(link, ROOT) for link in named(path))
    return [one for one in found if one]


def record(link: Link) -> str:
    """What is wrong with the mention of a record; empty where there is exactly one of that number."""
    number = link.target.rpartition("/")[2]
    there = list((ROOT / "docs" / "decisions").glob(f"{number}-*.md"))
    return "" if len(there) == 1 else f"{link}: there are {len(there)} records of that number"


@pytest.mark.req("DOCS-2")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    wrong = [found for link in links(page) if (found := complaint(link, page.parent))]
    wrong += misnamed(page)
    assert not wrong, "\n".join(wrong)


@pytest.mark.req("DOCS-2")
def test_pages_named_in_code_and_tests_exist() -> None:
    wrong = [found for path in naming() if path != HERE for found in misnamed(path)]
    assert not wrong, "\n".join(wrong)


@cache
def modules() -> frozenset[str]:
    """Every ending of the path of a Python file here, such as `hosting/host.py` and `host.py`."""
    paths = [
        path.relative_to(ROOT).parts
        for name in ("hearthnet", "services", "tests", "tools")
        for path in (ROOT / name).rglob("*.py")
        if LEFT_OUT.isdisjoint(path.parts)
    ]
    return frozenset("/".join(parts[first:]) for parts in paths for first in range(len(parts)))


def missing_modules(path: Path) -> list[str]:
    """The Python files that a page, outside of its fences, or a source names and that are not there."""
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        text = re.sub(r"^```.*?^```", lambda fence: "\n" * fence.group().count("\n"), text, flags=re.M | re.S)
    return [
        f"{path}:{text.count(chr(10), 0, found.start()) + 1}: there is no {found.group()}"
        for found in MODULE.finditer(text)
        if found.group() not in modules() | EXAMPLES and "NAME" not in found.group()
    ]


@pytest.mark.req("DOCS-2")
def test_modules_named_in_pages_and_sources_exist() -> None:
    pages = [page for page in PAGES if page.name != "CHANGELOG.md"]  # which names what was there
    product = (ROOT / "hearthnet", ROOT / "services")
    sources = [
        path
        for path in naming()
        if path.suffix == ".md" or (path.suffix == ".py" and any(map(path.is_relative_to, product)))
    ]
    wrong = [found for path in (*pages, *sources) for found in missing_modules(path)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("Signed calls", "signed-calls"),
        ("`rag.list_corpora@1.0`", "raglist_corpora10"),
        ("One question with a tool, step by step", "one-question-with-a-tool-step-by-step"),
        ("A: B / C & D", "a-b--c--d"),
        ("Größe", "größe"),
    ],
)
def test_anchors_are_made_as_github_does(heading: str, anchor: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f'# {heading}\n\n## {heading}\n\n```\n# no heading\n```\n\n<a id="own"></a>\n', "utf-8")
    assert anchors(page) == {anchor, f"{anchor}-1", "own"}


def test_a_broken_link_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.test_links.ROOT", tmp_path)
    page, other = tmp_path / "page.md", tmp_path / "other.md"
    page.write_text(
        "[a](other.md#here) [b](other.md#gone) [c](none.md) [d](../out.md) [e](https://example.org)\n"
        '`[f](code.md)` ![g](none.png)\n\n<a href="gone.md">h</a>\n',
        "utf-8",
    )
    other.write_text("# Here\n", "utf-8")
    wrong = [found for link in links(page) if (found := complaint(link, tmp_path))]
    assert [one.partition(": ")[2] for one in wrong] == [
        "other.md#gone: other.md has no heading of that anchor",
        "none.md: there is no such file",
        "../out.md: leads out of the repository",
        "none.png: there is no such file",
        "gone.md: there is no such file",
    ]
