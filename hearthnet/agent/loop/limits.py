"""The limits of a run, and the texts for calls that exceed them.

See: docs/protocol/agent.md#limits.
"""

from __future__ import annotations

from typing import Final

from hearthnet.agent.loop.state import Limits, RunState
from hearthnet.agent.tools.result_text import error_text

REPEATED: Final = "repeated_call"


def exceeded_limit(state: RunState) -> str:
    """Return the limit that ends the calling of tools after this turn, or an empty string.

    `max_calls` and `wall_clock` are set in the middle of a turn, where they are exceeded.
    """
    limits = state.limits
    if state.limit:
        return state.limit
    if state.iteration >= limits.max_iterations:
        return "max_iterations"
    if state.tokens_in + state.tokens_out >= limits.max_tokens:
        return "max_tokens"
    if state.calls and all(call.excessive for call in state.calls):
        return "max_equal_calls"
    return ""


def limit_text(limit: str, limits: Limits) -> str:
    """Return a limit in words, to follow "the limit of"."""
    words = {
        "max_iterations": f"{limits.max_iterations} rounds of tool calls",
        "max_calls": f"{limits.max_calls} tool calls",
        "max_tokens": f"{limits.max_tokens} tokens",
        "max_equal_calls": f"{limits.max_equal_calls} equal tool calls",
        "wall_clock": f"{limits.wall_clock_ms // 1000} seconds",
    }
    return words[limit]


def refusal_text(state: RunState) -> str:
    """Return the result of a call that a limit forbids."""
    return error_text("budget_exhausted", f"not run; the limit {state.limit} is reached")


def repetition_text(limits: Limits) -> str:
    """Return the result of a call that was made too often."""
    return error_text(
        REPEATED, f"not run; the same call was made {limits.max_equal_calls} times: use the result it had"
    )
