"""HTML: the text of a page with its headings, without navigation, menus and scripts.

It is parsed as in browsers (Lexbor), so that broken markup is read too, and entities and external references
have no effect. The tree is walked without recursion, so its depth is not limited.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from hearthnet_rag.readers.document_builder import Builder
from hearthnet_rag.readers.documents import HTML, Document, language_of, one_line
from hearthnet_rag.readers.plain import decode

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

_HEADINGS: Final = {f"h{level}": level for level in range(1, 7)}
_NEVER: Final = frozenset({
    "script", "style", "noscript", "template", "svg", "math", "iframe", "object", "embed", "canvas", "audio",
    "video", "select", "textarea", "button", "input", "nav", "dialog", "datalist", "head", "title",
})  # fmt: skip
_BLOCKS: Final = frozenset({
    "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "div", "dl",
    "dt", "fieldset", "figcaption", "figure", "footer", "form", "header", "hgroup", "hr", "html", "legend",
    "li", "main", "menu", "ol", "p", "section", "summary", "table", "tbody", "tfoot", "thead", "tr", "ul",
})  # fmt: skip
_ROLES: Final = frozenset(
    ["navigation", "banner", "contentinfo", "search", "menu", "menubar", "toolbar", "dialog", "alertdialog"]
)
_FRAME: Final = frozenset({
    "nav", "navbar", "navigation", "navheader", "navfooter", "docnav", "navlinks", "menu", "breadcrumb",
    "breadcrumbs", "pagination", "pager", "toc", "banner", "site-header", "site-footer", "page-footer",
    "cookie-banner", "skip-link", "skiplink", "sphinxsidebar", "related", "mw-jump-link", "mw-editsection",
    "noprint",
})  # fmt: skip
_FRAMED: Final = frozenset(
    ["ul", "ol", "dl", "div", "p", "section", "table", "aside", "header", "footer", "span", "a"]
)
_CHARSET: Final = re.compile(rb"(?:charset|encoding)\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{2,40})", re.IGNORECASE)
_DATES: Final = (
    "article:modified_time",
    "article:published_time",
    "dcterms.modified",
    "dcterms.date",
    "date",
)
_HEAD: Final = 4096
_XHTML: Final = re.compile(r"<\?xml\b|http://www\.w3\.org/1999/xhtml", re.IGNORECASE)
_CLOSED: Final = re.compile(r"<([A-Za-z][\w:-]{0,40})((?:\s[^<>]{0,1000})?)/>")
_VOID: Final = frozenset(["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "wbr"])
_SPACE: Final = re.compile(r"\s+")
_MIN_SHARE: Final = 0.1


def read(data: bytes, name: str | None) -> Document:
    """Read the document in `data`.

    Raises:
        HearthNetError: `bad_request`, with the reason in one line, if it has no text.
    """
    tree = parse(decoded(data, name))
    built = Builder(name)
    add_page(built, tree)
    titled = tree.css_first("head > title")
    title = None if titled is None else one_line(titled.text(deep=True))
    heads = [heading.text for heading in built.headings if heading.level == 1]
    titles = (heads[0] if len(heads) == 1 and (title is None or heads[0] in title) else "", title or "")
    return built.finish(HTML, titles, language_of(_declared_language(tree)), _date(tree))


def decoded(data: bytes, name: str | None) -> str:
    """Return `data` as text: by its byte order mark, its declaration, else by detection."""
    declared = _CHARSET.search(data[:_HEAD])
    if declared and not data.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            encoding = codecs.lookup(declared[1].decode("ascii")).name
            if encoding not in {"utf-16", "utf-16-le", "utf-16-be", "utf-8"}:
                return data.decode("cp1252" if encoding == "iso8859-1" else encoding, "replace")
        except (LookupError, ValueError):
            pass
    return decode(data, name)


def _opened(found: re.Match[str]) -> str:
    """Replace an XHTML tag such as `<title/>`, which HTML would read as an open title."""
    return found[0] if found[1].lower() in _VOID else f"<{found[1]}{found[2]}></{found[1]}>"


def parse(text: str) -> LexborHTMLParser:
    """Return the tree of a page."""
    from selectolax.lexbor import LexborHTMLParser

    return LexborHTMLParser(_CLOSED.sub(_opened, text) if _XHTML.search(text[:_HEAD]) else text)


def _declared_language(tree: LexborHTMLParser) -> str | None:
    root = tree.css_first("html")
    return None if root is None else root.attributes.get("lang") or root.attributes.get("xml:lang")


def add_page(built: Builder, tree: LexborHTMLParser) -> None:
    """Add the content of a page to `built`.

    If nearly all of the page looks like navigation, that is added as its content.
    """
    body = tree.body
    if body is None:
        return
    root = _main(tree) or body
    blocks, everything = Blocks(), len(_SPACE.sub("", root.text(deep=True) or ""))
    blocks.walk(root, strict=True)
    if sum(len(text) for _, text in blocks.found) < everything * _MIN_SHARE:
        blocks = Blocks()
        blocks.walk(root, strict=False)
    for level, text in blocks.found:
        if level:
            built.heading(level, text)
        else:
            built.block(text)


class Blocks:
    """The blocks of a page as (level, text); level 0 is not a heading."""

    def __init__(self) -> None:
        self.found: list[tuple[int, str]] = []
        self._buffer: list[str] = []
        self._level = self._verbatim = self._rows = 0
        self._lists: list[int | None] = []

    def walk(self, root: LexborNode, *, strict: bool) -> None:
        """Collect all blocks below `root`, without navigation if `strict`."""
        for node, enters in _steps(root, strict):
            tag = node.tag or ""
            if tag == "-text":
                text = node.text_content or ""
                self._buffer.append(text if self._verbatim else _SPACE.sub(" ", text))
            elif enters:
                self._enter(tag)
            else:
                self._leave(tag)
        self._flush()

    def _enter(self, tag: str) -> None:
        if tag == "br":
            self._buffer.append("\n")
        elif tag in {"td", "th"}:
            self._buffer.append(" | " if "".join(self._buffer).strip() else "")
        elif tag in _HEADINGS:
            self._flush()
            self._level = _HEADINGS[tag]
        elif tag == "pre":
            self._flush()
            self._verbatim += 1
        elif tag in _BLOCKS:
            self._begin(tag)

    def _begin(self, tag: str) -> None:
        self._separate()
        if tag == "tr":
            self._rows += 1
        elif tag in {"ul", "ol", "menu"}:
            self._lists.append(1 if tag == "ol" else None)
        elif tag == "li":
            self._buffer.append(self._bullet())

    def _leave(self, tag: str) -> None:
        if tag in _HEADINGS:
            self._flush()
            self._level = 0
        elif tag == "pre":
            self._flush()
            self._verbatim = max(0, self._verbatim - 1)
        elif tag == "tr":
            self._rows = max(0, self._rows - 1)
            self._separate()
        elif tag in _BLOCKS:
            if tag in {"ul", "ol", "menu"} and self._lists:
                self._lists.pop()
            self._separate()

    def _separate(self) -> None:
        """End a block; in a table row or heading add a space only."""
        if self._rows or self._level:
            self._buffer.append(" ")
        elif "".join(self._buffer).strip(" -") not in {"", "."}:
            self._flush()

    def _bullet(self) -> str:
        if not self._lists or self._lists[-1] is None:
            return "- "
        number = self._lists[-1]
        self._lists[-1] = number + 1
        return f"{number}. "

    def _flush(self) -> None:
        text, self._buffer = "".join(self._buffer), []
        if self._verbatim:
            text = text.strip("\n").rstrip()
        else:
            text = "\n".join(" ".join(line.split()) for line in text.split("\n")).strip()
        if text and text != "-":
            self.found.append((self._level, text))


def _steps(root: LexborNode, strict: bool) -> Iterator[tuple[LexborNode, bool]]:
    """Yield each node below `root` at its beginning, and each element also at its end."""
    open_nodes: list[LexborNode] = []
    node = root.child
    while node is not None or open_nodes:
        if node is None:
            node = open_nodes.pop()
            yield node, False
            node = node.next
            continue
        tag = node.tag or ""
        if tag == "-text":
            yield node, True
        elif not tag.startswith(("-", "!")) and not _left_out(node, tag, strict):
            yield node, True
            open_nodes.append(node)
            node = node.child
            continue
        node = node.next


def _left_out(node: LexborNode, tag: str, strict: bool) -> bool:
    if tag in _NEVER:
        return tag != "nav" or strict
    if not strict or tag not in _FRAMED:
        return False
    attributes = node.attributes
    if not attributes:
        return tag in {"header", "footer"} and _on_top(node)
    named = f"{attributes.get('class') or ''} {attributes.get('id') or ''}".lower().split()
    return (
        attributes.get("role") in _ROLES
        or attributes.get("aria-hidden") == "true"
        or "hidden" in attributes
        or not _FRAME.isdisjoint(named)
        or (tag in {"header", "footer"} and _on_top(node))
    )


def _on_top(node: LexborNode) -> bool:
    """Return whether `node` belongs to the page itself instead of a part of it."""
    above = node.parent
    return above is None or above.tag == "body" or (above.tag == "div" and _on_top(above))


def _main(tree: LexborHTMLParser) -> LexborNode | None:
    """Return the only element marked as the page's main content, or None."""
    for selector in ("main", "[role=main]", "article"):
        found = tree.css(selector)
        if len(found) == 1:
            return found[0]
    return None


def _date(tree: LexborHTMLParser) -> str | None:
    metas = {
        (node.attributes.get("name") or node.attributes.get("property") or "").lower(): node.attributes
        for node in tree.css("head > meta")
    }
    found = (one_line(metas[name].get("content")) for name in _DATES if name in metas)
    return next((date[:40] for date in found if date), None)
