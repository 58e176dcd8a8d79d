"""The small parts of the supervisor, one by one."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import pty
import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from hearthnet.core.config import Config, GatewayConfig, ServicesConfig
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.node_state import NodeState, ServerState, ServiceState
from hearthnet.service.hosting import parent_death
from hearthnet.supervisor.console import ConsoleProgress, NodeConsole, program
from hearthnet.supervisor.nats.leaf_links import LinkWatch
from hearthnet.supervisor.os.cancellation import END_SECONDS, cancellable, heed_cancelling, with_grace
from hearthnet.supervisor.os.log_file import LogFile, LogHandler
from hearthnet.supervisor.os.os_process import (
    FIRST_SECONDS,
    HEALTHY_SECONDS,
    LONGEST_SECONDS,
    Backoff,
    Process,
    exit_text,
)
from hearthnet.supervisor.ready_file import ReadyFile
from hearthnet.supervisor.services import service_process
from hearthnet.supervisor.services.service_process import ServiceProcess, StatusPipe, StatusReport
from hearthnet.supervisor.services.specs import ChildSpec, choose, installed
from hearthnet.trust.keys import Identity
from tests.helpers.processes import child_environment
from tests.helpers.stopwatch import Stopwatch
from tests.helpers.waiting import wait_for

DOUBLE = Path(__file__).with_name("double.py")
ROOT = DOUBLE.parents[2]
STATE = NodeState(
    pid=1,
    node_id=Identity(bytes(32)).node_id,
    display_name="kitchen",
    version="0.1.0",
    server=ServerState("nats://127.0.0.1:4222", 4222, 2),
    services=(
        ServiceState("rag", 3, "ready", 0, None, ("rag.query@1.0 corpus=system", "rag.ingest@1.0"), 0),
        ServiceState("llm", None, "waiting", 2, "ended with exit code 3: no [model]", (), 0),
    ),
    started_at=0,
    ready=True,
)


@pytest.mark.req("UP-8")
def test_waits_double_to_half_a_minute_and_start_over_after_a_healthy_minute() -> None:
    backoff = Backoff(lambda: 0.0)
    assert [backoff.wait(1) for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert backoff.wait(HEALTHY_SECONDS) == FIRST_SECONDS
    shortest = Backoff(lambda: 1.0)
    assert [shortest.wait(1) for _ in range(8)] == [0.5, 0.75, 1.5, 3, 6, 12, 22.5, 22.5]
    shaky = Backoff(random.Random(1).random)
    waits = [shaky.wait(1) for _ in range(40)]
    assert all(0.75 * LONGEST_SECONDS <= wait <= LONGEST_SECONDS for wait in waits[8:])
    assert len(set(waits[8:])) > 20


@pytest.mark.req("UP-26")
def test_a_log_rotates_and_remembers_its_end(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "x.log", limit=10)
    for number in range(5):
        log.write(f"line {number}\n".encode())
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["x.log", "x.log.1", "x.log.2"]
    assert [(tmp_path / name).read_text() for name in ("x.log.2", "x.log.1", "x.log")] == [
        "line 2\n",
        "line 3\n",
        "line 4\n",
    ]
    log.write(b"\n  \n")
    assert log.last_line() == "line 4"
    log.forget()
    assert (log.last_line(), log.tail()) == ("", "")


@pytest.mark.req("UP-18")
@pytest.mark.parametrize("path", ["absent/x.log", "folder", "file/x.log", "/dev/full"])
def test_a_log_that_cannot_be_written_stops_nobody(tmp_path: Path, path: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"")
    log = LogFile(tmp_path / path)
    log.write(b"kept in memory\n")
    assert log.last_line() == "kept in memory"
    assert not (tmp_path / "absent").exists()


@pytest.mark.req("UP-26")
def test_the_supervisors_own_log_has_tracebacks(tmp_path: Path) -> None:
    handler = LogHandler(LogFile(tmp_path / "up.log"))
    try:
        raise ValueError("inner")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "", 1, "outer", (), sys.exc_info())
    handler.emit(record)
    text = (tmp_path / "up.log").read_text()
    assert "ERROR x: outer" in text
    assert "ValueError: inner" in text


def test_an_ending_in_words() -> None:
    assert exit_text(0, "") == "ended with exit code 0"
    assert exit_text(-9, "bye") == "was killed by SIGKILL: bye"


@pytest.mark.req("UP-7")
def test_a_child_of_a_dead_parent_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "other")

    def become(path: str, arguments: list[str]) -> None:
        raise SystemExit(f"became {path} {arguments}")

    monkeypatch.setattr(os, "execv", become)
    assert parent_death.main([str(os.getpid()), "/bin/true"]) == 1
    with pytest.raises(SystemExit, match="became /bin/true"):
        parent_death.main([str(os.getppid()), "/bin/true", "x"])


@pytest.mark.req("UP-7")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a parent-death signal")
def test_a_child_of_a_living_parent_dies_with_it() -> None:
    """In a process of its own: the request for a death signal cannot be taken back by other means."""
    script = "import ctypes, os\nfrom hearthnet.service.hosting.parent_death import die_with\n"
    script += "signal, get_death_signal = ctypes.c_int(), 2\n"
    script += "assert die_with(os.getppid())\n"
    script += "ctypes.CDLL(None).prctl(get_death_signal, ctypes.byref(signal), 0, 0, 0)\n"
    script += "print(signal.value)\n"
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env=child_environment(PYTHONPATH=ROOT)
    )
    assert done.stdout == f"{signal.SIGKILL:d}\n"


def test_a_program_that_is_not_there_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hearthnet.service.hosting.parent_death", str(os.getpid()), "/no/such"],
        capture_output=True,
        check=False,
        env=child_environment(PYTHONPATH=ROOT),
    )
    assert done.returncode == 127
    assert b"cannot start /no/such: No such file" in done.stderr


@pytest.mark.req("UP-11")
def test_a_ready_file_of_an_earlier_node_is_cleared(tmp_path: Path) -> None:
    file = ReadyFile(tmp_path / "new" / "ready.json")
    file.clear()
    file.write(STATE)
    assert msgspec.json.decode((tmp_path / "new" / "ready.json").read_bytes(), type=NodeState) == STATE
    file.clear()
    assert not (tmp_path / "new" / "ready.json").exists()
    file.remove()


@pytest.mark.req("UP-27")
def test_the_settings_choose_among_the_installed_services(tmp_path: Path) -> None:
    home = Home(tmp_path)
    everything = choose(home, Config(), ("llm", "market"))
    assert [spec.name for spec in everything.specs] == ["llm", "market", "gateway"]
    gateway = ("hearthnet.gateway.__main__", "--home", str(tmp_path))
    assert everything.specs[2].command[1:] == ("-P", "-m", *gateway)
    assert everything.specs[2].module == gateway
    assert everything.specs[0].command[1:] == (
        "-P",
        "-m",
        "hearthnet.service.hosting.main",
        "llm",
        "--home",
        str(tmp_path),
    )
    few = Config(services=ServicesConfig(enabled=("rag", "llm", "llm")), gateway=GatewayConfig(enabled=False))
    some = choose(home, few, ("llm", "market"))
    assert [spec.name for spec in some.specs] == ["llm"]
    assert some.missing == ("rag",)
    assert list(installed()) == sorted(installed())
    assert {"auth", "llm", "market", "rag"} <= set(installed())


@pytest.mark.req("UP-3")
def test_plain_lines_where_there_is_no_terminal(tmp_path: Path) -> None:
    out = io.StringIO()
    screen = NodeConsole(out)
    for current in range(3):
        screen.progress([ConsoleProgress("llm", "starting", "loading", f"loading {current}/2")])
    screen.progress([ConsoleProgress("llm", "waiting", "", "ended with exit code 3")])
    screen.progress([ConsoleProgress("llm", "ready", "", "")])
    assert out.getvalue() == "llm: loading\nllm: waiting, ended with exit code 3\nllm: ready\n"
    screen.table(Home(tmp_path / "a b"), STATE)
    text = out.getvalue()
    for part in ("kitchen", "rag.query@1.0 corpus=system", "starts again soon (restarted 2 x)", "no [model]"):
        assert part in text


@pytest.mark.req("UP-28")
def test_the_commands_of_the_table_fit_a_new_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    screen = NodeConsole(out)
    _install(tmp_path / "a venv", monkeypatch)
    monkeypatch.setenv("PATH", str(tmp_path / "a venv"))
    monkeypatch.setenv("HEARTHNET_HOME", str(tmp_path / "a b"))
    screen.table(Home(tmp_path / "a b"), STATE, "http://127.0.0.1:1/#code=x")
    named = f"HEARTHNET_HOME='{tmp_path}/a b' hearthnet"
    assert f"\n  {named} ask" in out.getvalue()
    for rest in (" ask", " logs NAME)", " link)"):
        assert out.getvalue().count(f"hearthnet{rest}") == out.getvalue().count(f"{named}{rest}") > 0
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    screen.table(Home.default(), STATE)
    assert "\n  'a venv/hearthnet' ask" in out.getvalue()


@pytest.mark.req("UP-28")
def test_the_program_is_named_so_that_a_shell_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = _install(tmp_path / "venv" / "bin", monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(running.parent))
    assert program() == "hearthnet"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program() == "venv/bin/hearthnet"
    monkeypatch.chdir(running.parent)
    assert program() == "./hearthnet"
    monkeypatch.chdir("/")
    assert program() == str(running).removeprefix("/")
    deep = tmp_path / "1" / "2" / "3"
    deep.mkdir(parents=True)
    for _ in range(100):
        deep = deep / "d"
        deep.mkdir()
    monkeypatch.chdir(deep)
    assert program() == str(running)
    # Another installation that goes by the same name is not this one.
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(running, other / "hearthnet")
    monkeypatch.setenv("PATH", str(other))
    assert program() == str(running)
    monkeypatch.setattr("sys.argv", ["up.py"])
    assert program() == str(running)
    running.unlink()
    assert program() == "hearthnet"


def _install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program `hearthnet` in `folder`, which this process now is."""
    folder.mkdir(parents=True)
    path = folder / "hearthnet"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    monkeypatch.setattr("sys.argv", [str(path), "up"])
    monkeypatch.setattr("sys.executable", str(folder / "python"))
    return path


