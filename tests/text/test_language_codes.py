"""What people call languages, as codes."""

from __future__ import annotations

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet.text.language_codes import meant


@pytest.mark.req("TRANS-3")
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("en", "en"),
        ("EN", "en"),
        (" en-GB ", "en"),
        ("pt_BR", "pt"),
        ("eng", "en"),
        ("English", "en"),
        ("low german", "nds"),
        ("nds", "nds"),
        ("zh-Hant-TW", "zh"),
    ],
)
def test_a_language_is_what_people_call_it(text: str, code: str) -> None:
    assert meant(text) == code


@pytest.mark.req("TRANS-3")
@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("spanisch", r"did you mean es \(Spanish\)"),
        ("qq", "take an ISO 639-1 code"),
        ("", "take an ISO 639-1 code"),
        ("auto", "no language has the code 'auto'"),
        ("qq-GB", "no language has the code 'qq-gb'"),
        ("x" * 5000, "'x{40}'"),
    ],
)
def test_what_is_none_is_refused_with_what_may_be_meant(text: str, hint: str) -> None:
    with pytest.raises(HearthNetError, match=hint) as caught:
        meant(text)
    assert caught.value.code == "bad_request"
    assert "\n" not in caught.value.message
