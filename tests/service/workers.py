"""Several processes of one node that do the same, and calls to them under tokens, approvals and grants."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hearthnet.bus.bus import Bus
from hearthnet.bus.calls.unary import ReceivedReply
from hearthnet.contracts.registry import contracts
from hearthnet.core import ids, process_lock
from hearthnet.core.canonical_json import content_hash, digest
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.protocol import evidence
from hearthnet.service.effects.audit_log import AuditLog
from hearthnet.trust import audit_chain
from hearthnet.trust.audit_chain import AuditEntry, ChainProblem, Verifier
from hearthnet.trust.authorization.approval import Approval, sign_approval
from hearthnet.trust.authorization.grant import Grant, sign_grant
from hearthnet.trust.authorization.token import Scope, mint
from tests.helpers.mesh import Mesh
from tests.helpers.processes import child_environment
from tests.helpers.service_processes import START_SECONDS
from tests.helpers.waiting import DEADLINE_SECONDS, wait_for
from tests.service.effect_worker import INGEST, EffectService

SCRIPT = Path(__file__).with_name("effect_worker.py")
RUN = ids.new_ulid()


def body(title: str = "plain", document: str = "x") -> dict[str, Any]:
    """A body for `rag.ingest`; `title` is what the worker does."""
    cid = content_hash(document.encode())
    return {"params": {"corpus": "probe"}, "input": {"doc_cid": cid, "title": title}}


@dataclass
class Workers:
    """Processes that offer `rag.ingest` on one node."""

    mesh: Mesh
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """The data folder of their service."""
        return self.mesh.home.service(EffectService.name)

    @property
    def effects(self) -> list[str]:
        """What was done: one line an effect."""
        file = self.folder / "effects"
        return file.read_text().splitlines() if file.exists() else []

    async def start(self, bus: Bus, count: int = 1) -> None:
        """Starts that many and waits until they are found."""
        known = {path.name for path in process_lock.everybody(self.mesh.home)}
        self.running.extend(self._process() for _ in range(count))

        async def there() -> bool:
            return len(await self._found(bus) - known) == count

        await wait_for(there, START_SECONDS, f"{count} workers")

    def _process(self) -> subprocess.Popen[bytes]:
        home = self.mesh.home.path
        with (home / "workers.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, str(SCRIPT), str(home)],
                env=child_environment(PYTHONPATH=SCRIPT.parents[2]),
                stdout=log,
                stderr=log,
            )

    async def _found(self, bus: Bus) -> set[str]:
        try:
            return {view.offer.instance for view in await bus.offers(INGEST)}
        except HearthNetError:
            return set()

    def end(self) -> None:
        """Ends them in order."""
        for process in self.running:
            process.terminate()
        for process in self.running:
            process.wait(DEADLINE_SECONDS)
        self.running.clear()

    def kill(self) -> None:
        """Kills those that run."""
        for process in self.running:
            process.kill()
            process.wait()
        self.running.clear()

    async def entries(self) -> list[AuditEntry]:
        """The node's audit log, which is found whole."""
        async with await self.mesh.store() as store:
            found, finding = await audited(self.mesh, AuditLog(store, self.mesh.identity))
        assert finding is None
        return found


@contextlib.contextmanager
def working(mesh: Mesh) -> Iterator[Workers]:
    """Workers on `mesh`, which is published as a running node; none is left afterwards."""
    workers = Workers(mesh)
    with mesh.published():
        try:
            yield workers
        finally:
            workers.end()


async def audited(mesh: Mesh, log: AuditLog) -> tuple[list[AuditEntry], ChainProblem | None]:
    """All entries of the node's log, and what is wrong with them."""
    verifier, found = Verifier(mesh.identity.node_id, check=evidence.problem), []
    async for batch in log.lines(0, (await log.end()).sequence):
        for message in batch:
            verifier.feed(message.data)
            found.append(audit_chain.read(message.data))
    return found, verifier.end(None)


def token(bus: Bus) -> str:
    """A run token of the node for itself."""
    return mint(
        bus.peer.identity,
        subject=bus.peer.node_id,
        audience=bus.peer.community,
        scope=Scope(capabilities=(INGEST,)),
        now_ms=now_ms(),
        ttl_seconds=60,
        run=RUN,
    )


def approval(bus: Bus, wanted: dict[str, Any], key: str = "", **changes: Any) -> Approval:
    """A yes to exactly this call, under the idempotency key `key`."""
    node, now = bus.peer.node_id, now_ms()
    fields: dict[str, Any] = {
        "id": ids.new_ulid(),
        "community": bus.peer.community,
        "approver": node,
        "actor": node,
        "provider": node,
        "capability": INGEST,
        "arguments_digest": digest(wanted),
        "idempotency_key": key,
        "run": RUN,
        "tool_call_id": "call_1",
        "time": now,
        "expires": now + 60_000,
    }
    return sign_approval(bus.peer.identity, Approval(**{**fields, **changes}))


def grant(bus: Bus, max_uses: int = 5, **changes: Any) -> Grant:
    """A standing yes to that many calls."""
    node, now = bus.peer.node_id, now_ms()
    fields: dict[str, Any] = {
        "id": ids.new_ulid(),
        "community": bus.peer.community,
        "approver": node,
        "actor": node,
        "provider": node,
        "capability": INGEST,
        "params_constraints": {},
        "tool_hash": contracts().get(INGEST).schema_hash,
        "max_uses": max_uses,
        "time": now,
        "expires": now + 60_000,
    }
    return sign_grant(bus.peer.identity, Grant(**{**fields, **changes}))


async def ingest(bus: Bus, wanted: dict[str, Any], **given: Any) -> ReceivedReply:
    """A call of `rag.ingest` under a run token, with what else is given."""
    return await bus.call(INGEST, wanted, token=token(bus), run=RUN, **given)
