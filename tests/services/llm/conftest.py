"""The real model, loaded once, behind an engine of its own for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from hearthnet.models import llama
from hearthnet_llm import service
from hearthnet_llm.builtin import engine, model_file
from hearthnet_llm.builtin.backend import BuiltinBackend
from hearthnet_llm.builtin.engine import Engine
from hearthnet_llm.builtin.model_file import BUILT_IN

if TYPE_CHECKING:
    from xllamacpp import Server

SLOTS = 2
CTX = 1024
KEY = "sk-very-secret"
"""Of the HTTP endpoint."""


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """What starts waits until it has looked at its servers, however busy the machine is."""
    monkeypatch.setattr(service, "SETTLE_SECONDS", 20.0)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the built-in model."""
    return model_file.built_in(tmp_path_factory.mktemp("model") / "checked.json")


@pytest.fixture(scope="session")
def server(model: Path) -> Server:
    """The model in memory."""
    # Two threads wait for each other at each step: on a busy machine that takes twice the processor time.
    return engine.load(model, slots=SLOTS, ctx=CTX, threads=1)


@pytest_asyncio.fixture
async def loaded(server: Server) -> AsyncIterator[Engine]:
    """An engine over the loaded model."""
    made = Engine(server, SLOTS, CTX)
    yield made
    await made.close()


@pytest.fixture
def backend(loaded: Engine) -> BuiltinBackend:
    """The built-in model as the service uses it."""
    return BuiltinBackend(loaded, BUILT_IN)


@pytest.fixture(scope="session")
def endpoint(model: Path) -> Any:
    """llama.cpp's OpenAI-compatible HTTP endpoint, with a key."""
    xllamacpp = llama.library()
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.n_ctx, params.warmup, params.verbosity = 2048, False, 0
    params.cpuparams.n_threads = 1
    params.api_keys = [KEY]
    return xllamacpp.Server(params)
