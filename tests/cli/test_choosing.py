"""Choosing one of the models that a server has."""

from __future__ import annotations

import click
import pytest

from hearthnet.cli.output import terminal
from hearthnet.cli.workflows import connect_model
from hearthnet.core.errors import UNCONFIRMED, HearthNetError

NAMES = [f"model-{number}" for number in range(60)]


@pytest.mark.req("CLI-30")
def test_nobody_is_asked_where_there_is_no_choice_or_no_terminal() -> None:
    assert connect_model._chosen(["only"], json=False) == "only"
    with pytest.raises(HearthNetError, match="no models yet"):
        connect_model._chosen([], json=False)
    with pytest.raises(HearthNetError, match="choose one with --model") as refused:
        connect_model._chosen(NAMES, json=True)
    assert refused.value.exit_status == UNCONFIRMED


@pytest.mark.req("CLI-30")
@pytest.mark.parametrize(("typed", "chosen"), [("2", "model-1"), ("model-59", "model-59")])
def test_a_person_chooses_by_number_or_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str, chosen: str
) -> None:
    answers = iter(["nonsense", "0", typed])
    monkeypatch.setattr(terminal, "screen", lambda: object())
    monkeypatch.setattr(click, "prompt", lambda *given, **named: next(answers))
    assert connect_model._chosen(NAMES, json=False) == chosen
    said = capsys.readouterr().out
    assert "  1  model-0" in said
    assert said.count("type a number of the list") == 2
