"""Ids derived from a run and one of its calls, by which repetitions are recognized.

See: docs/protocol/agent.md#ids.
"""

from __future__ import annotations

from hearthnet.core.canonical_json import derived_id


def client_id_of(run: str, tool_call_id: str) -> str:
    """Return the idempotency key of a call: equal for its repetitions, else different."""
    return derived_id("client", run, tool_call_id)


def confirmation_id_of(run: str, tool_call_id: str) -> str:
    """Return the id of the question to a person about a call."""
    return derived_id("confirmation", run, tool_call_id)
