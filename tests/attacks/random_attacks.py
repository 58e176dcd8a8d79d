"""Attacks whose parameters are drawn at random: what each family sends, and what has to come of it.

Each attack returns what is wrong with what came of it; a family that finds nothing wrong returns "".
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.bus.session import gossip_frames
from hearthnet.bus.session.keyring import load_roster
from hearthnet.contracts.contract import Contract
from hearthnet.contracts.registry import contracts
from hearthnet.core import ids
from hearthnet.core.errors import CODES, HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.protocol import frame as frames
from hearthnet.trust import signed_document
from hearthnet.trust.authorization.approval import Approval
from hearthnet.trust.community import events
from hearthnet.trust.keys import Identity
from tests.attacks.attacker import LIST, LIST_BODY, NO_ANSWER, POST, Attacker, post_body
from tests.attacks.conftest import Victim
from tests.attacks.test_approvals import Lent
from tests.bad_input.mutations import mutations
from tests.bad_input.test_bad_input import flaw
from tests.helpers.direct import Unanswered, ask
from tests.helpers.full_house import FullHouse
from tests.helpers.samples import sample

SECONDS: Final = 60.0
_NEVER: Final = frozenset({"internal_error", "timeout", NO_ANSWER})


@dataclass(frozen=True)
class Target:
    """The node under attack, and who attacks it."""

    house: FullHouse
    victim: Victim
    mallory: Attacker
    market: OfferView
    offers: tuple[OfferView, ...]
    gateway: str


def _bends(random: Random) -> dict[str, Any]:
    """What may be changed in an approval; each alone makes it one of something else."""
    hour, free = 3_600_000, ("id", "tool_call_id")
    required = [one.name for one in msgspec.structs.fields(Approval) if one.required and one.name not in free]
    wrong: Any = random.choice([None, 7, True, [], {}, "", "x" * 300, "\u202e", 2**53 - 1])
    return {
        "arguments_digest": "blake3:" + random.randbytes(32).hex(),
        "run": ids.new_ulid(),
        "idempotency_key": ids.new_ulid(),
        "capability": random.choice(["market.expire@1.0", "market.post@1.1", "file.remove@1.0", "*"]),
        "provider": Identity.generate().node_id,
        "actor": Identity.generate().node_id,
        "approver": Identity.generate().node_id,
        "community": Identity.generate().node_id,
        "v": random.randint(2, 2**31),
        "via": "gateway",
        "time": now_ms() + random.randint(hour, 10**5 * hour),
        "expires": now_ms() + random.choice([-1, 1]) * random.randint(25 * hour, 10**5 * hour),
        random.choice(required): wrong,
    }


async def bent_approval(target: Target, random: Random) -> str:
    """A post under an approval in which up to three members are other ones: it is not carried out."""
    mallory, title = target.mallory, f"Never approved {random.randbytes(6).hex()}"
    run, body = ids.new_ulid(), post_body(title)
    lent, all_bends = Lent(target.victim, mallory, run=run), _bends(random)
    bends = {name: all_bends[name] for name in random.sample(sorted(all_bends), random.randint(0, 3))}
    typed = {name: value for name, value in bends.items() if type(value) in (int, str)}
    approval = lent.yes(body, random.choice([None, mallory.peer.identity]) if bends else None, **typed)
    code = await mallory.call(target.market, POST, body, token=lent.token, run=run, approval=approval | bends)
    posted = await mallory.posted(title)
    if not bends:
        return "" if (code, posted) == ("ok", 1) else f"an approved post: {code}, {posted} posts"
    if posted or code in _NEVER or code not in CODES:
        return f"{code}, {posted} posts under an approval with {bends}"
    return ""


async def spoilt_frame(target: Target, random: Random) -> str:
    """A signed effect of which bytes, subject, or parts of its header are changed: nothing comes of it."""
    mallory, title = target.mallory, f"Spoilt {random.randbytes(6).hex()}"
    body = post_body(title)
    header = mallory.header(target.market, POST, body)
    subject = mallory.subject(target.market, POST)
    data = bytearray(mallory.boxed(mallory.inner(header, body, signed=True), target.market))
    match random.randrange(4):
        case 0:
            for place in random.sample(range(len(data)), random.randint(1, 8)):
                data[place] ^= random.randint(1, 255)
        case 1:
            del data[random.randrange(len(data)) :]
        case 2:
            data += random.randbytes(random.randint(1, 4_096))
        case _:
            field = random.choice(["to", "to_instance", "sender", "community", "kind", "capability"])
            value = {"kind": "reply", "to_instance": "zzzzzzzz", "capability": "market.expire@1.0"}
            changed = msgspec.structs.replace(
                header, **{field: value.get(field) or Identity.generate().node_id}
            )
            inner = frames.signed(changed, msgspec.json.encode(body), mallory.peer.identity)
            data = bytearray(mallory.boxed(inner, target.market))
    code = await mallory.strike(subject, bytes(data), header.id, target.market)
    posted = await mallory.posted(title)
    return "" if code == NO_ANSWER and not posted else f"{code}, {posted} posts of a spoilt frame"


async def bad_body(target: Target, random: Random) -> str:
    """A body that no contract takes, or one that is odd, to any capability of the node."""
    view = random.choice(target.offers)
    contract = contracts().get(str(view.capability))
    right = sample(contract, target.house.stock)
    bad = random.choice([one for one in mutations(contract, right) if len(one.data) < 900_000])
    code = await _code(target.mallory, view, contract, bad.data)
    taken = code == "ok" and flaw(contract, bad) is not None
    return f"{contract.id}, {bad.what}: {code}" if code in _NEVER or taken else ""


async def _code(mallory: Attacker, view: OfferView, contract: Contract, body: bytes) -> str:
    try:
        await ask(mallory.bus, view, contract, body, SECONDS)
    except Unanswered:
        return NO_ANSWER
    except HearthNetError as error:
        return error.code
    return "ok"


async def forged_event(target: Target, random: Random) -> str:
    """An event that only others may make, by them or by the member, signed by it or by nobody: no level and
    no membership changes.
    """
    mallory, founder = target.mallory, target.victim.identity
    roster, me, carol = mallory.peer.roster, mallory.peer.identity, target.victim.key("carol")
    before, who = _members(target), random.choice([carol, founder]).node_id
    joined, once = random.choice(roster.events).hash, ids.new_ulid()
    acts: list[tuple[str, events.Data]] = [
        (events.PROMOTED, events.Promoted(target_node_id=me.node_id, new_level="anchor", client_id=once)),
        (events.DEMOTED, events.Demoted(target_node_id=founder.node_id, new_level="member", client_id=once)),
        (events.REVOKED, events.Revoked(target_node_id=who, reason="none", client_id=once)),
        (events.ADMITTED, events.Admitted(joined_event_hash=joined, node_id=me.node_id)),
        (events.POLICY, events.PolicyUpdated(policy=events.Policy(min_signatures_to_revoke=1), heads={})),
    ]
    kind, data = random.choice(acts)
    author = random.choice([me, carol, founder])
    place = roster.next(author.node_id) if random.random() < 0.8 else (random.randint(1, 2**40), "", 2**40)
    event = events.write(author, roster.community_id, kind, data, place=place, now_ms=now_ms())
    if author is not me:
        stranger = Identity.generate()
        event = signed_document.sign(event, random.choice([me, stranger]), events.PURPOSE)
    for batch in gossip_frames.batches([event], ()):
        await gossip_frames.publish(mallory.peer.sender, gossip_frames.LOG, batch)
    # An honest call on the same connection: what was published before it has been read by then.
    if await mallory.call(target.market, LIST, LIST_BODY) != "ok":
        return "the node does not answer any more"
    return "" if _members(target) == before else f"{kind} by {author.node_id} changed the members: {data}"


def _members(target: Target) -> list[tuple[dict[str, str], object]]:
    rosters = target.mallory.peer.roster, load_roster(target.house.home.roster)
    return [({one.node_id: one.level for one in held.members}, held.policy) for held in rosters]


async def odd_request(target: Target, random: Random) -> str:
    """A request to the gateway by nobody, of a form that no browser sends: no 5xx, nothing is served."""
    at = urlsplit(target.gateway)
    closed = ["/v1/call/market.list", "/v1/chat/completions", "/v1/session", "/mcp", "/v1/runs", "/v1/models"]
    path = random.choice([*closed, "/", "/health", "/v1/../v1/runs", "/%2e%2e/etc/passwd", "//evil", "*"])
    host = random.choice([at.netloc, "evil.example", "[::1].evil.example", "", "127.0.0.1:1", "x" * 500])
    body = random.choice([b"", b"{}", b"[" * 5_000, random.randbytes(200), b'{"params": {}, "input": {}}'])
    fields = {
        "Authorization": random.choice(["", "Bearer", f"Bearer {random.randbytes(24).hex()}", "Basic eDp4"]),
        "Cookie": random.choice(["", "session=x", "a=b; " * 200]),
        "Origin": random.choice(["null", "http://evil.example", "file://", target.gateway]),
        "Content-Type": random.choice(["application/json", "text/plain", "multipart/form-data"]),
        "Content-Length": random.choice([str(len(body)), "-1", "1e3", str(len(body)) + ", 7"]),
        "Transfer-Encoding": random.choice(["chunked", "identity", "chunked, chunked"]),
        "X-Forwarded-For": "127.0.0.1",
        "Upgrade": random.choice(["websocket", "h2c"]),
    }
    kept = random.sample(sorted(fields), random.randint(0, len(fields)))
    method = random.choice(["GET", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"])
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
    head += "".join(f"{name}: {fields[name]}\r\n" for name in kept)
    status = await _status(at.hostname or "", at.port or 0, head.encode() + b"\r\n" + body)
    shown = json.dumps(head)
    if status >= 500:
        return f"{status} for {shown}"
    served = 200 <= status < 300 and path in closed and method != "OPTIONS"
    return f"{status} without a key for {shown}" if served else ""


async def _status(host: str, port: int, request: bytes) -> int:
    """The status of the answer; 0 where the connection ends without one, or it waits for the rest."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(request)
        async with asyncio.timeout(2):
            line = await reader.readline()
    except (TimeoutError, ConnectionError):
        return 0
    finally:
        writer.close()
    parts = line.split()
    return int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0


