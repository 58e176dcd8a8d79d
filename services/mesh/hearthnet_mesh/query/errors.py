"""The error of a refused query."""

from __future__ import annotations

from hearthnet import HearthNetError


def rejected(gate: str, message: str) -> HearthNetError:
    """Return the error of a check, for its caller to raise.

    The error is a fault of the query. `gate` names the check; `message` gives the fault and the remedy.
    """
    return HearthNetError(
        "bad_request", f"refused by gate {gate!r}: {message}", details={"path": "/input/sql", "gate": gate}
    )
