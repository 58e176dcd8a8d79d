"""PDF: the text page by page, with the document's outline as headings (PDFium)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from hearthnet_rag.readers import OnProgress
from hearthnet_rag.readers.document_builder import LARGEST_TEXT
from hearthnet_rag.readers.documents import PDF, Document, Heading, Pages, one_line, rejected, title_of
from hearthnet_rag.readers.pdf_forms import Forms
from hearthnet_rag.readers.plain import first_line

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument

MOST_PAGES: Final = 20_000
_MOST_HEADINGS: Final = 20_000
_STAGE: Final = "reading pages"
_PASSWORD: Final = 4
_SECURITY: Final = 5
_LEAST: Final = 3
"""Average letters and digits of a page, below which it counts as scanned."""
_HYPHEN: Final = re.compile("[\ufffe\x02\xad]\n?([^\\W\\d_]?)")
"""PDFium's marks of a hyphen at the end of a line, and the letter after it."""
_NOT_TEXT: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
_LETTER: Final = re.compile(r"\w")
_DIGITS: Final = re.compile(r"\d+")
_REPEATED_PAGES: Final = 5
_MOST_RUNS: Final = 100
_UNTITLED: Final = re.compile(
    r"untitled.*|microsoft (?:word|powerpoint).*|.*\.(?:docx?|indd|tex|dvi|odt|qxd)", re.I
)


def read(data: bytes, name: str | None, on_progress: OnProgress) -> Document:
    """Read the document in `data`.

    Raises:
        HearthNetError: `bad_request`, in one line, if it is broken, locked or scanned.
    """
    file = _opened(data, name)
    count = len(file)
    if count > MOST_PAGES:
        raise rejected(name, f"has {count} pages, more than {MOST_PAGES}; split it", limit=MOST_PAGES)
    texts = _pages(file, name, on_progress)
    written = [len(_LETTER.findall(text)) for text in texts]
    if sum(written) < max(1, count) * _LEAST:
        raise rejected(name, _without_text(file, count))
    shown = _without_repeated(texts)
    starts, body = _laid_out(shown)
    headings = tuple(_headings(_outline(file), shown, starts))
    facts = file.get_metadata_dict(skip_empty=True)
    title = one_line(facts.get("Title")) or ""
    return Document(
        title=title_of(
            name,
            "" if _UNTITLED.fullmatch(title) else title,
            headings[0].text if headings and headings[0].level == 1 else "",
            first_line(body),
        ),
        body=body,
        date=_date(facts.get("ModDate") or facts.get("CreationDate") or ""),
        headings=headings,
        pages=tuple(starts),
        media_type=PDF,
        without_text=_runs(
            number
            for number, letters in enumerate(written)
            if letters < _LEAST and _has_picture(file, number)
        ),
    )


def _opened(data: bytes, name: str | None) -> PdfDocument:
    import pypdfium2

    try:
        return pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        code = getattr(error, "err_code", None)
        if code in {_PASSWORD, _SECURITY}:
            raise rejected(
                name,
                "is encrypted with a password; save it without one, for example with: "
                "qpdf --decrypt --password=... locked.pdf open.pdf",
            ) from error
        raise rejected(
            name, "is broken, or was cut off: it is no PDF that can be opened; copy it anew"
        ) from error


def _pages(file: PdfDocument, name: str | None, on_progress: OnProgress) -> list[str]:
    texts: list[str] = []
    length = 0
    with Forms(file) as forms:
        for number in range(len(file)):
            on_progress(_STAGE, number, len(file))
            texts.append(_cleaned(_page(file, number, forms)))
            length += len(texts[-1])
            if max(length, forms.read) > LARGEST_TEXT:
                raise rejected(
                    name, f"has more than {LARGEST_TEXT} characters of text; split it", limit=LARGEST_TEXT
                )
    on_progress(_STAGE, len(file), len(file))
    return texts


def _page(file: PdfDocument, number: int, forms: Forms) -> str:
    """Return the text of one page; a broken page has none."""
    import pypdfium2

    try:
        page = file.get_page(number)
        text = str(page.get_textpage().get_text_range())
        if filled := forms.text(page):
            text = f"{text}\n\n{filled}"
        page.close()
    except pypdfium2.PdfiumError:
        return ""
    return text


