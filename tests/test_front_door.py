"""The front door: `import hearthnet` is cheap, offers its names, and joins the node of a home."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import hearthnet
from tests.helpers.mesh import Mesh
from tests.helpers.probe import QUERY, ProbeService, query

HEAVY = "nats msgspec asyncio ssl mcp_types nacl jsonschema_rs blake3 json pathlib"


@pytest.mark.req("LIB-1")
def test_import_loads_errors_alone() -> None:
    program = (
        "import sys; before = set(sys.modules); import hearthnet; "
        "print(*sorted({name.partition('.')[0] if name[:9] != 'hearthnet' else name "
        "for name in set(sys.modules) - before}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert loaded & set(HEAVY.split()) == set()
    assert {name for name in loaded if name.startswith("hearthnet")} == {
        "hearthnet",
        "hearthnet.core",
        "hearthnet.core.errors",
        "hearthnet.core.lazy_import",
    }


@pytest.mark.req("LIB-1")
def test_each_name_is_there_and_listed() -> None:
    assert all(hasattr(hearthnet, name) for name in hearthnet.__all__)
    assert dir(hearthnet) == sorted(hearthnet.__all__)
    assert 10 <= len(hearthnet.__all__) <= 32
    with pytest.raises(AttributeError, match="module 'hearthnet' has no attribute 'Buss'"):
        hearthnet.Buss  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.req("LIB-2")
@pytest.mark.asyncio
async def test_connect_joins_the_node_of_a_home(mesh: Mesh) -> None:
    async with mesh.hosting(ProbeService()):
        with mesh.published():
            async with hearthnet.connect(mesh.home.path) as bus:
                reply = await bus.call(QUERY, query(), timeout_seconds=10)
            assert reply.output
            assert not bus.peer.link.is_connected
            bus = await hearthnet.connect(str(mesh.home.path), name="other")
            assert await bus.offers(QUERY)
            await bus.close()


@pytest.mark.req("LIB-2")
@pytest.mark.asyncio
async def test_connect_says_that_no_node_runs(tmp_path: Path) -> None:
    with pytest.raises(hearthnet.Unavailable) as caught:
        await hearthnet.connect(tmp_path)
    assert caught.value.rule == "no_node"


@pytest.mark.req("LIB-2")
@pytest.mark.asyncio
async def test_connect_uses_the_home_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEARTHNET_HOME", str(tmp_path / "elsewhere"))
    with pytest.raises(hearthnet.Unavailable, match="elsewhere"):
        async with hearthnet.connect():
            raise AssertionError("nothing runs there")
