"""From a clean copy to the first streamed answer, by what the README says and nothing else.

Real processes, the real model, a virtualenv of its own. What is typed here stands in README.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import stat
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.helpers.processes import bare_environment, processes_of
from tests.helpers.shell import Shell
from tests.helpers.waiting import wait_for_sync

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
ROOT = Path(__file__).resolve().parent.parent.parent
README = (ROOT / "README.md").read_text()
INSTALL_SECONDS = 480.0
SECOND_START_SECONDS = 10.0
STOP_SECONDS = 60.0
PROMPT = "[a]pprove, [e]dit or [r]efuse? "
QUESTION = "How do I make rainwater safe to drink?"
OFFER = "I can lend a water filter to a neighbour"


def typed(command: str) -> list[str]:
    """The words of a command that must stand in the README as it is."""
    assert command in README, f"the README does not say: {command}"
    return shlex.split(command)


class PlainShell(Shell):
    """A shell that knows nothing of the environment in which the tests run."""

    def environ(self) -> dict[str, str]:
        """As of a person who just logged in."""
        return bare_environment(HEARTHNET_HOME=self.home, COLUMNS="100")


@dataclass
class Clone:
    """A copy of the checkout, its home, and the `make up` that runs in it."""

    folder: Path
    home: Path
    log: Path
    process: subprocess.Popen[bytes] | None = None
    seconds: list[float] = field(default_factory=list)
    """From `make up` to ready, run by run, less the share of the cores that other programs had."""

    @property
    def shell(self) -> PlainShell:
        """Commands of the copy."""
        return PlainShell(self.home, self.folder / ".venv" / "bin" / "hearthnet")

    def up(self, deadline_seconds: float) -> dict[str, Any]:
        """`make up` until the node is ready; what it then says of itself."""
        began, busy = time.monotonic(), _busy_seconds()
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                typed("make up"),
                cwd=self.folder,
                env=self.shell.environ(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        page = wait_for_sync(self._ready, deadline_seconds, "the node to be ready")
        others = max(0.0, _busy_seconds() - busy - _family_seconds(self.process.pid))
        self.seconds.append(time.monotonic() - began - others / (os.cpu_count() or 1))
        return page

    def _ready(self) -> dict[str, Any] | None:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        if not self.shell.program.exists() or not (self.home / "run" / "node.json").exists():
            return None
        done = self.shell.run("status", "--json")
        page: dict[str, Any] = json.loads(done.stdout)
        return page if done.returncode == 0 and page["ready"] else None

    def stop(self) -> int:
        """SIGTERM to the node, as its supervisor would get it; the exit code of `make up`."""
        assert self.process is not None
        os.kill(json.loads((self.home / "run" / "node.json").read_text())["pid"], signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)

    def end(self) -> None:
        """Whatever happened, nothing of it runs on."""
        if self.process is not None and self.process.poll() is None:
            for line in processes_of(self.home):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(line.partition(":")[0]), signal.SIGKILL)
            self.process.kill()
            self.process.wait()


def _busy_seconds() -> float:
    """Seconds that all cores together have worked since this computer was started."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system)


def _family_seconds(pid: int) -> float:
    """Seconds of a core that a process and those under it have had."""
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    return sum(sum(process.cpu_times()[:4]) for process in family)


@pytest.fixture(scope="module")
def clone() -> Iterator[Clone]:
    """What `git clone` would give, with its node running."""
    with tempfile.TemporaryDirectory(prefix="hn-clone-") as place:
        folder = Path(place) / "hearthnet"
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
        for name in filter(None, listed.decode().split("\0")):
            if (ROOT / name).exists():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, folder / name)
        clone = Clone(folder, Path(place) / "home", Path(place) / "up.log")
        try:
            yield clone
        finally:
            clone.end()


def titles(shell: Shell) -> list[str]:
    """The titles on the market now."""
    body = '{"params": {}, "input": {}}'
    posts = shell.json("call", "market.list", "--body", body, "--json")["output"]["posts"]
    return [one["title"] for one in posts]


@pytest.mark.req("E2E-1")
def test_one_command_installs_and_starts_everything(clone: Clone) -> None:
    page = clone.up(INSTALL_SECONDS)
    services = {service["name"]: service for service in page["services"]}
    assert {name: service["state"] for name, service in services.items()} == {
        "auth": "ready",
        "embed": "ready",
        "file": "ready",
        "gateway": "ready",
        "llm": "ready",
        "market": "ready",
        "mcp": "ready",
        "mesh": "ready",
        "rag": "ready",
        "trans": "ready",
    }
    assert any("smollm2" in offer for offer in services["llm"]["offers"])
    assert services["gateway"]["address"].startswith("http://127.0.0.1:")


