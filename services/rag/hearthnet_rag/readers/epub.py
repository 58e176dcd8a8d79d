"""EPUB: the chapters in reading order, each read as HTML."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Final

from hearthnet_rag.readers import OnProgress, html, safe_xml
from hearthnet_rag.readers.document_builder import Builder
from hearthnet_rag.readers.documents import EPUB, Document, language_of, one_line, rejected
from hearthnet_rag.readers.zip_documents import Archive, joined

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

CONTAINER: Final = "META-INF/container.xml"
_ENCRYPTION: Final = "META-INF/encryption.xml"
_STAGE: Final = "reading chapters"
_PAGES: Final = frozenset({"application/xhtml+xml", "text/html"})
_CORE: Final = "{http://purl.org/dc/elements/1.1/}"


def read(archive: Archive, name: str | None, on_progress: OnProgress) -> Document:
    """Read the book in `archive`.

    Raises:
        HearthNetError: `bad_request`, in one line, if it is broken, locked or empty.
    """
    container = safe_xml.parse(archive.read(CONTAINER), name, CONTAINER)
    found = container.find(".//{*}rootfile")
    path = found.get("full-path") if found is not None else None
    if not path:
        raise rejected(name, "is broken: its container names no book")
    path = joined("", path)
    package = safe_xml.parse(archive.read(path), name, path)
    chapters = _chapters(package, posixpath.dirname(path))
    _check_open(archive, chapters, name)
    built = Builder(name)
    for number, chapter in enumerate(chapters):
        on_progress(_STAGE, number, len(chapters))
        if chapter in archive.names:
            html.add_page(built, html.parse(html.decoded(archive.read(chapter), name)))
    on_progress(_STAGE, len(chapters), len(chapters))
    return built.finish(
        EPUB,
        (_fact(package, "title") or "",),
        language_of(_fact(package, "language")),
        (_fact(package, "date") or "")[:10] or None,
    )


def _chapters(package: Element, folder: str) -> list[str]:
    """Return the paths of the pages in reading order, without pages of navigation."""
    paths: dict[str, str] = {}
    for item in package.iterfind(".//{*}manifest/{*}item"):
        pages = (item.get("media-type") or "").lower() in _PAGES and "nav" not in (
            item.get("properties") or ""
        ).split()
        if pages and item.get("id") and item.get("href"):
            paths[str(item.get("id"))] = joined(folder, str(item.get("href")))
    spine = [str(entry.get("idref")) for entry in package.iterfind(".//{*}spine/{*}itemref")]
    return list(dict.fromkeys(paths[entry] for entry in spine if entry in paths))


def _check_open(archive: Archive, chapters: list[str], name: str | None) -> None:
    """Raise if chapters are encrypted; obfuscated fonts are no obstacle.

    Raises:
        HearthNetError: `bad_request` if a chapter is encrypted.
    """
    if _ENCRYPTION not in archive.names:
        return
    root = safe_xml.parse(archive.read(_ENCRYPTION), name, _ENCRYPTION)
    locked = {joined("", str(node.get("URI") or "")) for node in root.iterfind(".//{*}CipherReference")}
    if not locked.isdisjoint(chapters):
        raise rejected(name, "is locked by its shop (DRM) and cannot be read; get a copy without a lock")


def _fact(package: Element, key: str) -> str | None:
    return one_line(package.findtext(f".//{_CORE}{key}"))
