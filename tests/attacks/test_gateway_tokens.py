"""A plain member that signs token after token for clients of its own at another home's gateway."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from hearthnet.bus.session.keyring import load_identity, load_roster
from hearthnet.core.times import now_ms
from hearthnet.gateway.http.rate_limits import MOST_SOCKETS
from hearthnet.gateway.socket.protocol import SocketSettings
from hearthnet.trust.authorization.token import Scope, mint
from tests.helpers.neighbourhood import settle_in
from tests.helpers.shell import Shell

TOKENS = 4


CALL = {"type": "call", "capability": "mesh.search", "body": {"params": {}, "input": {"query": "rain"}}}


async def _open(url: str, token: str, first: dict[str, Any]) -> tuple[ClientConnection, Any]:
    """A socket of the client with this token, and the answer to its first frame."""
    socket = await connect(
        f"ws{url.removeprefix('http')}/v1/socket",
        subprotocols=[Subprotocol("hearthnet-bus.v2")],
        additional_headers={"Authorization": f"Bearer {token}"},
        proxy=None,
    )
    await socket.send(json.dumps(first))
    return socket, json.loads(await socket.recv())


def _code(frame: Any) -> str:
    """The event, or the code of an error."""
    return str(frame["data"].get("error", frame["event"]))


@pytest.mark.asyncio
@pytest.mark.req("ATTACK-43")
async def test_clients_of_another_node_share_its_sockets_and_streams(tmp_path: Path) -> None:
    neighbourhood = settle_in(tmp_path, "mallory", services=("mesh",))
    home = neighbourhood.founder
    home.config_file.write_text(
        home.config_file.read_text().replace("[gateway]\nenabled = false", "[gateway]\nport = 0")
    )
    mallory, shell = load_identity(neighbourhood.home("mallory").device_key), Shell(home.path)
    tokens = [
        mint(
            mallory,
            subject=load_identity(home.device_key).node_id,
            audience=load_roster(home.roster).community_id,
            scope=Scope(capabilities=("mesh.search",)),
            now_ms=now_ms(),
            ttl_seconds=600,
            principal=f"guest{number}",
        )
        for number in range(TOKENS)
    ]
    with shell.node():
        services = (await asyncio.to_thread(shell.json, "status", "--json"))["services"]
        url = next(str(one["address"]) for one in services if one["name"] == "gateway")
        opened = [
            await _open(url, tokens[number % TOKENS], {"type": "subscribe", "topic": "mesh"})
            for number in range(MOST_SOCKETS + 2)
        ]
        codes = [_code(frame) for _, frame in opened]
        assert set(codes[:MOST_SOCKETS]) == {"opened"}
        assert codes[MOST_SOCKETS:] == ["capacity_exceeded"] * 2
        await asyncio.gather(*(socket.close() for socket, _ in opened))
        # Streams that nobody reads are kept for a minute; the oldest of the node give way to others of it.
        streams = []
        for number in range(SocketSettings().most_streams + 1):
            socket, frame = await _open(url, tokens[number % TOKENS], CALL)
            streams.append(frame["data"]["stream"])
            socket.transport.abort()
        resumed = [
            await _open(url, tokens[number % TOKENS], {"type": "resume", "stream": streams[number]})
            for number in (0, SocketSettings().most_streams)
        ]
        assert [_code(frame) for _, frame in resumed] == ["not_found", "opened"]
        await asyncio.gather(*(socket.close() for socket, _ in resumed))
