"""Content of any size in the object store, as chunks that are checked by their hash."""

from __future__ import annotations
