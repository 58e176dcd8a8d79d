"""What a document is, whatever it is called; and the processes that read what is no text."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from typing import Any

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet.service import WorkerPool, worker_pool, worker_process
from hearthnet.service.worker_process import (
    Accepted,
    Job,
    JobFailed,
    JobProgress,
    JobResult,
    Rejected,
    answer_decoder,
    receive,
    send,
)
from hearthnet_rag import readers as in_this_process
from hearthnet_rag.readers import document_builder, job, read_document
from hearthnet_rag.readers.content_type import kind_of
from hearthnet_rag.readers.documents import DOCX, HTML, MARKDOWN, PDF, PLAIN
from hearthnet_rag.readers.job import ReadJob, document_decoder, encoder
from hearthnet_rag.readers.pool import MEMORY_BYTES, ReaderPool
from tests.helpers.processes import child_environment
from tests.services.rag.made import docx, epub, paragraph, pdf

PAGE = b"<!doctype html><title>Soup</title><p>Boil it."
ALL = {
    "pdf": pdf(["Boil the soup for an hour."]),
    "html": PAGE,
    "docx": docx(paragraph("Boil the soup.")),
    "epub": epub({"a.xhtml": "<p>Boil the soup.</p>"}),
}


def refusal(data: bytes, media_type: str = PLAIN) -> str:
    with pytest.raises(HearthNetError) as caught:
        read_document(data, media_type, "file")
    assert caught.value.code == "bad_request"
    assert "\n" not in caught.value.message
    return caught.value.message


@pytest.mark.req("RAG-34")
def test_a_process_whose_time_is_up_takes_no_other_job(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = WorkerPool("builtins:len", memory_bytes=MEMORY_BYTES, seconds=60, places=1)
    first = []

    def answer(child: Any, *_: Any) -> bytes:
        first.append(child)
        if len(first) == 1:
            child._time_is_up()  # while its answer is being read
        return b"read"

    def failed(failure: str, exception: str) -> HearthNetError:
        return HearthNetError("bad_request", failure)

    monkeypatch.setattr(worker_pool._Child, "_run", answer)
    try:
        assert [pool.run(b"", failed) for _ in range(3)] == [b"read"] * 3
        assert first[0] is not first[1] is first[2]
    finally:
        pool.close()


@pytest.mark.req("RAG-34")
@pytest.mark.parametrize(
    ("data", "said", "kind"),
    [
        (ALL["pdf"], MARKDOWN, "pdf"),
        (b"\n\n" + ALL["pdf"], HTML, "pdf"),
        (ALL["docx"], PDF, "zip"),
        (PAGE, PLAIN, "html"),
        (b"\xef\xbb\xbf <!-- x -->\n<HTML>", MARKDOWN, "html"),
        ("<html>".encode("utf-16"), PLAIN, "html"),
        (b"<p>a part of a page", HTML, "html"),
        (b"<p>a part of a page", PLAIN, "plain"),
        (b"about %PDF-1.4 files", PLAIN, "pdf"),
        (b"# Soup", MARKDOWN, "markdown"),
        (b"# Soup", PDF, "plain"),
        (b"BM and MZ are letters, and so is GIF8", DOCX, "plain"),
    ],
)
def test_a_document_is_what_it_is(data: bytes, said: str, kind: str) -> None:
    assert kind_of(data, said, None) == kind


@pytest.mark.req("ATTACK-45")
@pytest.mark.parametrize(
    ("data", "seconds"),
    [
        (b"<!---->" * 1_000 + b"notes", 0.5),
        (b"a" * 3_000_000 + b" gr\xfcn", 10.0),
        (b"gr\xfcn" + b"1" * 3_000_000 + b"x", 10.0),
    ],
    ids=["comments", "a long word", "a long number"],
)
def test_no_text_takes_more_time_than_its_length(data: bytes, seconds: float) -> None:
    began = time.process_time()
    assert read_document(data, PLAIN, "notes.txt").body
    assert time.process_time() - began < seconds


@pytest.mark.req("ATTACK-45")
def test_a_text_of_another_is_looked_at_in_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_this_process, "kind_of", None)
    readers = ReaderPool()
    for media_type in (PLAIN, MARKDOWN):
        assert readers.read(b"# Soup", media_type, None, lambda *how: None).body == "# Soup"
    readers.close()


@pytest.mark.req("RAG-35")
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x89PNG\r\n\x1a\n\0", "is a PNG image"),
        (b"\x1f\x8b\x08\0", "is a gzip archive: unpack it first"),
        (b"\0\0\0\x20ftypisom", "is a sound, image or video file"),
        (b"{\\rtf1 Soup}", "is an RTF document: save it as DOCX or PDF"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0", "is an old Office document: save it as DOCX or PDF"),
        (
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "EncryptedPackage".encode("utf-16-le"),
            "is an Office document with a password",
        ),
        (b"\0\1\2", "is not text (it has NUL bytes)"),
        (b"", "is empty"),
        (b" \n", "is empty"),
        ("Maß".encode("utf-16") + b"\0", "is not UTF-16-LE text"),
        (b"\xff\xfea\0\0\0", "is not text (it has NUL bytes)"),
        (bytes(range(128, 256)) * 4, "is not UTF-8 text (byte 0)"),
    ],
)
def test_what_cannot_be_read_is_named(data: bytes, words: str) -> None:
    assert refusal(data).startswith(f"file {words}")


@pytest.mark.req("RAG-34")
@pytest.mark.parametrize(("encoding", "text"), [
    ("cp1252", "Über die Größe der Äpfel, süße Möhren und größere Körbe läßt sich fröhlich träumen. " * 6),
    *((each, "\ufeffGröße") for each in ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")),
])  # fmt: skip
def test_encodings_of_text(encoding: str, text: str) -> None:
    assert read_document(text.encode(encoding), PLAIN).body == text.removeprefix("\ufeff")


def ask(data: bytes) -> list[object]:
    """What the reading process answers to one job."""
    there, back = io.BytesIO(), io.BytesIO()
    send(there, Job(encoder.encode(ReadJob(data, PDF, "file")), 100_000))
    there.seek(0)
    assert worker_process.serve(there, back, job.read_job)
    assert not worker_process.serve(there, back, job.read_job)
    back.seek(0)
    answers = []
    while (answer := receive(back, 10_000_000)) is not None:
        answers.append(answer_decoder.decode(answer))
    return answers


@pytest.mark.req("RAG-36")
def test_the_reading_process_tells_how_far_it_is() -> None:
    took, first, last, read = ask(ALL["pdf"])
    assert (took, first, last) == (
        Accepted(),
        JobProgress("reading pages", 0, 1),
        JobProgress("reading pages", 1, 1),
    )
    assert isinstance(read, JobResult)
    assert document_decoder.decode(read.body) == read_document(ALL["pdf"], PDF, "file")


@pytest.mark.req("RAG-35")
@pytest.mark.parametrize(
    ("error", "answer", "words"),
    [
        (
            MemoryError(),
            JobFailed("MemoryError", memory=True),
            "takes more memory to read than there is for one document; split it",
        ),
        (
            ZeroDivisionError(),
            JobFailed("ZeroDivisionError", memory=False),
            "is broken: reading it ended with ZeroDivisionError",
        ),
        (
            HearthNetError("bad_request", "no", details={"limit": 1}),
            Rejected("bad_request", "no", {"limit": 1}),
            "",
        ),
    ],
)
def test_the_reading_process_answers_whatever_happens(
    monkeypatch: pytest.MonkeyPatch, error: Exception, answer: JobFailed | Rejected, words: str
) -> None:
    def fail(*given: object) -> None:
        raise error

    monkeypatch.setattr(job, "read_document", fail)
    assert ask(b"") == [Accepted(), answer]
    if isinstance(answer, JobFailed):
        assert ReaderPool()._reason("memory" if answer.memory else "crash", answer.exception) == words


@pytest.mark.parametrize("data", [b"", b"\0\0", b"\0\0\0\5ab", b"\xff\xff\xff\xff"])
def test_a_message_that_is_cut_off_is_none(data: bytes) -> None:
    assert receive(io.BytesIO(data), 100) is None


@pytest.mark.req("RAG-34")
def test_every_format_is_read_in_another_process_as_it_is_here() -> None:
    readers = ReaderPool()
    told: list[tuple[str, int, int]] = []
    for name, data in ALL.items():
        document = readers.read(data, PLAIN, name, lambda *how: told.append(how))
        assert document == read_document(data, PLAIN, name)
    assert ("reading pages", 1, 1) in told
    assert len(readers.workers._all) == 1
    assert readers.read(b"Boil it.", PLAIN, None, lambda *how: None).body == "Boil it."
    with pytest.raises(HearthNetError, match="PNG"):
        readers.read(b"\x89PNG\r\n\x1a\n\0", PDF, None, lambda *how: None)
    with pytest.raises(HearthNetError, match="is broken"):
        readers.read(b"%PDF-nothing", PDF, "x.pdf", lambda *how: None)
    readers.close()
    with pytest.raises(HearthNetError) as caught:
        readers.read(PAGE, HTML, None, lambda *how: None)
    assert caught.value.code == "partition"


@pytest.mark.req("RAG-35")
def test_a_process_that_ended_while_it_was_idle_is_replaced() -> None:
    readers = ReaderPool()
    readers.read(PAGE, HTML, None, lambda *how: None)
    [old] = readers.workers._all
    old._process.kill()
    old._process.wait()
    assert readers.read(PAGE, HTML, None, lambda *how: None).title == "Soup"
    assert old not in readers.workers._all
    readers.close()


@pytest.mark.req("RAG-35")
def test_a_document_that_takes_too_long_is_given_up_and_the_next_one_is_read() -> None:
    readers = ReaderPool(seconds=60.0)
    readers.read(PAGE, HTML, None, lambda *how: None)
    readers._seconds = readers.workers._seconds = 0.5
    with pytest.raises(HearthNetError, match="slow takes more than 0 seconds to read; split it"):
        readers.read(b"<html>" + b"<div>" * 200_000, HTML, "slow", lambda *how: None)
    readers._seconds = readers.workers._seconds = 60.0
    assert readers.read(PAGE, HTML, None, lambda *how: None).title == "Soup"
    readers.close()


@pytest.mark.req("RAG-35")
def test_a_process_that_dies_over_a_document_costs_that_document() -> None:
    readers = ReaderPool()
    long = pdf(["One of very many pages, each with some text on it."] * 2000)

    def kill(stage: str, current: int, total: int) -> None:
        for one in readers.workers._all:
            one._process.kill()

    with pytest.raises(HearthNetError, match="deadly is broken, or takes too much to read") as caught:
        readers.read(long, PDF, "deadly", kill)
    assert caught.value.code == "bad_request"
    assert readers.read(PAGE, HTML, None, lambda *how: None).title == "Soup"
    readers.close()


@pytest.mark.req("RAG-35")
def test_a_service_that_stops_does_not_wait_for_a_document() -> None:
    readers = ReaderPool()
    long = pdf(["One of very many pages, each with some text on it."] * 2000)
    told: list[tuple[str, int, int]] = []

    def close(*how: Any) -> None:
        told.append(how)
        readers.close()

    with pytest.raises(HearthNetError) as caught:
        readers.read(long, PDF, None, close)
    assert caught.value.code == "partition"
    assert told == [("reading pages", 0, 2000)], "the other pages are waited for"


def test_without_a_process_that_starts_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    readers = ReaderPool()
    with pytest.raises(HearthNetError, match="cannot be started") as caught:
        readers.read(PAGE, HTML, None, lambda *how: None)
    assert caught.value.code == "internal_error"
    readers.close()


@pytest.mark.req("RAG-35")
def test_the_reading_process_ends_with_its_input() -> None:
    there = io.BytesIO()
    send(there, Job(encoder.encode(ReadJob(PAGE, HTML, "soup")), 60))
    program = [sys.executable, "-m", "hearthnet.service.worker_process"]
    command = [*program, "hearthnet_rag.readers.job:read_job", str(MEMORY_BYTES)]
    done = subprocess.run(
        command, input=there.getvalue(), capture_output=True, env=child_environment(), timeout=60, check=True
    )
    back = io.BytesIO(done.stdout)
    assert answer_decoder.decode(receive(back, 10_000) or b"") == Accepted()
    read = answer_decoder.decode(receive(back, 10_000) or b"")
    assert isinstance(read, JobResult)
    assert document_decoder.decode(read.body).title == "Soup"
    assert back.read() == b""


@pytest.mark.req("RAG-35")
def test_a_text_is_bounded_in_length_and_headings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_builder, "LARGEST_TEXT", 10)
    monkeypatch.setattr(document_builder, "MOST_HEADINGS", 1)
    built = document_builder.Builder("file")
    built.heading(1, "  ")
    built.block(" ")
    with pytest.raises(HearthNetError, match="has no text in it"):
        built.finish(HTML)
    built.heading(1, "A")
    with pytest.raises(HearthNetError, match="more than 1 headings"):
        built.heading(2, "B")
    with pytest.raises(HearthNetError, match="more than 10 characters") as caught:
        built.block("too much")
    assert caught.value.details["limit"] == 10


def test_text_that_is_blank_but_for_a_mark() -> None:
    assert refusal(b"\xef\xbb\xbf \n") == "file has no text in it"
