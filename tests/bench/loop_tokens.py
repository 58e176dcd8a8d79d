"""What run tokens cost that bound and name their run, beside those that the own node reads with.

    python -m tests.bench.loop_tokens

In turns, batch by batch: the token of all runs (as it is), a token a run, and a token a run whose calls each
provider counts (`max_calls_total`). docs/decisions/0166 has what came out.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from hearthnet.agent.runtime.authority import TOKEN_TTL_SECONDS, RunAuthority, Scopes
from hearthnet.agent.tools.toolbox import BoundTool
from hearthnet.trust.authorization.approval import Approval
from hearthnet.trust.authorization.token import Scope, mint
from tests.bench.loop_bench import _providers
from tests.bench.loop_ports import BODY, OverTheBus, executor
from tests.bench.loop_rivals import Turn
from tests.bench.loop_turn import ANSWER, declared
from tests.helpers.mesh import start_mesh

PAIRS: Final = 15
_BATCH: Final = 20
_MOST_CALLS: Final = 24


class RunToken(RunAuthority):
    """A token of its own for each run, with its id; `most` bounds the calls at each provider."""

    most: int | None = None

    def token(self, tool: BoundTool, holder: str = "", approval: Approval | None = None) -> str:
        """As `RunAuthority`, shared with no other run."""
        number, scope = self._scopes.of(tool)
        holder = self._identity.node_id
        found, now = self._tokens.get((number, holder)), self._clock()
        if found is None:
            found = self._tokens[number, holder] = self._mint(scope, now, holder, self._run), now
        return found[0]

    def _mint(self, scope: Scope, now: int, holder: str, run: str) -> str:
        return mint(
            self._identity,
            subject=holder,
            audience=self._community,
            scope=msgspec.structs.replace(scope, max_calls_total=self.most),
            now_ms=now,
            ttl_seconds=TOKEN_TTL_SECONDS,
            run=run,
        )


class CountedToken(RunToken):
    """The exact form."""

    most = _MOST_CALLS


def turn_of(bus: Any, kind: type[RunAuthority] | None) -> Turn:
    """A turn of the loop over the bus, under tokens of that kind; None: as it is."""
    port = OverTheBus(bus)
    runs = executor(port, declared())
    if kind is not None:
        peer = bus.peer

        def authority(run: str, scopes: Callable[[], Scopes], _store: Any) -> RunAuthority:
            return kind(peer.identity, peer.community, run, scopes())

        runs._principal.authority = authority  # type: ignore[method-assign,assignment]

    async def turn() -> str:
        message = await runs.run_chat_with_tools(BODY)
        return str(message["content"])

    return turn


async def _milliseconds(turn: Turn) -> float:
    if await turn() != ANSWER:
        raise RuntimeError("the turn answered something else")
    began = time.perf_counter()
    for _ in range(_BATCH):
        await turn()
    return (time.perf_counter() - began) * 1000 / _BATCH


async def measure(folder: Path) -> dict[str, list[float]]:
    """Milliseconds of a turn of each kind, `PAIRS` of each, taken in turns."""
    mesh = await start_mesh(folder)
    try:
        async with _providers(mesh), await mesh.bus("bench") as bus:
            kinds = {"shared": None, "a run": RunToken, "counted": CountedToken}
            turns = {name: turn_of(bus, kind) for name, kind in kinds.items()}
            took: dict[str, list[float]] = {name: [] for name in turns}
            for _ in range(PAIRS):
                for name, turn in turns.items():
                    took[name].append(await _milliseconds(turn))
            return took
    finally:
        mesh.server.stop()


def main() -> None:
    """Prints the medians, and of each pair how much more than the shared token it took."""
    with tempfile.TemporaryDirectory(prefix="hn-bench-") as folder:
        took = asyncio.run(measure(Path(folder)))
    for name, found in took.items():
        more = [one / base - 1 for one, base in zip(found, took["shared"], strict=True)]
        line = f"{name:8} {statistics.median(found):6.2f} ms a turn, {100 * statistics.median(more):+6.1f} %"
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
