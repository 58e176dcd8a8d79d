"""The auth service: members, invites and tokens.

Each call that changes something makes one event or one signed revocation, which is on the disk of this node
before it is published. Changes of other nodes arrive by the exchange of heads.

See: docs/capabilities.md#overview.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from hearthnet import Call, HearthNetError, NodeContext, Reply, Service, capability
from hearthnet.agent import PersonDevices
from hearthnet.bus import load_identity
from hearthnet.core import least_ms, now_ms, read_node_state, rfc3339
from hearthnet.service import AntiEntropy, CommunityLog, EventChain
from hearthnet.trust import (
    Admitted,
    CommunityEvent,
    Identity,
    Revocations,
    Roster,
    TokenRevocation,
    admit_newcomer,
    decode_token,
)
from hearthnet_auth import devices, doors, invites, persons, roles, shares, tokens
from hearthnet_auth.schemas import (
    ConversationsInput,
    CopyInput,
    DecideInput,
    DeviceAddInput,
    DeviceInput,
    DeviceInviteInput,
    DoorCloseInput,
    DoorInput,
    GiveInput,
    IntrospectInput,
    InviteInput,
    IssueInput,
    JoinInput,
    KeepInput,
    NoInput,
    PolicyInput,
    RecoverInput,
    RevokeInput,
    RevokeTokenInput,
    RoleInput,
    RunInput,
    SyncInput,
    WithdrawInput,
)
from hearthnet_auth.witness import RecoveryWatch

MOST_BYTES: Final = 2 * 1024 * 1024
"""Limit of the events in one reply. A single event that is larger is sent nevertheless."""
_MOST_EVENTS: Final = 1_000
_MOST_REVOCATIONS: Final = 10_000
_MOST_REMOVALS: Final = 64
"""Removals in front of a page, as many as a receiver keeps without what they build on."""


class AuthService(Service):
    """Membership, invites, roles and tokens of the node's community."""

    name: ClassVar[str] = "auth"

    async def start(self, node: NodeContext) -> None:
        """Load the log, publish its news to this node's processes and start the exchange."""
        self._node = node
        peer = node.bus.peer
        self._membership = peer.membership
        self._log = CommunityLog(await node.store(), node.home)
        self._chain = EventChain(peer, self._log)
        self._exchange = AntiEntropy(node.bus, self._log)
        remembered = await self._log.read(peer.roster.history)
        await peer.membership.add(remembered.events, remembered.revocations)
        await self._exchange.open(remembered, node.home)
        await persons.introduce(self._chain, node.home, node.identity)
        self._recoveries = RecoveryWatch(self._chain, node, node.data / "recoveries.json")
        peer.membership.on_change(self._recoveries.look)
        self._recoveries.start()
        self._devices = PersonDevices(node)
        await self._devices.open()

    async def stop(self) -> None:
        """Stop the exchange."""
        if hasattr(self, "_recoveries"):
            await self._recoveries.close()
        if hasattr(self, "_devices"):
            await self._devices.close()
        if hasattr(self, "_exchange"):
            await self._exchange.close()

    async def outcome(
        self, principal: str, idempotency_key: str, arguments_digest: str
    ) -> dict[str, Any] | None:
        """Return the output of an earlier call with this idempotency key, or None."""
        held = self._membership.roster
        event = roles.made(held, self._node.identity, idempotency_key)
        return None if event is None else _event_reply(event)

    @capability("community.invite@1.0", event_sourced=True)
    async def invite(self, call: Call[Any, InviteInput]) -> Reply:
        """Make an invite, once for each client id, and return its text."""
        wanted, own = call.input, self._node.identity
        return await self._invite(call, wanted.client_id, lambda held: invites.make(held, own, wanted))

    @capability("community.device.invite@1.0", event_sourced=True)
    async def invite_device(self, call: Call[Any, DeviceInviteInput]) -> Reply:
        """Make the text by which a new node becomes a device of the owner's person."""
        wanted, own, home = call.input, self._node.identity, self._node.home
        person = await asyncio.to_thread(devices.own_person, self._membership.roster, own, home)
        return await self._invite(
            call, wanted.client_id, lambda held: devices.invite(held, own, wanted), person
        )

    @capability("community.device.key@1.0")
    async def device_key(self, call: Call[Any, NoInput]) -> Reply:
        """Hand the person key, sealed, to a new node that has joined for it."""
        held, node = self._membership.roster, self._node
        sealed = await asyncio.to_thread(devices.sealed_key, held, node.identity, node.home, call.caller)
        return Reply({"sealed": sealed})

    @capability("community.device.runs@1.0")
    async def device_runs(self, call: Call[Any, NoInput]) -> Reply:
        """List the runs of the owner for another device of that person."""
        self._devices.check(call)
        return Reply(await self._devices.listing())

    @capability("community.device.run@1.0")
    async def device_run(self, call: Call[Any, RunInput]) -> Reply:
        """Hand out a copy of a run."""
        self._devices.check(call)
        return Reply(await self._devices.copy(call.input.run))

    @capability("community.device.take@1.0")
    async def take_run(self, call: Call[Any, RunInput]) -> Reply:
        """Leave a run to the device that calls."""
        self._devices.check(call)
        call.check_consent()
        return Reply(await self._devices.take(call.input.run, call.caller))

    @capability("community.device.decide@1.0")
    async def decide(self, call: Call[Any, DecideInput]) -> Reply:
        """Decide about a call of a run in the name of the device that calls."""
        self._devices.check(call)
        call.check_consent()
        wanted = call.input
        return Reply(
            await self._devices.decide(wanted.run, wanted.call, wanted.decision, wanted.shown, call.caller)
        )

    @capability("community.device.copy@1.0")
    async def keep_copy(self, call: Call[Any, CopyInput]) -> Reply:
        """Keep a copy of a run of the device that calls."""
        self._devices.check(call)
        wanted = call.input
        return Reply(await self._devices.keep(call.caller, wanted.kept, wanted.taken, wanted.copy))

    @capability("community.device.conversations@1.0")
    async def exchange_conversations(self, call: Call[Any, ConversationsInput]) -> Reply:
        """Merge a conversation of the owner's pages, and return which others are lacking here."""
        self._devices.check(call)
        wanted = call.input
        return Reply(await self._devices.conversations.take_in(wanted.heads, wanted.conversation))

    @capability("community.join@1.0", event_sourced=True)
    async def join(self, call: Call[Any, JoinInput]) -> Reply:
        """Admit a node that holds an open invite, and return the events that it lacks."""
        joined, own = call.input.event, self._node.identity

        def admit(held: Roster) -> tuple[CommunityEvent, ...]:
            earlier = _admission(held, joined)
            return (earlier,) if earlier is not None else admit_newcomer(held, own, joined, now_ms())

        event, repeated = await self._chain.append(admit, call.check_consent)
        missing = self._membership.roster.missing(call.input.heads)
        others = page([one for one in missing if one.hash not in (joined.hash, event.hash)], _MOST_EVENTS - 1)
        return Reply({**_event_reply(event), "events": [*others, event]}, {"repeated": repeated})

    @capability("community.sync@1.0")
    async def sync(self, call: Call[Any, SyncInput]) -> Reply:
        """Return the events that the caller lacks, removals first; the last page adds the revocations."""
        held = self._membership.roster
        if held.lacks(call.input.heads):
            self._exchange.ask(call.caller)
        missing = removals_first(held.missing(call.input.heads), held, call.input.limit // 2)
        events = page(missing, call.input.limit)
        more = len(events) < len(missing)
        revoked = () if more else self._membership.revocations.current(least_ms())
        return Reply({"events": events, "more": more, "revocations": revoked[-_MOST_REVOCATIONS:]})

    @capability("community.promote@1.0", event_sourced=True)
    async def promote(self, call: Call[Any, RoleInput]) -> Reply:
        """Promote a member."""
        return await self._change_role(call, roles.PROMOTED)

    @capability("community.demote@1.0", event_sourced=True)
    async def demote(self, call: Call[Any, RoleInput]) -> Reply:
        """Demote a member, given enough signatures of trusted members."""
        return await self._change_role(call, roles.DEMOTED)

    @capability("community.revoke@1.0", event_sourced=True)
    async def revoke(self, call: Call[Any, RevokeInput]) -> Reply:
        """Revoke a membership, given enough signatures of trusted members."""
        return await self._change_role(call, roles.REVOKED)

    @capability("community.withdraw@1.0", event_sourced=True)
    async def withdraw(self, call: Call[Any, WithdrawInput]) -> Reply:
        """Withdraw an invite."""
        return await self._act(call, lambda held: roles.withdraw(held, self._node.identity, call.input))

    @capability("community.door.open@1.0", event_sourced=True)
    async def open_door(self, call: Call[Any, DoorInput]) -> Reply:
        """Open the door of this home."""
        return await self._act(call, lambda held: doors.open_door(held, self._node.identity, call.input))

    @capability("community.door.close@1.0", event_sourced=True)
    async def close_door(self, call: Call[Any, DoorCloseInput]) -> Reply:
        """Close the door of this home or, as a trusted member, of another one."""
        node = call.input.node_id
        return await self._act(call, lambda held: doors.close_door(held, self._node.identity, node))

    @capability("community.door.check@1.0")
    async def check_door(self, call: Call[Any, DoorInput]) -> Reply:
        """Try whether a door that the caller is about to open can be reached from here."""
        reason = await doors.why_unreached(call.input)
        return Reply({"reached": not reason, "reason": reason})

    @capability("community.device.add@1.0", event_sourced=True)
    async def add_device(self, call: Call[Any, DeviceAddInput]) -> Reply:
        """Add a page, phone or program to a person whose key is in this home."""
        own, home = self._node.identity, self._node.home
        return await self._act(call, lambda held: persons.add_device(held, own, home, call.input))

    @capability("community.device.remove@1.0", event_sourced=True)
    async def remove_device(self, call: Call[Any, DeviceInput]) -> Reply:
        """Remove a device of the owner, or of another person of this home, with the person key."""
        own, home = self._node.identity, self._node.home
        return await self._act(call, lambda held: persons.remove_device(held, own, home, call.input))

    @capability("community.person.recover@1.0", event_sourced=True)
    async def recover(self, call: Call[Any, RecoverInput]) -> Reply:
        """Write to the log what keys of a person have signed in this home."""
        node = self._node
        event = await persons.carry_recovery(self._chain, node.home, node.identity, call.check_consent)
        if event is None:
            raise HearthNetError("not_found", "nothing waits to be written: run hearthnet recover")
        return Reply(_event_reply(event))

    @capability("community.recovery.keep@1.0")
    async def keep_share(self, call: Call[Any, KeepInput]) -> Reply:
        """Keep a share for a person whom the owner of this home has agreed to help."""
        held, node = self._membership.roster, self._node
        call.check_consent()
        number = await asyncio.to_thread(shares.keep, held, node.identity, node.home, call.caller, call.input)
        return Reply({"number": number})

    @capability("community.recovery.give@1.0")
    async def give_share(self, call: Call[Any, GiveInput]) -> Reply:
        """Take a share for the recovery that waits for it in this home."""
        held, node = self._membership.roster, self._node
        call.check_consent()
        await asyncio.to_thread(shares.take, held, node.identity, node.home, call.caller, call.input)
        return Reply({"person": call.input.person})

    @capability("community.policy@1.0", event_sourced=True)
    async def policy(self, call: Call[Any, PolicyInput]) -> Reply:
        """Change the community's policy, on the node that holds the root key."""
        root = await asyncio.to_thread(_root, self._node.home.community_key)
        reply = await self._act(call, lambda held: roles.set_policy(held, root, call.input))
        return Reply({**reply.output, "policy": self._membership.roster.policy}, reply.meta)

    @capability("auth.token.issue@1.0")
    async def issue(self, call: Call[Any, IssueInput]) -> Reply:
        """Sign a token, within the rights of this node."""
        offers = await self._node.bus.offers()
        held, own = self._membership.roster, self._node.identity
        text, claims = tokens.issue(own, held, offers, call.input, now_ms())
        return Reply({"token": text, "token_id": claims.jti, "expires_at": rfc3339(claims.exp * 1000)})

    @capability("auth.token.revoke@1.0")
    async def revoke_token(self, call: Call[Any, RevokeTokenInput]) -> Reply:
        """Revoke a token: store the revocation, then publish it to all processes."""
        wanted, own, membership = call.input, self._node.identity, self._membership
        issuer = wanted.issuer or own.node_id
        identity = issuer, wanted.token_id
        earlier = membership.revocations.current(least_ms())
        revoked = next((one for one in earlier if (one.issuer, one.token_id) == identity), None)
        if revoked is None:
            revoked = TokenRevocation.sign(own, wanted.token_id, issuer, wanted.reason, now_ms=now_ms())
            Revocations().add(revoked, membership.roster)
            await self._log.keep_revocation(revoked)
            await membership.add((), (revoked,))
        await self._exchange.publish_revocation(revoked)
        return Reply({"token_id": revoked.token_id, "revoked_at": rfc3339(revoked.revoked_at)})

    @capability("auth.token.introspect@1.0")
    async def introspect(self, call: Call[Any, IntrospectInput]) -> Reply:
        """Return the claims of a token, and whether its subject can use it now."""
        claims, membership = decode_token(call.input.token), self._membership
        refused = tokens.refusal(claims, membership.roster, membership.revocations, now_ms())
        output = {
            "active": refused is None,
            "reason": "" if refused is None else refused.code,
            "token_id": claims.jti,
            "issuer": claims.iss,
            "subject": claims.sub,
            "scope": claims.scope,
            "not_before": rfc3339(claims.nbf * 1000),
            "expires_at": rfc3339(claims.exp * 1000),
        }
        return Reply(output | ({"principal": claims.principal} if claims.principal else {}))

    async def _invite(
        self, call: Call[Any, Any], client_id: str, make: Callable[[Roster], CommunityEvent], person: str = ""
    ) -> Reply:
        """Make an invite, for a device of `person` if one is given, and return its text."""
        server = await asyncio.to_thread(lambda: read_node_state(self._node.home).server)
        if not server.address:
            raise HearthNetError(
                "partition",
                "the server does not say yet where others reach it; try again in a moment",
                details={"rule": "provider_starting"},
            )
        event, repeated = await self._chain.append(lambda held: (make(held),), call.check_consent)
        own, name = self._node.identity, self._membership.roster.name
        others = [(one.address, one.fingerprint) for one in server.doors]
        places = [(server.address, server.fingerprint), *others]
        text = invites.text(event, own, client_id, places, name, person)
        shown = {"invite": text.encode(), "expires_at": rfc3339(text.expires_at)}
        return Reply(_event_reply(event) | shown, {"repeated": repeated})

    async def _change_role(self, call: Call[Any, Any], kind: roles.Kind) -> Reply:
        own = self._node.identity
        return await self._act(call, lambda held: roles.change_role(held, own, kind, call.input))

    async def _act(self, call: Call[Any, Any], make: Callable[[Roster], CommunityEvent]) -> Reply:
        """Make one event of this node, or find the one that an earlier call made."""
        event, repeated = await self._chain.append(lambda held: (make(held),), call.check_consent)
        return Reply(_event_reply(event), {"repeated": repeated})


def page(log: Sequence[CommunityEvent], limit: int) -> list[CommunityEvent]:
    """Return the first of `log`: at most `limit`, and at most `MOST_BYTES` in all."""
    first: list[CommunityEvent] = []
    size = 0
    for event in log[:limit]:
        size += len(event.encode())
        if first and size > MOST_BYTES:
            break
        first.append(event)
    return first


def removals_first(missing: Sequence[CommunityEvent], held: Roster, most: int) -> Sequence[CommunityEvent]:
    """Return `missing` with the last removals that count in front, at most `most`.

    Whoever asks may lack what they build on, and gets it with these pages; the removals act before that.
    """
    first = [one for one in missing if held.removes(one)]
    front = first[-min(most, _MOST_REMOVALS) :] if most else []
    ahead = {one.hash for one in front}
    return [*front, *(one for one in missing if one.hash not in ahead)]


def _event_reply(event: CommunityEvent) -> dict[str, Any]:
    return {"event_id": event.event_id, "lamport": event.lamport}


def _admission(held: Roster, joined: CommunityEvent) -> CommunityEvent | None:
    """Return the valid event that admitted a node by this request, or None."""
    for event in held.events:
        content = event.content
        if (
            isinstance(content, Admitted)
            and content.joined_event_hash == joined.hash
            and not held.flaw(event)
        ):
            return event
    return None


def _root(path: Path) -> Identity:
    """Load the community's root key.

    Raises:
        HearthNetError: `unauthorized` if this node does not hold it.
    """
    try:
        return load_identity(path)
    except HearthNetError as error:
        if error.code != "not_found":
            raise
        raise HearthNetError(
            "unauthorized", "the rules are changed where the community's root key lies, at its founder's"
        ) from error
