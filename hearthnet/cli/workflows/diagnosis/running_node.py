"""Checks of the running node: its server, its services, its gateway, its connected models."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from hearthnet.cli.workflows.diagnosis.problem import Examined, Problem, fault, of_error, warning
from hearthnet.core.errors import HearthNetError

if TYPE_CHECKING:
    from hearthnet.core.config import ModelConfig

_ANSWER_SECONDS: Final = 5.0
_STARTING_SECONDS: Final = 120.0
_RESTARTS: Final = 3
_STOPPED: Final = "T"


def is_running(examined: Examined) -> Iterator[Problem]:
    """Check that a node runs, and is not stuck at its start."""
    from hearthnet.core.node_state import running_pid

    pid = running_pid(examined.home)
    if pid is None:
        yield warning("node.running", "no node runs here", "start it: hearthnet up")
    elif examined.node is None:
        with contextlib.suppress(OSError):
            age = time.time() - examined.home.lock.stat().st_mtime
            if age > _STARTING_SECONDS:
                yield fault(
                    "node.running",
                    f"the node (process {pid}) has been starting for {age:.0f} s",
                    "look into: hearthnet logs up; then end it and start it again",
                )
    elif _state(examined.node.pid) == _STOPPED:
        yield _stopped("node.running", "the node", examined.node.pid)


def server(examined: Examined) -> Iterator[Problem]:
    """Check that nats-server answers."""
    if examined.node is None:
        return
    state = examined.node.server
    if _state(state.pid) == _STOPPED:
        yield _stopped("server.answer", "nats-server", state.pid)
        return
    if not asyncio.run(_greets(state.url)):
        yield fault(
            "server.answer",
            f"nats-server (process {state.pid}) does not answer at {state.url}",
            "look into: hearthnet logs nats-server; then start the node again",
        )


async def _greets(url: str) -> bool:
    """Return whether a NATS server sends its first line."""
    place = urlsplit(url)
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection(place.hostname, place.port)
            try:
                return (await reader.readline()).startswith(b"INFO ")
            finally:
                writer.close()
    return False


def services(examined: Examined) -> Iterator[Problem]:
    """Check that each service runs and does not crash again and again."""
    for one in examined.node.services if examined.node is not None else ():
        log = f"look into: hearthnet logs {one.name}"
        seconds = (examined.now_ms - one.since) / 1000
        if one.pid is not None and _state(one.pid) == _STOPPED:
            yield _stopped("services.state", f"the service {one.name}", one.pid)
        elif one.state in ("waiting", "stopped") or (one.state == "starting" and one.restarts):
            often = f", and was started {one.restarts} times" if one.restarts else ""
            why = f": {one.note}" if one.note else ""
            yield fault("services.state", f"the service {one.name} has ended{often}{why}", log)
        elif one.state == "starting" and seconds > _STARTING_SECONDS:
            yield fault(
                "services.state", f"the service {one.name} has been starting for {seconds:.0f} s", log
            )
        elif one.restarts >= _RESTARTS:
            yield warning(
                "services.state",
                f"the service {one.name} has ended and was started {one.restarts} times",
                log,
            )
        elif one.note:
            yield warning("services.note", f"the service {one.name} says: {one.note}", log)


def gateway(examined: Examined) -> Iterator[Problem]:
    """Check that the gateway answers."""
    from hearthnet.core.node_state import GATEWAY

    if examined.node is None or not examined.node.gateway_url:
        return
    state = next(one for one in examined.node.services if one.name == GATEWAY)
    if state.pid is not None and _state(state.pid) == _STOPPED:
        return  # `services` reports it
    if not _is_healthy(examined.node.gateway_url):
        yield fault(
            "gateway.answer",
            f"the gateway does not answer at {examined.node.gateway_url}",
            "look into: hearthnet logs gateway",
        )


def _is_healthy(url: str) -> bool:
    import httpx2

    with contextlib.suppress(httpx2.HTTPError):
        # The gateway of this computer: its certificate is the matter of another check.
        answer = httpx2.get(f"{url}/health", timeout=_ANSWER_SECONDS, verify=False, trust_env=False)
        return answer.is_success
    return False


def bus(examined: Examined) -> Iterator[Problem]:
    """Check that a program of this home can connect, and that the connected models are offered."""
    from hearthnet.bus.bus import Bus

    node = examined.node
    if node is None or _state(node.pid) == _STOPPED or _state(node.server.pid) == _STOPPED:
        return

    async def offered() -> set[str]:
        async with (
            asyncio.timeout(2 * _ANSWER_SECONDS),
            await Bus.connect(examined.home, name="doctor") as bus,
        ):
            views = await bus.offers("llm.chat")
            return {str(view.params.get("model")) for view in views if view.node == bus.peer.node_id}

    try:
        models = asyncio.run(offered())
    except TimeoutError:
        yield fault(
            "bus.connect", "the bus of the node does not answer", "look into: hearthnet logs nats-server"
        )
        return
    except HearthNetError as error:
        yield of_error("bus.connect", error)
        return
    if examined.config is not None:
        yield from not_offered(examined.config.llm.models, models)


def not_offered(models: Iterable[ModelConfig], offered: Collection[str]) -> Iterator[Problem]:
    """Name the connected models that are not among those `offered`, without the logins in their URLs."""
    from hearthnet.models.urls import without_login

    for model in models:
        if model.name not in offered:
            yield fault(
                "model.offered",
                f"the connected model {model.name} at {without_login(model.url)[0]} is not offered: its "
                "server does not answer, or has no such model",
                f"see: hearthnet models test {model.name}",
            )


def _state(pid: int) -> str:
    """Return the letter of a process's state (`R`, `S`, `T`, ...); empty where the system shows none."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def _stopped(check: str, what: str, pid: int) -> Problem:
    return fault(
        check,
        f"{what} (process {pid}) is stopped: it runs, and does nothing",
        f"let it go on: kill -CONT {pid}",
    )
