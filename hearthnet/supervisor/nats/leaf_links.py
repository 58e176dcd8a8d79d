"""The links between homes: the listener of this one, its link to another, and the state of that link.

A home links to the open doors of the roster. While there are none, it links to the upstream home, which is
stored in `community/upstream.json` when an invite is redeemed; without this file it is on its own, or others
link to it.

See: docs/operations.md#links-between-homes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import blake3
import msgspec

from hearthnet.core.config import CommunityConfig
from hearthnet.core.errors import HearthNetError
from hearthnet.core.files import write_whole
from hearthnet.core.home import Home
from hearthnet.core.node_state import DoorAddress
from hearthnet.supervisor.nats import address
from hearthnet.supervisor.nats.address import Address
from hearthnet.supervisor.nats.announcer import Listening
from hearthnet.supervisor.nats.found_addresses import FoundAddresses
from hearthnet.supervisor.nats.home_setup import Prepared
from hearthnet.supervisor.nats.nats_admin import NatsAdmin
from hearthnet.supervisor.nats.server_config import (
    Certificate,
    LeafListener,
    LeafRemote,
    login_line,
)
from hearthnet.supervisor.os.disk import file_errors
from hearthnet.trust.community.doors import Door
from hearthnet.trust.keys import Login

_LOGIN: Final = "upstream.login"
_TRUSTED: Final = "upstream-{}.pem"


class Upstream(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The stored values.

    `address` is `host:port`; `fingerprint` (of the server's key) and `certificate` (PEM) are both empty on
    loopback only.
    """

    address: str
    fingerprint: str = ""
    certificate: str = ""


def load_upstream(home: Home) -> Upstream | None:
    """Return the home that this one links to, None where there is none.

    Raises:
        HearthNetError: `bad_request` for a damaged file.
    """
    try:
        data = home.upstream.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _damaged(home.upstream, error.strerror or "cannot be read") from error
    try:
        found = msgspec.json.decode(data, type=Upstream)
        address.parse(found.address)
    except (msgspec.DecodeError, HearthNetError) as error:
        raise _damaged(home.upstream, str(error)) from error
    return found


def save_upstream(home: Home, upstream: Upstream) -> None:
    """Write the file atomically."""
    with file_errors(home.upstream):
        write_whole(home.upstream, msgspec.json.format(msgspec.json.encode(upstream), indent=1) + b"\n")


def remote(upstream: Upstream, login: Login, folder: Path) -> LeafRemote:
    """Return the settings of the link to one home; write the files that they name into `folder`.

    Raises:
        HearthNetError: `bad_request` if the address is beyond loopback and there is no certificate.
    """
    return _remote((address.parse(upstream.address),), upstream.certificate, login, folder)


def _remote(places: tuple[Address, ...], certificates: str, login: Login, folder: Path) -> LeafRemote:
    # The server reads the file again only where its configuration has changed.
    trusted = folder / _trusted_name(certificates) if certificates else None
    settings = LeafRemote(places, _LOGIN, trusted)
    with file_errors(folder):
        write_whole(folder / _LOGIN, login_line(login))
        for stale in folder.glob(_TRUSTED.format("*")):
            if stale != trusted:
                stale.unlink(missing_ok=True)
        if trusted is not None:
            write_whole(trusted, certificates.encode("utf-8"))
    return settings


def _trusted_name(certificates: str) -> str:
    return _TRUSTED.format(blake3.blake3(certificates.encode("utf-8")).hexdigest(8))


def _damaged(path: Path, reason: str) -> HearthNetError:
    return HearthNetError(
        "bad_request",
        f"{path} is damaged ({reason}); put back a copy, or move it away and redeem a new invite",
        details={"path": str(path)},
    )


PATIENCE_SECONDS: Final = 5.0
"""The time after which a missing link is reported; most are made or restored in two seconds."""
_REASONS: Final = (
    ("Authorization Violation", "it refuses this node: there it does not belong to the community"),
    ("failed to verify certificate", "another server than the one that was joined answers there"),
    ("connection refused", "no node runs there"),
)


class LinkWatch:
    """Turns observations of the link into messages, one for each change.

    `log_text` returns the last lines of the server's log.
    """

    def __init__(self, log_text: Callable[[], str]) -> None:
        self._log_text = log_text
        self._missing_since: float | None = None
        self.state: Literal["", "linked", "lost"] = ""

    def look(self, is_linked: bool, now: float, place: str) -> str:
        """Note at `now` (seconds) whether the link to `place` is there; return a message on a change."""
        if is_linked:
            self._missing_since = None
            return self._become("linked", f"linked to {place}")
        if self._missing_since is None:
            self._missing_since = now
        if now - self._missing_since < PATIENCE_SECONDS:
            return ""
        return self._become("lost", f"no link to {place} ({self._why()}); this home works alone meanwhile")

    def _become(self, state: Literal["linked", "lost"], news: str) -> str:
        if state == self.state:
            return ""
        self.state = state
        return news

    def _why(self) -> str:
        log_text = self._log_text()
        return next((reason for words, reason in _REASONS if words in log_text), "no answer")


