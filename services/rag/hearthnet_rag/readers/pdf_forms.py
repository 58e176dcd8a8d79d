"""Texts filled into the forms of a PDF or typed over its pages, beside the pages' text."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Self

from hearthnet_rag.readers.document_builder import LARGEST_TEXT

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument, PdfPage

_MOST: Final = 5_000
"""Annotations read of one page."""
_MOST_STEPS: Final = 200_000
"""Annotations and options read of one file: pages may share them, so the file's size is no bound."""
_MOST_OPTIONS: Final = 200
_SEVERAL: Final = 1 << 21
_PASSWORD: Final = 1 << 13
_NO_VALUES: Final = frozenset({"OFF", "NO"})


class Forms:
    """The forms of one file, as a context manager; create it before the pages are opened.

    PDFium would draw the fields of each page that is opened: 46 s for a list of 800 options that are all
    chosen. Inside of the context it draws those of pages with check boxes and without lists.
    """

    def __init__(self, file: PdfDocument) -> None:
        import pypdfium2

        self._raw: Any = pypdfium2.raw
        self._buttons = (pypdfium2.raw.FPDF_FORMFIELD_CHECKBOX, pypdfium2.raw.FPDF_FORMFIELD_RADIOBUTTON)
        self._file = file
        self._form: Any = None
        self._is_drawn = False
        self._steps = 0
        self.read = 0
        """Characters read so far; repeated texts, shown once, count each time."""
        with contextlib.suppress(pypdfium2.PdfiumError):  # a broken form is ignored, and the text is read
            file.init_forms()
            self._form = None if file.formenv is None else file.formenv.raw
        self._environment, file.formenv = file.formenv, None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.formenv = self._environment  # which the file closes with itself

    def text(self, page: PdfPage) -> str:
        """Return a line `label: value` for each filled field of `page`, and each text over it."""
        lines = dict.fromkeys(line for line in self._lines(page) if line)
        return "\n".join(lines)

    def _lines(self, page: PdfPage) -> Iterator[str]:
        with contextlib.ExitStack() as stack:
            found = list(self._annotations(page, stack))
            stack.enter_context(self._drawn(page, found))
            for annotation in found:
                if self.read > LARGEST_TEXT:
                    return
                yield self._line(annotation)

    def _annotations(self, page: PdfPage, stack: contextlib.ExitStack) -> Iterator[Any]:
        raw = self._raw
        for number in range(min(raw.FPDFPage_GetAnnotCount(page.raw), _MOST)):
            if self._spent:
                return
            annotation = raw.FPDFPage_GetAnnot(page.raw, number)
            self._steps += 1
            if annotation:
                stack.callback(raw.FPDFPage_CloseAnnot, annotation)
                yield annotation

    @contextlib.contextmanager
    def _drawn(self, page: PdfPage, found: list[Any]) -> Iterator[None]:
        """Make PDFium draw the fields of `page`, without which it does not report values of check boxes."""
        raw, form = self._raw, self._form
        if len(found) < raw.FPDFPage_GetAnnotCount(page.raw) or not self._is_worth_drawing(found):
            yield
            return
        raw.FORM_OnAfterLoadPage(page.raw, form)
        self._is_drawn = True
        try:
            yield
        finally:
            self._is_drawn = False
            raw.FORM_OnBeforeClosePage(page.raw, form)

    def _is_worth_drawing(self, found: list[Any]) -> bool:
        if self._form is None:
            return False
        kinds = {self._raw.FPDFAnnot_GetFormFieldType(self._form, annotation) for annotation in found}
        return not kinds.isdisjoint(self._buttons) and self._raw.FPDF_FORMFIELD_LISTBOX not in kinds

    @property
    def _spent(self) -> bool:
        return self._steps >= _MOST_STEPS or self.read > LARGEST_TEXT

    def _line(self, annotation: Any) -> str:
        raw = self._raw
        if raw.FPDFAnnot_GetFlags(annotation) & (raw.FPDF_ANNOT_FLAG_HIDDEN | raw.FPDF_ANNOT_FLAG_NOVIEW):
            return ""
        kind = raw.FPDFAnnot_GetSubtype(annotation)
        if kind == raw.FPDF_ANNOT_FREETEXT:
            return self._string(lambda *room: raw.FPDFAnnot_GetStringValue(annotation, b"Contents", *room))
        if kind == raw.FPDF_ANNOT_WIDGET and self._form is not None:
            return self._field(annotation)
        return ""

    def _field(self, annotation: Any) -> str:
        value = self._value(annotation)
        if not value:
            return ""
        label = self._string_of("AlternateName", annotation) or self._string_of("Name", annotation)
        return f"{' '.join(label.split())}: {value}" if label else value

    def _value(self, annotation: Any) -> str:
        raw, form = self._raw, self._form
        kind = raw.FPDFAnnot_GetFormFieldType(form, annotation)
        if kind in self._buttons:
            return self._checked(annotation)
        if kind not in (
            raw.FPDF_FORMFIELD_TEXTFIELD,
            raw.FPDF_FORMFIELD_COMBOBOX,
            raw.FPDF_FORMFIELD_LISTBOX,
        ):
            return ""
        flags = raw.FPDFAnnot_GetFormFieldFlags(form, annotation)
        if kind == raw.FPDF_FORMFIELD_LISTBOX and flags & _SEVERAL:
            return self._chosen(annotation) or self._string_of("Value", annotation)
        if flags & _PASSWORD:
            return ""
        return self._string_of("Value", annotation)

    def _checked(self, annotation: Any) -> str:
        """Return the value of a check box or radio button, if it is checked."""
        raw, form = self._raw, self._form
        if not self._is_drawn:  # the name of its state, which may be a number
            chosen = self._string(lambda *room: raw.FPDFAnnot_GetStringValue(annotation, b"AS", *room))
        elif raw.FPDFAnnot_IsChecked(form, annotation):
            chosen = self._string_of("ExportValue", annotation) or self._string_of("Value", annotation)
        else:
            return ""
        return "" if chosen.upper() in _NO_VALUES else chosen

    def _chosen(self, annotation: Any) -> str:
        """Return all chosen options of a list, of which PDFium's value has only the first."""
        raw, form = self._raw, self._form
        chosen: list[str] = []
        for option in range(min(raw.FPDFAnnot_GetOptionCount(form, annotation), _MOST_OPTIONS)):
            self._steps += 1 + len(chosen)  # PDFium compares each option with all that are chosen
            if self._spent:
                break
            if raw.FPDFAnnot_IsOptionSelected(form, annotation, option):
                chosen.append(self._option(annotation, option))
        return ", ".join(filter(None, chosen))

    def _option(self, annotation: Any, number: int) -> str:
        raw, form = self._raw, self._form
        return self._string(lambda *room: raw.FPDFAnnot_GetOptionLabel(form, annotation, number, *room))

    def _string_of(self, what: str, annotation: Any) -> str:
        function = getattr(self._raw, f"FPDFAnnot_GetFormField{what}")
        return self._string(lambda *room: function(self._form, annotation, *room))

    def _string(self, read: Callable[..., int]) -> str:
        """Return a string of PDFium, which is UTF-16 with a final zero.

        `read` fills a buffer, and returns the size that it needs.
        """
        size = read(None, 0)
        if size <= 2:
            return ""
        import pypdfium2

        self.read += size // 2
        room = ctypes.create_string_buffer(size)
        read(ctypes.cast(room, ctypes.POINTER(pypdfium2.raw.FPDF_WCHAR)), size)
        return room.raw[: size - 2].decode("utf-16-le", "replace").strip()
