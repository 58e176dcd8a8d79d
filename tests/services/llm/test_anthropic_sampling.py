"""Temperature and its kin: sent where the model takes them, as others behind servers of this wire do."""

from __future__ import annotations

import pytest

from hearthnet.core.config import ModelConfig
from hearthnet_llm.backends import backend_kinds
from hearthnet_llm.vendors import anthropic
from hearthnet_llm.vendors.wire import Target
from tests.services.llm.asking import ASKED

pytestmark = pytest.mark.req("LLM-30")


@pytest.mark.parametrize(
    ("url", "model", "takes"),
    [
        ("https://api.anthropic.com/v1", "claude-haiku-4-5", True),
        ("https://api.anthropic.com/v1", "claude-opus-4-8", False),
        ("https://api.anthropic.com/v1", "some-new-name", False),
        ("http://127.0.0.1:8080/v1", "qwen3-8b", True),
        ("http://127.0.0.1:8080/v1", "claude-opus-4-8", False),
        ("https://gateway.example/v1", "anthropic/claude-sonnet-4.5", True),
        ("https://gateway.example/v1", "anthropic/claude-sonnet-4.7", False),
    ],
)
def test_a_temperature_goes_where_it_is_taken(url: str, model: str, takes: bool) -> None:
    config = ModelConfig(kind="anthropic", name="m", url=url, model=model)
    body = anthropic.encode(ASKED, backend_kinds.target(config)).body
    assert ("temperature" in body) == takes


@pytest.mark.parametrize(("version", "takes"), [("", True), ("2023-06-01", True), ("2026-10-21", False)])
def test_the_newest_version_takes_none(version: str, takes: bool) -> None:
    target = Target("claude-haiku-4-5", api_version=version)
    assert ("temperature" in anthropic.encode(ASKED, target).body) == takes
