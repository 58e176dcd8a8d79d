"""The logins that are admitted to a server's bus, and the disconnection of others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.supervisor.nats.nats_admin import NatsAdmin, ServerConnection
from hearthnet.supervisor.nats.server_config import BusLogin
from hearthnet.trust.community.doors import Door
from hearthnet.trust.community.roster import Roster

CLEAR_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.05
# Twice, since a connection may be on its way in while the list is made.
_CLEAN_LOOKS: Final = 2


class ServerRoster(NamedTuple):
    """What servers are configured from.

    The logins of members, open invites, and operators of this home; the doors that are open.
    """

    members: tuple[BusLogin, ...]
    invites: tuple[BusLogin, ...]
    operators: tuple[str, ...] = ()
    doors: tuple[Door, ...] = ()


def admitted_by(roster: Roster, now_ms: int, operators: tuple[str, ...] = ()) -> ServerRoster:
    """Return the logins in `roster`: members and invites open at `now_ms`; `operators`; and the doors."""
    return ServerRoster(
        tuple(BusLogin(member.node_id, member.login) for member in roster.members),
        tuple(
            BusLogin(invite.invite_key, invite.login)
            for invite in roster.invites
            if invite.expires_at > now_ms
        ),
        operators,
        roster.doors,
    )


class AccessControl:
    """The admitted logins, less those that were shut out; the node's own is always in.

    A login is shut out because of the behaviour of its server.
    """

    def __init__(
        self, own: BusLogin, peer_login: str, allowed: ServerRoster, news: Callable[[str], None]
    ) -> None:
        self._own = own
        self._peer_login = peer_login
        self._news = news
        self._allowed = allowed
        self._shut_out: set[str] = set()

    @property
    def admitted(self) -> ServerRoster:
        """The logins that are allowed now."""
        members = (self._own, *(entry for entry in self._allowed.members if entry.login != self._own.login))
        return self._allowed._replace(members=self._open(members), invites=self._open(self._allowed.invites))

    def admit(self, allowed: ServerRoster) -> ServerRoster:
        """Replace the allowed logins; return the previous ones."""
        before, self._allowed = self._allowed, allowed
        return before

    async def unmask(self, system: NatsAdmin) -> bool:
        """Shut out each server that links here as a hub; return whether there was a new one.

        The server lets a hub publish on any subject (seen with nats-server 2.15), in the name of any node. No
        home links as a hub: the home that is linked to is the hub.
        """
        hubs = await system.hubs()
        return bool(hubs) and self._shut(await system.sessions(), hubs)

    async def clear(self, system: NatsAdmin) -> bool:
        """Disconnect all logins that are not admitted.

        Returns True, without disconnecting, where a hub has to be shut out first, as in `unmask`.

        Raises:
            HearthNetError: `internal_error` if a connection cannot be closed in time.
        """
        clean = 0
        try:
            async with asyncio.timeout(CLEAR_SECONDS):
                while clean < _CLEAN_LOOKS:
                    hubs, sessions = await system.hubs(), await system.sessions()
                    if self._shut(sessions, hubs):
                        return True
                    strangers = self._strangers(sessions, hubs)
                    for session in strangers:
                        await system.kick(session.connection)
                    clean = 0 if strangers else clean + 1
                    await asyncio.sleep(_PAUSE_SECONDS)
        except TimeoutError as error:
            raise HearthNetError(
                "internal_error", "somebody who is no longer admitted could not be disconnected"
            ) from error
        return False

    def _shut(self, sessions: list[ServerConnection], hubs: set[int]) -> bool:
        found = {each.login for each in sessions if each.connection in hubs}
        new = found - self._shut_out - {self._own.login}
        for login in new:
            self._news(
                f"{self._name(login)} linked here as if it were the hub, to speak in the name of others; it "
                "is shut out until this node is started again"
            )
        self._shut_out |= new
        return bool(new)

    def _strangers(self, sessions: list[ServerConnection], hubs: set[int]) -> list[ServerConnection]:
        members, invites, operators, _ = self.admitted
        known = {*(entry.login for entry in (*members, *invites)), *operators, self._peer_login}
        return [session for session in sessions if session.login not in known or session.connection in hubs]

    def _open(self, entries: tuple[BusLogin, ...]) -> tuple[BusLogin, ...]:
        return tuple(entry for entry in entries if entry.login not in self._shut_out)

    def _name(self, login: str) -> str:
        entries = (*self._allowed.members, *self._allowed.invites)
        return next((ids.short_id(entry.node_id) for entry in entries if entry.login == login), login)
