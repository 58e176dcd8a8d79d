"""Which files a person means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hearthnet.cli.input.text_files import TextFile, find
from hearthnet.core.errors import HearthNetError


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    (folder / "deep").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    for name in ("b.MD", "a.txt", "deep/c.markdown", "picture.png", "book.PDF", ".secret.md", ".hidden/x.md"):
        (folder / name).write_text("text")
    return folder


@pytest.mark.req("CLI-9")
def test_folders_give_their_texts_in_order_and_the_rest_is_named(docs: Path) -> None:
    found = find([docs])
    assert [file.name for file in found.texts] == [
        "docs/a.txt",
        "docs/b.MD",
        "docs/book.PDF",
        "docs/deep/c.markdown",
    ]
    assert [file.media_type for file in found.texts] == [
        "text/plain",
        "text/markdown",
        "application/pdf",
        "text/markdown",
    ]
    assert found.skipped == [str(docs / "picture.png")]


def test_a_named_file_is_taken_whatever_it_is_called_and_nothing_twice(docs: Path) -> None:
    found = find([docs / "picture.png", docs, docs / "a.txt", docs / "deep" / ".." / "b.MD"])
    assert [file.name for file in found.texts] == [
        "picture.png",
        "docs/a.txt",
        "docs/b.MD",
        "docs/book.PDF",
        "docs/deep/c.markdown",
    ]


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(HearthNetError, match="there is no file or folder") as caught:
        find([tmp_path / "nothing"])
    assert caught.value.exit_status == 5


@pytest.mark.req("CLI-9")
def test_an_empty_file_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_bytes(b" \n")
    with pytest.raises(HearthNetError) as caught:
        TextFile(path, path.name).read()
    assert (caught.value.code, caught.value.message) == ("bad_request", "file.txt is empty")


@pytest.mark.req("CLI-9")
@pytest.mark.timeout(60)
def test_what_might_never_end_is_refused_and_not_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.md"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        (found,) = find([path]).texts
        with pytest.raises(HearthNetError, match="is no file but a pipe") as caught:
            found.read()
        assert caught.value.code == "bad_request"


@pytest.mark.req("CLI-9")
def test_a_file_that_is_too_large_is_refused_and_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "large.txt"
    path.write_bytes(b"x" * 4001)
    with monkeypatch.context() as unread:
        unread.setattr(Path, "read_bytes", lambda path: pytest.fail(f"{path} was read"))
        with pytest.raises(HearthNetError) as caught:
            TextFile(path, path.name).read(4000)
    assert caught.value.message == "large.txt has 4,001 bytes; a document may have 4,000: split it"
    path.write_bytes(b"x" * 4000)
    assert len(TextFile(path, path.name).read(4000)) == 4000


def test_a_file_that_went_away_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HearthNetError, match="cannot be read: No such file"):
        TextFile(tmp_path / "gone.md", "gone.md").read()
