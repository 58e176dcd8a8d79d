"""A member that offers contracts made to harm whoever lists them, against a node with its gateway."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import httpx2
import msgspec
import psutil
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from hearthnet import Call, NodeContext, Offer, Reply, Service
from hearthnet.bus.bus import Bus
from hearthnet.bus.calls.contract_fetch import BUSY_SECONDS
from hearthnet.contracts import Contract, contracts, versioned
from hearthnet.core.config_loader import load_config
from hearthnet.core.home import Home
from hearthnet.service import Endpoint
from hearthnet.service.hosting.host import Host
from hearthnet.service.hosting.status import Status
from tests.helpers.neighbourhood import settle_in
from tests.helpers.shell import Shell
from tests.helpers.waiting import wait_for

PREFIX = "experimental.mcp.strange."
HEAVY = [{"pattern": rf"\pL{{1,{40 + number // 4}}}"} for number in range(100)]
"""Patterns of 9 bytes that take megabytes and 10 ms each to compile with an engine that allows them."""
HARMFUL: dict[str, dict[str, Any]] = {
    "no_output": {"response_schema": {}},
    "pattern": {"response_schema": {"properties": {"output": {"anyOf": HEAVY}}}},
    "reference": {
        "response_schema": {"properties": {"output": {"$ref": "#"}}},
    },
    "large": {"response_schema": {"properties": {"output": {"anyOf": [{"type": "string"}] * 3_000}}}},
    "frames": {"stream_schema": {"done\ndata: {}\n\nevent: forged": {}}},
}


def contract(name: str, **changed: Any) -> Contract:
    """A contract of a tool, with these parts."""
    parts = {"name": PREFIX + name, "version": "1.0", **changed}
    return msgspec.structs.replace(contracts().get("market.list@1.0"), **parts)


class Stranger(Service):
    """Offers one harmless tool, the harmful ones, and many whose contracts it does not supply."""

    name: ClassVar[str] = "stranger"
    may_define_contracts: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.good = versioned(contract("good"))
        harmful = [contract(f"{kind}{n}", **parts) for kind, parts in HARMFUL.items() for n in range(10)]
        self.supplied = {tool.id: tool for tool in (self.good, *harmful)}
        names = [f"{kind}{n}" for kind in (*HARMFUL, "nothing") for n in range(10)]
        self.asked = Counter[str]()
        self.tools = [self.good, *map(contract, names)]

    def offers(self) -> list[Offer]:
        """Every tool."""
        return [Offer(capability=tool.id) for tool in self.tools]

    def endpoints(self) -> list[Endpoint]:
        """Every tool."""
        anything = dict[str, Any]
        return [Endpoint(tool, self.answer, params_type=anything, input_type=anything) for tool in self.tools]

    async def answer(self, call: Call[Any, Any]) -> Reply:
        """Answer as the contract says."""
        return Reply({"posts": [], "max_lamport": 0})


class StrangeHost(Host):
    """Supplies no contract of some tools, and hostile ones of others."""

    _service: Stranger

    def _contract_output(self, capability: str, caller: str) -> dict[str, Any] | None:
        self._service.asked[capability] += 1
        supplied = self._service.supplied.get(capability)
        return None if supplied is None else {"contract": msgspec.to_builtins(supplied)}


@dataclass(frozen=True)
class Attacked:
    """A node with a gateway, and a member."""

    shell: Shell
    url: str
    server: str
    gateway: psutil.Process
    member: Home

    def tool(self, name: str) -> str:
        """The beginning of the name of the member's tool over MCP."""
        return f"{PREFIX}{name}".replace(".", "_") + "-"


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    """`hearthnet up` with its processes."""
    folder: Path = tmp_path_factory.mktemp("attacked")
    neighbourhood = settle_in(folder, "mallory", services=("market", "mesh"), gateway=True)
    shell = Shell(neighbourhood.founder.path)
    with shell.node() as state:
        gateway = next(one for one in shell.json("status", "--json")["services"] if one["name"] == "gateway")
        yield Attacked(
            shell,
            gateway["address"],
            str(state["server"]["url"]),
            psutil.Process(gateway["pid"]),
            neighbourhood.members["mallory"],
        )


