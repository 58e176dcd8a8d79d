"""The JSON that is passed in: what is wrong with it is named with its place."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from hearthnet.cli.input.json_input import read_body
from hearthnet.core.errors import HearthNetError

BODY = {"params": {}, "input": {"query": "Wasser für alle"}}
TEXT = '{"params": {}, "input": {"query": "Wasser für alle"}}'


def test_text_a_file_and_stdin_are_read_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "body.json"
    file.write_text(TEXT, encoding="utf-8-sig")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert read_body(TEXT) == read_body(f"@{file}") == read_body("-") == BODY


@pytest.mark.req("CLI-5")
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"params": {},\n "input": {,}}', "--body: line 2, column 12: "),
        ("", "--body: line 1, column 1: "),
        ('{"params": {}, "params": {}}', "'params' stands twice in one object"),
        ('{"params": NaN}', "NaN is not JSON"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_malformed_json_names_the_place(text: str, complaint: str) -> None:
    with pytest.raises(HearthNetError) as caught:
        read_body(text)
    assert caught.value.code == "bad_request"
    assert complaint in caught.value.message
    assert caught.value.message.startswith("malformed JSON in ")


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(HearthNetError, match="there is no file") as caught:
        read_body(f"@{tmp_path / 'nothing.json'}")
    assert caught.value.code == "not_found"


def test_a_file_that_is_no_text_or_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(HearthNetError, match="byte 8 is not UTF-8"):
        read_body(f"@{tmp_path / 'bytes'}")
    with pytest.raises(HearthNetError, match="cannot read"):
        read_body(f"@{tmp_path}")
    with pytest.raises(HearthNetError, match="names no file"):
        read_body("@")
