"""A node with the mcp service and the servers that a test configures."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from hearthnet.bus.bus import Bus
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.core.home import Home
from hearthnet_mcp import McpService
from tests.helpers.mesh import Mesh
from tests.helpers.waiting import wait_for

SERVERS = Path(__file__).parent / "servers"
EVERYTHING = Path(__file__).parents[2] / "clients" / "node_modules" / ".bin" / "mcp-server-everything"
SECONDS = 30.0
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def tool(name: str, description: str = "A tool.", schema: Any = None, **more: Any) -> dict[str, Any]:
    """A tool as a server lists it."""
    return {
        "name": name,
        "description": description,
        "inputSchema": SCHEMA if schema is None else schema,
        **more,
    }


class Plain:
    """The server without a library, and its folder."""

    def __init__(self, folder: Path, name: str = "plain") -> None:
        self.folder = folder
        self.name = name
        folder.mkdir(exist_ok=True)

    def lists(self, *tools: Any) -> None:
        """What it lists from now on."""
        fresh = self.folder / "tools.new"
        fresh.write_text(json.dumps(tools))
        fresh.replace(self.folder / "tools.json")

    def answers(self, **answers: Any) -> None:
        """What it answers to calls of these tools."""
        (self.folder / "answers.json").write_text(json.dumps(answers))

    def progresses(self, **steps: list[dict[str, Any]]) -> None:
        """How far it says it is in calls of these tools, before it answers."""
        (self.folder / "progress.json").write_text(json.dumps(steps))

    def heard(self, method: str) -> list[dict[str, Any]]:
        """The messages of that method that it was sent."""
        path = self.folder / "heard.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [message for message in map(json.loads, lines) if message.get("method") == method]

    def toml(self, **settings: Any) -> str:
        """It, as settings have it."""
        command = [sys.executable, str(SERVERS / "plain.py"), str(self.folder)]
        return entry(self.name, command, **settings)


def entry(name: str, command: list[str], **settings: Any) -> str:
    """A server, as settings have it."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    return "\n".join(["[[mcp.servers]]", f'name = "{name}"', f"command = {json.dumps(command)}", *lines, ""])


def configure(home: Home, *entries: str) -> None:
    """Writes the settings of a node."""
    fresh = home.path / "settings.new"
    fresh.write_text("\n".join(entries))
    fresh.replace(home.config_file)


@contextlib.asynccontextmanager
async def running(mesh: Mesh, *entries: str, at: Home | None = None) -> AsyncIterator[McpService]:
    """The service with these servers, whose offers follow what it has."""
    configure(at or mesh.home, *entries)
    service = McpService()
    async with mesh.hosting(service, at) as host:
        changed = asyncio.Event()
        service.on_offers_changed(changed.set)

        async def follow() -> None:
            while True:
                await changed.wait()
                changed.clear()
                await host.refresh()

        task = asyncio.create_task(follow())
        service.offers_changed()
        try:
            yield service
        finally:
            task.cancel()
            await asyncio.wait({task})


async def offered(bus: Bus, *names: str) -> dict[str, OfferView]:
    """The offers of MCP tools, by the last part of their names, once those of `names` are there."""

    async def there() -> dict[str, OfferView] | None:
        found = {
            view.capability.name.rpartition(".")[2]: view
            for view in await bus.offers()
            if view.capability.name.startswith("experimental.mcp.")
        }
        return found if found.keys() >= set(names) and (found or not names) else None

    return await wait_for(there, SECONDS, f"offers of {names}")


async def gone(bus: Bus, name: str) -> None:
    """Waits until nothing is offered under that last part of a name."""

    async def absent() -> bool:
        return all(not view.capability.name.endswith(f".{name}") for view in await bus.offers())

    await wait_for(absent, SECONDS, f"the end of the offer of {name}")
