"""Members who write statements of persons in the orders that are worst to judge, against a real node."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from hearthnet.bus.bus import Bus
from hearthnet.bus.session.event_intake import BYTES_AT_ONCE
from hearthnet.core.times import now_ms
from hearthnet.trust.authorization.token import Scope, mint
from hearthnet.trust.community import events
from hearthnet.trust.community import person_statements as statements
from hearthnet.trust.community.events import CommunityEvent, Revoked
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from tests.attacks.attacker import LIST, LIST_BODY, Attacker
from tests.attacks.test_event_floods import flood, tell
from tests.helpers.members import act
from tests.helpers.neighbourhood import settle_in
from tests.helpers.shell import Shell
from tests.helpers.stopwatch import Stopwatch
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio
LOOP_SECONDS = 0.1
"""What no merge may hold the event loop for, here in processor time: others share the machine."""
REMOVAL_SECONDS = 20.0
"""From the command to the refusal, without the time in which others had the cores."""
PROCESS_SECONDS = 15.0
"""Processor time of all of the node's processes for all floods; each of some took minutes in each process."""


class Chain:
    """Events of one member, each with the next statement."""

    def __init__(self, held: Roster, author: Identity) -> None:
        self.held, self.author = held, author
        self.recovery, self.key = Identity.generate(), Identity.generate()
        self.start = self.place = held.next(author.node_id)
        self.made: list[CommunityEvent] = []

    @property
    def is_full(self) -> bool:
        """More than is kept of one line at once."""
        return sum(len(one.encode()) for one in self.made) > BYTES_AT_ONCE

    def put(self, event_type: str, content: statements.Statement | events.Data) -> None:
        """One more."""
        self.made.append(act(self.held, self.author, event_type, content, self.place))
        sequence, _, lamport = self.place
        self.place = (sequence + 1, self.made[-1].hash, lamport + 1)

    def epoch(self, number: int = 1, stay: tuple[str, ...] = (), key: Identity | None = None) -> None:
        """A person key."""
        key = key or self.key
        content = statements.keyed(self.held.community_id, self.recovery, number, key.node_id, stay)
        self.put(statements.KEYED, content)

    def claim(self, name: str = "x", device: Identity | None = None) -> None:
        """A device: the author's node, or a phone."""
        of, community = device or self.author, self.held.community_id
        offered = statements.offered_device(
            community, self.recovery.node_id, self.key, of.node_id, "phone" if device else "node", name
        )
        self.put(statements.DEVICE_ADDED, statements.consented(community, offered, of))

    def remove(self, device: str, reason: str, signer: Identity, heads: tuple[str, ...] = ()) -> None:
        """A removal of it."""
        made = statements.device_removed(
            self.held.community_id, self.recovery.node_id, signer, device, heads, reason
        )
        self.put(statements.DEVICE_REMOVED, made)


def claims_and_removals(chain: Chain) -> None:
    """A node claims itself and removes itself with a key that a later epoch does not have."""
    chain.epoch()
    for number in range(150):
        chain.claim(f"{number}")
    while not chain.is_full:
        chain.remove(chain.author.node_id, f"{len(chain.made)}", chain.key)


def own_removals(chain: Chain) -> None:
    """Removals of one node that know each other and name ever more of its events."""
    chain.epoch()
    chain.claim()
    while not chain.is_full:
        chain.remove(chain.author.node_id, "", chain.recovery, (chain.made[-1].hash,))


def epochs_and_removals(chain: Chain) -> None:
    """A phone removed by the old key and the recovery key, which the last of many epochs keeps."""
    phone = Identity.generate()
    chain.epoch()
    chain.claim(device=phone)
    for number in range(2, 121):
        stay = (phone.node_id,) if number == 120 else ()
        chain.epoch(number, stay, Identity.generate())
    for signer in (chain.key, chain.recovery):
        for number in range(120):
            chain.remove(phone.node_id, f"{number}", signer)


def forks(chain: Chain) -> None:
    """A fork of the chain for each of many persons, who all claim the node and remove it."""
    while not chain.is_full:
        chain.place = chain.start
        chain.recovery = Identity.generate()
        chain.epoch()
        chain.claim()
        chain.remove(chain.author.node_id, "", chain.recovery)


def persons_without_end(chain: Chain) -> None:
    """A person each, with names of 24 devices from a second epoch on."""
    stay = tuple(Identity.generate().node_id for _ in range(statements.MAX_DEVICES))
    while not chain.is_full:
        chain.recovery = Identity.generate()
        chain.epoch(2**53 - 1, stay)


