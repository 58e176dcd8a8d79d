"""Frozen contracts: written by a command, and compared when the service starts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hearthnet.contracts import Contract
from hearthnet.core.errors import HearthNetError
from hearthnet.service.hosting.loading import load_service
from tests.helpers.shell import Shell

HELLO = """\
import hearthnet

service = hearthnet.Service("hello")


@service.capability("hello.greet@1.0", timeout_seconds=5)
async def greet(name: str) -> str:
    \"\"\"Greet a person by name.\"\"\"
    return f"Hello {name}"


hearthnet.run(service)
"""


def started(program: Path, *home: str) -> tuple[int, str]:
    """Run the program where no node runs; return its status and what it says."""
    command = [sys.executable, program.name, *(home or ("--home", "nowhere"))]
    done = subprocess.run(command, cwd=program.parent, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.req("AUTHOR-6")
def test_freezing_writes_the_contract_in_one_form(tmp_path: Path) -> None:
    program, shell = tmp_path / "hello.py", Shell(tmp_path / "home")
    program.write_text(HELLO)
    file = tmp_path / "contracts" / "hello.greet@1.0.json"
    missing = shell.run("contract", "freeze", program, "--check")
    assert (missing.returncode, missing.stdout) == (1, f"new        {file}\n"), missing
    assert not file.exists()
    assert shell.run("contract", "freeze", f"{program}:service").stdout == f"new        {file}\n"
    written = file.read_text()
    assert written == json.dumps(json.loads(written), indent=2, sort_keys=True) + "\n"
    assert json.loads(written)["summary"] == "Greet a person by name."
    file.write_text(json.dumps(json.loads(written)))  # another layout is the same contract
    same = shell.run("contract", "freeze", program, "--check")
    assert (same.returncode, same.stdout) == (0, f"unchanged  {file}\n"), same
    other = shell.run("contract", "freeze", program, "--out", tmp_path / "docs")
    assert other.stdout == f"new        {tmp_path / 'docs' / file.name}\n"
    for home in (("--home", "nowhere"), ("--home=nowhere",)):
        assert started(program, *home)[0] == 3  # nothing is wrong but the missing node


@pytest.mark.req("AUTHOR-6")
@pytest.mark.parametrize(
    ("before", "after", "change", "remedy"),
    [
        ("name: str", "name: str, age: int", "request/input/age is now required", "hello.greet@2.0, or"),
        ("-> str", "-> str | None", "reply/output may now be", "hello.greet@2.0, or"),
        ("name: str", "name: str, age: int = 3", "another request_schema", "hello.greet@1.1, or"),
        ("by name.", "by any name.", "another summary", "; write the file anew with"),
        ("seconds=5", "seconds=60", "another timeout_seconds", "; write the file anew with"),
    ],
)
def test_changed_contract_keeps_the_service_from_starting(
    tmp_path: Path, before: str, after: str, change: str, remedy: str
) -> None:
    program, shell = tmp_path / "hello.py", Shell(tmp_path / "home")
    program.write_text(HELLO)
    assert shell.run("contract", "freeze", program).returncode == 0
    program.write_text(HELLO.replace(before, after))
    code, said = started(program)
    assert (code, f"{program}:6: greet is no longer the hello.greet@1.0" in said) == (5, True), said
    assert change in said
    assert remedy in said
    assert shell.run("contract", "freeze", program).stdout.startswith("changed ")
    assert started(program)[0] == 3
    program.write_text(HELLO.replace(before, after).replace("@1.0", "@2.0"))
    assert started(program)[0] == 3


@pytest.mark.req("AUTHOR-6")
def test_damaged_file_keeps_the_service_from_starting(tmp_path: Path) -> None:
    program, shell = tmp_path / "hello.py", Shell(tmp_path / "home")
    program.write_text(HELLO)
    assert shell.run("contract", "freeze", program).returncode == 0
    file = tmp_path / "contracts" / "hello.greet@1.0.json"
    file.write_text(file.read_text()[:-9])
    code, said = started(program)
    assert (code, "the file is no contract" in said) == (5, True), said


@pytest.mark.req("AUTHOR-6")
def test_what_cannot_be_frozen_is_one_line(tmp_path: Path) -> None:
    shell, program, empty = Shell(tmp_path / "home"), tmp_path / "hello.py", tmp_path / "empty.py"
    program.write_text(HELLO)
    empty.write_text("import hearthnet\nservice = hearthnet.Service('empty')\n")
    nothing = shell.run("contract", "freeze", empty, "--check")
    assert (nothing.returncode, nothing.stdout) == (5, "")
    assert nothing.stderr == f"hearthnet: the service of {empty} has no functions to freeze\n"
    nowhere = shell.run("contract", "freeze", program, "--out", program / "contracts")
    assert nowhere.returncode == 2
    assert nowhere.stderr.endswith("Not a directory; name another folder with --out\n")
    assert len(nowhere.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "source", "says"),
    [
        (HELLO, "service_of_nobody", "there is no module service_of_nobody"),
        (HELLO, "found_a.py:other", "there is no other in found_a"),
        ("x = 1", "found_b.py", "there is no service in found_b"),
        (f"{HELLO}second = hearthnet.Service('second')", "found_c.py", "name one: found_c:service"),
        ("import nothing_there", "found_d.py", "there is no module nothing_there"),
        ("1 / 0", "found_e.py", "cannot import found_e: ZeroDivisionError"),
    ],
)
def test_module_without_one_service_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, source: str, says: str
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / source.partition(":")[0]).write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HearthNetError, match=says):
        load_service(source)


def test_service_is_loaded_without_running_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "found_f.py").write_text(HELLO)
    found = load_service(str(tmp_path / "found_f.py"))
    contracts: list[Contract] = [one.contract for one in found.functions()]
    assert [one.id for one in contracts] == ["hello.greet@1.0"]
