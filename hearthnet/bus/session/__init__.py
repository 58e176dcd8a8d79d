"""The signed and encrypted exchange of frames between member processes."""

from __future__ import annotations