def departures(chain: Chain) -> None:
    """A fork for each of many ways to leave."""
    while not chain.is_full:
        chain.place = chain.start
        number = f"{len(chain.made)}"
        left = Revoked(target_node_id=chain.author.node_id, reason=number, client_id=number)
        chain.put(events.REVOKED, left)


FLOODS: tuple[Callable[[Chain], None], ...] = (
    claims_and_removals,
    own_removals,
    epochs_and_removals,
    forks,
    persons_without_end,
    departures,
)


@contextlib.contextmanager
def _holds() -> Iterator[list[float]]:
    """The processor time that each callback of the event loop takes; seven processes' parts share it here.

    The collector of garbage leaves out what is there before: no node has imported a suite of tests. Coverage
    sees none of them: it would take three times as long as they do.
    """
    taken, run = [0.0], asyncio.Handle._run
    gc.collect()
    gc.freeze()

    def timed(handle: asyncio.Handle) -> None:
        tracer = sys.gettrace()
        sys.settrace(None)
        began = time.thread_time()
        run(handle)
        taken.append(time.thread_time() - began)
        sys.settrace(tracer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", timed)
        yield taken


def _used(services: list[psutil.Process]) -> float:
    """Processor time of the node's services, in seconds."""
    return sum(sum(one.cpu_times()[:2]) for one in services)


@pytest.mark.req("ATTACK-36", "ATTACK-37")
async def test_statements_in_the_worst_orders_delay_no_removal(tmp_path: Path) -> None:
    gang = [f"mallory{number}" for number in range(len(FLOODS))]
    neighbourhood = settle_in(tmp_path, *gang, "carol", services=("market", "auth"))
    shell = Shell(neighbourhood.founder.path)
    async with contextlib.AsyncExitStack() as stack:
        state = stack.enter_context(shell.node())
        url = str(state["server"]["url"])
        buses = [
            await stack.enter_async_context(await Bus.join(neighbourhood.home(name), url, name))
            for name in (*gang, "carol")
        ]
        attackers, carol = [Attacker(bus) for bus in buses[:-1]], Attacker(buses[-1])
        before = carol.peer.roster
        chains = [Chain(before, one.peer.identity) for one in attackers]
        for make, chain in zip(FLOODS, chains, strict=True):
            make(chain)
        target = attackers[-2]
        market = await carol.target(LIST, str(state["node_id"]))
        # With a token of the target's, carol sees what the market's process knows of it.
        token = mint(
            target.peer.identity,
            subject=carol.peer.node_id,
            audience=carol.peer.community,
            scope=Scope(capabilities=(LIST,)),
            now_ms=now_ms(),
            ttl_seconds=600,
        )
        assert await carol.call(market, LIST, LIST_BODY, token=token) == "ok"
        listed = await asyncio.to_thread(shell.json, "status", "--json")
        services = [psutil.Process(one["pid"]) for one in listed["services"]]
        used, holds = _used(services), stack.enter_context(_holds())
        for bus, chain in zip(buses, chains, strict=False):
            await tell(bus, chain.made)
        (last,) = flood(before, carol.peer.identity, 1)
        await tell(carol.bus, [last])

        async def refused() -> bool:
            return await carol.call(market, LIST, LIST_BODY, token=token) == "revoked"

        passed = [one["pid"] for one in listed["services"] if one["name"] in ("auth", "market")]
        watch = Stopwatch(int(state["server"]["pid"]), *passed)
        with shell.start("revoke", target.peer.node_id, "--yes", "--json") as command:
            await wait_for(refused, 120, what="the market to refuse whom the owner put out")
            assert watch.seconds() < REMOVAL_SECONDS
            assert await asyncio.to_thread(command.wait, 60) == 0

        def merged() -> bool:
            return carol.peer.roster.history.get(last.hash) is not None

        await wait_for(merged, 60, what="what carol wrote behind the floods")
        assert max(holds) < LOOP_SECONDS
        assert _used(services) - used < PROCESS_SECONDS
        held = carol.peer.roster
        owner = str(state["node_id"])
        assert held.owner(owner) == before.owner(owner)
        assert held.member(carol.peer.node_id) is not None
        page = await asyncio.to_thread(shell.json, "members", "--json")
    assert {owner, carol.peer.node_id} <= {one["node_id"] for one in page["members"]}
