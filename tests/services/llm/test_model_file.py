"""Finding and checking the model's file."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from hearthnet.core.config import LlmConfig
from hearthnet.core.errors import HearthNetError
from hearthnet_llm.builtin import model_file
from hearthnet_llm.builtin.model_file import ModelLocator, of_file

pytestmark = pytest.mark.req("LLM-3")


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the package is said to have its file; nothing is there yet."""
    file = tmp_path / "there" / "model.gguf"
    file.parent.mkdir()
    monkeypatch.setattr(model_file, "packaged", lambda: file)
    return file


def refusal(memory: Path) -> str:
    """What is said of the built-in model's file."""
    with pytest.raises(HearthNetError) as refused:
        model_file.built_in(memory)
    assert refused.value.code == "not_implemented"
    assert "\n" not in refused.value.message
    return refused.value.message


def test_the_installed_file_is_the_pinned_one_and_the_check_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = tmp_path / "data" / "checked.json"
    file = model_file.built_in(memory)
    assert file.stat().st_size == model_file.SIZE
    monkeypatch.setattr(model_file, "SHA256", "another")
    assert model_file.built_in(memory) == file
    memory.write_text("damaged")
    assert "damaged" in refusal(memory)


def test_a_missing_file_is_said_with_what_to_do(packaged: Path, tmp_path: Path) -> None:
    assert "hearthnet models install" in refusal(tmp_path / "memory")


def test_a_package_that_is_not_there_is_said_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_file, "PACKAGE", "no-such-package-at-all")
    assert model_file.packaged() is None
    assert ModelLocator(LlmConfig(), tmp_path).look() is None
    assert "not installed" in refusal(tmp_path / "memory")


def test_a_damaged_file_is_not_used(packaged: Path, tmp_path: Path) -> None:
    packaged.write_bytes(b"GGUF and not much else")
    assert "damaged" in refusal(tmp_path / "memory")


def test_a_file_of_the_right_size_is_hashed(
    packaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged.write_bytes(b"12345")
    monkeypatch.setattr(model_file, "SIZE", 5)
    assert "damaged" in refusal(tmp_path / "memory")


def test_a_chosen_file_must_be_a_gguf_file(tmp_path: Path) -> None:
    file = tmp_path / "My-Model.gguf"
    box = ModelLocator(LlmConfig(model_file=str(file)), tmp_path / "memory")
    assert box.look() is None
    with pytest.raises(HearthNetError, match="No such file"):
        box.check()
    file.write_bytes(b"no model")
    with pytest.raises(HearthNetError, match="no GGUF file"):
        box.check()
    file.write_bytes(b"GGUFxx")
    assert box.check() == file
    assert box.look() is not None
    assert of_file(file).model == "my-model"


def test_a_file_that_cannot_be_read_is_said_with_the_reason(
    packaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged.mkdir()
    monkeypatch.setattr(model_file, "SIZE", packaged.stat().st_size)
    assert "Is a directory" in refusal(tmp_path / "memory")


@pytest.mark.parametrize("remembered", [True, False])
def test_a_check_that_cannot_be_remembered_is_made_again(
    packaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remembered: bool
) -> None:
    """Another file that looks the same shows whether it is read again."""
    packaged.write_bytes(b"12345")
    monkeypatch.setattr(model_file, "SIZE", 5)
    monkeypatch.setattr(model_file, "SHA256", hashlib.sha256(b"12345").hexdigest())
    (tmp_path / "file").touch()
    memory = tmp_path / ("folder" if remembered else "file") / "checked.json"
    assert model_file.built_in(memory) == packaged
    before = packaged.stat()
    packaged.write_bytes(b"54321")
    os.utime(packaged, ns=(before.st_atime_ns, before.st_mtime_ns))
    if remembered:
        assert model_file.built_in(memory) == packaged
    else:
        assert "damaged" in refusal(memory)
