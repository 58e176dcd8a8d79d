"""Redeeming an invite: a new home, or one on its own, joins a community.

    check the text --> lock the home --> settings, device key --> a temporary server, linked to the inviter's
    --> its events, verified --> request to join --> the previous community is set aside --> roster, upstream

Nothing in the home changes before the community has admitted the node. After an interruption at a later
point, redeeming the same invite again completes the join, since the node's own key is admitted by then
(docs/decisions/0045). A node that becomes a device of a person gets the person key before its roster is
written, so that no start of it in between founds a person of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from hearthnet.bus.session import keyring
from hearthnet.core import ids
from hearthnet.core.config import Config
from hearthnet.core.errors import OTHER, HearthNetError
from hearthnet.core.files import write_whole
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms, rfc3339
from hearthnet.supervisor.community.community_sync import LINGER_MS
from hearthnet.supervisor.community.join_client import JoinClient, temporary_server
from hearthnet.supervisor.nats import address
from hearthnet.supervisor.nats.address import Address
from hearthnet.supervisor.nats.home_setup import Report, make_folders, settings_and_key
from hearthnet.supervisor.nats.leaf_links import Upstream, save_upstream
from hearthnet.supervisor.os.disk import file_errors, make_folder
from hearthnet.supervisor.os.lock import home_lock
from hearthnet.trust.community import invites
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.community.invites import InviteText
from hearthnet.trust.community.names import check_name, usable
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity

if TYPE_CHECKING:
    from hearthnet.supervisor.nats.home_finder import FoundHome

PATIENCE_SECONDS: Final = LINGER_MS / 1000 + 2.0
"""The time after which a server has certainly disconnected an invite that its node no longer answers."""
_PAUSE_SECONDS: Final = 1.0
_EVENTS: Final = Path("jetstream", "STORE", "streams", "COMMUNITY")
"""The folder of the community's events, below that of JetStream."""


class JoinOutcome(NamedTuple):
    """The outcome of joining.

    `display_name` is the name of this node for the others, `members` counts it too; `moved_aside` is the new
    place of the previous community of one. `person` is the person whose device the node becomes, if any.
    """

    community_id: str
    name: str
    node_id: str
    display_name: str
    members: int
    address: str
    moved_aside: Path | None
    person: str = ""


def redeem(home: Home, text: str, report: Report) -> JoinOutcome:
    """Join the community of the invite `text` with `home`, whose node must be stopped.

    `report` takes lines for a person.

    Raises:
        HearthNetError: `bad_request` for a damaged text, a running node, or a home that belongs to another
            community with others in it; `expired` for an expired invite; `unauthorized` if the invite was
            used, withdrawn or is for another node; `invalid_signature` if another server answers at the
            inviter's address; `partition` if none does.
    """
    return _join(home, invites.decode(text), report)


def join_as_device(home: Home, text: str, report: Report) -> JoinOutcome:
    """Join by the `text` of `hearthnet device add`, and become a device of its person.

    Raises:
        HearthNetError: as `redeem`; `bad_request` for a home that belongs to that community already.
    """
    return _join(home, invites.decode_device(text), report)


def _join(home: Home, invite: InviteText, report: Report) -> JoinOutcome:
    if (now := now_ms()) >= invite.expires_at:
        raise HearthNetError(
            "expired",
            f"the invite has expired at {rfc3339(invite.expires_at)}, and here it is {rfc3339(now)}; ask for "
            "a new one or, if this time is wrong, set the clock of this computer",
        )
    make_folders(home)
    with home_lock(home):
        asked_before = home.device_key.exists()
        config, identity = settings_and_key(home, report)
        held = _held(home, identity)
        _refuse_another(held, identity, invite)
        return asyncio.run(_Joining(home, config, identity, invite, asked_before).run(held, report))


