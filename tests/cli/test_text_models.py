"""What `hearthnet models` writes and says of a model that calls tools in its text."""

from __future__ import annotations

from typing import Any

import pytest

from hearthnet.cli.input import settings_file
from hearthnet.cli.workflows import connect_model
from hearthnet.cli.workflows.connect_model import _config, _show
from hearthnet.core.config_loader import load_config
from hearthnet.core.home import Home

TESTED: dict[str, Any] = {
    "model": "m", "tool_call": True, "answered": True, "ms": 12, "ctx": 4096, "tools": True, "vision": False,
    "requires_internet": False, "problem": "", "tool_mode": "text",
}  # fmt: skip
CHECKED: dict[str, Any] = {
    "kind": "openai",
    "url": "http://127.0.0.1:1/v1",
    "api_key_env": None,
    "tested": TESTED,
}
WISH = {"name": "plain", "model": "m"}


@pytest.mark.req("LLM-61")
def test_a_model_that_writes_its_calls_is_connected_as_one(home: Any, capsys: Any) -> None:
    model = _config(CHECKED, WISH)
    assert model.tools == "text"
    settings_file.insert(Home(home), model)
    assert load_config(Home(home)).llm.models == (model,)
    _show(model, TESTED)
    assert "tools: written in its text, since it has no calls of its own\n" in capsys.readouterr().out
    assert connect_model._as_json(model, TESTED, {"there": True, "problem": ""})["tool_mode"] == "text"


@pytest.mark.req("LLM-61")
def test_what_a_person_said_of_it_stays(capsys: Any) -> None:
    asked = _config(CHECKED, {**WISH, "tools": True})
    assert asked.tools is True
    _show(asked, TESTED)
    assert 'to use that set tools = "text" for it in hearthnet.toml' in capsys.readouterr().out
    mute = _config({**CHECKED, "tested": {**TESTED, "tool_call": False, "tool_mode": "none"}}, WISH)
    assert mute.tools is False
