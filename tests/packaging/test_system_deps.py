"""`make system-deps` installs what is missing and only that; the package manager here just says its calls."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.processes import bare_environment

ROOT = Path(__file__).resolve().parent.parent.parent
_APT = '#!/bin/sh\necho "apt-get $*"\n'
_DPKG = '#!/bin/sh\ncase "$*" in *make*) echo "install ok installed";; *) exit 1;; esac\n'


def install(folder: Path, packages: str, node: str = "exit 0") -> list[str]:
    """What the script says with `packages` in system-deps.txt, run as root or with a sudo that just runs."""
    commands = {
        "apt-get": _APT,
        "dpkg-query": _DPKG,
        "sudo": '#!/bin/sh\nexec "$@"\n',
        "node": f"#!/bin/sh\n{node}\n",
        "npm": "#!/bin/sh\n",
    }
    for name, text in commands.items():
        command = folder / "bin" / name
        command.parent.mkdir(exist_ok=True)
        command.write_text(text)
        command.chmod(0o755)
    (folder / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "system_deps.sh", folder / "tools")
    (folder / "system-deps.txt").write_text(packages)
    environment = bare_environment()
    environment["PATH"] = f"{folder / 'bin'}:{environment['PATH']}"
    script = str(folder / "tools" / "system_deps.sh")
    done = subprocess.run(["bash", script], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_only_what_is_missing_is_installed(tmp_path: Path) -> None:
    said = install(tmp_path, "# a comment\nmake\n\nfirst-missing  # why\nsecond-missing\n")
    assert said == [
        "system packages: installing first-missing second-missing",
        "apt-get update -qq",
        "apt-get install -y -qq --no-install-recommends first-missing second-missing",
    ]


@pytest.mark.parametrize("packages", ["", "# nothing\n", "make\n"])
def test_nothing_missing_means_nothing_done(packages: str, tmp_path: Path) -> None:
    assert install(tmp_path, packages) == ["system packages: all there"]


def test_a_node_that_is_missing_or_old_is_asked_for(tmp_path: Path) -> None:
    said = install(tmp_path, "make\n", node="exit 1")
    assert said[0] == "system packages: installing nodejs npm"
    assert said[-1].endswith(" --no-install-recommends nodejs npm")
