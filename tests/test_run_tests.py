"""A test that fails beside others runs once more alone, and what came of it is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.run_tests import MOST_AGAIN, run

PASSES_ALONE = """
from pathlib import Path

def test_busy():
    mark = Path(__file__).with_name("ran")
    first = not mark.exists()
    mark.touch()
    assert not first
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project whose tests know nothing of the ones that run now."""
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_sound.py").write_text("def test_sound():\n    pass\n")
    return tmp_path


@pytest.mark.req("SETUP-12")
def test_who_passes_alone_is_named_and_stops_nobody(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (project / "test_mesh.py").write_text(PASSES_ALONE)
    assert run(project, []) == 0
    assert "== test_mesh.py::test_busy: passed alone: it depends on how busy" in capfd.readouterr().out


@pytest.mark.req("SETUP-12")
def test_who_fails_again_fails_the_run(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (project / "test_mesh.py").write_text(PASSES_ALONE)
    (project / "test_wire.py").write_text("def test_broken():\n    assert False\n")
    assert run(project, []) == 1
    said = capfd.readouterr().out
    assert "== test_wire.py::test_broken: failed again" in said
    assert "== test_mesh.py::test_busy: passed alone" in said


@pytest.mark.req("SETUP-12")
def test_many_failures_are_no_matter_of_chance(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    broken = "".join(f"def test_{number}():\n    assert False\n\n" for number in range(MOST_AGAIN + 1))
    (project / "test_wire.py").write_text(broken)
    assert run(project, []) == 1
    assert "once more alone" not in capfd.readouterr().out
