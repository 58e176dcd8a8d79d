"""One home whose server, market and executors are killed: real processes on a real disk."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import msgspec

from hearthnet.agent.persistence.jetstream_store import StoredRuns
from hearthnet.agent.persistence.saved_runs import SavedRuns
from hearthnet.bus.store import Store
from hearthnet.core.node_state import ServiceState, read_node_state
from hearthnet.core.times import now_ms
from hearthnet.service.hosting.status import LIFELINE_VARIABLE
from tests.chaos import steps
from tests.chaos.hooks import Step, SteppedRuns
from tests.chaos.line import Answer, Exchange, Peer
from tests.chaos.nursery import Order
from tests.chaos.plan import Plan
from tests.helpers.mesh import Mesh, start_mesh
from tests.helpers.processes import bare_environment
from tests.helpers.waiting import wait_for

ROOT: Final = Path(__file__).resolve().parents[2]
STREAM: Final = "MARKET"
DEADLINE_SECONDS: Final = 60.0


class Nursery:
    """The process that all others are forked from; they end with it."""

    def __init__(self, log: Path) -> None:
        """`log` takes what its processes say."""
        read, self._lifeline = os.pipe()
        environment = bare_environment(**{LIFELINE_VARIABLE: str(read)})
        command = [sys.executable, "-m", "tests.chaos.nursery"]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stderr=output, cwd=ROOT, env=environment, pass_fds=[read]
            )
        os.close(read)

    def order(self, order: Order) -> None:
        """Has a process forked."""
        if self._process.poll() is not None:
            raise RuntimeError("the nursery has ended")
        if self._process.stdin is None:
            raise RuntimeError("the nursery takes no orders")
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        self._process.stdin.flush()

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_error: object) -> None:
        """Ends it and everything that came from it."""
        os.close(self._lifeline)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(30)


class World:
    """A home with its server and its market, which come back whenever they are killed."""

    def __init__(self, folder: Path, nursery: Nursery, sabotage: str = "") -> None:
        self._folder = folder
        self._nursery = nursery
        self._exchange = Exchange(folder / "line")
        self._sabotage = sabotage
        self._stack = contextlib.AsyncExitStack()
        self._returning: set[asyncio.Task[None]] = set()
        self._mesh: Mesh
        self._stores: list[Store] = []
        self.market: Peer | None = None
        self.answer: Answer = _nobody
        """Hears the steps of all processes."""

    async def __aenter__(self) -> World:
        try:
            await self._open()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def _open(self) -> None:
        await self._exchange.open()
        self._mesh = await start_mesh(self._folder / "w")
        self._stack.callback(self._end_server)
        self._stack.enter_context(self._mesh.published(_market("starting")))
        for _ in range(2):
            store = await self._stack.enter_async_context(await self._mesh.store())
            store.link.client.options["reconnect_time_wait"] = 0.1
            self._stores.append(store)
        await self._start_market()

    async def __aexit__(self, *_error: object) -> None:
        while self._returning:  # a server that is being started is known to nobody yet
            await asyncio.gather(*self._returning, return_exceptions=True)
        if self.market is not None and self.market.alive:
            await self.market.kill()
        await self._stack.aclose()
        await self._exchange.close()

    def _end_server(self) -> None:
        self._mesh.server.kill()

    # --- the executor and the clients

    async def executor(self, plan: Plan, run: str = "") -> Peer:
        """A process that begins the run of `plan`, or goes on with the saved one."""
        return await self._fork("executor", plan=plan, run=run)

    def desks(self, step: Step) -> tuple[SavedRuns, SavedRuns]:
        """Two clients, each with a connection of its own."""
        first, second = (self._desk(store, step) for store in self._stores)
        return first, second

    def _desk(self, store: Store, step: Step) -> SavedRuns:
        identity = self._mesh.identity
        say = (steps.DECIDING, steps.DECIDED)
        runs = SteppedRuns(StoredRuns(store, identity), identity, step, say, self._sabotage)
        return SavedRuns(runs, identity, identity.node_id)  # who founds a community is its root

    async def _fork(self, role: str, **more: Any) -> Peer:
        peer = Peer(role, self._answer)
        home = self._mesh.home.path
        self._nursery.order(
            Order(
                role=role,
                home=str(home),
                url=self._mesh.server.url,
                socket=str(self._exchange.path),
                token=self._exchange.expect(peer),
                sabotage=self._sabotage,
                **more,
            )
        )
        await asyncio.wait_for(peer.here.wait(), DEADLINE_SECONDS)
        return peer

    async def _answer(self, peer: Peer, message: dict[str, Any]) -> None:
        if message.get("ready"):
            self._publish(_market("ready"))
        else:
            await self.answer(peer, message)

    # --- what is killed

    async def kill_market(self, delay: float) -> bool:
        """Kills the provider, which is back `delay` seconds later; False where it is dead already."""
        market = self.market
        if market is None or not market.alive:
            return False
        self.market = None
        self._publish(_market("waiting"))
        await market.kill()
        self._later(delay, self._start_market)
        return True

    async def kill_server(self, delay: float) -> bool:
        """Kills the server, which is back `delay` seconds later; False where it is dead already."""
        server = self._mesh.server
        if server.process.poll() is not None:
            return False
        server.kill()
        self._later(delay, self._start_server)
        return True

    async def settled(self) -> None:
        """Returns when server and market are there again."""
        while self._returning:
            await asyncio.gather(*self._returning)

    def _later(self, delay: float, work: Any) -> None:
        async def again() -> None:
            await asyncio.sleep(delay)
            await work()

        task = asyncio.create_task(again())
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    async def _start_market(self) -> None:
        async def up() -> bool:
            """Ready, unless the server went away under it while it started."""
            peer = await self._fork("provider")
            while not peer.gone.is_set():
                if read_node_state(self._mesh.home).services[0].state == "ready":
                    self.market = peer
                    return True
                await asyncio.sleep(0.01)
            return False

        self._publish(_market("starting"))
        await wait_for(up, DEADLINE_SECONDS, "the market")

    async def _start_server(self) -> None:
        self._mesh.server = await asyncio.to_thread(self._mesh.server.again)

    def _publish(self, service: ServiceState) -> None:
        """What the node's supervisor would say of the market."""
        home = self._mesh.home
        state = msgspec.structs.replace(read_node_state(home), services=(service,))
        hidden = home.state.with_suffix(".new")
        hidden.write_bytes(msgspec.json.encode(state))
        hidden.rename(home.state)

    # --- the market's log

    async def place(self) -> int:
        """How many events the market's log has."""
        info = await self._asked(lambda: self._stores[0].js.stream_info(STREAM))
        return int(info.state.last_seq)

    async def posts(self, after: int) -> list[str]:
        """The titles of the posts after place `after`, as they lie in the stream."""
        titles = []
        for number in range(after + 1, await self.place() + 1):
            message = await self._asked(lambda at=number: self._stores[0].js.get_msg(STREAM, at))
            titles.append(msgspec.json.decode(message.data)["data"]["title"])
        return titles

    async def _asked(self, question: Any) -> Any:
        """The answer of a server that may be coming back."""
        from nats.errors import Error

        end = asyncio.get_running_loop().time() + DEADLINE_SECONDS
        while True:
            try:
                return await question()
            except (Error, OSError, TimeoutError):
                if asyncio.get_running_loop().time() > end:
                    raise
                await asyncio.sleep(0.05)


def _market(state: Any) -> ServiceState:
    offers = tuple(f"market.{verb}@1.0" for verb in ("list", "search", "post", "expire"))
    return ServiceState("market", None, state, 0, None, offers if state == "ready" else (), now_ms())


async def _nobody(_peer: Peer, _message: dict[str, Any]) -> None:
    """Nobody listens."""


@contextlib.asynccontextmanager
async def worlds(nursery: Nursery, count: int, sabotage: str = "") -> AsyncIterator[list[World]]:
    """That many worlds, side by side."""
    # The sockets of a world have short names: the system allows no others.
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        async with contextlib.AsyncExitStack() as stack:
            found = []
            for number in range(count):
                (place := Path(folder) / str(number)).mkdir()
                found.append(await stack.enter_async_context(World(place, nursery, sabotage)))
            yield found