def _cleaned(text: str) -> str:
    """Return a page's text with words rejoined that were hyphenated at the end of a line."""
    joined = _HYPHEN.sub(_joined, text.replace("\r\n", "\n").replace("\r", "\n"))
    plain = _NOT_TEXT.sub("", joined)
    return "\n".join(line.rstrip() for line in plain.split("\n")).strip()


def _joined(found: re.Match[str]) -> str:
    """Remove a hyphen before a small letter; before any other the hyphen is part of the word."""
    return found[1] if found[1].islower() else f"-{found[1]}"


def _without_repeated(texts: list[str]) -> list[str]:
    """Remove first and last lines that most pages share, numbers aside.

    The pages stay unchanged if nothing else would be left.
    """
    if len(texts) < _REPEATED_PAGES:
        return texts
    counted = Counter(key for text in texts for key in _edges(text))
    often = {key for key, number in counted.items() if number > len(texts) // 2}
    trimmed = [_trimmed(text, often) for text in texts]
    return trimmed if any(trimmed) else texts


def _edges(text: str) -> set[tuple[int, str]]:
    lines = text.split("\n")
    return {(at, _alike(lines[at])) for at in (0, -1) if lines[at].strip()}


def _trimmed(text: str, often: set[tuple[int, str]]) -> str:
    lines = text.split("\n")
    for at in (0, -1):
        if len(lines) > 1 and (at, _alike(lines[at])) in often:
            lines.pop(at)
    return "\n".join(lines).strip()


def _alike(line: str) -> str:
    return _DIGITS.sub("0", " ".join(line.split()))


def _laid_out(texts: list[str]) -> tuple[list[int], str]:
    starts, at = [], 0
    for text in texts:
        starts.append(at)
        at += len(text) + 2
    return starts, "\n\n".join(texts)


def _outline(file: PdfDocument) -> Iterator[tuple[int, str, int]]:
    """Yield (level, title, page number from 0) of each outline entry that leads to a page."""
    for entry in islice(file.get_toc(), _MOST_HEADINGS):
        title, target = one_line(_NOT_TEXT.sub("", entry.get_title() or "")), entry.get_dest()
        number = target.get_index() if target is not None else None
        if title and number is not None and 0 <= number < len(file):
            yield min(entry.level + 1, 6), title, number


def _headings(outline: Iterator[tuple[int, str, int]], texts: list[str], starts: list[int]) -> list[Heading]:
    """Place the outline in the text: at the title on its page, else at the page's beginning."""
    found = [
        Heading(level, title, starts[page] + _place(texts[page], title)) for level, title, page in outline
    ]
    return sorted(found, key=lambda heading: heading.start)


def _place(text: str, title: str) -> int:
    words = [re.escape(word) for word in title.split()]
    pattern = r"^[ \t]*(?:[\dA-Z.]{1,12}[ \t]+)?" + r"\s+".join(words)
    match = re.search(pattern, text, re.MULTILINE | re.IGNORECASE)
    return match.start() if match else 0


def _without_text(file: PdfDocument, count: int) -> str:
    pages = f"{count} page{'' if count == 1 else 's'}"
    if any(_has_picture(file, number) for number in range(min(count, 5))):
        return (
            f"has {pages} but no text in them: it was scanned. Add a layer of text first, for example with: "
            "ocrmypdf -l eng scanned.pdf readable.pdf"
        )
    return f"has {pages} and no text in them"


def _runs(numbers: Iterable[int]) -> tuple[Pages, ...]:
    """Return page numbers from 0, in order, as ranges; at most a hundred ranges."""
    runs: list[Pages] = []
    for page in (number + 1 for number in numbers):
        if runs and runs[-1].last == page - 1:
            runs[-1] = Pages(runs[-1].first, page)
        else:
            runs.append(Pages(page, page))
    return tuple(runs[:_MOST_RUNS])


def _has_picture(file: PdfDocument, number: int) -> bool:
    import pypdfium2

    picture: Any = pypdfium2.raw.FPDF_PAGEOBJ_IMAGE
    try:
        return any(True for _ in file.get_page(number).get_objects(filter=[picture], max_depth=3))
    except pypdfium2.PdfiumError:
        return False


def _date(value: str) -> str | None:
    found = re.match(r"(?:D:)?(\d{4})(\d{2})?(\d{2})?", value)
    return "-".join(part for part in found.groups() if part) if found else None
