"""The JSON that is passed in: what is wrong with it is named with its place."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from hearthnet.cli.input.json_input import read_json
from hearthnet.core.errors import HearthNetError

FORM = '{"params": {...}, "input": {...}}'
BODY = {"params": {}, "input": {"query": "Wasser für alle"}}
TEXT = '{"params": {}, "input": {"query": "Wasser für alle"}}'


def test_text_a_file_and_stdin_are_read_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "body.json"
    file.write_text(TEXT, encoding="utf-8-sig")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert [read_json(source, "--body", FORM) for source in (TEXT, f"@{file}", "-")] == [BODY] * 3


@pytest.mark.req("CLI-5")
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"params": {},\n "input": {,}}', "--body: line 2, column 12: "),
        ("", "--body: line 1, column 1: "),
        ('{"params": {}, "params": {}}', "--body: 'params' stands twice in one object; "),
        ('{"params": NaN}', "--body: NaN is not JSON; "),
        ("[" * 100_000, "--body: nested too deeply; "),
    ],
)
def test_malformed_json_names_the_place(text: str, complaint: str) -> None:
    with pytest.raises(HearthNetError) as caught:
        read_json(text, "--body", FORM)
    assert caught.value.code == "bad_request"
    assert caught.value.message.startswith(f"malformed JSON in {complaint}")
    assert caught.value.message.endswith('; it must be {"params": {...}, "input": {...}}')


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    missing = tmp_path / "nothing.json"
    with pytest.raises(HearthNetError) as caught:
        read_json(f"@{missing}", "--body", FORM)
    assert (caught.value.code, caught.value.message) == ("not_found", f"there is no file {missing}")


def test_a_file_that_is_no_text_or_no_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "bytes"
    file.write_bytes(b'{"a": "\xff"}')
    for source, message in (
        (f"@{file}", f"malformed JSON in {file}: byte 8 is not UTF-8"),
        (f"@{tmp_path}", f"cannot read {tmp_path}: Is a directory"),
        ("@", "--body names no file; write its name, or - for stdin"),
    ):
        with pytest.raises(HearthNetError) as caught:
            read_json(source, "--body", FORM)
        assert (caught.value.code, caught.value.message) == ("bad_request", message)
