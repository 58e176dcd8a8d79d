"""Options, arguments and questions."""

from __future__ import annotations
