"""The helpers themselves: a wait that ends, a server that lives and dies, nothing left out in CI."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import nats
import pytest

from tests.helpers.leaving import leave_out
from tests.helpers.nats_server import NatsServer
from tests.helpers.processes import processes_of
from tests.helpers.waiting import wait_for, wait_for_sync

pytest_plugins = ["pytester"]


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
    await wait_for(lambda: "Reloaded server configuration" in server.log.read_text())
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


@pytest.mark.req("SETUP-8")
def test_leaving_out_fails_in_ci_and_skips_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no such tool"):
        leave_out("no such tool")
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="no such tool"):
        leave_out("no such tool")


@pytest.mark.req("SETUP-8")
@pytest.mark.parametrize(("ci", "outcome"), [("true", 1), ("", 0)])
def test_any_other_skip_fails_in_ci_and_is_named_elsewhere(
    ci: str, outcome: int, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    root = Path(__file__).resolve().parent.parent
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(root)]))
    pytester.makeconftest((root / "tests" / "conftest.py").read_text())
    pytester.makepyfile("import pytest\n\ndef test_nothing():\n    pytest.skip('felt like it')\n")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    assert result.ret == outcome
    result.stdout.fnmatch_lines(["*left out*", "*test_nothing: *felt like it*"])
