"""References to waiting runs, in a protocol that has no runs.

A call of a client tool carries its run in its id, which comes back with the result. A notice of a call that
waits for a person is plain text, whose last line names the run; it comes back in the history that the
client sends.
"""

from __future__ import annotations

import re
from typing import Any, Final

from hearthnet.agent.tools.result_text import json_text
from hearthnet.core.ids import is_ulid

_CALL: Final = re.compile(r"run_(?P<run>[0-9A-Z]{26})_(?P<call>.+)", re.DOTALL)
_LAST_LINE: Final = re.compile(r"\[hearthnet run (?P<run>[0-9A-Z]{26})\]\s*\Z")
_LONGEST: Final = 2000


def call_id_for(run: str, tool_call_id: str) -> str:
    """Return the id of a client tool's call for the client."""
    return f"run_{run}_{tool_call_id}"


def run_and_call(call_id: str) -> tuple[str, str] | None:
    """Return the run and the call of `call_id`; None for an id that was not made here."""
    found = _CALL.fullmatch(call_id)
    return (found["run"], found["call"]) if found is not None and is_ulid(found["run"]) else None


def run_named_in(text: str) -> str:
    """Return the run that a message names in its last line, empty where it names none."""
    found = _LAST_LINE.search(text)
    return found["run"] if found is not None and is_ulid(found["run"]) else ""


def notice_of(suspended: dict[str, Any]) -> str:
    """Return the notice for a person that a run waits for approval, with the ways to give it."""
    run = suspended["run"]
    lines = ["This needs your approval. Nothing of it has been done yet:"]
    for one in suspended["pending"]:
        lines += ["", f"- {one['name']} would send {_shown(one['body'])}"]
        if one.get("problem"):
            lines.append(f"  ({one['problem']})")
        lines.append(f"  approve: hearthnet runs approve {run} {one['tool_call_id']}")
        lines.append(f"  refuse:  hearthnet runs deny {run} {one['tool_call_id']}")
    lines += [
        "",
        "Or decide on this node's page. Then send any message, and I go on.",
        f"[hearthnet run {run}]",
    ]
    return "\n".join(lines)


def _shown(body: dict[str, Any]) -> str:
    text = json_text(body)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... (the page shows all of it)"
