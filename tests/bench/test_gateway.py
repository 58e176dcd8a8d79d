"""What is measured of the gateway is what it sends, and the plain server beside it sends the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import gateway_bench
from tests.bench.bus_peers import TALK_FRAMES
from tests.bench.gateway_bench import _read, _server, _sockets
from tests.bench.gateway_peers import same_frames
from tests.bench.rivals import answering
from tests.helpers.mesh import start_mesh


@pytest.mark.asyncio
@pytest.mark.req("BENCH-4")
async def test_both_send_the_same_frames(tmp_path: Path) -> None:
    mesh = await start_mesh(tmp_path, stores=False)
    mesh.home.config_file.write_text(gateway_bench._SETTINGS)
    place = f"{mesh.home.path}={mesh.server.url}"
    try:
        async with answering("ours", place), _server("gateway", place) as ours, _server("plain") as plain:
            for server in (ours, plain):
                async with _sockets(server, 1) as (socket,):
                    assert await _read(socket, TALK_FRAMES) == TALK_FRAMES + 2
            async with _sockets(ours, 1) as (socket,):
                await socket.send(gateway_bench._call(1))
                sent = [str(await socket.recv()) for _ in range(3)]
    finally:
        mesh.server.stop()
    expected = same_frames(1)
    assert sent[1] == expected[1]
    assert [len(one) for one in sent[:2]] == [len(one) for one in expected[:2]]
    assert sent[2].startswith('{"event":"done","data":{')
    assert 0.8 < len(sent[2]) / len(expected[2]) < 1.3
