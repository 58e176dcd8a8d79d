"""The file service: content by its hash, put and read in chunks (docs/file.md)."""

from __future__ import annotations

from hearthnet_file.service import FileService

__all__ = ["FileService"]
