"""Damage as a disk does it: a bit that changed in a file of JetStream."""

from __future__ import annotations

from pathlib import Path


def flip(folder: Path, needle: bytes) -> None:
    """Flips a bit in the middle of `needle` where it was written last below `folder`."""
    for block in sorted(folder.rglob("*.blk"), key=lambda path: int(path.stem), reverse=True):
        at = block.read_bytes().rfind(needle)
        if at >= 0:
            at += len(needle) // 2
            with block.open("r+b") as file:
                file.seek(at)
                (byte,) = file.read(1)
                file.seek(at)
                file.write(bytes([byte ^ 1]))
            return
    raise AssertionError(f"{needle[:40]!r} stands in no block below {folder}")
