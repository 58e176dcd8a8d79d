"""The Markdown of models as a tree of harmless elements, for the page.

markdown-it-py parses it (CommonMark, tables, strikethrough). No HTML is made: the page builds each element
by a call, so that its Trusted Types stay on. Links, images and HTML are not parsed, so that a model's text
never contains anything to press or to load; they are shown as text. So is all that the library would leave
out: content that is nested too deep, and cells without a column in their table (docs/decisions/0160).

    tree     list of nodes
    node     a text, or {"tag": one of TAGS, "children": tree}, with "start" (a number) for a list and
             "align" (left, center, right) for a cell
"""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec
from markdown_it import MarkdownIt
from markdown_it.rules_block.table import escapedSplit
from markdown_it.token import Token

from hearthnet.core.errors import HearthNetError

Node = str | dict[str, Any]
MAX_CHARACTERS: Final = 16_384
"""The page asks for no more of a piece of an answer."""
MAX_NODES: Final = 20_000
"""The most elements; a table with that many cells is no answer, and would block the browser."""
_MAX_NESTING: Final = 20
_BLOCKS: Final = ("p", "h4", "ul", "ol", "li", "blockquote", "pre", "hr")
_CELLS: Final = ("table", "thead", "tbody", "tr", "th", "td")
_INLINE: Final = ("code", "strong", "em", "s", "br")
TAGS: Final = frozenset((*_BLOCKS, *_CELLS, *_INLINE))
_HEADINGS: Final = frozenset(("h1", "h2", "h3", "h5", "h6"))
_ALIGNED: Final = "text-align:"
_CONTAINERS: Final = frozenset(("blockquote_open", "list_item_open"))
_LANGUAGE: Final = re.compile(r"[\w.+#-]{0,20}")
_LINE_END: Final = re.compile(r"\r\n?|\n")
_DELIMITERS: Final = frozenset("|-: \t>")
"""The characters of the line of a table that says how many columns it has."""


class MarkdownText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /page/markdown`."""

    text: str


def _parser() -> MarkdownIt:
    made = MarkdownIt("js-default", {"html": False, "linkify": False, "maxNesting": _MAX_NESTING})
    return made.disable(["link", "image", "autolink", "reference", "html_block", "html_inline"])


_PARSER: Final = _parser()
_THREAD: Final = ThreadPoolExecutor(1, "markdown")
"""One text is parsed at a time: a hostile one takes a second and many megabytes."""


async def read_markdown(text: str) -> list[Node]:
    """Return the tree of `text`, parsed in a thread.

    Raises:
        HearthNetError: `payload_too_large` beyond the limits.
    """
    if len(text) > MAX_CHARACTERS:
        raise HearthNetError("payload_too_large", f"Markdown is read up to {MAX_CHARACTERS} characters")
    return await asyncio.get_running_loop().run_in_executor(_THREAD, tree, text)


def tree(text: str) -> list[Node]:
    """Return the tree of `text`.

    Raises:
        HearthNetError: `payload_too_large` for too many nodes or levels.
    """
    _check_tables(text)
    builder = _Builder(text)
    for token in _PARSER.parse(text):
        for part in token.children or () if token.type == "inline" else (token,):
            builder.take(part)
    return builder.root


def _check_tables(text: str) -> None:
    """Refuse a table that could have too many cells before the parser makes them."""
    lines = _LINE_END.split(text)
    columns = max(
        (one.count("|") + 1 for one in lines if "-" in one and _DELIMITERS.issuperset(one)), default=0
    )
    if columns * len(lines) > MAX_NODES:
        raise HearthNetError("payload_too_large", f"Markdown is read up to {MAX_NODES} elements")


class _Builder:
    """Builds a tree of tokens, which open and close elements."""

    def __init__(self, text: str) -> None:
        self._lines = _LINE_END.split(text)
        self._row = 0
        self.root: list[Node] = []
        self._open: list[list[Node]] = [self.root]
        self._count = 0

    def take(self, token: Token) -> None:
        """Add the next token."""
        # The parser marks the paragraphs of a tight list as hidden.
        if token.hidden:
            return
        # The parser would skip the content of these.
        if token.type in _CONTAINERS and token.level >= _MAX_NESTING - 1:
            raise HearthNetError("payload_too_large", f"Markdown is read up to {_MAX_NESTING} levels")
        if token.type == "tr_open" and token.map is not None:
            self._row = token.map[0]
        if token.nesting < 0:
            if token.type == "tr_close":
                self._add_surplus()
            self._open.pop()
            return
        node = _element(token)
        self._add(node)
        if token.nesting > 0:
            self._open.append(node["children"] if isinstance(node, dict) else self._open[-1])

    def _add_surplus(self) -> None:
        """Add the cells of a row without a column in the table, as text."""
        cells = escapedSplit(self._lines[self._row].lstrip(" \t>").rstrip())
        for cell in cells[cells[0] == "" : len(cells) - (cells[-1] == "")][len(self._open[-1]) :]:
            self._add({"tag": "td", "children": [cell.strip()]})

    def _add(self, node: Node) -> None:
        self._count += 1
        if self._count > MAX_NODES:
            raise HearthNetError("payload_too_large", f"Markdown is read up to {MAX_NODES} elements")
        if node:
            self._open[-1].append(node)


def _element(token: Token) -> Node:
    """Return the node of a token that does not end an element."""
    match token.type:
        case "softbreak":
            return "\n"
        case "fence" | "code_block":
            about = token.info.strip()
            first_line = "" if _LANGUAGE.fullmatch(about) else f"{about}\n"
            return {"tag": "pre", "children": [{"tag": "code", "children": [first_line + token.content]}]}
        case "code_inline":
            return {"tag": "code", "children": [token.content]}
    tag = "h4" if token.tag in _HEADINGS else token.tag
    if tag not in TAGS:
        return token.content
    return {"tag": tag, "children": [], **_attributes(token)}


def _attributes(token: Token) -> dict[str, Any]:
    start, style = token.attrGet("start"), str(token.attrGet("style") or "")
    found: dict[str, Any] = {} if start is None else {"start": start}
    return found | ({"align": style.removeprefix(_ALIGNED)} if style.startswith(_ALIGNED) else {})
