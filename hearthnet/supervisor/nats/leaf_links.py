"""The links between homes: the listener of this one, and its link to another.

See: docs/operations.md#links-between-homes.
"""

from __future__ import annotations

from typing import Final

from hearthnet.core.errors import HearthNetError
from hearthnet.supervisor.nats import address, certificate
from hearthnet.supervisor.nats.address import Address
from hearthnet.supervisor.nats.home_setup import Prepared
from hearthnet.supervisor.nats.nats_admin import NatsAdmin
from hearthnet.supervisor.nats.server_config import Certificate, LeafListener, LeafRemote
from hearthnet.supervisor.nats.upstream import Upstream, load_upstream, remote

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
            self._tls = Certificate(self._home.nats / _CERTIFICATE, self._home.nats / _KEY)
            names = certificate.own_names(announced.host)
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
        return Address(address.own_host(host), port)


async def linked(system: NatsAdmin) -> bool:
    """Return whether this server's own link to another one is established."""
    came_in = {session.connection for session in await system.sessions()}
    return bool(await system.hubs() - came_in)
