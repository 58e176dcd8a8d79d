"""The command line: one module a command, thin, and heavy imports only inside functions (docs/cli.md)."""

from __future__ import annotations

import sys


def main() -> int:
    """The entry point `hearthnet`: runs the command in `sys.argv` and returns its exit code."""
    try:
        from hearthnet.cli.run import run

        return run(sys.argv[1:])
    except KeyboardInterrupt:  # while it was still being loaded; `run` answers for the rest
        return 130
