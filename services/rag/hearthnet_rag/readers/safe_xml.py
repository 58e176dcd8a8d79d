"""XML inside documents, parsed without entities, type definitions or external resources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthnet_rag.readers.documents import rejected

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

_DEFINES = (b"<!ENTITY", b"<!DOCTYPE")


def parse(data: bytes, name: str | None, what: str) -> Element:
    """Return the root of the XML in `data`, which error messages call `what`.

    Raises:
        HearthNetError: `bad_request` if it is not XML, or defines entities.
    """
    from lxml import etree

    check(data, name, what, _DEFINES[:1])
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        return etree.fromstring(data, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        why = " ".join(str(error).split())[:200]
        raise rejected(name, f"is broken: {what[:200]} is no XML ({why})") from error


def check(data: bytes, name: str | None, what: str, forbidden: tuple[bytes, ...] = _DEFINES) -> None:
    """Raise if the XML in `data`, in any encoding, defines entities or a document type.

    Raises:
        HearthNetError: `bad_request` if it does.
    """
    plain = data.replace(b"\0", b"").upper()
    if any(mark in plain for mark in forbidden):
        raise rejected(name, f"has XML that defines entities of its own ({what[:200]}), as no document needs")
