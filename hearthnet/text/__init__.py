"""Language detection and splitting of text."""

from __future__ import annotations