@pytest.mark.req("UP-3")
def test_one_changing_display_on_a_terminal(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as terminal:
        screen = NodeConsole(terminal)
        screen.progress([ConsoleProgress("llm", "starting", "loading", "loading 1/2")])
        screen.progress([ConsoleProgress("llm", "starting", "loading", "loading 2/2")])
        screen.line("a line [in between]")
        screen.progress([ConsoleProgress("llm", "starting", "loading", "loading 3/3")])
        screen.table(Home(tmp_path), STATE)
    written = _all_of(master).decode()
    os.close(master)
    during = written[: written.index("loading 3/3") + len("loading 3/3")]
    assert "loading 1/2" in during
    assert "loading 2/2" in during
    shown = _screen(during)
    assert shown[0] == "a line [in between]"
    assert [line for line in shown if "loading" in line] == [shown[1]]
    assert "loading 3/3" in shown[1]
    shown = _screen(written)
    assert shown[0] == "a line [in between]"
    assert not [line for line in shown if "loading" in line]
    assert [line for line in shown if "capabilities" in line]


def _all_of(terminal: int) -> bytes:
    """What was written to a terminal whose other end is closed; it comes in pieces."""
    shown = b""
    with contextlib.suppress(OSError):
        while piece := os.read(terminal, 65536):
            shown += piece
    return shown


def _screen(written: str) -> list[str]:
    """The lines that a terminal shows after this: it knows the cursor's moves up and the erasure of lines."""
    lines, at = [""], 0
    for piece in re.split(r"(\r?\n|\r|\x1b\[[?\d;]*[a-zA-Z])", written):
        if piece.endswith("\n"):
            at += 1
            lines += [""] * (at + 1 - len(lines))
        elif piece == "\x1b[2K":
            lines[at] = ""
        elif piece.startswith("\x1b[") and piece.endswith("A"):
            at -= int(piece[2:-1] or 1)
        elif not piece.startswith(("\r", "\x1b")):
            lines[at] += piece
    return [line.rstrip() for line in lines]


def test_a_closed_output_is_no_reason_to_end(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        screen = NodeConsole(closed)
        screen.line("nobody hears this")
        screen.table(Home(tmp_path), STATE)


def test_progress_in_words() -> None:
    assert StatusReport("starting", "loading").progress == "loading"
    assert StatusReport("starting", "loading", 1, 2).progress == "loading 1/2"
    assert StatusReport("starting", "reading", 0.5).progress == "reading 0.5"


def double(tmp_path: Path, *behaviours: str) -> tuple[ServiceProcess, int]:
    """A supervised double and the end of its lifeline that the supervisor holds."""
    lifeline, held = os.pipe()
    spec = ChildSpec("market", (sys.executable, str(DOUBLE), *behaviours))
    child = ServiceProcess(spec, LogFile(tmp_path / "market.log"), lifeline, lambda changed: None)
    return child, held


@pytest.mark.req("UP-9")
@pytest.mark.asyncio
async def test_a_silent_service_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_process, "STALLED_SECONDS", 0.5)
    child, held = double(tmp_path, "silent")
    task = asyncio.create_task(child.supervise())
    await child.settled()
    assert child.state.state == "starting"
    assert child.state.note == "not ready yet; hearthnet logs market"
    task.cancel()
    await asyncio.wait({task})
    await child.stop(2)
    assert (child.state.state, child.state.pid) == ("stopped", None)
    os.close(held)
    os.close(child._lifeline)


@pytest.mark.req("UP-9")
@pytest.mark.asyncio
async def test_a_service_whose_program_is_gone_is_said_to_be(tmp_path: Path) -> None:
    lifeline, held = os.pipe()
    spec = ChildSpec("gone", ("/no/such",))
    missing = ServiceProcess(spec, LogFile(tmp_path / "gone.log"), lifeline, lambda changed: None)
    task = asyncio.create_task(missing.supervise())
    await missing.settled()
    assert missing.state.note == "ended with exit code 127: cannot start /no/such: No such file or directory"
    task.cancel()
    await asyncio.wait({task})
    missing.kill()
    await missing.stop(0)
    os.close(held)
    os.close(lifeline)


@pytest.mark.asyncio
async def test_a_command_line_too_long_for_the_system_is_an_error_in_words(tmp_path: Path) -> None:
    lifeline, held = os.pipe()
    spec = ChildSpec("big", ("/bin/true", "x" * 10_000_000))
    child = ServiceProcess(spec, LogFile(tmp_path / "big.log"), lifeline, lambda changed: None)
    assert await child._run_once() == "cannot start /bin/true: Argument list too long"
    os.close(lifeline)
    os.close(held)


@pytest.mark.asyncio
async def test_a_status_line_without_end_is_not_heard(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[StatusReport] = []
    pipe = StatusPipe("market", heard.append)
    child_end = os.dup(pipe.child_end)
    pipe.started()
    os.write(child_end, b'{"state":"ready"}\n')
    await wait_for(lambda: heard)
    os.set_blocking(child_end, False)

    def too_long() -> bool:
        try:
            os.write(child_end, b"x" * 60_000)
        except BlockingIOError:
            return False
        except BrokenPipeError:
            return True
        return False

    await wait_for(too_long)
    await pipe.drained()
    os.close(child_end)
    assert len(heard) == 1
    assert "heard no further" in caplog.text


@pytest.mark.req("UP-6")
@pytest.mark.asyncio
async def test_what_a_process_leaves_in_its_group_ends_with_it(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "x.log")
    script = "import os, subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True)"
    process = await Process.start((sys.executable, "-c", script), log)
    assert await process.wait() == 0
    grandchild = int(log.last_line())
    await wait_for(lambda: not _lives(grandchild))
    process._signal(signal.SIGTERM)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.req("UP-11")
def test_a_ready_file_where_none_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HearthNetError, match="cannot write"):
        ReadyFile(tmp_path / "file" / "ready.json").clear()


@pytest.mark.req("UP-6")
@pytest.mark.asyncio
@pytest.mark.parametrize("deaf", [0, 1, 5])
async def test_a_task_that_keeps_its_cancellation_to_itself_ends_all_the_same(deaf: int) -> None:
    heard, ended = 0, False

    async def work() -> None:
        nonlocal heard, ended
        try:
            while True:
                if heard > deaf:
                    heed_cancelling()
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    heard += 1
        finally:
            ended = True

    task = asyncio.create_task(cancellable(work()))
    await asyncio.sleep(0)
    watch = Stopwatch()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert watch.seconds() < END_SECONDS + 0.5
    assert (heard, ended) == (deaf + 1, True)


@pytest.mark.req("UP-6")
@pytest.mark.asyncio
async def test_what_obeys_still_fails_as_it_does() -> None:
    async def work() -> None:
        raise HearthNetError("internal_error", "no")

    with pytest.raises(HearthNetError, match=r"^no$"):
        await cancellable(work())
    await with_grace(work())  # what fails while it closes is not raised


@pytest.mark.req("UP-3", "UP-53")
@pytest.mark.parametrize(
    ("server", "words"),
    [
        ({"address": "127.0.0.1:7422"}, "homes     127.0.0.1:7422 (from this computer only;"),
        ({"address": "kitchen:7422", "fingerprint": "ab"}, "homes     kitchen:7422\n"),
        ({"address": "kitchen:7422", "upstream": "linked"}, "homes     linked to the one at kitchen:7422\n"),
        (
            {"address": "kitchen:7422", "upstream": "lost"},
            "homes     not linked to the one at kitchen:7422\n",
        ),
    ],
)
def test_the_table_says_how_other_homes_are_reached(
    tmp_path: Path, server: dict[str, str], words: str
) -> None:
    out = io.StringIO()
    state = msgspec.structs.replace(STATE, server=msgspec.structs.replace(STATE.server, **server))
    NodeConsole(out).table(Home(tmp_path), state)
    assert words in out.getvalue()


@pytest.mark.req("UP-53")
def test_a_link_that_is_lost_is_told_once_with_the_reason() -> None:
    log: list[str] = []
    watch, home = LinkWatch(lambda: "\n".join(log)), "the home at kitchen:7422"
    assert watch.look(is_linked=False, now=0.0, place=home) == ""
    assert (watch.look(is_linked=True, now=1.0, place=home), watch.state) == (
        "linked to the home at kitchen:7422",
        "linked",
    )
    # What is back at once was not lost.
    assert watch.look(is_linked=False, now=2.0, place=home) == ""
    assert watch.look(is_linked=True, now=3.0, place=home) == ""
    assert watch.look(is_linked=False, now=4.0, place=home) == ""
    for said, reason in (
        ("Leafnode Error 'Authorization Violation'", "it refuses this node"),
        ("tls: failed to verify certificate: x509", "another server than the one that was joined"),
        ("dial tcp: connect: connection refused", "no node runs there"),
        ("", "no answer"),
    ):
        log[:] = [said]
        text = watch.look(is_linked=False, now=10.0, place=home)
        assert text.startswith("no link to the home at kitchen:7422 (")
        assert reason in text
        assert "works alone" in text
        assert (watch.state, watch.look(is_linked=False, now=99.0, place=home)) == ("lost", "")
        assert watch.look(is_linked=True, now=99.0, place=home)
        watch.look(is_linked=False, now=4.0, place=home)
