"""One trace over real processes: a command, the service that it calls, and the one that that calls."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hearthnet.bus.session import keyring
from hearthnet.cli.commands.trace import only, tree
from hearthnet.cli.entry_point import run
from hearthnet.core.errors import HearthNetError
from hearthnet.core.ids import unb64
from hearthnet.core.node_state import NodeState
from hearthnet.core.times import now_ms
from hearthnet.trust.authorization.token import Scope, mint
from tests.helpers.collector import Collector, Span
from tests.helpers.mesh import Mesh, start_mesh
from tests.helpers.probe import QUERY
from tests.helpers.processes import child_environment
from tests.helpers.shell import Shell
from tests.helpers.waiting import wait_for_sync

WORKER = Path(__file__).parents[2] / "helpers" / "relay_worker.py"
SECRET = "what-does-my-diary-say"


@dataclass
class Chain:
    """A node with the services `front` and `back`, whose spans and metrics go to `collector`."""

    mesh: Mesh
    shell: Shell
    exporting: Shell
    collector: Collector
    token: str

    def ask(self, *options: str, corpus: str = "front") -> subprocess.CompletedProcess[str]:
        """One command that calls the service for `corpus`."""
        body = json.dumps({"params": {"corpus": corpus}, "input": {"query": SECRET}})
        return self.exporting.run("call", QUERY, "--body", body, "--json", *options)

    def trace(self, *options: str) -> list[dict[str, Any]]:
        """What `hearthnet trace --json` prints."""
        found: list[dict[str, Any]] = json.loads(self.here("trace", "--json", *options))
        return found

    def here(self, *arguments: str) -> str:
        """What a command prints that works, run in this process: a new one each time would cost seconds."""
        with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), "utf-8")) as out:
            code = run([*arguments, "--home", str(self.mesh.home.path)])
            out.seek(0)
            printed = out.read()
        assert code == 0, printed
        return printed


class Exporting(Shell):
    """A shell in which the standard variable says where spans go."""

    endpoint = ""

    def environ(self) -> dict[str, str]:
        """With that variable."""
        return {**super().environ(), "OTEL_EXPORTER_OTLP_ENDPOINT": self.endpoint}


@pytest.fixture(scope="module")
def chain() -> Iterator[Chain]:
    """Both services answer; a command has asked the first one, under a token."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hn-trace-")))
        mesh = asyncio.run(start_mesh(folder))
        stack.callback(mesh.server.stop)
        stack.enter_context(mesh.published())
        collector = stack.enter_context(Collector())
        shell, exporting = Shell(mesh.home.path), Exporting(mesh.home.path)
        exporting.endpoint = collector.url
        # The services hear of it from their node, the command from its environment.
        _set_telemetry(mesh, collector.url)
        for names in (("front", "back"), ("back", "-")):
            stack.enter_context(_worker(mesh, *names))
        identity = keyring.load_identity(mesh.home.device_key)
        token = mint(
            identity,
            subject=identity.node_id,
            audience=keyring.load_roster(mesh.home.roster, identity.node_id).community_id,
            scope=Scope(capabilities=(QUERY,)),
            now_ms=now_ms(),
            ttl_seconds=600,
        )
        made = Chain(mesh, shell, exporting, collector, token)
        wait_for_sync(lambda: shell.run("caps", QUERY).stdout.count("corpus=") == 2, 30, "both services")
        _set_telemetry(mesh, "")
        done = made.ask("--token", token)
        assert done.returncode == 0, done.stderr
        yield made


def _set_telemetry(mesh: Mesh, endpoint: str) -> None:
    """What the running node says of where its processes send spans."""
    state = msgspec.json.decode(mesh.home.state.read_bytes(), type=NodeState)
    mesh.home.state.write_bytes(msgspec.json.encode(msgspec.structs.replace(state, telemetry=endpoint)))


@contextlib.contextmanager
def _worker(mesh: Mesh, own: str, next_one: str) -> Iterator[None]:
    command = [sys.executable, str(WORKER), str(mesh.home.path), own, next_one]
    environment = child_environment(PYTHONPATH=WORKER.parents[2], OTEL_BSP_SCHEDULE_DELAY="100")
    with subprocess.Popen(command, env=environment) as process:
        try:
            yield
        finally:
            process.terminate()
            process.wait(10)


def spans(chain: Chain, count: int) -> list[Span]:
    """The spans of the fixture's call, once there are `count`."""
    first = chain.trace("--limit", "1000")[0]["trace"]

    def there() -> list[Span] | None:
        found = [span for span in chain.collector.spans if span.trace == first]
        return found if len(found) >= count else None

    return wait_for_sync(there, what=f"{count} spans")


@pytest.mark.req("TRACE-3", "TRACE-4")
def test_a_command_and_two_services_make_one_trace(chain: Chain) -> None:
    found = {(span.service, span.kind): span for span in spans(chain, 6)}
    order = [
        ("hearthnet-cli", 3),
        ("hearthnet-front", 2),
        ("hearthnet-front", 1),
        ("hearthnet-front", 3),
        ("hearthnet-back", 2),
        ("hearthnet-back", 1),
    ]
    assert found.keys() == set(order)
    assert found[order[0]].parent == ""
    for above, below in pairwise(order):
        assert found[below].parent == found[above].span
        assert found[below].seconds <= found[above].seconds
    assert {span.attributes.get("hearthnet.call") for span in found.values() if span.kind == 3} == {
        span.attributes.get("hearthnet.call") for span in found.values() if span.kind == 2
    }


