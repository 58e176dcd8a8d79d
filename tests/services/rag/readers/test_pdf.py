"""Reading PDF: pages, the outline as headings, and files that are locked, scanned, empty or broken."""

from __future__ import annotations

import re
from typing import Any

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet_rag.readers import pdf as reader
from hearthnet_rag.readers import pdf_forms, read_document
from hearthnet_rag.readers.documents import PDF, Pages
from tests.helpers.stopwatch import Stopwatch
from tests.services.rag.made import IMAGE, pdf

TEXT = "Wells\nA well gives clear water when it is lined with stone.\nKeep the cover closed."


def refusal(data: bytes) -> HearthNetError:
    with pytest.raises(HearthNetError) as caught:
        read_document(data, PDF, "scan.pdf")
    assert caught.value.code == "bad_request"
    assert "\n" not in caught.value.message
    return caught.value


@pytest.mark.req("RAG-31", "RAG-34")
def test_pages_title_outline_and_date() -> None:
    made = pdf(
        ["Front page of the book", f"1 {TEXT}", "Pumps\nA pump lifts water."],
        title="Water at home",
        outline=[("Wells", 1), ("Pumps", 2), ("Nowhere to be seen", 2)],
    )
    document = read_document(made, name="book.pdf")
    assert (document.title, document.date, document.media_type) == ("Water at home", "2024-02-29", PDF)
    assert [document.body[start:].split("\n")[0] for start in document.pages] == [
        "Front page of the book",
        "1 Wells",
        "Pumps",
    ]
    assert [(heading.text, heading.level) for heading in document.headings] == [
        ("Wells", 1),
        ("Pumps", 1),
        ("Nowhere to be seen", 1),
    ]
    assert [heading.start for heading in document.headings] == [
        document.pages[1],
        document.pages[2],
        document.pages[2],
    ]


@pytest.mark.req("RAG-34")
def test_words_broken_at_the_end_of_a_line_are_whole_again() -> None:
    body = read_document(pdf(["The rain-\nwater tank of the North-\nSouth house, and\nmore of it."])).body
    assert "rainwater tank" in body
    assert "North-South" in body


@pytest.mark.req("RAG-34")
def test_lines_that_stand_on_most_pages_are_left_out() -> None:
    pages = [
        f"Handbook, page {number}\nText {number * 11} of its own.\nPrinted at home" for number in range(1, 8)
    ]
    body = read_document(pdf(pages)).body
    assert "Handbook" not in body
    assert "Printed" not in body
    assert all(f"Text {number * 11} of its own." in body for number in range(1, 8))


@pytest.mark.parametrize("title", ["untitled", "Microsoft Word - draft", "soup.docx"])
def test_a_title_that_says_nothing_is_none(title: str) -> None:
    assert read_document(pdf([TEXT], title=title), name="wells.pdf").title == "wells"


@pytest.mark.req("RAG-35")
def test_a_scanned_pdf_is_refused_with_what_to_do() -> None:
    error = refusal(pdf([IMAGE] * 3))
    assert error.message.startswith("scan.pdf has 3 pages but no text in them: it was scanned.")
    assert "ocrmypdf" in error.message


@pytest.mark.req("RAG-35")
def test_pages_that_were_scanned_are_named_and_blank_ones_are_not() -> None:
    read = read_document(pdf([TEXT, b"", IMAGE, IMAGE, IMAGE, TEXT, IMAGE, TEXT * 2]))
    assert read.without_text == (Pages(3, 5), Pages(7, 7))
    assert len(read.pages) == 8
    assert read_document(pdf([TEXT, b""])).without_text == ()


def test_only_the_first_runs_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_MOST_RUNS", 2)
    assert read_document(pdf([TEXT, IMAGE] * 4)).without_text == (Pages(2, 2), Pages(4, 4))


@pytest.mark.req("RAG-35")
def test_a_pdf_with_nothing_in_it() -> None:
    assert refusal(pdf([b""])).message == "scan.pdf has 1 page and no text in them"


@pytest.mark.req("RAG-35")
def test_a_password_is_asked_for_only_where_there_is_one() -> None:
    assert "lined with stone" in read_document(pdf([TEXT], password="")).body
    assert "encrypted with a password" in refusal(pdf([TEXT], password="secret")).message


@pytest.mark.req("RAG-35")
@pytest.mark.parametrize("cut", [12, 200, 600])
def test_what_was_cut_off_is_refused(cut: int) -> None:
    assert "is broken, or was cut off" in refusal(pdf([TEXT])[:cut]).message


@pytest.mark.req("RAG-35")
def test_a_pdf_that_lost_its_table_is_read() -> None:
    made = pdf([TEXT])
    assert "lined with stone" in read_document(made[: made.index(b"startxref")]).body


@pytest.mark.req("RAG-35")
def test_limits_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MOST_PAGES", 2)
    assert refusal(pdf([TEXT] * 3)).details["limit"] == 2
    monkeypatch.setattr(reader, "MOST_PAGES", 10)
    monkeypatch.setattr(reader, "LARGEST_TEXT", 20)
    assert refusal(pdf([TEXT])).details["limit"] == 20


def test_progress_is_told_page_by_page() -> None:
    told: list[tuple[str, int, int]] = []
    reader.read(pdf([TEXT] * 3), None, lambda *how: told.append(how))
    assert told == [("reading pages", number, 3) for number in range(4)]


