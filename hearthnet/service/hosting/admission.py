"""The ladder of checks before a call's handler runs; the first failure is the answer.

     0  its sender is within its frame budget                else dropped, counted, unread (host.py)
     1  the box opens with the key of the subject's caller   else dropped, counted
     2  the header is for this node, process and subject     else dropped, counted
     3  fresh, and not received before                       else `expired`; a replay is dropped
        and not older than the sender's forgotten ids        else `rate_limited`
     4  its sender was not revoked                           else `revoked`
        and is within its rate limits                        else `rate_limited`
     5  the capability is offered here                       else `not_found`
     6  signed, if it has side effects                       else `invalid_signature`
        and its body is no larger than the contract allows   else `payload_too_large`
     7  the token, if there is one, is a token               else `bad_request`
        signed by its issuer                                 else `token_invalid`
        within its lifetime                                  else `token_expired`
        for this community, and not a bearer token           else `unauthorized`
        for its sender,                                      else `invalid_signature`
        not revoked                                          else `token_revoked`
        for no device that its person has removed            else `revoked`
        and made for this run, if for one                    else `token_scope_insufficient`
     8  the body is JSON, and an offer fits its params       else `bad_request`, `not_found`
     9  roster and token allow it (trust/authorization/authority.py)       else `revoked`, `unauthorized`,
                                                                  `token_scope_insufficient`
        and the terms of sharing (service/sharing/)          else `unauthorized`, `rate_limited`
    10  the body fits the contract                           else `bad_request`
    11  an approval or a use of a standing grant, if one is  else `unauthorized`, `invalid_signature`,
        required, is for exactly this call                        `token_revoked`, `bad_request`
    12  a place is free, for another node within its half,  else `capacity_exceeded`
        or a member's call waits for one (service/sharing/places.py)

Then, before the handler (service/hosting/call_execution.py): the token's budget
(service/effects/token_budget.py), and the use of a grant. The expiry of an approval is checked before
anything is recorded (service/effects/journal.py), and for a call that may be a repetition not before the
outcome of the earlier one was looked up.

See: docs/protocol/admission.md#ladder.

Raises:
    HearthNetError: With the code in the table, from the functions below.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hearthnet.bus.session.sender import CLOCK_RULE
from hearthnet.bus.session.session import Session
from hearthnet.bus.session.usage_meter import home_of
from hearthnet.contracts.contract import Contract
from hearthnet.core.canonical_json import digest, read_json, refuse_repeated_keys
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.errors import PLACES_TAKEN, HearthNetError, Overloaded
from hearthnet.core.times import now_ms, steady_ms
from hearthnet.protocol import frame as frames
from hearthnet.protocol import subjects
from hearthnet.protocol.frame import Frame, FrameError
from hearthnet.protocol.header import SUBJECT_KINDS, Header
from hearthnet.protocol.replay import STRANGERS
from hearthnet.service.decorators import Endpoint
from hearthnet.service.effects.refusal_audit import ConsentRefused
from hearthnet.service.hosting.active_offers import ActiveOffer, OfferSet
from hearthnet.service.hosting.peer_rates import OTHERS, PeerRates
from hearthnet.trust.authorization import approval as approvals
from hearthnet.trust.authorization import grant as grants
from hearthnet.trust.authorization.approval import Approval, Claimed
from hearthnet.trust.authorization.authority import (
    Authority,
    CallerStatus,
    PresentedToken,
    authorize,
    refuse_revoked,
)
from hearthnet.trust.authorization.grant import Grant
from hearthnet.trust.authorization.token import Claims
from hearthnet.trust.community.person_statements import REMOVED_DEVICE

RETRY_AFTER_MS: Final = 250
MOST_HOPS: Final = 6
"""Maximum nesting of calls (docs/protocol/discovery.md#hops), which ends every cycle."""
_BODY: Final = msgspec.json.Decoder(dict[str, Any])


class AdmittedCall(msgspec.Struct, frozen=True, gc=False):
    """A call that may run: endpoint, offer, body as sent, principal, token and consent.

    The consent is an approval or a use of a standing grant, whose expiry is not checked yet. `holder` is the
    node or person that its place is charged to, "" for this home. `must_wait`: no place is free for it.
    """

    endpoint: Endpoint
    hosted: ActiveOffer
    body: dict[str, Any]
    principal: str
    claims: Claims | None
    approval: Approval | None
    grant: Grant | None
    holder: str
    must_wait: bool = False


def open_directed(peer: Session, subject: str, data: bytes) -> Frame:
    """Open `data` by rungs 1 and 2: from the node in its subject, and for this process.

    Raises:
        FrameError: The frame is dropped without an answer.
        HearthNetError: Likewise.
    """
    route = subjects.directed(subject)
    frame = frames.opened(data, peer.sender.keys.of(route.sender), route.sender)
    header = frame.header
    if header.kind not in SUBJECT_KINDS[route.family] or header.community != peer.community:
        raise FrameError("the frame is not for this subject or community")
    if header.to != peer.node_id or header.to_instance != peer.instance:
        raise FrameError("the frame is for another process")
    if route.rest != f"{header.to_instance}.{_matter(header)}":
        raise FrameError("the frame is about something else than its subject says")
    return frame


def _matter(header: Header) -> str:
    """Return the end of the frame's subject: its capability, or the stream that it belongs to."""
    if header.kind in SUBJECT_KINDS["call"]:
        return subjects.topic(parse_capability(header.capability))
    return header.stream


def fresh(peer: Session, header: Header) -> bool:
    """Check freshness (rung 3); False for a replay, which is dropped.

    Raises:
        HearthNetError: `expired` with this node's time for a frame out of its window; `rate_limited` if its
            sender has sent too much since.
    """
    now = now_ms()
    sender = STRANGERS if peer.membership.status(header.sender).level == "unknown" else header.sender
    verdict = peer.replay.check(sender, header.id, header.time, now)
    if verdict == "stale":
        raise HearthNetError(
            "expired",
            "the frame's time is more than 60 s from ours; set the clock of one of the two computers",
            details={"now": now, "rule": CLOCK_RULE},
        )
    if verdict == "crowded":
        raise HearthNetError(
            "rate_limited",
            "your node has sent too much since: a repetition could not be told apart; ask again",
            retry_after_ms=max(RETRY_AFTER_MS, peer.replay.wait_ms(sender, header.time)),
        )
    return verdict == "fresh"


def admit(
    peer: Session, rates: PeerRates, endpoints: dict[str, Endpoint], offered: OfferSet, frame: Frame
) -> AdmittedCall:
    """Check a fresh frame of kind `call` or `open` by rungs 4 to 12.

    Raises:
        HearthNetError: The error to return to the caller.
    """
    header = frame.header
    caller = peer.membership.status(header.sender)
    refuse_revoked(caller, "you were")
    if header.sender != peer.node_id:
        _charge(rates, peer.membership.account(header.sender), header.capability, endpoints)
    if header.hops > MOST_HOPS:
        raise HearthNetError(
            "bad_request",
            f"calls lie at most {MOST_HOPS} deep in one another, this one {header.hops}; is it a cycle?",
            details={"rule": "hops", "limit": MOST_HOPS},
        )
    serving = offered.serving(header.capability)
    endpoint = endpoints[serving[0].offer.capability]
    contract = endpoint.contract
    _check_kind(contract, frame)
    claims = _claims(peer, header)
    body = _decode(frame)
    there = [
        entry
        for entry in serving
        if not entry.is_to_home or entry.is_there_for(peer.node_id, header.sender, claims)
    ]
    chosen = _choose(contract, body, there)
    token = None if claims is None else PresentedToken(claims, _issuer(peer, claims, caller))
    authority = authorize(caller, token, chosen.demand(peer.node_id), body)
    holder = _holder(peer, header.sender, authority.principal)
    if holder and offered.terms is not None:
        nodes = {header.sender, authority.principal.partition("/")[0]} - {peer.node_id}
        offered.terms.check(contract.name, holder, nodes, now_ms())
    contract.check_request(body)
    approval, grant = _consent(peer, header, contract, authority, body)
    must_wait = not chosen.places.is_free(holder)
    if must_wait and not (header.waits and peer.membership.is_member(header.sender)):
        whose = " for your node" if holder else ""
        raise Overloaded(
            f"all places of {contract.id}{whose} are taken; try again in a moment",
            rule=PLACES_TAKEN,
            retry_after_ms=RETRY_AFTER_MS,
        )
    return AdmittedCall(
        endpoint, chosen, body, authority.principal, claims, approval, grant, holder, must_wait
    )


def _holder(peer: Session, sender: str, principal: str) -> str:
    """Return the person or node that a call's place is charged to, "" for this home and its owner.

    A call that this node makes for a client of another one, through its gateway, is that node's.
    """
    own, roster = peer.node_id, peer.roster
    node = principal.partition("/")[0] if sender == own else sender
    if node == own or not home_of(roster, own, node):
        return ""
    # Not "" where this node answers for it: a member that it invited is another home.
    account = roster.answerable(node)
    return roster.person_of(account) or account


def _check_kind(contract: Contract, frame: Frame) -> None:
    """Refuse an unsigned effect, a body that is too large, and a stream of what does not stream."""
    if contract.side_effects and frame.evidence is None:
        raise HearthNetError("invalid_signature", f"{contract.id} has side effects: its calls must be signed")
    contract.check_request_size(len(frame.body))
    if frame.header.kind == "open" and contract.stream_schema is None:
        raise HearthNetError("bad_request", f"{contract.id} does not stream; send it as a call")


def _charge(rates: PeerRates, account: str, capability: str, endpoints: dict[str, Endpoint]) -> None:
    """Count a call of another node; all capabilities that are not offered here count as one."""
    refused = rates.charge(account, capability if capability in endpoints else OTHERS, steady_ms())
    if refused is not None:
        what = f"calls of {refused.capability}" if refused.capability else "calls"
        raise HearthNetError(
            "rate_limited",
            f"{refused.limit} {what} a second are taken from another node; "
            f"wait {refused.wait_ms / 1000:.1f} s",
            retry_after_ms=refused.wait_ms,
        )


def _issuer(peer: Session, claims: Claims, caller: CallerStatus) -> CallerStatus:
    return caller if claims.iss == caller.node else peer.membership.status(claims.iss)


def _claims(peer: Session, header: Header) -> Claims | None:
    """Check the token (rung 7).

    Results that follow from the token's bytes are cached; all others are checked for each call.
    """
    if not header.token:
        return None
    claims = peer.tokens.claims(header.token)
    claims.check_use(caller=header.sender, community=peer.community, now_ms=now_ms())
    if peer.membership.revocations.revoked(claims.iss, claims.jti):
        raise HearthNetError("token_revoked", "the token was revoked; ask its issuer for a new one")
    if claims.cnf is not None and peer.roster.is_removed_device(claims.cnf.key):
        raise HearthNetError("revoked", REMOVED_DEVICE)
    if claims.run not in ("", header.run):
        raise HearthNetError("token_scope_insufficient", "the token was made for another run")
    return claims


def _decode(frame: Frame) -> dict[str, Any]:
    """Return the body as an object; one kept as evidence must mean the same to every reader."""
    body = read_json(frame.body, _BODY)
    if frame.evidence is not None:
        refuse_repeated_keys(frame.body)
    return body


def _choose(contract: Contract, body: dict[str, Any], offered: list[ActiveOffer]) -> ActiveOffer:
    fitting = [entry for entry in offered if entry.fits(body)]
    if not fitting:
        contract.check_request(body)
        raise HearthNetError("not_found", f"no offer of {contract.id} here fits these params")
    return fitting[0] if len(fitting) == 1 else min(fitting, key=lambda entry: entry.in_flight)


def _consent(
    peer: Session, header: Header, contract: Contract, authority: Authority, body: dict[str, Any]
) -> tuple[Approval | None, Grant | None]:
    """Return the approval or standing grant in the header, verified for this call (rung 11)."""
    if header.approval is None and header.grant is None:
        if authority.needs_approval:
            raise HearthNetError(
                "unauthorized", f"{contract.id} has side effects and needs the person's approval"
            )
        return None, None
    call = _claimed(peer, header, contract, authority, body)
    try:
        return _named(peer, header, contract, call, body)
    except HearthNetError as error:
        raise ConsentRefused.of(error, call.arguments_digest) from error


def _named(
    peer: Session, header: Header, contract: Contract, call: Claimed, body: dict[str, Any]
) -> tuple[Approval | None, Grant | None]:
    """Return the approval or grant in the header, verified for `call`."""
    if header.grant is None:
        approval = approvals.decode(header.approval)
        approvals.check_binding(approval, call)
        return approval, None
    if header.approval is not None:
        raise HearthNetError("bad_request", "a call names an approval or a standing grant, not both")
    grant = grants.decode(header.grant)
    grants.check_binding(grant, header.use, call, contract.schema_hash, body)
    if peer.membership.revocations.revoked(grant.approver, grant.id):
        raise HearthNetError("token_revoked", "the standing grant was revoked; ask the person again")
    return None, grant


def _claimed(
    peer: Session, header: Header, contract: Contract, authority: Authority, body: dict[str, Any]
) -> Claimed:
    """Return the call in the form that an approval or a grant must describe."""
    return Claimed(
        community=peer.community,
        approver=authority.approver,
        via=authority.via,
        actor=header.sender,
        provider=peer.node_id,
        capability=contract.id,
        arguments_digest=digest(body),
        idempotency_key=header.idempotency_key,
        run=header.run,
        shared_effect=contract.is_shared_effect,
        is_device=peer.roster.is_device,
    )
