"""Communities of hundreds of members and their posts: real signed events, written directly with the keys.

Each member has the events of one that joined by an invite of the founder and has a person: invited, joined,
admitted, and the two that begin the person and make the node its device.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from hearthnet.bus.store import Store
from hearthnet.core import ids
from hearthnet.core.times import now_ms, rfc3339
from hearthnet.protocol import frame as frames
from hearthnet.protocol.header import Header
from hearthnet.service.effects import jetstream_records
from hearthnet.service.effects.event_log import Event
from hearthnet.service.eventlog.chain_store import ChainRecord
from hearthnet.trust.community import events, person_statements
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.community.events import Admitted, CommunityEvent, Joined
from hearthnet.trust.community.history import History
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.eventlog.chains import Chains
from hearthnet.trust.eventlog.entries import LogEvent, write_entry
from hearthnet.trust.keys import Identity

_DAY_MS: Final = 86_400_000
_BATCH: Final = 500
_APPEND_SECONDS: Final = 60.0
_WORDS: Final = (
    *(
        "ladder",
        "saw",
        "drill",
        "pump",
        "filter",
        "seeds",
        "bread",
        "wood",
        "stove",
        "lamp",
        "radio",
        "cable",
    ),
    *(
        "bicycle",
        "trailer",
        "tent",
        "blanket",
        "water",
        "rope",
        "bucket",
        "paint",
        "brush",
        "hammer",
        "nails",
    ),
    *("glue", "tape", "battery", "charger", "kettle", "jar", "apples", "honey", "wool", "needle", "thread"),
)


def key(name: str) -> Identity:
    """The key that goes by `name`: the same in every process."""
    return Identity(hashlib.blake2b(name.encode(), digest_size=32).digest())


def members(count: int) -> list[Identity]:
    """The keys of `count` members."""
    return [key(f"member {number}") for number in range(count)]


def with_members(held: Roster, founder: Identity, newcomers: Sequence[Identity]) -> Roster:
    """`held` with `newcomers`, invited and let in by `founder`, each with a person of its own."""
    return rosters.derived(History(held.community_id, [*held.events, *_joining(held, founder, newcomers)]))


def _joining(held: Roster, founder: Identity, newcomers: Sequence[Identity]) -> Iterator[CommunityEvent]:
    community, lamport = held.community_id, held.head_lamport
    ends = {founder.node_id: held.history.next(founder.node_id, lamport)[:2]}

    def write(author: Identity, kind: str, content: Any) -> CommunityEvent:
        nonlocal lamport
        lamport += 1
        sequence, previous = ends.get(author.node_id, (1, ""))
        event = events.write(
            author, community, kind, content, place=(sequence, previous, lamport), now_ms=now_ms()
        )
        ends[author.node_id] = sequence + 1, event.hash
        return event

    for number, one in enumerate(newcomers):
        names = (f"{word} of {one.node_id}" for word in ("invite", "person", "words"))
        invite_key, person, recovery = map(key, names)
        invited = events.invited(
            community, founder.node_id, invite_key, display_name="", expires_at=now_ms() + _DAY_MS
        )
        yield (invite := write(founder, events.INVITED, invited))
        bare = Joined(
            invite_event_hash=invite.hash,
            invite_key=invite_key.node_id,
            member=events.entry_of(one, f"Home{number}"),
            invite_signature="",
        )
        signature = invite_key.sign(events.INVITE_PURPOSE, events.request(community, bare))
        asked = msgspec.structs.replace(bare, invite_signature=ids.b64(signature))
        yield (joined := write(one, events.JOINED, asked))
        yield write(founder, events.ADMITTED, Admitted(joined_event_hash=joined.hash, node_id=one.node_id))
        keyed = person_statements.keyed(community, recovery, 1, person.node_id)
        yield write(one, person_statements.KEYED, keyed)
        offered = person_statements.offered_device(
            community, recovery.node_id, person, one.node_id, "node", f"Home{number}"
        )
        device = person_statements.consented(community, offered, one)
        yield write(one, person_statements.DEVICE_ADDED, device)


def posts(community: str, authors: Sequence[Identity], count: int, seed: int = 5) -> Iterator[LogEvent]:
    """`count` posts of `authors` in turn, as their homes publish them, a second apart and up to now."""
    chance, chains = random.Random(seed), Chains()
    persons = {one.node_id: key(f"words of {one.node_id}").node_id for one in authors}
    began = now_ms() - count * 1000
    for number, author in zip(range(count), itertools.cycle(authors), strict=False):
        time = began + number * 1000
        text = _post(community, author, chance, time)
        said = msgspec.json.decode(text)
        entry = write_entry(
            author,
            community,
            "market",
            text,
            place=chains.next(author.node_id),
            event_id=said["event_id"],
            event_type=said["event_type"],
            person=persons[author.node_id],
            time=time,
        )
        chains.add(entry)
        yield LogEvent(entry, text)


def _post(community: str, author: Identity, chance: random.Random, time: int) -> str:
    """The text of a post with the signed call that made it, as large as one that a person writes."""
    client_id = ids.new_ulid(time)
    data = {
        "client_id": client_id,
        "category": chance.choice(("offer", "request", "info")),
        "title": " ".join(chance.choices(_WORDS, k=4)),
        "body": " ".join(chance.choices(_WORDS, k=25)),
        "tags": chance.sample(_WORDS, 2),
        "ttl_seconds": 2_592_000,
    }
    header = Header(
        id=ids.new_ulid(time),
        kind="call",
        sender=author.node_id,
        from_instance="abcd2345",
        to=author.node_id,
        to_instance="abcd2346",
        community=community,
        time=time,
        deadline=10_000,
        capability="market.post@1.0",
        idempotency_key=client_id,
    )
    frame = frames.signed(header, msgspec.json.encode({"params": {}, "input": data}), author)
    event = Event(
        event_id=ids.new_ulid(time),
        event_type="market.post.created",
        wall_clock=rfc3339(time),
        community_id=community,
        author=author.node_id,
        client_id=client_id,
        data=data,
        arguments_digest="blake3:" + chance.randbytes(32).hex(),
        frame=ids.b64(frame),
        approval=None,
    )
    return msgspec.json.encode(event).decode()


async def fill(store: Store, community: str, written: Iterator[LogEvent]) -> None:
    """Put posts of other homes into the streams of a home, in batches, as its market has them."""
    prefix = f"ch.market.{ids.token_form(community)}"
    while part := list(itertools.islice(written, _BATCH)):
        bodies, records = [], []
        for one in part:
            entry = one.entry
            author = ids.token_form(entry.author)
            bodies.append((f"mk.post.{author}.{entry.sequence}-{entry.hash[-16:]}", one.body.encode()))
            records.append((f"{prefix}.{author}.{entry.sequence}", msgspec.json.encode(ChainRecord(entry))))
        await _append(store, "MARKET", bodies)
        await _append(store, "CHAINS", records)


async def _append(store: Store, stream: str, messages: Sequence[tuple[str, bytes]]) -> None:
    clock = asyncio.get_running_loop().time
    *ahead, (subject, data) = messages
    await jetstream_records.write_until(
        store,
        stream,
        subject,
        data,
        ahead=ahead,
        expected={"Nats-Expected-Last-Subject-Sequence": "0"},
        until=clock() + _APPEND_SECONDS,
        room=jetstream_records.DiskGuard(None),
        what="the event log",
    )