class _Joining:
    """The redemption of one invite in one locked home."""

    def __init__(
        self, home: Home, config: Config, identity: Identity, invite: InviteText, asked_before: bool
    ) -> None:
        """Create the redemption.

        `asked_before`: this node's key may have requested to join, and only the answer was lost.
        """
        self._home = home
        self._config = config
        self._identity = identity
        self._invite = invite
        self._inside = False
        self._has_requested = asked_before

    async def run(self, held: Roster | None, report: Report) -> JoinOutcome:
        """Request to join, then write the files."""
        upstream = await self._upstream(report)
        known = held if held is not None and held.community_id == self._invite.community_id else None
        roster = await self._admitted(upstream, known, report)
        key = await self._person_key(upstream, roster) if self._invite.person else None
        aside = self._set_aside(held, report) if held is not None and known is None else None
        if key is not None:
            self._keep_person_key(key, aside)
        with file_errors(self._home.roster):
            content = rosters.encode(rosters.seal(roster, self._identity))
            write_whole(self._home.roster, content, durable=True)
        save_upstream(self._home, upstream)
        if aside is not None:
            self._home.community_key.unlink(missing_ok=True)
        return JoinOutcome(
            community_id=roster.community_id,
            name=roster.name,
            node_id=self._identity.node_id,
            display_name=own.display_name if (own := roster.member(self._identity.node_id)) else "",
            members=len(roster.members),
            address=upstream.address,
            moved_aside=aside,
            person=self._invite.person,
        )

    async def _upstream(self, report: Report) -> Upstream:
        """Return the first place of the invite that answers, its certificate checked by the fingerprint.

        Where none does, the home is looked for on the local network.
        """
        failures: list[HearthNetError] = []
        places = self._invite.places
        for text, fingerprint in places:
            try:
                return await _answering(address.parse(text), fingerprint, is_only=len(places) == 1)
            except HearthNetError as error:
                failures.append(error)
        found = await self._found_nearby(report)
        if found is None:
            raise failures[0]
        return Upstream(str(found.address), found.fingerprint, found.certificate)

    async def _found_nearby(self, report: Report) -> FoundHome | None:
        """Return the home of the invite if it is announced on a network of this computer."""
        fingerprints = [fingerprint for _, fingerprint in self._invite.places if fingerprint]
        if not fingerprints or not self._config.community.zeroconf:
            return None
        from hearthnet.supervisor.nats.home_finder import find

        report(f"the home of the invite is not at {self._invite.address}; looking for it on this network")
        found = await find(self._invite.community_id, fingerprints)
        if found is not None:
            report(f"found at {found.address}")
        return found

    async def _admitted(self, upstream: Upstream, known: Roster | None, report: Report) -> Roster:
        """Return the community's roster with this node in it.

        The request is repeated for some seconds while the invite's login works and no node answers: a node
        that is starting answers soon, and after an invite was closed just now its login fails, which is the
        clearer error.
        """
        if known is not None and known.member(self._identity.node_id) is not None:
            report(
                f"this node belongs to {known.name} already; the invite stays unused, its address is taken"
            )
            return await self._as_member(upstream, known)
        clock, reported = asyncio.get_running_loop().time, False
        end = clock() + PATIENCE_SECONDS
        while True:
            began = clock()
            try:
                return await self._request_to_join(upstream, known)
            except HearthNetError as error:
                unanswered = self._inside and error.code == "partition"
                if self._has_requested and (unanswered or error.code == "unauthorized"):
                    with contextlib.suppress(HearthNetError):
                        return await self._as_member(upstream, known)
                # While an attempt waited, the invite may have been closed: the next one is refused then.
                if not unanswered or (reported and began > end):
                    raise
            if not reported:
                report("the node that made the invite does not answer yet; asking again for some seconds")
                reported = True
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _request_to_join(self, upstream: Upstream, known: Roster | None) -> Roster:
        """Request to join with the invite; `_inside` is set if its login worked."""
        self._inside = False
        async with self._at_the_door(upstream, self._invite.key()) as newcomer:
            self._inside = True
            roster = await newcomer.roster(known)
            if roster.member(self._identity.node_id) is not None:
                return roster
            self._has_requested = True
            return await newcomer.join(roster, self._identity, self._name(roster))

    def _name(self, roster: Roster) -> str:
        """Return the name of this home for the others.

        It is the one in its settings, else the inviter's name for it, else its host name.

        Raises:
            HearthNetError: `bad_request` for one in the settings that a home may not give itself.
        """
        if self._config.node.display_name:
            check_name(self._config.node.display_name)
        invite = roster.invite(self._invite.key().node_id)
        invited_as = "" if invite is None else invite.display_name
        name = self._config.node.display_name or invited_as or self._config.display_name
        return usable(name, self._identity.node_id)

    async def _as_member(self, upstream: Upstream, known: Roster | None) -> Roster:
        """Return the roster as a member receives it.

        Raises:
            HearthNetError: `unauthorized` if this node is not a member.
        """
        async with self._at_the_door(upstream, self._identity) as member:
            roster = await member.roster(known)
        if roster.member(self._identity.node_id) is None:
            raise HearthNetError("unauthorized", f"this node is no member of {roster.name}")
        return roster

    async def _person_key(self, upstream: Upstream, roster: Roster) -> Identity:
        """Return the person key, asked for under the node's own key.

        The other home's server knows that key some moments after the node was let in.
        """
        owner = roster.owner(self._identity.node_id)
        if owner not in (self._identity.node_id, self._invite.person):
            raise HearthNetError("bad_request", "this node is a device of another person already")
        clock = asyncio.get_running_loop().time
        end = clock() + PATIENCE_SECONDS
        while True:
            try:
                async with self._at_the_door(upstream, self._identity) as member:
                    return await member.person_key(self._identity, roster)
            except HearthNetError as error:
                if error.code not in ("unauthorized", "partition") or clock() > end:
                    raise
            await asyncio.sleep(_PAUSE_SECONDS)

    def _keep_person_key(self, key: Identity, aside: Path | None) -> None:
        """Write the person key; keys of a person that this home had alone are moved to `aside`."""
        home = self._home
        wanted = {home.recovery_key: self._invite.person, home.person_key: key.node_id}
        for path, node_id in wanted.items():
            if not path.exists() or keyring.load_identity(path).node_id == node_id:
                continue
            if aside is None:
                aside = home.path / f"community-before-{ids.new_ulid()}"
                make_folder(aside)
            with file_errors(path):
                shutil.move(path, aside / path.name)
        if not home.person_key.exists():
            with file_errors(home.person_key):
                keyring.write_new(home.person_key, key.to_text().encode("ascii"))

    @contextlib.asynccontextmanager
    async def _at_the_door(self, upstream: Upstream, identity: Identity) -> AsyncIterator[JoinClient]:
        folder = self._home.run / "joining"
        try:
            async with temporary_server(folder, identity, upstream) as url:
                newcomer = await JoinClient.connect(self._home, url, identity, self._invite)
                try:
                    yield newcomer
                finally:
                    await newcomer.close()
        finally:
            # The folder holds the seed of a login.
            shutil.rmtree(folder, ignore_errors=True)

    def _set_aside(self, held: Roster, report: Report) -> Path:
        """Copy roster and root key of the community of one, and move its events, to a new folder.

        The events are moved, since the node's first event in the new community has the same place in the log.
        """
        folder = self._home.path / f"community-before-{ids.new_ulid()}"
        make_folder(folder)
        with file_errors(folder):
            for path in (self._home.roster, self._home.community_key):
                if path.exists():
                    shutil.copy2(path, folder)
            events = self._home.jetstream / _EVENTS
            if events.exists():
                shutil.move(events, folder / events.name)
        report(f"{held.name}, the community of one that was here, now lies in {folder}")
        return folder