async def strange_subject(target: Target, random: Random) -> str:
    """A publication under a subject that is not the member's own: the server refuses it, or nobody cares."""
    raw = await target.victim.raw()
    own, other = ids.token_form(target.mallory.peer.node_id), ids.token_form(target.victim.node)
    family = random.choice(["call", "rep", "find", "adv", "event", "ctl", "join", "auth", "x"])
    rest = [random.choice([own, other, "market", "list", "v1", target.market.offer.instance])]
    rest += [random.choice([own, other, "market", "v1", ids.new_ulid()]) for _ in range(random.randint(0, 4))]
    system = ["$JS.API.STREAM.LIST", "$SYS.REQ.SERVER.PING", "$SRV.PING", "$KV.x.y", "_INBOX.x", "$G.x"]
    subject = random.choice([f"hn.{family}.{'.'.join(rest)}"] * 3 + system)
    try:
        await raw.publish(subject, random.randbytes(random.randint(0, 2_000)))
        if raw.refused(subject) or subject.split(".")[2:3] == [own]:
            return ""
        return f"the server took {subject} of a member"
    finally:
        await raw.close()


Attack = Callable[[Target, Random], Awaitable[str]]
FAMILIES: Final[dict[str, Attack]] = {
    "bent approval": bent_approval,
    "spoilt frame": spoilt_frame,
    "bad body": bad_body,
    "forged event": forged_event,
    "odd request": odd_request,
    "strange subject": strange_subject,
}
