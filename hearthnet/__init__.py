"""HearthNet: the computers of a community share what they can do."""

from __future__ import annotations

from typing import Final

__version__: Final = "0.1.0"
