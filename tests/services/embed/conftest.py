"""The built-in model, loaded once for each process of the tests that need it."""

from __future__ import annotations

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet_embed import service
from hearthnet_embed.minilm import files
from hearthnet_embed.minilm.files import Files
from hearthnet_embed.minilm.model import Model
from tests.helpers.leaving import leave_out


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """What starts waits until it has looked at its servers, however busy the machine is."""
    monkeypatch.setattr(service, "SETTLE_SECONDS", 20.0)


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The files of the built-in model; a test that needs them is left out where they are not."""
    try:
        return files.checked_files(tmp_path_factory.mktemp("minilm"))
    except HearthNetError as error:
        leave_out(error.message)


@pytest.fixture(scope="session")
def minilm(installed: Files) -> Model:
    """The built-in model on one core."""
    return Model(installed, 1)
