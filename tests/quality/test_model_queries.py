"""The built-in model's own queries find the right document.

See: docs/models.md#the-twenty-questions.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from hearthnet.core.config import LlmConfig
from hearthnet_llm.builtin.backend import BuiltinBackend
from hearthnet_llm.builtin.engine import Engine
from hearthnet_llm.builtin.model_file import ModelLocator
from tests.quality.measure_queries import found, measure, questions, starter_index

PROMISED = 18


@pytest.mark.asyncio
@pytest.mark.timeout(300)
@pytest.mark.req("LLM-13")
async def test_eighteen_of_twenty_questions_are_found(tmp_path: Path) -> None:
    box = ModelLocator(LlmConfig(), tmp_path / "model-checked.json")
    file = box.check()
    profile = box.profile(file)
    backend = BuiltinBackend(Engine(box.load(file), 2, profile.ctx), profile)
    with contextlib.closing(starter_index(tmp_path / "index")) as index:
        outcome = await measure(backend, index, questions())
    await backend.aclose()
    missed = [str(one) for one in outcome if not found([one.place])]
    assert len(outcome) - len(missed) >= PROMISED, "\n".join(missed)
