"""Other people's programs at the socket: the client of the documentation, and wscat."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

from hearthnet.gateway.auth.client_store import api_key
from tests.helpers.gateway import House
from tests.helpers.scripted_model import Say
from tests.helpers.socket_client import call_of, complete

pytestmark = pytest.mark.asyncio(loop_scope="module")
ROOT = Path(__file__).resolve().parents[3]
_PIPE = asyncio.subprocess.PIPE
WSCAT = ROOT / "tests" / "clients" / "node_modules" / ".bin" / "wscat"


async def run(*command: str | Path) -> tuple[str, str]:
    """What a program says: its answer, and its complaints."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command), stdin=_PIPE, stdout=_PIPE, stderr=_PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    # Its input stays open: wscat ends with it.
    reading = asyncio.gather(process.stdout.read(), process.stderr.read())
    answer, complaints = await asyncio.wait_for(reading, 120)
    await process.wait()
    return answer.decode(), complaints.decode()


@pytest.mark.req("SOCK-20")
async def test_the_client_in_the_documentation_asks_and_is_answered(shared: House, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "gateway.md").read_text()
    found = re.search(r"## WebSocket\n.*?```python\n(.*?)```", page, re.DOTALL)
    assert found is not None
    program = tmp_path / "client.py"
    program.write_text(found[1])
    guest = shared.guest()
    body = "one two three four five six seven eight nine ten eleven"
    shared.model.turns["Say a lot"] = [Say(body)]
    key = api_key(guest.entry, guest.secret)
    answer, complaints = await run(sys.executable, program, shared.socket_url, key, "Say a lot")
    assert (answer.split(), complaints) == (body.split(), "")


@pytest.mark.req("SOCK-20")
async def test_wscat_asks_and_is_answered(shared: House) -> None:
    import msgspec

    guest = shared.guest()
    frame = msgspec.json.encode(call_of(shared, guest, "llm.complete", complete("hello there"))).decode()
    header = f"Authorization: {guest.bearer['Authorization']}"
    options = ("-s", "hearthnet-bus.v2", "-H", header, "-w", "60", "-x", frame)
    answer, complaints = await run("node", WSCAT, "-c", shared.socket_url, *options)
    frames = [line for line in answer.splitlines() if line.startswith("{")]
    events = [msgspec.json.decode(line)["event"] for line in frames]
    assert events == ["opened", "token", "token", "done"], (answer, complaints)
