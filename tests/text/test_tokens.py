"""The estimate of tokens."""

from __future__ import annotations

import pytest

from hearthnet.text.tokens import CHARACTERS_THAT_FIT, estimate_tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("a", 1), ("abcd", 2), ("x" * 350, 100), ("ü" * 350, 100), ("水" * 200, 100)],
)
def test_estimate_by_script_is_rounded_up(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


def test_characters_that_fit_are_fewer_than_estimated() -> None:
    assert estimate_tokens("x" * 100 * CHARACTERS_THAT_FIT) < 100