WIDGETS = (
    "/Subtype /Widget /FT /Tx /T (name) /TU (Name of the tenant) /V (Ada Lovelace)",
    "/Subtype /Widget /FT /Tx /T (rent) /V (\\376\\377\\0007\\0005\\0000\\000 \\040\\254)",
    "/Subtype /Widget /FT /Tx /T (pin) /Ff 8192 /V (secret)",
    "/Subtype /Widget /FT /Tx /T (hidden) /F 2 /V (unseen)",
    "/Subtype /Widget /FT /Tx /T (empty)",
    "/Subtype /Widget /FT /Ch /Ff 131072 /T (heating) /Opt [(gas) (district)] /V (district)",
    "/Subtype /Widget /FT /Btn /T (pets) /V /Allowed /AS /Allowed "
    "/AP << /N << /Allowed 3 0 R /Off 3 0 R >> >>",
    "/Subtype /Widget /FT /Btn /T (smoking) /V /Off /AS /Off /AP << /N << /On 3 0 R /Off 3 0 R >> >>",
    "/Subtype /FreeText /DA (/F1 11 Tf) /Contents (Keys handed over in May)",
)


@pytest.mark.req("RAG-38")
def test_values_of_a_filled_form_are_read() -> None:
    filled = read_document(pdf(["Lease of a flat"], annotations=WIDGETS), name="lease.pdf")
    assert filled.body.split("\n") == [
        "Lease of a flat",
        "",
        "Name of the tenant: Ada Lovelace",
        "rent: 750 €",
        "heating: district",
        "pets: Allowed",
        "Keys handed over in May",
    ]
    # A picture of a form with its fields filled in is no scan without text.
    assert "Ada Lovelace" in read_document(pdf([IMAGE], annotations=WIDGETS), name="scan.pdf").body


@pytest.mark.req("RAG-38")
def test_all_that_is_chosen_in_a_list_is_read() -> None:
    options = "/Opt [[(g) (Gas)] [(d) (District)] [(w) (Wood)]]"
    lists = (
        f"/Subtype /Widget /FT /Ch /Ff 2097152 /T (heating) {options} /V [(g) (w)]",
        "/Subtype /Widget /FT /Ch /Ff 2097152 /T (pets) /Opt [(cat) (dog) (none)] /V [(cat) (dog)]",
        "/Subtype /Widget /FT /Ch /Ff 2097152 /T (floor) /V (second)",
        "/Subtype /Widget /FT /Ch /Ff 2097152 /T (keys) /Opt [(one) (two)]",
    )
    body = read_document(pdf(["Lease of a flat"], annotations=lists)).body
    assert body.split("\n")[2:] == ["heating: Gas, Wood", "pets: cat, dog", "floor: second"]


@pytest.mark.req("RAG-35", "RAG-38")
def test_long_list_costs_little_and_check_boxes_beside_it_are_read() -> None:
    """PDFium took 46 s to draw this list, and minutes for the values of the other one."""
    options, wrong = " ".join(f"(o{n})" for n in range(800)), " ".join(f"(x{n})" for n in range(9000))
    lists = (
        f"/Subtype /Widget /FT /Ch /Ff 2097152 /T (all) /Opt [{options}] /V [{options}]",
        f"/Subtype /Widget /FT /Ch /Ff 2097152 /T (none) /Opt [{options}] /V [{wrong}]",
        f"/Subtype /Widget /FT /Ch /T (one) /Opt [{options}] /V (o7)",
    )
    watch = Stopwatch()
    body = read_document(pdf(["Lease of a flat"], annotations=(*lists, *WIDGETS))).body
    assert watch.seconds() < 3
    every, *others = body.split("\n")[2:]
    assert every == "all: " + ", ".join(f"o{n}" for n in range(200))
    assert others[1:3] == ["one: o7", "Name of the tenant: Ada Lovelace"]
    assert "pets: Allowed" in others
    assert not any(line.startswith("smoking") for line in others)


def shared(made: bytes, times: int) -> bytes:
    """The same file with the annotation of each page named `times` times there."""
    return re.sub(
        rb"/Annots \[(\d+ 0 R)\]", lambda found: b"/Annots [%s]" % ((found[1] + b" ") * times), made
    )


@pytest.mark.req("RAG-35")
@pytest.mark.parametrize(
    "field", ["/Widget /FT /Tx /T (m) /V (%s)", "/Widget /FT /Tx /T (%s) /V (a)", "/FreeText /Contents (%s)"]
)
def test_one_huge_field_that_is_named_often_is_refused(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    strings, read = 0, pdf_forms.Forms._string

    def counted(self: pdf_forms.Forms, function: Any) -> str:
        nonlocal strings
        strings += 1
        return read(self, function)

    monkeypatch.setattr(pdf_forms.Forms, "_string", counted)
    for module in (reader, pdf_forms):
        monkeypatch.setattr(module, "LARGEST_TEXT", 10_000)
    made = pdf([TEXT], annotations=("/Subtype " + field % ("x" * 4000),))
    assert len(read_document(shared(made, 2)).body) < 5000
    strings = 0
    assert refusal(shared(made, 5000)).details["limit"] == 10_000
    assert strings < 20, "the others are not read"


@pytest.mark.req("RAG-35")
def test_fields_that_pages_share_are_looked_at_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf_forms, "_MOST_STEPS", 25)
    pages = [f"Page {word} of it" for word in ("one", "two", "three")]
    made = shared(pdf(pages, annotations=("/Subtype /FreeText /Contents (Paid)",)), 10)
    assert read_document(made).body.count("Paid") == 3
    monkeypatch.setattr(pdf_forms, "_MOST_STEPS", 20)
    assert read_document(made).body.count("Paid") == 2


@pytest.mark.req("RAG-34")
def test_pages_of_nothing_but_repeated_lines_are_read() -> None:
    stamped = pdf(["Lease of a flat"] * 6, annotations=("/Subtype /FreeText /Contents (Paid)",))
    assert read_document(stamped).body.count("Lease of a flat") == 6
