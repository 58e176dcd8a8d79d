"""Choosing one of the models that a server has."""

from __future__ import annotations

import contextlib
import os
import sys
import tty

import pytest

from hearthnet.cli.workflows import connect_model
from hearthnet.core.errors import UNCONFIRMED, HearthNetError

NAMES = [f"model-{number}" for number in range(60)]


@pytest.mark.req("CLI-30")
def test_nobody_is_asked_where_there_is_no_choice_or_no_terminal() -> None:
    assert connect_model._chosen(["only"], json=False) == "only"
    with pytest.raises(HearthNetError, match="no models yet"):
        connect_model._chosen([], json=False)
    for json in (True, False):
        with pytest.raises(
            HearthNetError, match=r"choose one with --model: model-0, .*, model-39 \.\.\.$"
        ) as refused:
            connect_model._chosen(NAMES, json=json)
        assert refused.value.exit_status == UNCONFIRMED
        assert refused.value.details == {"models": NAMES}


@pytest.mark.req("CLI-30")
@pytest.mark.parametrize(("typed", "chosen"), [("2", "model-1"), ("model-59", "model-59")])
def test_a_person_chooses_by_number_or_name(monkeypatch: pytest.MonkeyPatch, typed: str, chosen: str) -> None:
    outside, inside = os.openpty()
    tty.setcbreak(inside)
    os.write(outside, f"nonsense\n0\n61\n{typed}\n".encode())
    with os.fdopen(inside, "r") as keys, open(os.dup(inside), "w") as screen, monkeypatch.context() as here:
        here.setattr(sys, "stdin", keys)
        here.setattr(sys, "stdout", screen)
        assert connect_model._chosen(NAMES, json=False) == chosen
    said = b""
    with contextlib.suppress(OSError):  # the end of a terminal whose other end is closed
        while piece := os.read(outside, 65536):
            said += piece
    os.close(outside)
    lines = said.decode().splitlines()
    assert lines[:40] == [f"{number:3}  model-{number - 1}" for number in range(1, 41)]
    assert lines[40] == "     and 20 more; type the name of one"
    again = "type a number of the list, or a name in it"
    assert lines[41:] == [*[f"which one? {again}"] * 3, "which one? "]
