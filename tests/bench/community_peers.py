"""Light peers of a large community: `python -m tests.bench.community_peers URL ROSTER COUNT`.

Each has a key, a connection of its own and the parts of the bus library that tell a home's heads and offers;
they share one roster. Reads one word a line and answers with one line of JSON: `tell` has every peer announce
its heads, of the roster and of the market, from then on; `offer` has every peer offer a capability.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from hearthnet import Offer
from hearthnet.bus.bus import find_contract
from hearthnet.bus.session import gossip_frames
from hearthnet.bus.session.gossip_frames import HEADS, SetDigest
from hearthnet.bus.session.session import Session
from hearthnet.core.home import Home
from hearthnet.core.tasks import TaskSet
from hearthnet.nats.client import NatsClient
from hearthnet.protocol import frame as frames
from hearthnet.service.community.heads_exchange import HeadsExchange
from hearthnet.service.hosting.active_offers import ActiveOffer
from hearthnet.service.hosting.announcer import Announcer
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from tests.helpers import large_community

QUERY: Final = "rag.query@1.0"
_MARKET: Final = SetDigest(10_000, "blake3:" + "5" * 64)
_AT_ONCE: Final = 50
_TELL_AT_ONCE: Final = 20
_TELL_PAUSE_SECONDS: Final = 0.3


class Peers:
    """The peers of this process."""

    def __init__(self, url: str, roster: Roster, home: Home) -> None:
        self._url = url
        self._roster = roster
        self._home = home
        self._tasks = TaskSet()
        self._sessions: list[Session] = []
        self._exchanges: list[HeadsExchange[Any]] = []

    async def open(self, identities: list[Identity]) -> None:
        """Connect all of them."""
        for start in range(0, len(identities), _AT_ONCE):
            opened = (self._joined(one) for one in identities[start : start + _AT_ONCE])
            self._sessions += await asyncio.gather(*opened)

    async def _joined(self, identity: Identity) -> Session:
        link = await NatsClient.connect(self._url, identity.login(), "bench")
        session = Session(identity, self._roster, link, self._home)
        await session.listen()
        return session

    async def tell(self) -> None:
        """Have all of them announce their heads, at first and then as often as a home does."""
        for number, session in enumerate(self._sessions):
            if number % _TELL_AT_ONCE == 0:  # many in one process hear each other slower than homes do
                await asyncio.sleep(_TELL_PAUSE_SECONDS)
            membership = session.membership
            parts: tuple[tuple[str, Any, Any], ...] = (
                (HEADS, gossip_frames.DIGESTS, membership.heads),
                ("community.heads.market", msgspec.json.Decoder(SetDigest), lambda: _MARKET),
            )
            for event_type, decoder, ours in parts:
                exchange = HeadsExchange(
                    session, event_type, membership.reader, decoder, ours, lambda node: _nothing()
                )
                await exchange.open()
                self._exchanges.append(exchange)

    async def offer(self) -> None:
        """Have all of them offer a capability."""
        contract = find_contract(QUERY)
        hosted = [ActiveOffer(contract, Offer(capability=QUERY, params={"corpus": "b"}, max_concurrent=8))]
        for session in self._sessions:
            announcer = Announcer(session, "bench", "1.0.0", self._tasks)
            await announcer.open([])
            await announcer.offer(hosted)

    async def close(self) -> None:
        """End all of them."""
        await self._tasks.close()
        for exchange in self._exchanges:
            await exchange.close()
        await asyncio.gather(*(session.close() for session in self._sessions))


async def _nothing() -> bool:
    return False


async def _main(url: str, file: str, count: str) -> None:
    loop = asyncio.get_running_loop()
    data = await asyncio.to_thread(Path(file).read_bytes)
    roster = rosters.decode(data, large_community.key("bench").node_id)
    home = Home.resolve(Path(file).parent / "peers")
    home.run.mkdir(parents=True, exist_ok=True)
    # A frame comes to a thousand homes in this process, each of which would verify it by itself.
    vars(frames)["read_signed"] = functools.lru_cache(1_000)(frames.read_signed)
    peers = Peers(url, roster, home)
    await peers.open(large_community.members(int(count)))
    gc.collect()
    gc.freeze()  # so many homes in one heap are this benchmark's doing, and so is walking them
    _say()
    with contextlib.suppress(asyncio.CancelledError):
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            await getattr(peers, line.strip())()
            _say()
    await peers.close()


def _say() -> None:
    sys.stdout.write("done\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
