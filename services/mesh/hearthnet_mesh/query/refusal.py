"""How a gate says no."""

from __future__ import annotations

from hearthnet.errors import HearthNetError


def refused(gate: str, message: str) -> HearthNetError:
    """`bad_request` that names the gate, and says in `message` what is wrong and what to do."""
    return HearthNetError(
        "bad_request", f"refused by gate {gate!r}: {message}", details={"path": "/input/sql", "gate": gate}
    )