@pytest.mark.req("SETUP-15")
def test_the_readme_says_what_an_installation_takes(clone: Clone) -> None:
    said = re.search(r"which take (\d+) MB on the disk", README)
    assert said
    files = (path.lstat() for path in (clone.folder / ".venv").rglob("*"))
    megabytes = sum(file.st_size for file in files if stat.S_ISREG(file.st_mode)) / 1e6
    assert abs(megabytes - int(said[1])) < 0.1 * megabytes, f"it takes {megabytes:.0f} MB"


@pytest.mark.req("E2E-1")
def test_the_first_answer_is_streamed_and_rests_on_a_search(clone: Clone) -> None:
    command = typed(f'hearthnet ask "{QUESTION}" --corpus system')[1:]
    with clone.shell.start(*command, "--frames") as process:
        assert process.stdout is not None
        arrived = [(time.monotonic(), json.loads(line)) for line in process.stdout]
        assert process.wait() == 0
    events = [frame["event"] for _, frame in arrived]
    call = next(frame["data"] for _, frame in arrived if frame["event"] == "tool_call")
    assert call["name"] == "search_corpus"
    assert call["arguments"]["query"]
    tokens = [when for when, frame in arrived if frame["event"] == "token"]
    assert len(tokens) > 3
    assert tokens[-1] - tokens[0] > 0.02, "the answer came in one piece"
    assert events.index("tool_result") < events.index("token")
    assert events[-1] == "done"


@pytest.mark.req("E2E-1")
def test_a_person_sees_the_call_the_answer_and_the_sources(clone: Clone) -> None:
    with clone.shell.terminal(*typed(f'hearthnet ask "{QUESTION}" --corpus system')[1:]) as screen:
        screen.expect("there to try things out")
        screen.expect("tool search_corpus")
        screen.expect("Sources")
        assert screen.end() == 0
        sources = screen.shown.rpartition("Sources")[2]
    assert "[1] " in sources
    assert "rainwater" in sources.lower()
    assert "https://" in sources


@pytest.mark.req("E2E-2")
def test_a_post_needs_a_yes_on_the_terminal_and_happens_once(clone: Clone) -> None:
    command = typed(f'hearthnet ask "{OFFER}" --tool market_post')[1:]
    with clone.shell.terminal(*command) as screen:
        screen.expect(PROMPT)
        screen.type("r\n")
        assert screen.end() == 4
    assert titles(clone.shell) == []

    with clone.shell.terminal(*command) as screen:
        screen.expect(PROMPT)
        screen.type("e\n")
        for label in ("category (", "title [", "body [", "tags (", "ttl_seconds ["):
            screen.expect(label)
            screen.type({"title [": "Water filter to lend\n", "category (": "offer\n"}.get(label, "\n"))
        shown = screen.expect(PROMPT)
        assert '"Water filter to lend"' in shown
        screen.type("a\n")
        assert screen.end() == 0
    assert titles(clone.shell) == ["Water filter to lend"]

    with clone.shell.terminal(*command) as screen:
        screen.expect(PROMPT)
        screen.type("a\n")
        assert screen.end() == 0
    assert len(titles(clone.shell)) == 2


@pytest.mark.req("E2E-2")
def test_without_a_terminal_nothing_is_posted(clone: Clone) -> None:
    before = titles(clone.shell)
    done = clone.shell.run(*typed(f'hearthnet ask "{OFFER}" --tool market_post')[1:], stdin="a\n")
    assert done.returncode == 7
    assert titles(clone.shell) == before


@pytest.mark.req("E2E-3")
def test_ended_nothing_is_left_and_the_second_start_installs_nothing(clone: Clone) -> None:
    posts = titles(clone.shell)
    assert clone.stop() == 0
    wait_for_sync(lambda: not processes_of(clone.home), what="the end of every process")

    installed = clone.folder / ".venv" / ".installed"
    stamp = installed.stat().st_mtime
    clone.up(SECOND_START_SECONDS * 6)
    assert installed.stat().st_mtime == stamp
    assert titles(clone.shell) == posts
    assert clone.stop() == 0
    wait_for_sync(lambda: not processes_of(clone.home), what="the end of every process")


@pytest.mark.req("E2E-3")
def test_the_second_start_takes_under_ten_seconds(clone: Clone) -> None:
    while len(clone.seconds) < 4:
        clone.up(SECOND_START_SECONDS * 6)
        assert clone.stop() == 0
    assert statistics.median(clone.seconds[1:]) < SECOND_START_SECONDS, clone.seconds
    sys.stdout.write(f"seconds from make up to ready: {[round(each, 1) for each in clone.seconds]}\n")
