"""Build one wheel each of the library and its services: `python -m tools.build_wheels FOLDER`.

All in one process, with the build backend that is installed: pip makes an environment for each, which takes a
minute.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hatchling.build import build_wheel

ROOT = Path(__file__).resolve().parent.parent


def projects() -> list[Path]:
    """Return the folders of the projects, the library's first."""
    return [ROOT, *sorted(file.parent for file in ROOT.glob("services/*/pyproject.toml"))]


def main(folder: str) -> int:
    """Replace the wheels of the projects in `folder`, and print their names."""
    into = Path(folder).resolve()
    into.mkdir(parents=True, exist_ok=True)
    for project in projects():
        os.chdir(project)
        print(into / build_wheel(str(into)))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
