"""The status of a call, as a code and as text for people (docs/tools.md, "Frames")."""

from __future__ import annotations

from typing import Any, Final

from hearthnet.agent.loop.state import CallState
from hearthnet.agent.tools.types import CallStanding

TEXTS: Final[dict[CallStanding, str]] = {
    "pending": "{name} is about to run",
    "waiting": "{name} waits until somebody agrees to it",
    "wanted": "{name} waits for the device that asked",
    "running": "{name} is running",
    "completed": "{name} is done",
    "cached": "{name} was asked before; its result is used again",
    "failed": "{name} failed",
    "refused": "{name} was not run, because the call was not right or came too late",
    "denied": "{name} was not run: somebody said no",
    "expired": "{name} was not run: nobody decided in time",
    "cancelled": "{name} was stopped",
    "outcome_unknown": "{name} may or may not have happened; please look yourself",
}


def status_frame(call: CallState, status: CallStanding) -> dict[str, Any]:
    """Return the data of the `tool_status` frame."""
    text = TEXTS[status].format(name=call.name)
    return {"tool_call_id": call.id, "name": call.name, "status": status, "text": text}
