"""The command line; heavy imports are inside functions.

See: docs/cli.md.
"""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command in `sys.argv` and return its exit code; the entry point `hearthnet`."""
    try:
        from hearthnet.cli.entry_point import run

        return run(sys.argv[1:])
    except KeyboardInterrupt:  # during the import; `run` handles it afterwards
        return 130
