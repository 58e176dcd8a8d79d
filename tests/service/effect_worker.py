"""A process of a node that offers one capability whose effect is no event: `python effect_worker.py HOME`.

Its effect is a line in the file `effects` of the service's folder; what else it does is in the call's title:

refuse       says that nothing happened, the first time
fail         raises what nobody foresaw, after the effect
timeout      says so, after the effect; likewise internal_error
wait         waits for the file `go` before the effect
die          is killed before the effect
die-after    is killed after the effect
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from hearthnet import Call, NodeContext, Offer, Reply, Service, capability
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.service.hosting.main import serve
from hearthnet.service.hosting.status import Status
from tests.helpers.waiting import wait_for

INGEST = "rag.ingest@1.0"
OFFERED: dict[str, Any] = {"corpora_available": [], "max_document_bytes": 1}


class Anything(msgspec.Struct):
    """Takes whatever the contract lets through."""


class EffectService(Service):
    """Offers `rag.ingest` and writes a line for each effect."""

    name: ClassVar[str] = "effects"
    folder: Path

    async def start(self, node: NodeContext) -> None:
        """Knows where to write."""
        self.folder = node.data

    def offers(self) -> list[Offer]:
        """The one."""
        return [Offer(capability=INGEST, params=OFFERED, max_concurrent=64)]

    @capability(INGEST)
    async def ingest(self, call: Call[Anything, Anything]) -> Reply:
        """One line, and what the title asks for."""
        behaviour = call.body["input"].get("title", "")
        if behaviour == "refuse" and not (self.folder / "refused").exists():
            (self.folder / "refused").touch()
            raise HearthNetError("not_found", "not yet")
        if behaviour == "wait":
            (self.folder / "waiting").touch()
            await wait_for((self.folder / "go").exists, 20, "the word to go on")
        if behaviour == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.to_thread(self._effect, call)
        if behaviour == "die-after":
            os.kill(os.getpid(), signal.SIGKILL)
        if behaviour == "fail":
            raise ValueError("nobody foresaw this")
        if behaviour in ("timeout", "internal_error"):
            raise HearthNetError(behaviour, "perhaps it was done")
        output = {"doc_cid": call.body["input"]["doc_cid"], "chunks_indexed": 1, "tokens_indexed": 1}
        return Reply(output, {"corpus": "probe", "ingest_event_id": ids.new_ulid()})

    def _effect(self, call: Call[Any, Any]) -> None:
        with (self.folder / "effects").open("a") as file:
            file.write(f"{call.id} {os.getpid()}\n")
            file.flush()
            os.fsync(file.fileno())


async def _main(home: Home) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await serve(EffectService(), home, Status(None), stop)


if __name__ == "__main__":
    asyncio.run(_main(Home(Path(sys.argv[1]))))
