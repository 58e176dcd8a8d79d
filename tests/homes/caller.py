"""A process of a home, in the network of that home, that makes the calls which its input names.

`python -m tests.homes.caller HOME`: each line of the input is
`{"number", "capability", "given", "node", "seconds"}`, where `node` is a home or empty for any; each of the
output is `{"number", "output"}` or `{"number", "code", "message"}`. The first says that it is connected.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec

from hearthnet.bus.bus import Bus
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home


async def main(home: Path) -> None:
    """Answer lines until the input ends."""
    loop, lines = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async with await Bus.connect(Home(home), "homes") as bus, asyncio.TaskGroup() as calls:
        _say({"number": 0})
        while line := await lines.readline():
            calls.create_task(_answer(bus, **msgspec.json.decode(line)))


async def _answer(
    bus: Bus, number: int, capability: str, given: dict[str, Any], node: str, seconds: float
) -> None:
    body = {"params": {}, "input": given}
    try:
        output = (await bus.call(capability, body, node=node, timeout_seconds=seconds)).output
    except HearthNetError as error:
        _say({"number": number, "code": error.code, "message": str(error)})
    else:
        _say({"number": number, "output": output})


def _say(what: dict[str, Any]) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
