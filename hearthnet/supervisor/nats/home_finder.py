"""Finding a home on the local network by its community and the fingerprint of its key.

    announcements (DNS-SD) --> label of a known home? --> address on a network of this computer?
    --> TLS handshake: the key's fingerprint? --> found

Every computer on the network can send announcements, so their cost is bounded: a search resolves no foreign
label, and connects to at most `MAX_TRIES` addresses.

See: docs/protocol/community.md#finding-a-home, docs/decisions/0231.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from ipaddress import IPv4Interface, ip_address
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hearthnet.core.errors import HearthNetError
from hearthnet.supervisor.nats import address
from hearthnet.supervisor.nats.address import Address
from hearthnet.supervisor.nats.announcer import SERVICE, close, is_label_of, label_key
from hearthnet.supervisor.os.cancellation import heed_cancelling

if TYPE_CHECKING:
    from zeroconf import ServiceStateChange, Zeroconf

SEARCH_SECONDS: Final = 6.0
MAX_LABELS: Final = 8
"""Maximum of labels of known homes that one search asks about."""
MAX_TRIES: Final = 16
"""Maximum of addresses to which one search connects."""
_RESOLVE_MS: Final = 2_000
_log = logging.getLogger(__name__)


class FoundHome(NamedTuple):
    """A home that answered at `address` with the key of `fingerprint`; `certificate` is PEM."""

    address: Address
    fingerprint: str
    certificate: str


async def find(
    community_id: str, fingerprints: Iterable[str], seconds: float = SEARCH_SECONDS
) -> FoundHome | None:
    """Return the first home with one of `fingerprints` that answers on a network of this computer.

    None if there is none within `seconds`, or the network cannot be searched.
    """
    from zeroconf import Error

    keys = {label_key(community_id, one): one for one in fingerprints if one}
    try:
        networks = address.own_networks()
        if not networks or not keys:
            return None
        return await _Search(keys, networks).run(seconds)
    except (OSError, Error) as error:
        _log.error("cannot search the network: %s", str(error) or type(error).__name__)
        return None


class _Search:
    """One search for the homes of `keys`: fingerprints by the keys of their labels."""

    def __init__(self, keys: dict[bytes, str], networks: tuple[IPv4Interface, ...]) -> None:
        self._keys = keys
        self._networks = networks
        self._labels = set[str]()
        self._resolving = set[str]()
        self._tried = set[Address]()
        self._tasks = set[asyncio.Task[None]]()
        self._found: asyncio.Future[FoundHome] = asyncio.get_running_loop().create_future()

    async def run(self, seconds: float) -> FoundHome | None:
        from zeroconf import DNSQuestionType, IPVersion
        from zeroconf.asyncio import AsyncServiceBrowser, AsyncZeroconf

        own = [str(one.ip) for one in self._networks]
        zeroconf = AsyncZeroconf(own, ip_version=IPVersion.V4Only)
        try:
            await zeroconf.zeroconf.async_wait_for_start()
            # Answers by multicast: one to this port alone can go to another mDNS program of this computer.
            browser = AsyncServiceBrowser(
                zeroconf.zeroconf, SERVICE, handlers=[self._on_change], question_type=DNSQuestionType.QM
            )
            try:
                await asyncio.wait({self._found}, timeout=seconds)
            finally:
                await browser.async_cancel()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await close(zeroconf)
        return self._found.result() if self._found.done() else None

    def _on_change(
        self, zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange
    ) -> None:
        """Look at a name that was announced, or announced again with other records."""
        label = name.removesuffix(f".{service_type}")
        fingerprint = next((one for key, one in self._keys.items() if is_label_of(label, key)), None)
        if fingerprint is None or label in self._resolving:
            return
        if label in self._labels or len(self._labels) < MAX_LABELS:
            self._labels.add(label)
            self._resolving.add(label)
            self._spawn(self._resolve(zeroconf, label, fingerprint))

    async def _resolve(self, zeroconf: Zeroconf, label: str, fingerprint: str) -> None:
        from zeroconf import DNSQuestionType, IPVersion
        from zeroconf.asyncio import AsyncServiceInfo

        info = AsyncServiceInfo(SERVICE, f"{label}.{SERVICE}")
        try:
            await info.async_request(zeroconf, _RESOLVE_MS, DNSQuestionType.QM)
        finally:
            self._resolving.discard(label)
        for host in info.parsed_addresses(IPVersion.V4Only):
            place = Address(host, info.port or 0)
            if place in self._tried or not self._is_near(place):
                continue
            if len(self._tried) >= MAX_TRIES:
                return
            self._tried.add(place)
            # Side by side, so that one that does not answer delays no other.
            self._spawn(self._try(place, fingerprint))

    def _is_near(self, place: Address) -> bool:
        """Return whether `place` is on a network of this computer; no announcement leads elsewhere."""
        return place.port > 0 and any(ip_address(place.host) in one.network for one in self._networks)

    async def _try(self, place: Address, fingerprint: str) -> None:
        from hearthnet.supervisor.nats import certificate

        try:
            found = FoundHome(place, fingerprint, await certificate.fetch(place, fingerprint))
        except HearthNetError as error:
            _log.info("%s was announced, and is not the home: %s", place, error.message)
            return
        if not self._found.done():
            self._found.set_result(found)

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


SEEK_AFTER_SECONDS: Final = 2.0
"""How long a link is missing before its home is looked for; most are restored in less."""
_LOOK_SECONDS: Final = 0.5
_PAUSE_SECONDS: Final = 5.0
_MAX_PAUSE_SECONDS: Final = 60.0


class LinkSeeker:
    """Looks for the homes of `fingerprints` while `missing_since` returns a time: this one is linked to none.

    `missing_since` is in seconds of the monotonic clock. `move` has the link go to an address first, and
    returns whether that is new; `news` takes a line for a person.
    """

    def __init__(
        self,
        community_id: str,
        missing_since: Callable[[], float | None],
        fingerprints: Callable[[], tuple[str, ...]],
        move: Callable[[str, Address], Awaitable[bool]],
        news: Callable[[str], None],
    ) -> None:
        self._community = community_id
        self._missing_since = missing_since
        self._fingerprints = fingerprints
        self._move = move
        self._news = news

    async def follow(self) -> None:
        """Search while the link is missing, with pauses of 5 to 60 s; until cancelled."""
        pause, due = _PAUSE_SECONDS, 0.0
        while True:
            heed_cancelling()
            if not self._is_missing():
                pause, due = _PAUSE_SECONDS, 0.0
            elif time.monotonic() >= due:
                found = await find(self._community, self._fingerprints())
                if found is not None:
                    await self._move_to(found)
                due = time.monotonic() + pause * random.uniform(0.75, 1.25)
                pause = min(2 * pause, _MAX_PAUSE_SECONDS)
            await asyncio.sleep(_LOOK_SECONDS)

    def _is_missing(self) -> bool:
        since = self._missing_since()
        return since is not None and time.monotonic() - since >= SEEK_AFTER_SECONDS

    async def _move_to(self, found: FoundHome) -> None:
        try:
            if await self._move(found.fingerprint, found.address):
                self._news(f"a home to link to was found on this network at {found.address}")
        except HearthNetError as error:
            _log.error("%s", error.message)
