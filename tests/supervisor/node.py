"""A node whose services are doubles: `python node.py HOME READY_FILE NAME=BEHAVIOUR...` (see double.py).

Without any NAME=BEHAVIOUR it runs the installed services, as the settings say; `-` stands for no ready-file.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.supervisor import ChildSpec, run

DOUBLE = Path(__file__).with_name("double.py")


def main(home: str, ready_file: str, *services: str) -> int:
    """Runs the node as the command does: an error is one line and an exit code."""
    specs = []
    for service in services:
        name, _, behaviour = service.partition("=")
        specs.append(ChildSpec(name, (sys.executable, str(DOUBLE), *behaviour.split(","))))
    try:
        return run(
            Home(Path(home)),
            None if ready_file == "-" else Path(ready_file),
            specs=specs if services else None,
        )
    except HearthNetError as error:
        sys.stderr.write(f"{error.message}\n")
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
