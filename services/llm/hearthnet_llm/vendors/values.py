"""Values that some wires want as text and others as they are."""

from __future__ import annotations

import json
from typing import Any


def as_text(value: Any) -> str:
    """Compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
