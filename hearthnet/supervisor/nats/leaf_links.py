"""The links between homes: the listener of this one, its link to another, and the state of that link.

The upstream home, to which this one links, is stored in `community/upstream.json` when an invite is redeemed.
A home without this file is on its own, or others link to it.

See: docs/operations.md#links-between-homes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import msgspec

from hearthnet.core.errors import HearthNetError
from hearthnet.core.files import write_whole
from hearthnet.core.home import Home
from hearthnet.supervisor.nats import address
from hearthnet.supervisor.nats.address import Address
from hearthnet.supervisor.nats.home_setup import Prepared
from hearthnet.supervisor.nats.nats_admin import NatsAdmin
from hearthnet.supervisor.nats.server_config import Certificate, LeafListener, LeafRemote, login_line
from hearthnet.supervisor.os.disk import file_errors
from hearthnet.trust.keys import Login

_LOGIN: Final = "upstream.login"
_TRUSTED: Final = "upstream.pem"


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
    """Return the settings of the link; write the files that they name into `folder`.

    Raises:
        HearthNetError: `bad_request` if the address is beyond loopback and there is no certificate.
    """
    trusted = folder / _TRUSTED if upstream.certificate else None
    settings = LeafRemote(address.parse(upstream.address), _LOGIN, trusted)
    with file_errors(folder):
        write_whole(folder / _LOGIN, login_line(login))
        if trusted is not None:
            write_whole(trusted, upstream.certificate.encode("utf-8"))
    return settings


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

    def __init__(self, address: str, log_text: Callable[[], str]) -> None:
        self._address = address
        self._log_text = log_text
        self._missing_since: float | None = None
        self.state: Literal["", "linked", "lost"] = ""

    def look(self, is_linked: bool, now: float) -> str:
        """Note at `now` (seconds) whether the link is there; return a message on a change."""
        if is_linked:
            self._missing_since = None
            return self._become("linked", f"linked to the home at {self._address}")
        if self._missing_since is None:
            self._missing_since = now
        if now - self._missing_since < PATIENCE_SECONDS:
            return ""
        return self._become(
            "lost", f"no link to the home at {self._address} ({self._why()}); this home works alone meanwhile"
        )

    def _become(self, state: Literal["linked", "lost"], news: str) -> str:
        if state == self.state:
            return ""
        self.state = state
        return news

    def _why(self) -> str:
        log_text = self._log_text()
        return next((reason for words, reason in _REASONS if words in log_text), "no answer")


_CERTIFICATE: Final = "leaf.pem"
_KEY: Final = "leaf.key"


class Leaf:
    """The part of the server's configuration about links; call `prepare` first."""

    def __init__(self, prepared: Prepared) -> None:
        self._home = prepared.home
        self._settings = prepared.config.community
        self._login = prepared.identity.login()
        self._tls: Certificate | None = None
        self._fingerprint = ""
        self.upstream: Upstream | None = None
        self.remote: LeafRemote | None = None

    def prepare(self) -> None:
        """Make the certificate where one is needed, and the files of the link to another home.

        Raises:
            HearthNetError: `bad_request` for settings that cannot work and for damaged files, with their
                names.
        """
        host = self._settings.host
        announced = self._announced(0)
        if not address.is_loopback(host):
            from hearthnet.supervisor.nats import certificate

            self._tls = Certificate(self._home.nats / _CERTIFICATE, self._home.nats / _KEY)
            names = certificate.local_names(announced.host)
            self._fingerprint = certificate.ensure(*self._tls, names)
        self.upstream = load_upstream(self._home)
        if self.upstream is not None:
            self.remote = remote(self.upstream, self._login, self._home.nats)

    def listener(self, port: int) -> LeafListener:
        """Return the settings of the listener at `port`."""
        return LeafListener(self._settings.host, port, self._tls)

    def reachable(self, port: int) -> tuple[str, str]:
        """Return address and fingerprint for invites, where the listener has `port`.

        All homes of a community link to one server, since a link carries one member's subjects only: a home
        that joined at another one passes on the address of that one.
        """
        if self.upstream is not None:
            return self.upstream.address, self.upstream.fingerprint
        return str(self._announced(port)), self._fingerprint

    def _announced(self, port: int) -> Address:
        text, host = self._settings.address, self._settings.host
        try:
            if text:
                return address.parse(text, port or address.DEFAULT_PORT)
            address.check_host(host)
        except HearthNetError as error:
            raise HearthNetError(
                "bad_request", f"{self._home.config_file}: [community]: {error.message}"
            ) from error
        return Address(address.reachable_host(host), port)


async def linked(system: NatsAdmin) -> bool:
    """Return whether this server's own link to another one is established."""
    came_in = {session.connection for session in await system.sessions()}
    return bool(await system.hubs() - came_in)