class _NoRecord:
    """What an honest process remembers of effects and of the community; an attacker has no store."""

    @property
    def refusals(self) -> _NoRecord:
        """No record of refusals either."""
        return self

    def tick(self) -> None:
        """Write nothing."""

    async def open(self, *_: object) -> None:
        """Read nothing."""

    async def close(self, *_: object) -> None:
        """Keep nothing."""


@contextlib.asynccontextmanager
async def hosting(attacked: Attacked, service: Service) -> AsyncIterator[None]:
    """`service` offered by the member, from the test's process."""
    bus = await Bus.join(attacked.member, attacked.server, service.name)
    node = NodeContext(
        attacked.member, load_config(attacked.member), attacked.server, service.name, bus, Status(None)
    )
    host = StrangeHost(service, node)
    host._memory = host._records = _NoRecord()  # type: ignore[assignment]
    try:
        await host.open()
        yield
    finally:
        await host.close(drain_seconds=1)
        await node.close()


def _used(process: psutil.Process) -> float:
    """Its processor time, in seconds."""
    times = process.cpu_times()
    return float(times.user + times.system)


async def _longest_health(attacked: Attacked, until: asyncio.Event) -> float:
    """The most processor time that the gateway took before it said that it is there, in seconds."""
    longest = 0.0
    async with httpx2.AsyncClient(timeout=60, trust_env=False) as http:
        while not until.is_set():
            began = _used(attacked.gateway)
            assert (await http.get(f"{attacked.url}/health")).status_code == 200
            longest = max(longest, _used(attacked.gateway) - began)
    return longest


@pytest.mark.e2e
@pytest.mark.asyncio
@pytest.mark.req("ATTACK-31")
async def test_harmful_contracts_cost_little_and_harm_no_other(attacked: Attacked) -> None:
    stranger = Stranger()
    scopes = ("--scope", f"{PREFIX}*", "--scope", "market.list")
    async with hosting(attacked, stranger):
        added = await asyncio.to_thread(attacked.shell.json, "clients", "add", "editor", *scopes, "--json")
        stranger.asked.clear()
        began = time.monotonic()
        await _list_tools(attacked, str(added["secret"]))
        # What did not come within the time of a listing, since the machine is busy, is fetched again once.
        times = 1 + int((time.monotonic() - began) / BUSY_SECONDS)
        assert 1 <= max(stranger.asked.values()) <= times, "what failed is not fetched with each listing"


async def _list_tools(attacked: Attacked, key: str) -> None:
    headers, over = {"Authorization": f"Bearer {key}"}, asyncio.Event()
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http,
        Client(streamable_http_client(f"{attacked.url}/mcp", http_client=http), cache=None) as client,
    ):
        watching = asyncio.create_task(_longest_health(attacked, over))
        memory, used = attacked.gateway.memory_info().rss, _used(attacked.gateway)
        good, listings = attacked.tool("good"), list[set[str]]()

        async def listed() -> bool:
            listings.append({tool.name for tool in (await client.list_tools()).tools})
            return any(name.startswith(good) for name in listings[-1])

        # A listing takes two seconds at most, which is less than a busy machine takes for fifty contracts.
        for _ in range(3):
            await wait_for(listed, 4 * BUSY_SECONDS, what="the harmless tool")
        over.set()
        used = _used(attacked.gateway) - used
        first = listings[-1]
        assert all(one <= first for one in listings)
        assert sorted(re.sub("[0-9a-f]{20}$", "", name) for name in first) == sorted(["market_list", good])
        assert used < 1.5 + (len(listings) - 3) * 0.1
        assert await watching < 1.0
        assert attacked.gateway.memory_info().rss - memory < 64e6