_CERTIFICATE: Final = "leaf-{}.pem"
_KEY: Final = "leaf.key"


class Leaf:
    """The part of the server's configuration about links; call `prepare`, then `follow`, first.

    `door` is the one that this home has open, which listens for other homes in place of the server.
    """

    def __init__(self, prepared: Prepared) -> None:
        self._home = prepared.home
        self._settings = prepared.config.community
        self._node = prepared.identity.node_id
        self._login = prepared.identity.login()
        self._tls: Certificate | None = None
        self._fingerprint = ""
        self._upstream: Upstream | None = None
        self._doors: tuple[Door, ...] = ()
        self._found = FoundAddresses(prepared.home.found_addresses)
        self._followed: tuple[Door, ...] | None = None
        self.door: Door | None = None
        self.remote: LeafRemote | None = None

    def prepare(self) -> None:
        """Make the certificate where one is needed, and read where this home links to while no door is open.

        Raises:
            HearthNetError: `bad_request` for settings that cannot work and for damaged files, with their
                names.
        """
        self._announced(0)
        self.renew()
        self._upstream, self._followed = load_upstream(self._home), None

    def renew(self) -> None:
        """Make the certificate where one is needed, with the present names and addresses of this computer.

        Raises:
            HearthNetError: `bad_request` for damaged files, with their names.
        """
        if not address.is_loopback(self._settings.host):
            self._tls, self._fingerprint = self.certificate()
            for stale in self._home.nats.glob(_CERTIFICATE.format("*")):
                if stale != self._tls.certificate:
                    stale.unlink(missing_ok=True)

    def certificate(self) -> tuple[Certificate, str]:
        """Return the certificate of this home, as `home_certificate`."""
        return home_certificate(self._home, self._announced(0).host)

    def follow(self, doors: tuple[Door, ...]) -> None:
        """Link to the open `doors`, to that of this home first; without any to the home that was joined.

        The others are in an order of this home's own, so that not all homes are at the same door.
        """
        if doors == self._followed:  # of a flood of events none need cost a write
            return
        self._followed, doors = doors, usable(doors)
        self.door = next((one for one in doors if one.node_id == self._node), None)
        others = (one for one in doors if one is not self.door)
        self._doors = (*([self.door] if self.door else ()), *sorted(others, key=self._distance))
        if self._doors:
            places = tuple(way for one in self._doors for way in self._ways_to(one))
            self.remote = _remote(places, self._certificates(), self._login, self._home.nats)
        elif self._upstream is not None:
            places = self._with_found(self._upstream.fingerprint, address.parse(self._upstream.address))
            self.remote = _remote(places, self._upstream.certificate, self._login, self._home.nats)
        else:
            self.remote = None

    def move(self, fingerprint: str, place: Address) -> bool:
        """Link to the home with `fingerprint` at `place` first from now on; return whether that is new.

        Raises:
            HearthNetError: `capacity_exceeded` for a full disk.
        """
        if fingerprint not in self.fingerprints or self._found.of(fingerprint)[:1] == (place,):
            return False
        self._found.add(fingerprint, place)
        doors, self._followed = self._followed or (), None
        self.follow(doors)
        return True

    def routes_to(self, door: Door) -> tuple[Address, ...]:
        """Return the addresses at which the door of this home reaches another one, best first."""
        place = address.parse(door.route)
        found = self._found.of(door_address(door).fingerprint)
        return tuple(dict.fromkeys((*(one._replace(port=place.port) for one in found), place)))

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """The fingerprints of the keys of the homes that this one may link to, those on loopback excepted."""
        if self._doors:
            found = [door_address(one).fingerprint for one in self._doors if one is not self.door]
        else:
            found = [] if self._upstream is None else [self._upstream.fingerprint]
        return tuple(one for one in found if one)

    def listening(self, port: int) -> Listening | None:
        """Return where other homes reach this one, whose listener has `port`; None if none link to it."""
        is_met = self.door is not None or (self._upstream is None and not self._doors)
        if not is_met or not self._fingerprint:
            return None
        return Listening(self._settings.host, self.door_port or port, self._fingerprint)

    @property
    def listens(self) -> bool:
        """Whether the server listens for other homes, and not a door in its place."""
        return self.door is None

    @property
    def place(self) -> str:
        """What this home links to, for a person."""
        if self._upstream is None or self._doors:
            return "a door of the community"
        return f"the home at {self.addresses(0)[0].address}"

    @property
    def door_port(self) -> int:
        """The port at which the door of this home listens, 0 if it has none."""
        return 0 if self.door is None else address.parse(self.door.address).port

    def listener(self, port: int) -> LeafListener:
        """Return the settings of the listener at `port`."""
        return LeafListener(self._settings.host, port, self._tls)

    def addresses(self, port: int) -> tuple[DoorAddress, ...]:
        """Return the places for invites, best first, where the listener of this home has `port`.

        Without doors, all homes of a community link to one server, since a link carries one member's subjects
        only: a home that joined at another one passes on the address of that one.
        """
        if self._doors:
            return tuple(map(door_address, self._doors))
        if self._upstream is not None:
            known = self._with_found(self._upstream.fingerprint, address.parse(self._upstream.address))
            return (DoorAddress(str(known[0]), self._upstream.fingerprint),)
        return (DoorAddress(str(self._announced(port)), self._fingerprint),)

    def _distance(self, door: Door) -> bytes:
        return blake3.blake3(f"{self._node} {door.node_id}".encode("ascii")).digest()

    def _ways_to(self, door: Door) -> tuple[Address, ...]:
        """Return the addresses at which this home reaches `door`, best first: its own on this computer."""
        place = address.parse(door.address)
        if place.on_loopback:
            return (place,)
        if door is not self.door:
            return self._with_found(door_address(door).fingerprint, place)
        host = self._settings.host
        return (Address(host if address.reachable_host(host) == host else "127.0.0.1", place.port),)

    def _with_found(self, fingerprint: str, place: Address) -> tuple[Address, ...]:
        """Return `place`, and before it the addresses at which the home with `fingerprint` was found."""
        return tuple(dict.fromkeys((*self._found.of(fingerprint), place)))

    def _certificates(self) -> str:
        """Return what the certificates of the doors are verified by, empty on loopback only."""
        if all(address.parse(one.address).on_loopback for one in self._doors):
            return ""
        from hearthnet.supervisor.nats import certificate

        return "".join(certificate.authority(one.key) for one in self._doors)

    def _announced(self, port: int) -> Address:
        return announced_address(self._home, self._settings, port)


