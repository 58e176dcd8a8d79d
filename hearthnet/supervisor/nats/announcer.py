"""Announcing this home on its network by DNS-SD, under labels that its community alone recognizes.

An announcement has the type `SERVICE`, a label, a port and the IPv4 addresses of this computer; it names no
person, home or community. It grants nothing: who finds a home verifies its key by TLS (home_finder.py).

See: docs/protocol/community.md#finding-a-home, docs/security.md#on-the-local-network.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Interface, ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

import blake3

from hearthnet.core.errors import HearthNetError
from hearthnet.supervisor.nats import address
from hearthnet.supervisor.os.cancellation import heed_cancelling

if TYPE_CHECKING:
    from zeroconf.asyncio import AsyncZeroconf

SERVICE: Final = "_hearthnet._tcp.local."
LOOK_SECONDS: Final = 2.0
SALT_SECONDS: Final = 3600.0
"""The time after which the same home has another label."""
_SALT_BYTES: Final = 8
_MARK_BYTES: Final = 16
_KEY_CONTEXT: Final = "hearthnet 2026 label of an announced home"
_log = logging.getLogger(__name__)


def label_key(community_id: str, fingerprint: str) -> bytes:
    """Return the key of the labels of the home whose certificate has `fingerprint`; members can make it."""
    text = f"{community_id} {fingerprint}".encode("ascii")
    return blake3.blake3(text, derive_key_context=_KEY_CONTEXT).digest()


def make_label(key: bytes, salt: bytes) -> str:
    """Return the label for `salt` (8 bytes): the salt and its keyed BLAKE3 (16 bytes), in hex."""
    return (salt + blake3.blake3(salt, key=key).digest(_MARK_BYTES)).hex()


def is_label_of(label: str, key: bytes) -> bool:
    """Return whether `label` was made with `key`."""
    if len(label) != 2 * (_SALT_BYTES + _MARK_BYTES):
        return False
    try:
        salt = bytes.fromhex(label[: 2 * _SALT_BYTES])
    except ValueError:
        return False
    return hmac.compare_digest(make_label(key, salt).encode(), label.encode("utf-8", "replace"))


class Listening(NamedTuple):
    """Where a home listens for others: the host and port, and the fingerprint of its key."""

    host: str
    port: int
    fingerprint: str


class _Announcement(NamedTuple):
    listening: Listening
    addresses: tuple[str, ...]


class Announcer:
    """Announces this home while `listening` returns where it listens, and its computer has a network.

    `renew` is awaited whenever this computer has other addresses, before they are announced, and `changed` is
    called whenever `is_announced` may have changed. Without `is_on` nothing is announced.
    """

    def __init__(
        self,
        community_id: str,
        listening: Callable[[], Listening | None],
        renew: Callable[[], Awaitable[None]],
        changed: Callable[[], None],
        *,
        is_on: bool,
    ) -> None:
        self._community = community_id
        self._listening = listening
        self._renew = renew
        self._changed = changed
        self._is_on = is_on
        self._networks: tuple[IPv4Interface, ...] | None = None
        self._shown: _Announcement | None = None
        self._until = 0.0
        self._zeroconf: AsyncZeroconf | None = None
        self._reported = ""

    @property
    def is_announced(self) -> bool:
        """Return whether this home is announced now."""
        return self._zeroconf is not None

    async def follow(self) -> None:
        """Announce this home, anew when its addresses change and each hour; until cancelled."""
        try:
            while True:
                heed_cancelling()
                await self._look()
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            await self._withdraw()

    async def _look(self) -> None:
        try:
            await self._follow_addresses()
            wanted = self._wanted()
            if wanted != self._shown or (wanted is not None and time.monotonic() > self._until):
                await self._withdraw()
                if wanted is not None:
                    await self._announce(wanted)
                self._shown = wanted
                self._changed()
            self._reported = ""
        except (OSError, HearthNetError) as error:
            await self._withdraw()
            text = str(error)
            if text != self._reported:
                _log.error("cannot announce this home on its network: %s", text)
                self._changed()
            self._reported = text

    async def _follow_addresses(self) -> None:
        networks = address.own_networks()
        if networks != self._networks:
            if self._networks is not None:
                await self._renew()
            self._networks = networks

    def _wanted(self) -> _Announcement | None:
        listening = self._listening() if self._is_on else None
        if listening is None:
            return None
        own = tuple(str(one.ip) for one in self._networks or ())
        try:
            if not ip_address(listening.host).is_unspecified:
                own = tuple(one for one in own if one == listening.host)
        except ValueError:
            own = ()  # a name; the invite has it
        return _Announcement(listening, own) if own else None

    async def _announce(self, wanted: _Announcement) -> None:
        from zeroconf import Error, IPVersion
        from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

        _, port, fingerprint = wanted.listening
        label = make_label(label_key(self._community, fingerprint), secrets.token_bytes(_SALT_BYTES))
        info = AsyncServiceInfo(
            SERVICE,
            f"{label}.{SERVICE}",
            port,
            # By default the record has the name of the computer.
            server=f"{label}.local.",
            parsed_addresses=list(wanted.addresses),
        )
        # A label is random: nobody else has it in honesty, and whoever claims it while it is probed for would
        # keep this home from being announced.
        try:
            self._zeroconf = AsyncZeroconf(list(wanted.addresses), ip_version=IPVersion.V4Only)
            await (await self._zeroconf.async_register_service(info, cooperating_responders=True))
        except Error as error:
            raise HearthNetError("internal_error", f"{type(error).__name__} {error}") from error
        self._until = time.monotonic() + SALT_SECONDS

    async def _withdraw(self) -> None:
        zeroconf, self._zeroconf, self._shown = self._zeroconf, None, None
        if zeroconf is not None:
            await close(zeroconf)


async def close(zeroconf: AsyncZeroconf) -> None:
    """Close `zeroconf` with a farewell; if this task is cancelled, at once and without one."""
    try:
        await zeroconf.async_close()
    except asyncio.CancelledError:
        zeroconf.zeroconf.close()
        raise
