"""Ids that follow from a run and one of its calls, so that repetitions are known.

See: docs/protocol/agent.md#ids.
"""

from __future__ import annotations

from hearthnet.canonical import derived_id


def client_id(run: str, tool_call_id: str) -> str:
    """The idempotency key of a call: the same for every repetition of this call, and for no other."""
    return derived_id("client", run, tool_call_id)


def confirmation_id(run: str, tool_call_id: str) -> str:
    """The id under which a person is asked about a call."""
    return derived_id("confirmation", run, tool_call_id)