def announced_address(home: Home, settings: CommunityConfig, port: int) -> Address:
    """Return the address in invites of `home`, whose server or door listens at `port`, 0 for the default.

    Raises:
        HearthNetError: `bad_request` for settings that cannot work.
    """
    try:
        if settings.address:
            return address.parse(settings.address, port or address.DEFAULT_PORT)
        address.check_host(settings.host)
    except HearthNetError as error:
        raise HearthNetError("bad_request", f"{home.config_file}: [community]: {error.message}") from error
    return Address(address.reachable_host(settings.host), port)


def home_certificate(home: Home, host: str) -> tuple[Certificate, str]:
    """Return the files of the certificate of `home`, made where they are missing, and its fingerprint.

    It has the names and addresses of this computer, and `host`. The file is named by them, as the server
    reads a certificate again only where its configuration has changed.
    """
    from hearthnet.supervisor.nats import certificate

    names = certificate.local_names(host, *(str(one.ip) for one in address.own_networks()))
    named = blake3.blake3("\n".join(sorted(names)).encode("ascii")).hexdigest(8)
    files = Certificate(home.nats / _CERTIFICATE.format(named), home.nats / _KEY)
    return files, certificate.ensure(*files, names)


def usable(doors: tuple[Door, ...]) -> tuple[Door, ...]:
    """Return those of `doors` with addresses that a configuration can name.

    Without those that only homes on their own computer reach, if there are others.
    """
    found = []
    for one in doors:
        with contextlib.suppress(HearthNetError):
            address.parse(one.route)
            found.append((one, address.parse(one.address).on_loopback))
    return tuple(one for one, is_near in found if not is_near) or tuple(one for one, _ in found)


def door_address(door: Door) -> DoorAddress:
    """Return where homes link to `door`, with the fingerprint of its key."""
    if address.parse(door.address).on_loopback:
        return DoorAddress(door.address)
    from hearthnet.supervisor.nats import certificate

    return DoorAddress(door.address, certificate.fingerprint_of(door.key))


async def linked(system: NatsAdmin) -> bool:
    """Return whether this server's own link to another one is established."""
    came_in = {session.connection for session in await system.sessions()}
    return bool(await system.hubs() - came_in)
