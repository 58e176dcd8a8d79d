"""Requests whose faults or schemas cost more than they weigh, against a node with a model and its gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx2
import psutil
import pytest
import pytest_asyncio

from hearthnet.bus.session.keyring import load_identity
from tests.attacks.attacker import Attacker
from tests.helpers.mesh import GuestBus
from tests.helpers.neighbourhood import Neighbourhood, settle_in
from tests.helpers.shell import Shell
from tests.services.llm.model_server import ModelServer, calling

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.req("ATTACK-31"),
]
CHAT = "llm.chat@2.0"
SECONDS, GROWTH = 3.0, 100 << 20
"""Processor time of each attack in the attacked process, and its memory."""
MALFORMED: dict[str, Any] = {
    "images": {"type": "image"},
    "nothing": {},
    "no parts": 1,
    "wide": {"type": "image", **{f"field{number}": 0 for number in range(300)}},
    "nested": {"type": "tool_result", "content": [{}] * 300},
    "text": {"type": "image", "text": "x" * 1_000},
}


@dataclass(frozen=True)
class Attacked:
    """A node with a model's server near it and a gateway, and the key of a client that may chat."""

    neighbourhood: Neighbourhood
    url: str
    gateway_url: str
    key: dict[str, str]
    processes: dict[str, psutil.Process]
    model: ModelServer

    @property
    def node(self) -> str:
        """Its full id."""
        return load_identity(self.neighbourhood.founder.device_key).node_id


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def attacked(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Attacked]:
    """`hearthnet up` with its processes."""
    patience = "[limits]\ncapability_soft = 0\ncapability_hard = 0\ntotal_soft = 0\ntotal_hard = 0\n"
    async with ModelServer(**{"far-1": {}}) as server:
        server.routes["/v1/chat/completions"] = calling("own", {"x": "y"})
        neighbourhood = settle_in(
            tmp_path_factory.mktemp("costly"),
            "mallory",
            services=("llm", "market"),
            settings=patience + server.config(),
            gateway=True,
        )
        shell = Shell(neighbourhood.founder.path)
        node = shell.node()
        state = await asyncio.to_thread(node.__enter__)
        try:
            services = (await asyncio.to_thread(shell.json, "status", "--json"))["services"]
            named = {one["name"]: one for one in services}
            added = await asyncio.to_thread(
                shell.json, "clients", "add", "phone", "--scope", "llm.chat", "--json"
            )
            yield Attacked(
                neighbourhood,
                str(state["server"]["url"]),
                named["gateway"]["address"],
                {"Authorization": f"Bearer {added['secret']}"},
                {name: psutil.Process(named[name]["pid"]) for name in ("llm", "gateway")},
                server,
            )
        finally:
            await asyncio.to_thread(node.__exit__, None, None, None)


class Cost:
    """What an attack cost a process: seconds of processor time, bytes of memory."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self._used, self._memory = self._now()

    def _now(self) -> tuple[float, int]:
        return sum(self._process.cpu_times()[:2]), self._process.memory_info().rss

    def check(self) -> None:
        """Check both against the bounds."""
        used, memory = self._now()
        assert used - self._used < SECONDS
        assert memory - self._memory < GROWTH


def _body(part: Any, size: int) -> dict[str, Any]:
    """A chat of about `size` bytes of malformed parts."""
    count = max(1, size // (len(str(part)) + 2))
    return {"params": {}, "input": {"messages": [{"role": "user", "content": [part] * count}]}}


@pytest.mark.parametrize("kind", MALFORMED)
async def test_faults_of_a_large_call_cost_a_provider_little(attacked: Attacked, kind: str) -> None:
    bus = await GuestBus.at(attacked.node, attacked.neighbourhood.home("mallory"), attacked.url, "mallory")
    try:
        attacker = Attacker(bus)
        view = await attacker.target(CHAT, attacked.node)
        cost = Cost(attacked.processes["llm"])
        for _ in range(3):
            error = await attacker.refusal(view, CHAT, _body(MALFORMED[kind], 120_000))
            assert (error.code, error.details["path"][:17]) in (
                ("bad_request", "/input/messages/0"),
                ("bad_request", ""),
            )
        cost.check()
    finally:
        await bus.close()


async def _asked(attacked: Attacked, *schemas: dict[str, Any], choose: str = "auto") -> httpx2.Response:
    """A run of the client with tools of its own, which have these schemas."""
    tools = [
        {"name": f"own{number or ''}", "parameters_schema": schema} for number, schema in enumerate(schemas)
    ]
    body = {"params": {}, "input": {"messages": [{"role": "user", "content": "Go."}], "tools": tools}}
    async with httpx2.AsyncClient(timeout=120, trust_env=False, headers=attacked.key) as http:
        return await http.post(f"{attacked.gateway_url}/v1/call/{CHAT}", json=body)


async def test_tools_of_a_client_cost_the_gateway_little(attacked: Attacked) -> None:
    patterns = [{"pattern": rf"\pL{{1,20}}{number}"} for number in range(400)]
    costly = {"type": "object", "properties": {"x": {"anyOf": patterns}}}
    cost = Cost(attacked.processes["gateway"])
    answer = await _asked(attacked, costly, *[{**costly, "title": str(number)} for number in range(9)])
    assert answer.status_code == 200, answer.text
    cost.check()


async def test_references_of_a_clients_tool_cost_little(attacked: Attacked) -> None:
    """The model calls the tool with arguments that do not fit it."""
    doubled: dict[str, Any] = {
        f"a{number}": {"anyOf": [{"$ref": f"#/$defs/a{number + 1}"}] * 2} for number in range(16)
    }
    schema = {
        "type": "object",
        "$defs": {**doubled, "a16": {"const": "z"}},
        "properties": {"x": {"$ref": "#/$defs/a0"}},
    }
    cost = Cost(attacked.processes["gateway"])
    answer = await _asked(attacked, schema)
    assert answer.status_code == 200, answer.text
    cost.check()