@pytest.mark.req("TRACE-6")
def test_one_trace_is_a_tree_over_the_processes(chain: Chain) -> None:
    steps = chain.trace("--limit", "1000")
    first = steps[0]["trace"]
    found = chain.trace(first[:10])
    assert [(step["depth"], step["service"], step["side"]) for step in found] == [
        (0, "front", "provider"),
        (1, "front", "caller"),
        (2, "back", "provider"),
    ]
    assert {step["trace"] for step in found} == {first}
    assert {step["code"] for step in found} == {"ok"}
    assert [step["peer"] for step in found] == [chain.mesh.identity.node_id] * 3
    shown = chain.here("trace", first)
    assert re.search(rf"^trace {first}, .*: 3 steps in 2 processes, [0-9.]+ m?s$", shown, re.MULTILINE)
    assert re.search(
        r"^\+[0-9.]+ m?s +front +serves rag\.query@1\.0 +this node +[0-9.]+ m?s +ok ", shown, re.MULTILINE
    )
    assert re.search(r"^\+[0-9.]+ m?s +back +    serves rag\.query@1\.0 ", shown, re.MULTILINE)


@pytest.mark.req("TRACE-6")
def test_steps_are_listed_newest_last_and_filtered(chain: Chain) -> None:
    refused = chain.ask("--token", "hntoken://v1/e30.e30.e30", corpus="back")
    assert refused.returncode == 4, refused.stderr
    steps = chain.trace("--limit", "1000")
    assert [step["at"] for step in steps] == sorted(step["at"] for step in steps)
    assert chain.trace("--limit", "1") == steps[-1:]
    [wrong] = chain.trace("--code", "token_invalid")
    assert (wrong["service"], wrong["side"], wrong["handler"], wrong["trace"]) == (
        "back",
        "provider",
        "",
        steps[-1]["trace"],
    )
    assert chain.trace("--capability", "rag.query", "--limit", "1000") == steps
    assert chain.trace("--capability", "rag.query@1.0", "--code", "ok")[0]["code"] == "ok"
    assert chain.trace("--capability", "llm.chat") == []
    assert "no such step yet" in chain.here("trace", "--capability", "llm.chat")
    shown = chain.here("trace").splitlines()
    assert shown[0].split() == ["began", "process", "step", "with", "took", "outcome", "trace"]
    assert wrong["trace"][:12] in shown[-1]
    assert "token_invalid" in shown[-1]


@pytest.mark.req("TRACE-6")
def test_following_prints_what_comes(chain: Chain) -> None:
    with chain.shell.start("trace", "--follow", "--json", "--limit", "1") as following:
        assert following.stdout is not None
        before = json.loads(following.stdout.readline())
        assert chain.ask(corpus="back").returncode == 0
        after = json.loads(following.stdout.readline())
    assert after["service"] == "back"
    assert after["at"] > before["at"]
    with chain.shell.start("trace", "--follow") as following:
        assert following.stdout is not None
        assert "this node" in following.stdout.readline()


@pytest.mark.req("TRACE-6")
@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (("0" * 31 + "1",), 5, f"no process of this node remembers a trace {'0' * 31}1; "),
        (("not hexadecimal",), 2, '"not hexadecimal" does not match "^[0-9a-f]{1,32}$"'),
        (("abc", "--follow"), 2, "shown whole"),
        (("--code", "timout"), 5, "did you mean timeout?"),
    ],
)
def test_what_cannot_be_shown_is_said(
    chain: Chain, arguments: tuple[str, ...], exit_code: int, words: str
) -> None:
    done = chain.shell.run("trace", *arguments)
    assert done.returncode == exit_code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.req("TRACE-6")
def test_the_capability_that_is_asked_stands_in_no_list(chain: Chain) -> None:
    assert "node.trace" not in chain.here("caps")
    assert "node.trace" not in json.dumps(chain.trace("--limit", "1000"))


@pytest.mark.req("TRACE-7")
def test_no_contents_no_token_and_no_key_leave_the_node(chain: Chain) -> None:
    spans(chain, 6)
    seed = chain.mesh.home.device_key.read_text().split()[-2]
    everything = b"".join(chain.collector.raw) + json.dumps(chain.trace("--limit", "1000")).encode()
    assert QUERY.encode() in everything
    assert len(unb64(seed)) == 32
    secrets = [SECRET, chain.token, chain.token.rpartition(".")[2], seed, unb64(seed).hex()]
    assert not [secret for secret in secrets if secret.encode() in everything]


def step(span: str, parent: str, at: int) -> dict[str, Any]:
    """One of a trace."""
    return {"span": span, "parent": parent, "handler": f"h{span}", "at": at}


@pytest.mark.req("TRACE-6")
def test_a_step_stands_under_its_parent_or_at_the_top_whatever_others_say() -> None:
    steps = [
        step("a", "gone", 1),
        step("b", "ha", 2),
        step("c", "a", 3),
        step("d", "b", 4),
        step("e", "he", 5),
    ]
    assert [(place.step["span"], place.depth) for place in tree(steps)] == [
        ("a", 0),
        ("b", 1),
        ("d", 2),
        ("c", 1),
        ("e", 0),
    ]


@pytest.mark.req("TRACE-6")
def test_a_beginning_that_several_traces_share_is_refused() -> None:
    steps = [{"trace": "ab" + "0" * 30}, {"trace": "ab" + "1" * 30}]
    assert only(steps[:1] * 2, "ab") == steps[:1] * 2
    with pytest.raises(HearthNetError, match="2 traces begin with ab") as caught:
        only(steps, "ab")
    assert caught.value.code == "bad_request"
    with pytest.raises(HearthNetError) as none:
        only([], "ab")
    assert none.value.code == "not_found"
