"""A running node for the tests of a service: real server, real supervisor, the service in the test's process.

    node = node_fixture(service)

    def test_greet_answers(node: Node) -> None:
        assert node.call("hello.greet", name="Ada") == "Hello Ada"

See: docs/services.md#testing-functions.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from hearthnet.bus.bus import Bus
from hearthnet.cli.input.local_call import fill_client_id
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.service.hosting.main import serve
from hearthnet.service.hosting.service import Service
from hearthnet.service.hosting.status import Status

__all__ = ["Node", "node_fixture", "running_node"]
_SETTINGS: Final = """\
[server]
port = 0

[community]
port = 0

[gateway]
enabled = false

[services]
enabled = []
"""
_UP: Final = "import sys; from hearthnet.cli import main; sys.exit(main())"
_START_SECONDS: Final = 120.0
_STOP_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.02
_LOG_LINES: Final = 20
T = TypeVar("T")
Scope = Literal["session", "package", "module", "class", "function"]


class Node:
    """A running node, as its tests see it; all its methods may be called from any thread."""

    def __init__(self, home: Path) -> None:
        self.home = home
        """Its data folder, as for `--home`."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="hearthnet test node")
        self._thread.start()
        self._bus: Bus | None = None

    def call(self, capability: str, /, **fields: Any) -> Any:
        """Call `name` or `name@major.minor` with fields of its params and input; return the output.

        A `client_id` is made up where an effect takes one and none is given.

        Raises:
            HearthNetError: As `hearthnet.bus.bus.Bus.call`.
        """
        return self._wait_for(self._call(capability, fields))

    @contextlib.contextmanager
    def hosting(self, *services: Service) -> Iterator[None]:
        """Serve `services` in this process until the block ends, after the running calls have ended.

        Raises:
            HearthNetError: The error of a service that does not start.
        """
        with contextlib.ExitStack() as stack:
            for service in services:
                stack.callback(self._wait_for(self._start(service)))
            yield

    def close(self) -> None:
        """Leave the node."""
        if self._bus is not None:
            self._wait_for(self._bus.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _call(self, capability: str, fields: dict[str, Any]) -> Any:
        if self._bus is None:
            self._bus = await Bus.connect(Home(self.home), "test")
        contract = await self._bus.fetch_contract(capability)
        body = contract.split_arguments(fields, None)
        fill_client_id(contract, body)
        return (await self._bus.call(contract.id, body)).output

    async def _start(self, service: Service) -> Callable[[], None]:
        """Start serving; return a function that ends it."""
        status, stop = _Readiness(), asyncio.Event()
        serving = asyncio.create_task(serve(service, Home(self.home), status, stop))
        ready = asyncio.create_task(status.event.wait())
        await asyncio.wait({serving, ready}, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            await serving

        async def end() -> None:
            stop.set()
            await serving

        return lambda: self._wait_for(end())


class _Readiness(Status):
    """The status of a service in this process: an event that is set once it offers."""

    def __init__(self) -> None:
        super().__init__(None)
        self.event = asyncio.Event()

    def ready(self, offers: list[str], note: str | None, address: str = "") -> None:
        """Set the event."""
        self.event.set()


@contextlib.contextmanager
def running_node(*services: Service) -> Iterator[Node]:
    """Run a node in a temporary home, with `services` in this process and no others.

    Raises:
        HearthNetError: `internal_error` with the end of its log if the node does not start.
    """
    with tempfile.TemporaryDirectory(prefix="hearthnet-") as folder, _up(Path(folder)) as home:
        node = Node(home)
        try:
            with node.hosting(*services):
                yield node
        finally:
            node.close()


def node_fixture(*services: Service, scope: Scope = "session") -> Any:
    """Return a pytest fixture that yields `running_node(*services)`, named as the variable it is kept in."""
    import pytest

    @pytest.fixture(scope=scope)
    def node() -> Iterator[Node]:
        with running_node(*services) as running:
            yield running

    return node


@contextlib.contextmanager
def _up(folder: Path) -> Iterator[Path]:
    """Run `hearthnet up` in `folder`; yield its home once it is ready."""
    home, ready, log = folder / "home", folder / "ready.json", folder / "up.log"
    home.mkdir(mode=0o700)
    (home / "hearthnet.toml").write_text(_SETTINGS)
    command = [sys.executable, "-c", _UP, "up", "--home", str(home), "--ready-file", str(ready)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        until = time.monotonic() + _START_SECONDS
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > until:
                lines = log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
                raise HearthNetError("internal_error", "the node did not start:\n" + "\n".join(lines))
            time.sleep(_PAUSE_SECONDS)
        yield home
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