async def _answering(place: Address, fingerprint: str, *, is_only: bool) -> Upstream:
    """Return the server at `place` as a home to link to; on loopback the link itself tries the only one.

    Raises:
        HearthNetError: `partition` if none answers there; `invalid_signature` if another one does.
    """
    from hearthnet.supervisor.nats import certificate

    if fingerprint:
        return Upstream(str(place), fingerprint, await certificate.fetch(place, fingerprint))
    if not is_only:
        await certificate.check_answers(place)
    return Upstream(str(place))  # LeafRemote accepts it on loopback only


def _held(home: Home, identity: Identity) -> Roster | None:
    return keyring.load_roster(home.roster, identity.node_id) if home.roster.exists() else None


def _refuse_another(held: Roster | None, identity: Identity, invite: InviteText) -> None:
    """Check that the home does not belong to another community with others in it.

    A device's home may not belong to that community either, where it has a person of its own.

    Raises:
        HearthNetError: `bad_request` if it does.
    """
    if held is None:
        return
    if held.community_id == invite.community_id:
        if invite.person and held.member(identity.node_id) is not None:
            raise HearthNetError(
                "bad_request",
                f"this home belongs to {held.name} already; a device is added with a home that is new",
            )
        return
    others = len(held.members) - 1
    if held.member(identity.node_id) is not None and others:
        raise HearthNetError(
            "bad_request",
            f"this home belongs to {held.name}, with {others} more in it; a home belongs to one community. "
            "Join with another one (--home DIR), or move this one away first",
            exit_status=OTHER,
        )
