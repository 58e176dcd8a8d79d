"""A wrapper that replaces itself by a program which dies with the supervisor.

Run it as a script: `python -I -S parent_death.py PID PROGRAM ARGUMENT...`, where PID is the supervisor's.
It is a program of its own and not code between fork and exec, because the supervisor has threads. Only Linux
has a parent-death signal; on other systems the services notice the end of the supervisor by their lifeline
(`hearthnet.service.hosting.status`).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def die_with(parent: int) -> bool:
    """Request SIGKILL at the death of the parent; return False if `parent` is dead already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # Checked after the request, so that a parent that died in between is noticed.
    return os.getppid() == parent


def main(arguments: list[str]) -> int:
    """Replace this process; return an exit status only where that fails."""
    parent, program = int(arguments[0]), arguments[1:]
    if not die_with(parent):
        return 1
    try:
        os.execv(program[0], program)
    except OSError as error:
        sys.stderr.write(f"cannot start {program[0]}: {error.strerror}\n")
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
