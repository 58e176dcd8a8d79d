"""Runs the page's own library under Node.js, many questions a process."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from tests.helpers.leaving import leave_out

RUNNER = Path(__file__).with_name("library.mjs")


class Refusal(NamedTuple):
    """The library threw: its words, and the rule where it refused to sign."""

    words: str
    rule: str | None


def ask_all(questions: list[list[Any]]) -> list[Any]:
    """What the functions of library.mjs answer to `[name, *arguments]`; a `Refusal` where one threw."""
    node = shutil.which("node")
    if node is None:
        leave_out("there is no Node.js: make system-deps")
    done = subprocess.run(
        [node, str(RUNNER)], input=json.dumps(questions), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [
        Refusal(one["threw"], one.get("rule")) if "threw" in one else one.get("is")
        for one in json.loads(done.stdout)
    ]


def ask(name: str, *arguments: Any) -> Any:
    """One answer."""
    return ask_all([[name, *arguments]])[0]
