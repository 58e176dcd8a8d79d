"""The helpers themselves: a wait that ends, a server that lives and dies, nothing left out in CI."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import nats
import pytest

from tests.helpers.leaving import RECORDED, leave_out
from tests.helpers.nats_server import NatsServer
from tests.helpers.processes import paused, processes_of
from tests.helpers.shell import Terminal
from tests.helpers.waiting import wait_for, wait_for_sync

pytest_plugins = ["pytester"]
ROOT = Path(__file__).resolve().parent.parent


def test_a_wait_gives_the_first_true_value() -> None:
    answers = iter([0, None, 7])
    assert wait_for_sync(lambda: next(answers)) == 7


def test_a_wait_in_vain_says_for_what_and_what_it_saw() -> None:
    with pytest.raises(TimeoutError, match=r"0\.02 s in vain for the moon; it last gave 0"):
        wait_for_sync(lambda: 0, 0.02, "the moon")


@pytest.mark.asyncio
async def test_the_async_wait_lets_others_run_and_takes_coroutines() -> None:
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(0.02, event.set)

    async def happened() -> bool:
        return event.is_set()

    assert await wait_for(happened)
    assert await wait_for(event.is_set)
    with pytest.raises(TimeoutError, match="in vain"):
        await wait_for(lambda: None, 0.02)


@pytest.mark.asyncio
async def test_the_server_is_real_and_reloads_in_place(
    nats_server: Callable[..., NatsServer],
) -> None:
    server = nats_server()
    client = await nats.connect(server.url)
    assert client.max_payload == 1024 * 1024
    server.reload("max_payload: 4096")
    await client.close()
    client = await nats.connect(server.url)
    assert client.max_payload == 4096
    await client.close()


def test_a_server_with_a_wrong_setting_says_so(nats_server: Callable[..., NatsServer]) -> None:
    with pytest.raises(RuntimeError, match="no_such_setting"):
        nats_server("no_such_setting: 1")


def test_processes_are_found_by_the_home_they_name(
    tmp_path: Path, nats_server: Callable[..., NatsServer]
) -> None:
    assert processes_of(tmp_path) == []
    server = nats_server()
    assert [line.split(":")[0] for line in processes_of(tmp_path)] == [str(server.process.pid)]
    server.kill()
    assert processes_of(tmp_path) == []


def test_paused_process_has_no_thread_that_runs(nats_server: Callable[..., NatsServer]) -> None:
    pid = nats_server().process.pid

    def states() -> set[str]:
        return {
            thread.read_text().rpartition(")")[2][1] for thread in Path(f"/proc/{pid}/task").glob("*/stat")
        }

    for _ in range(50):
        with paused(pid):
            assert states() == {"T"}
    wait_for_sync(lambda: "T" not in states(), what="it to go on")


def test_server_whose_port_is_taken_for_a_while_comes_back(nats_server: Callable[..., NatsServer]) -> None:
    server = nats_server()
    server.kill()
    with socket.create_server(("127.0.0.1", int(server.url.rpartition(":")[2]))) as thief:
        threading.Timer(0.5, thief.close).start()
        again = server.again()
    assert again.url == server.url
    again.stop()


def test_terminal_of_a_missing_program_ends_with_127() -> None:
    with Terminal(["/no/such/program"], {}) as screen:
        assert screen.end() == 127


@pytest.mark.req("SETUP-8")
def test_leaving_out_fails_in_ci_and_skips_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no such tool"):
        leave_out("no such tool")
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="no such tool"):
        leave_out("no such tool")


RULES = """
import tests.helpers.leaving as leaving
from tests.helpers.leaving import pytest_configure, pytest_sessionfinish, pytest_terminal_summary
"""
PLAIN = ("-p", "no:cacheprovider", "-p", "xdist", "-n")
SKIPS = """
import pytest
from tests.helpers.leaving import leave_out

def test_sound(): pass
def test_broken(): assert False
def test_silent(): pytest.skip('felt like it')
@pytest.mark.skip
def test_marked(): pass
@pytest.mark.parametrize("one", [])
def test_empty(one): pass
def test_named(): leave_out('no such tool')
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """An empty project with this suite's rules, which knows nothing of the run that it is part of."""
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    # Each plugin and each measured line would make these starts of pytest slower.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
    monkeypatch.delenv("COVERAGE_PROCESS_START", raising=False)
    pytester.makeconftest(RULES)
    return pytester


@pytest.mark.req("SETUP-8")
@pytest.mark.parametrize(
    "selected", ["silent", "sound or silent", "broken or silent", "marked", "empty", "named or silent"]
)
def test_a_silent_skip_fails_the_run_whatever_else_happened(
    selected: str, project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.makepyfile(test_it=SKIPS)
    monkeypatch.delenv("CI", raising=False)
    result = project.runpytest_inprocess(*PLAIN, "0", "-k", selected)
    assert result.ret == 1
    name = next(name for name in ("silent", "marked", "empty") if name in selected)
    result.stdout.fnmatch_lines(["*skipped silently: this fails the run*", f"*test_{name}*: *"])


@pytest.mark.req("SETUP-8")
def test_a_named_absence_is_green_elsewhere(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.makepyfile(test_it=SKIPS)
    for ci, code in (("", 0), ("true", 1)):
        monkeypatch.setenv("CI", ci)
        result = project.runpytest_inprocess(*PLAIN, "0", "-k", "named or sound")
        assert result.ret == code
        result.stdout.fnmatch_lines(["*test_named*no such tool*"])


@pytest.mark.req("SETUP-8")
def test_a_silent_skip_in_a_worker_fails_the_run(project: pytest.Pytester) -> None:
    project.makepyfile(test_it=SKIPS.replace("test_broken(): assert False", "test_broken(): pass"))
    project.makepyfile(test_absent="import pytest\n\npytest.importorskip('no_such_module')\n")
    result = project.runpytest_subprocess(*PLAIN, "2")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*skipped silently: this fails the run*"])
    for name in ("test_silent", "test_marked", "test_empty", "no_such_module"):
        result.stdout.fnmatch_lines([f"*{name}*: *"])


@pytest.mark.req("SETUP-12")
def test_a_listed_test_without_recordings_is_named_once(project: pytest.Pytester) -> None:
    """A copy of the listed tests' names, in a project beside which nothing lies."""
    for listed in RECORDED:
        file, _, name = listed.partition("::")
        path = project.path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_text() if path.exists() else ""
        path.write_text(f"{before}\ndef {name}(): assert False\ndef {name[:-1]}(): pass\n")
    project.makeconftest(f"{RULES}\nleaving.RECORDINGS = leaving.Path('no such folder')\n")
    for workers in ("0", "2"):
        result = project.runpytest_subprocess(*PLAIN, workers, "--import-mode=importlib")
        result.assert_outcomes(passed=len(RECORDED), deselected=len(RECORDED) if workers == "0" else 0)
        for listed in RECORDED:
            assert len([line for line in result.outlines if line.startswith(f"{listed}: ")]) == 1


@pytest.mark.req("SETUP-12")
def test_the_listed_tests_are_there() -> None:
    for listed in RECORDED:
        file, _, name = listed.partition("::")
        assert f"\ndef {name}(" in (ROOT / file).read_text()
