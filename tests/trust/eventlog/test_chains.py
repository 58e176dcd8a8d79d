"""Entries of the event log, and the chains that they make."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.core import ids
from hearthnet.core.canonical_json import content_hash
from hearthnet.core.errors import HearthNetError
from hearthnet.trust import signed_document
from hearthnet.trust.eventlog.chain_ends import read_head, read_place
from hearthnet.trust.eventlog.chains import DAY_MS, MAX_BRANCHES, MAX_DAY_BYTES, Chains, Link
from hearthnet.trust.eventlog.entries import (
    MAX_BODY_BYTES,
    PURPOSE,
    LogEntry,
    LogEvent,
    check_event,
    write_entry,
)
from hearthnet.trust.keys import Identity

ANNA, BERTA = Identity(bytes(31) + b"\1"), Identity(bytes(31) + b"\2")
COMMUNITY = Identity(bytes(31) + b"\3").node_id
START = 1_800_000_000_000


def entry(chains: Chains, author: Identity = ANNA, body: str = "{}", **given: Any) -> LogEntry:
    """The next entry of `author`."""
    place = given.pop("place", None) or chains.next(author.node_id)
    fields = {"event_id": ids.new_ulid(START), "event_type": "market.post.created", "person": "anna"}
    return write_entry(author, COMMUNITY, "market", body, place=place, **{"time": START, **fields, **given})


def added(chains: Chains, author: Identity = ANNA, **given: Any) -> LogEntry:
    """The next entry of `author`, which is held then."""
    made = entry(chains, author, **given)
    chains.check(made)
    chains.add(made)
    return made


def everybody(author: str) -> bool:
    """All are members."""
    return True


@pytest.mark.req("COMMLOG-3")
def test_an_entry_proves_its_body_and_its_author() -> None:
    made = entry(Chains(), body='{"a": 1}')
    check_event(LogEvent(made, '{"a": 1}'), "market", COMMUNITY)
    check_event(LogEvent(made), "market", COMMUNITY)
    for event, topic, community, code in (
        (LogEvent(made, '{"a": 2}'), "market", COMMUNITY, "bad_request"),
        (LogEvent(made, '{"a":1}'), "market", COMMUNITY, "bad_request"),
        (LogEvent(made, '{"a": 1\ud800'), "market", COMMUNITY, "bad_request"),
        (LogEvent(made), "chat", COMMUNITY, "bad_request"),
        (LogEvent(made), "market", ANNA.node_id, "bad_request"),
        (LogEvent(msgspec.structs.replace(made, person="berta")), "market", COMMUNITY, "invalid_signature"),
        (
            LogEvent(msgspec.structs.replace(made, author=BERTA.node_id)),
            "market",
            COMMUNITY,
            "invalid_signature",
        ),
    ):
        with pytest.raises(HearthNetError) as caught:
            check_event(event, topic, community)
        assert caught.value.code == code


@pytest.mark.req("COMMLOG-3")
@pytest.mark.parametrize("given", [{"event_id": "x"}, {"place": (2, "", 0)}])
def test_an_entry_with_a_malformed_place_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(HearthNetError, match="malformed"):
        check_event(LogEvent(entry(Chains(), **given)), "market", COMMUNITY)


@pytest.mark.req("ATTACK-100")
@pytest.mark.parametrize(
    "given",
    [
        {"size": 0},
        {"size": MAX_BODY_BYTES + 1},
        {"topic": "a.b"},
        {"person": ""},
        {"sequence": 0},
        {"more": 1},
    ],
)
def test_an_entry_beyond_its_bounds_is_unreadable(given: dict[str, Any]) -> None:
    fields = entry(Chains()).as_json() | given
    assert signed_document.readable([fields], LogEntry) == []


@pytest.mark.req("COMMLOG-3")
def test_entries_follow_each_other() -> None:
    chains = Chains()
    first, second = added(chains), added(chains, time=START + 5)
    assert (first.sequence, second.sequence, second.previous) == (1, 2, first.hash)
    assert added(chains, time=START).time == START + 5, "time does not go back"
    assert len(chains) == 3
    assert chains.holds(second.hash)
    assert chains.size(second.hash) == second.size
    assert read_place(second.page_place) == (second.time, 2, second.hash)
    stray = entry(chains, place=(9, "blake3:" + "0" * 64, 0))
    assert not chains.is_next(stray)
    for wrong in (
        entry(chains, BERTA, place=(3, second.hash, 0)),
        entry(chains, place=(4, second.hash, 0)),
        entry(chains, place=(3, second.hash, 0), time=START),
    ):
        assert chains.is_next(wrong)
        with pytest.raises(HearthNetError, match="does not follow"):
            chains.check(wrong)


@pytest.mark.req("COMMLOG-5")
def test_one_author_writes_so_much_a_day() -> None:
    chains, large = Chains(), "x" * MAX_BODY_BYTES
    for _ in range(MAX_DAY_BYTES // MAX_BODY_BYTES):
        added(chains, body=large)
    with pytest.raises(HearthNetError) as caught:
        chains.check(entry(chains, body=large))
    assert caught.value.code == "rate_limited"
    added(chains, BERTA, body=large)
    added(chains, body=large, time=START + DAY_MS)
    with pytest.raises(HearthNetError, match="does not follow"):
        chains.check(entry(chains, place=(*chains.next(ANNA.node_id)[:2], 0), body="{}"))
    assert chains.left(ANNA.node_id, START + DAY_MS) == MAX_DAY_BYTES - MAX_BODY_BYTES


@pytest.mark.req("COMMLOG-6")
def test_a_fork_is_found_and_bounded() -> None:
    chains = Chains()
    first = added(chains)
    second = added(chains)
    other = added(chains, place=(2, first.hash, 0), body="{ }")
    assert chains.forks == {ANNA.node_id: (2, second.hash, other.hash)}
    again = added(chains, place=(1, "", 0), body="{  }")
    assert chains.forks == {ANNA.node_id: (2, second.hash, other.hash)}, "the first one stays named"
    added(chains, place=(2, again.hash, 0))
    added(chains, place=(1, "", 0), body="{   }")
    assert len(chains.heads(everybody)[ANNA.node_id]) == MAX_BRANCHES
    with pytest.raises(HearthNetError, match="too many ends"):
        chains.check(entry(chains, place=(2, first.hash, 0), body="{    }"))
    longest = added(chains, place=(3, other.hash, 0))
    assert chains.next(ANNA.node_id) == (4, longest.hash, START)


@pytest.mark.req("COMMLOG-4")
def test_missing_entries_are_those_behind_the_heads() -> None:
    chains = Chains()
    mine = [added(chains, time=START + number) for number in range(3)]
    other = added(chains, BERTA, time=START + 1)

    def missing(heads: dict[str, list[str]]) -> list[str]:
        return chains.missing(heads, everybody, 100)[0]

    everything = missing({})
    assert set(everything) == {one.hash for one in (*mine, other)}
    assert [one for one in everything if one != other.hash] == [one.hash for one in mine]
    told = {ANNA.node_id: [f"1:{mine[0].hash}"], BERTA.node_id: [f"1:{other.hash}"]}
    assert missing(told) == [mine[1].hash, mine[2].hash]
    unknown = "blake3:" + "7" * 64
    assert missing(told | {ANNA.node_id: [f"9:{unknown}"]}) == [], "it is ahead"
    assert len(missing(told | {ANNA.node_id: [f"3:{unknown}"]})) == 3, "it is on another branch"
    assert chains.missing({}, lambda author: author == BERTA.node_id, 9) == ([other.hash], 1)
    assert chains.lacks({ANNA.node_id: [f"9:{unknown}"]})
    assert not chains.lacks(chains.heads(everybody))
    assert chains.count(lambda author: author == ANNA.node_id) == 3
    assert chains.next(COMMUNITY) == (1, "", 0)
    with pytest.raises(HearthNetError):
        read_head("0:blake3:")


def test_heads_of_two_branches_with_one_trunk_are_walked_once() -> None:
    chains, read = Chains(), Counter[str]()

    class Counted(dict[str, Link]):
        def __getitem__(self, hash_: str) -> Link:
            read[hash_] += 1
            return super().__getitem__(hash_)

    trunk = [added(chains) for _ in range(5)]
    left, right = added(chains), added(chains, place=(6, trunk[-1].hash, 0), body="{ }")
    heads = chains.heads(everybody)
    assert heads == {ANNA.node_id: sorted([f"6:{left.hash}", f"6:{right.hash}"])}
    chains._links = Counted(chains._links)
    assert chains.missing(heads, everybody, 9) == ([], 0)
    assert read.keys() == {one.hash for one in (*trunk, left, right)}
    assert len(set(read.values())) == 1, "an entry below both is read as often as one below a single one"
    assert signed_document.is_signed(left, ANNA.node_id, PURPOSE)


@pytest.mark.req("SCALE-3")
def test_the_next_page_is_found_without_walking_all_entries() -> None:
    """As many links are read where eight times as many entries are held, and half of them are known."""

    def reads(count: int) -> int:
        chains, read = Chains(), Counter[str]()

        class Counted(dict[str, Link]):
            def __getitem__(self, hash_: str) -> Link:
                read[hash_] += 1
                return super().__getitem__(hash_)

        heads, made = {}, []
        for number in range(count):
            made.append(added(chains, (ANNA, BERTA)[number % 2], time=START + number))
            if number == count // 2:
                heads = chains.heads(everybody)
        chains._links = Counted(chains._links)
        hashes, total = chains.missing(heads, everybody, 10)
        assert (hashes, total) == ([one.hash for one in made[count // 2 + 1 :][:10]], count - count // 2 - 1)
        return read.total()

    assert reads(800) <= reads(100) <= 40


@pytest.mark.req("SCALE-13")
@pytest.mark.parametrize("limit", [1, 3, 7])
def test_pages_behind_a_place_are_all_that_is_missing(limit: int) -> None:
    """Also of a fork, and of entries of one time; what was known at the beginning is in none."""
    chains, authors = Chains(), [Identity(bytes(31) + bytes([number])) for number in range(4, 9)]
    for number in range(5):
        added(chains, authors[number], time=START)
    known = chains.heads(everybody)
    for number in range(40):
        added(chains, authors[number % 5], time=START + number // 7)
    fork = entry(chains, authors[0], place=(2, chains._of[authors[0].node_id][0], START), body='{"a":1}')
    chains.add(fork)
    everything, total = chains.missing(known, everybody, 100)
    assert total == len(everything) == 41
    found, after = list[str](), None
    while page := chains.missing(known, everybody, limit, after):
        assert page[1] == total - len(found)
        if not page[0]:
            break
        found += page[0]
        after = read_place(f"{chains._links[found[-1]].time}:{chains._links[found[-1]].sequence}:{found[-1]}")
    assert found == everything


@pytest.mark.req("SCALE-13")
def test_a_malformed_place_is_refused() -> None:
    hash_ = "blake3:" + "a" * 64
    assert read_place(f"0:1:{hash_}") == (0, 1, hash_)
    for text in ("", "1:1", f"1:0:{hash_}", f"-1:1:{hash_}", f"1:1:{hash_}0", f" 1:1:{hash_}"):
        with pytest.raises(HearthNetError):
            read_place(text)


@pytest.mark.req("SCALE-12")
@given(person=st.text(min_size=1, max_size=40), time=st.integers(0, 2**53 - 1))
def test_an_entry_is_signed_and_hashed_over_its_canonical_json(person: str, time: int) -> None:
    """In one encoding; texts may look like the member that is cut out of it."""
    for name in (person, f'","signature":"{person}'):
        made = entry(Chains(), person=name, time=time)
        members = msgspec.to_builtins(made)
        assert made.hash == content_hash(rfc8785.dumps(members))
        del members["signature"]
        assert made.signing_bytes() == rfc8785.dumps(members)
        check_event(LogEvent(made), "market", COMMUNITY)
