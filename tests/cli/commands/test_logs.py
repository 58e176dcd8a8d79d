"""`hearthnet logs` with files as the supervisor writes them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from hearthnet.cli.commands.logs import Tail
from hearthnet.supervisor.os.log_file import LogFile
from tests.cli.conftest import Here
from tests.helpers.shell import Shell


@pytest.fixture
def logs(home: Path) -> Path:
    folder = home / "logs"
    folder.mkdir()
    (folder / "rag.log").write_bytes(b"one\ntwo \x1b[2J\xff\nthree\n")
    (folder / "up.log").write_text("started\n")
    return folder


@pytest.mark.req("CLI-10")
def test_the_newest_lines_of_one_log(logs: Path, here: Here) -> None:
    assert here("logs", "rag", "-n", "2") == 0
    assert here.out == "two \\x1b[2J\ufffd\nthree\n"


@pytest.mark.req("CLI-10")
def test_all_logs_with_their_names(logs: Path, here: Here) -> None:
    assert here("logs", "--lines", "1") == 0
    assert here.out == "rag: three\nup: started\n"


@pytest.mark.req("CLI-10")
def test_a_log_that_is_not_there_is_answered_with_the_nearest(logs: Path, here: Here) -> None:
    assert here("logs", "rga") == 5
    assert "there is no log 'rga'; did you mean rag?" in here.err


def test_where_nothing_was_ever_logged_it_says_so(here: Here) -> None:
    assert here("logs", "rag") == 5
    assert "nothing was ever logged" in here.err
    assert here("logs") == 0
    assert here.out == ""


@pytest.mark.req("CLI-10")
def test_lines_are_found_behind_a_rotation_and_followed_over_the_next(tmp_path: Path) -> None:
    path = tmp_path / "rag.log"
    log = LogFile(path, limit=12)
    for number in range(3):
        log.write(b"line %d\n" % number)
    with Tail(path, "rag") as tail:
        assert tail.newest(3) == ["line 0", "line 1", "line 2"]
        log.write(b"half")
        assert list(tail.added()) == []
        log.write(b" a line\n")
        assert list(tail.added()) == ["half a line"]
        log.write(b"line 4\n")
        assert list(tail.added()) == ["line 4"]
        path.unlink()
        assert list(tail.added()) == []


@pytest.mark.req("CLI-10")
def test_follow_goes_on_until_ctrl_c(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "home")
    log = LogFile(shell.home / "logs" / "rag.log")
    (shell.home / "logs").mkdir(parents=True)
    log.write(b"first\n")
    with shell.terminal("logs", "rag", "--follow") as screen:
        screen.expect("first")
        log.write(b"second\n")
        screen.expect("second")
        screen.type("\x03")
        assert screen.end() == 128 + signal.SIGINT
