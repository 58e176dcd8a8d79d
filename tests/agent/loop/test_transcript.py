"""What the model reads (docs/tools.md, "Results are data")."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.agent.tools.result_text import MAX_MESSAGE, error_text, fit, json_text


@pytest.mark.req("TOOL-13")
@given(st.text(), st.integers(200, 400))
def test_a_result_never_exceeds_its_limit_and_stays_json(text: str, limit: int) -> None:
    whole = json_text({"text": text * 20})
    shown = fit(whole, limit)
    assert len(shown.encode("utf-8")) <= limit
    if len(whole.encode("utf-8")) <= limit:
        assert shown == whole
    else:
        assert whole.startswith(json.loads(shown)["head"])


def test_as_much_as_fits_is_shown() -> None:
    assert len(fit(json_text("a" * 1000), 500)) == 500


def test_an_error_is_one_line_of_bounded_length() -> None:
    text = error_text("internal_error", "a\n\nb\tc " + "x" * 5000)
    assert text.startswith("internal_error: a b c xxx")
    assert len(text) == len("internal_error: ") + MAX_MESSAGE
