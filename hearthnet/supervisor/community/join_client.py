"""A newcomer's connection to the inviter's home: a temporary server, linked to it, and the requests.

The server is on loopback, uses the invite's login and holds nothing else. Only the two ids in the invite are
trusted: frames are boxed to the inviter's key, and the answers are verified from the community id upward
(decisions/0045).
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import msgspec

from hearthnet.bus.bus import Bus
from hearthnet.bus.session.session import Session
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError, Unavailable
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms
from hearthnet.nats.client import NatsClient
from hearthnet.supervisor.nats.leaf_links import Upstream, linked, remote
from hearthnet.supervisor.nats.nats_admin import NatsAdmin
from hearthnet.supervisor.nats.nats_process import NAME, NatsProcess, last_words
from hearthnet.supervisor.nats.server_config import ANY_PORT, BusLogin, ServerSettings, render
from hearthnet.supervisor.os.disk import make_folder
from hearthnet.supervisor.os.log_file import LogFile
from hearthnet.trust import signed_document
from hearthnet.trust.community import invites
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.community.events import CommunityEvent
from hearthnet.trust.community.invites import InviteText
from hearthnet.trust.community.roster import Member, Policy, Roster
from hearthnet.trust.keys import Identity, Login

LINK_SECONDS: Final = 10.0
_STOP_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.05
_REFUSED: Final = "Authorization Violation"


@contextlib.asynccontextmanager
async def temporary_server(folder: Path, invite: Identity, upstream: Upstream) -> AsyncIterator[str]:
    """Run the server in `folder` during the block and yield its address once it is linked.

    Clients log in to it with the key of `invite`. The folder is made private; the caller removes it. Errors
    of `nats_process` are passed through.

    Raises:
        HearthNetError: `unauthorized` if the other home refuses the invite; `partition` if it cannot be
            reached within 10 s.
    """
    make_folder(folder)
    login, system_login = invite.login(), Login(secrets.token_bytes(32))
    log = LogFile(folder / f"{NAME}.log")
    settings = ServerSettings(
        name=f"hearthnet-guest-{secrets.token_hex(8)}",
        port=ANY_PORT,
        ports=folder,
        jetstream=None,
        members=(),
        store_login="",
        system_login=system_login.public,
        invites=(BusLogin(invite.node_id, login.public),),
        remote=remote(upstream, login, folder),
    )
    nats = NatsProcess(log, folder / f"{NAME}.log")
    await nats.start(folder / "server.conf", render(settings), folder)
    try:
        system = await NatsAdmin.connect(nats.url, system_login)
        try:
            await _wait_for_link(system, log, upstream)
            try:
                yield nats.url
            except HearthNetError as error:
                # A refused link seems established for a moment.
                if error.code == "partition" and _REFUSED in log.tail():
                    raise _refused(upstream.address) from error
                raise
        finally:
            await system.close()
    finally:
        await nats.stop(_STOP_SECONDS)


async def _wait_for_link(system: NatsAdmin, log: LogFile, upstream: Upstream) -> None:
    end = time.monotonic() + LINK_SECONDS
    while not await linked(system):
        if _REFUSED in log.tail():
            raise _refused(upstream.address)
        if time.monotonic() >= end:
            raise Unavailable(
                f"the home at {upstream.address} cannot be reached ({last_words(log)}); is its node "
                "running, and its port open to this computer?",
                rule="no_home",
            )
        await asyncio.sleep(_POLL_SECONDS)


def _refused(address: str) -> HearthNetError:
    return HearthNetError(
        "unauthorized",
        f"the home at {address} does not accept this invite: it was used, withdrawn or has expired; "
        "ask for a new one",
    )


_MOST_PAGES: Final = 1000
_NOT_THERE: Final = frozenset({"not_found", "partition", "timeout"})
"""Errors if that node does not run or no longer answers this invite; its server shows which (join.py)."""


class JoinClient:
    """A connection to the inviter's bus, under the invite's key or the node's own.

    The latter serves a node that was admitted before. Make it with `connect` and `close` it in the end.
    """

    def __init__(self, invite: InviteText, bus: Bus) -> None:
        self._invite = invite
        self._bus = bus

    @classmethod
    async def connect(cls, home: Home, url: str, identity: Identity, invite: InviteText) -> JoinClient:
        """Join the bus behind `url` as `identity`. Raises as `NatsClient.connect`."""
        link = await NatsClient.connect(url, identity.login(), "join")
        peer = Session(identity, _only(invite), link, home)
        await peer.listen()
        return cls(invite, Bus(peer))

    async def close(self) -> None:
        """Leave the bus."""
        await self._bus.close()

    async def roster(self, held: Roster | None = None) -> Roster:
        """Return the community's roster, verified from its id, merged with `held`.

        Raises:
            HearthNetError: `partition` if the inviter's node does not answer; `unauthorized` for an invite
                that was used or withdrawn, or if the inviter is no longer a member; `bad_request` if the
                events are not those of that community.
        """
        events = list(held.events) if held is not None else []
        for _ in range(_MOST_PAGES):
            heads = rosters.derive(self._invite.community_id, events).heads() if events else {}
            try:
                output = await self._call("community.sync@1.0", {"heads": heads})
            except HearthNetError as error:
                # The server cuts the link of a used invite a moment after its services stop to know it.
                if error.code == "unauthorized" and self._bus.peer.node_id == self._invite.key().node_id:
                    raise _refused(self._invite.address) from error
                raise
            events += signed_document.readable(output["events"], CommunityEvent)
            if not (output["more"] and output["events"]):
                break
        roster = rosters.derive(self._invite.community_id, events)
        if roster.member(self._invite.inviter) is None:
            raise HearthNetError(
                "unauthorized",
                f"who made this invite does not belong to {roster.name} any more; ask another member",
            )
        return roster

    async def join(self, roster: Roster, newcomer: Identity, display_name: str) -> Roster:
        """Request to join as `newcomer`; return the roster with it among the members.

        Errors of `trust.invite.ask` are passed through.

        Raises:
            HearthNetError: `expired` for an expired invite; `unauthorized` for one that was used, withdrawn
                or is for another node; `revoked` for a node that was removed from the community.
        """
        request = invites.ask(roster, self._invite.key(), newcomer, display_name, now_ms())
        fields = {"event": msgspec.to_builtins(request), "heads": roster.heads()}
        output = await self._call("community.join@1.0", fields)
        joined = rosters.merge(roster, [request, *signed_document.readable(output["events"], CommunityEvent)])
        if joined.member(newcomer.node_id) is None:
            why = joined.flaw(request) or "none of them says so"
            raise HearthNetError(
                "unauthorized", f"the inviter's node let this one in, but its events do not: {why}"
            )
        return joined

    async def person_key(self, own: Identity, roster: Roster) -> Identity:
        """Return the person key that the inviter hands to the node `own`, which has joined for it.

        Raises:
            HearthNetError: `unauthorized` if the node did not join by this text, or the key is not that of
                the person in the text; `expired` after the end of the text; `invalid_signature` if the key
                does not open.
        """
        output = await self._call("community.device.key@1.0", {})
        key = self._invite.opened_key(own, str(output["sealed"]))
        person = roster.person(self._invite.person)
        if person is None or person.key != key.node_id:
            raise HearthNetError(
                "unauthorized",
                "the inviter's node handed over a key that is not the person's; ask for a new text",
            )
        return key

    async def _call(self, capability: str, fields: dict[str, Any]) -> dict[str, Any]:
        try:
            reply = await self._bus.call(
                capability, {"params": {}, "input": fields}, node=self._invite.inviter
            )
        except HearthNetError as error:
            if error.code not in _NOT_THERE:
                raise
            raise Unavailable(
                f"the node that made the invite ({ids.short_id(self._invite.inviter)}) does not answer; it "
                f"has to run while the invite is redeemed ({error.message})",
                rule="no_home",
            ) from error
        return dict(reply.output)


def _only(invite: InviteText) -> Roster:
    """Return the roster before the first answer: the inviter is the only known member."""
    inviter = Member(invite.inviter, "member", "", "", "", "", "")
    return Roster(
        version=0,
        community_id=invite.community_id,
        name=invite.name,
        created_at="",
        policy=Policy(),
        members=(inviter,),
        revoked=(),
        invites=(),
        head_lamport=0,
        events=(),
    )
