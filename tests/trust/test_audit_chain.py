"""The audit log as a chain: whatever is done to it is named, with the entry where it was done."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.core import ids
from hearthnet.core.canonical_json import canonical_json, content_hash
from hearthnet.core.errors import HearthNetError
from hearthnet.trust import audit_chain, signed_document
from hearthnet.trust.audit_chain import AuditEntry, ChainPosition, Verifier
from hearthnet.trust.keys import Identity

ANNA, BERTA, ROOT = (Identity(bytes([number]) * 32) for number in (1, 2, 3))
CALLS = 4
Lines = list[bytes]


def entry(number: int, node: Identity = ANNA, community: str = ROOT.node_id) -> AuditEntry:
    """Odd ones begin a call, even ones end it."""
    began = number % 2 == 1
    call = ids.new_ulid((number + 1) // 2)[:10] + "0" * 16
    common = {"node": node.node_id, "community": community, "sequence": 0, "previous": "", "time": number}
    if began:
        began_by = {"call": call, "instance": "a1b2c3d4", "capability": "market.post@1.0"}
        return AuditEntry(**common, **began_by, kind="began")  # type: ignore[arg-type]
    return AuditEntry(**common, kind="ended", call=call, instance="a1b2c3d4", began=number - 1)  # type: ignore[arg-type]


def chain(*entries: AuditEntry, by: Identity = ANNA) -> tuple[Lines, ChainPosition]:
    """The lines of a chain of these, and its end."""
    lines, place = [], ChainPosition()
    for each in entries:
        line, place = audit_chain.write(each, place, by)
        lines.append(line)
    return lines, place


LINES, END = chain(*(entry(number) for number in range(1, 2 * CALLS + 1)))
HEAD = audit_chain.read_head(audit_chain.head(ANNA, ROOT.node_id, END, 99))


def verdict(lines: Lines, *, head: audit_chain.Head | None = HEAD) -> tuple[int, str, str] | None:
    """What is found wrong: the entry, the kind of problem and the words for it."""
    verifier = Verifier(ANNA.node_id, known=[BERTA.node_id])
    for line in lines:
        verifier.feed(line)
    found = verifier.end(head)
    return None if found is None else (found.entry, found.problem, found.message)


def resigned(line: bytes, by: Identity = ANNA, **changes: object) -> bytes:
    """The entry in `line` with changes, properly signed again."""
    changed = msgspec.structs.replace(audit_chain.read(line), **changes)
    return canonical_json(msgspec.to_builtins(signed_document.sign(changed, by, audit_chain.PURPOSE)))


@pytest.mark.req("AUDIT-1")
def test_a_whole_chain_is_found_whole() -> None:
    verifier = Verifier(ANNA.node_id)
    entries = [verifier.feed(line) for line in LINES]
    assert [found.sequence for found in entries if found is not None] == list(range(1, 2 * CALLS + 1))
    assert verifier.place == END
    assert verifier.end(HEAD) is verifier.end(None) is None
    assert verifier.open == {}
    assert verdict([], head=None) is None
    assert (
        verdict([], head=audit_chain.read_head(audit_chain.head(ANNA, ROOT.node_id, ChainPosition(), 1)))
        is None
    )


@pytest.mark.req("AUDIT-1")
def test_the_chain_goes_on_in_another_community() -> None:
    lines, end = chain(entry(1), entry(2), entry(3, community=BERTA.node_id), entry(4))
    assert verdict(lines, head=audit_chain.read_head(audit_chain.head(ANNA, BERTA.node_id, end, 9))) is None


@pytest.mark.req("AUDIT-1")
def test_a_call_that_did_not_end_is_told() -> None:
    verifier = Verifier(ANNA.node_id)
    for line in LINES[:-1]:
        verifier.feed(line)
    assert list(verifier.open) == [2 * CALLS - 1]
    assert verifier.finding is None


def _altered(lines: Lines) -> Lines:
    return [line.replace(b"market.post", b"market.past") for line in lines]


def _rewritten(lines: Lines) -> Lines:
    """An entry with other content, signed by the node itself, in place of the one that was there."""
    return [*lines[:2], resigned(lines[2], time=77), *lines[3:]]


@pytest.mark.req("AUDIT-2")
@pytest.mark.parametrize(
    ("change", "number", "problem", "words"),
    [
        (lambda all_: [*all_[:2], b"{}", *all_[3:]], 3, "damaged", "entry 3 is no entry"),
        (lambda all_: [*all_[:2], b"", *all_[3:]], 3, "damaged", "entry 3 is no entry: ambiguous"),
        (lambda all_: [all_[0][:-1] + b',"v":1}', *all_[1:]], 1, "altered", "not written as it was"),
        (lambda all_: [all_[0][:-1] + b',"kind":"began"}', *all_[1:]], 1, "damaged", "stands twice"),
        (_altered, 1, "altered", "entry 1 was altered: its signature does not fit"),
        (_rewritten, 4, "altered", "one of the two was replaced"),
        (lambda all_: all_[1:], 1, "missing", "entry 1 is missing: entry 2 stands there"),
        (lambda all_: all_[:2] + all_[4:], 3, "missing", "entries 3 to 4 are missing: entry 5 stands there"),
        (lambda all_: [*all_[:2], all_[3], all_[2], *all_[4:]], 3, "reordered", "after later ones"),
        (lambda all_: [*all_[:2], all_[3], b"{", *all_[4:]], 3, "missing", "entry 3 is missing"),
        (lambda all_: [*all_[:3], all_[2], *all_[3:]], 4, "repeated", "entry 3 stands twice"),
        (lambda all_: all_[:-1], 8, "cut off", "entry 8 is cut off at the end: the log had 8"),
        (lambda all_: all_[:-3], 6, "cut off", "entries 6 to 8 are cut off at the end"),
        (lambda all_: [], 1, "cut off", "entries 1 to 8 are"),
        (lambda all_: [*all_[:-1], resigned(all_[-1], code="timeout")], 8, "altered", "not the last one"),
        (
            lambda all_: [resigned(all_[0], by=BERTA), *all_[1:]],
            1,
            "foreign",
            f"entry 1 is signed by {ids.short_id(BERTA.node_id)}",
        ),
        (lambda all_: [resigned(all_[0], by=ROOT), *all_[1:]], 1, "altered", "signature does not fit"),
        (
            lambda all_: chain(entry(1, BERTA), by=BERTA)[0],
            1,
            "foreign",
            f"entry 1 is of {ids.short_id(BERTA.node_id)}, not of {ids.short_id(ANNA.node_id)}",
        ),
        (lambda all_: [resigned(all_[0], previous=END.hash)], 1, "altered", "follows another one"),
        (lambda all_: chain(entry(2))[0], 1, "unpaired", "ends 1, where no such call is open"),
        (lambda all_: chain(entry(1), entry(4))[0], 2, "unpaired", "ends 3, where"),
        (
            lambda all_: chain(entry(1), msgspec.structs.replace(entry(2), call="other"))[0],
            2,
            "unpaired",
            "ends 1, where",
        ),
        (lambda all_: chain(entry(1), entry(2), entry(2))[0], 3, "unpaired", "ends 1, where"),
    ],
)
def test_what_is_wrong_is_named_with_its_entry(
    change: Callable[[Lines], Lines], number: int, problem: str, words: str
) -> None:
    found = verdict(change(LINES))
    assert found is not None
    assert found[:2] == (number, problem)
    assert words in found[2]


@pytest.mark.req("AUDIT-2")
@given(st.integers(0, len(LINES) - 1), st.data())
def test_no_byte_can_be_changed_unnoticed(number: int, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(LINES[number]) - 1))
    mask = data.draw(st.integers(1, 255))
    line = bytearray(LINES[number])
    line[place] ^= mask
    found = verdict([*LINES[:number], bytes(line), *LINES[number + 1 :]])
    assert found is not None
    # A log whose old entries were removed begins later: its first line is named by the number that it states.
    stated = re.search(rb'"sequence":([1-9])[,}]', line) if number == 0 else None
    assert found[0] in (number + 1, int(stated[1]) if stated else number + 1)


@pytest.mark.req("AUDIT-2")
@given(st.lists(st.sampled_from(LINES), max_size=2 * CALLS + 2))
def test_only_the_chain_itself_is_whole(lines: Lines) -> None:
    assert (verdict(lines) is None) == (lines == LINES)


@pytest.mark.req("AUDIT-2")
def test_only_the_first_thing_is_told() -> None:
    verifier = Verifier(ANNA.node_id)
    verifier.feed(b"{")
    assert verifier.feed(LINES[0]) is None
    first = verifier.finding
    assert verifier.end(HEAD) is first
    assert first is not None
    assert first.entry == 1


@pytest.mark.req("AUDIT-3")
def test_what_an_entry_keeps_as_evidence_is_looked_at() -> None:
    verifier = Verifier(ANNA.node_id, check=lambda entry: "no proof" if entry.time == 3 else "")
    for line in LINES:
        verifier.feed(line)
    found = verifier.end(HEAD)
    assert found is not None
    assert (found.entry, found.message) == (3, "entry 3: no proof")


@pytest.mark.req("AUDIT-3")
def test_a_large_frame_is_kept_as_its_hash() -> None:
    assert (
        ids.unb64(audit_chain.evidence(b"x" * audit_chain.MAX_FRAME_BYTES))
        == b"x" * audit_chain.MAX_FRAME_BYTES
    )
    larger = b"x" * (audit_chain.MAX_FRAME_BYTES + 1)
    assert audit_chain.evidence(larger) == content_hash(larger)


@pytest.mark.req("AUDIT-2")
def test_a_head_is_signed_by_the_node_it_names() -> None:
    line = audit_chain.head(ANNA, ROOT.node_id, END, 99)
    assert (HEAD.node, HEAD.sequence, HEAD.hash) == (ANNA.node_id, 2 * CALLS, END.hash)
    for bad, code, said in (
        (line.replace(b'"sequence":8', b'"sequence":7'), "invalid_signature", "head is not signed by"),
        (
            line.replace(ANNA.node_id.encode(), BERTA.node_id.encode()),
            "invalid_signature",
            f"head is not signed by {ids.short_id(BERTA.node_id)}",
        ),
        (line.replace(ANNA.node_id.encode(), b"somebody"), "bad_request", "'somebody' is not a node id"),
        (line[:-1] + b',"v":1}', "bad_request", "a key stands twice"),
        (LINES[0], "bad_request", "unknown field"),
        (b"", "bad_request", "ambiguous JSON"),
    ):
        with pytest.raises(HearthNetError, match=said) as caught:
            audit_chain.read_head(bad)
        assert caught.value.code == code


def removed(count: int, hashed: str) -> AuditEntry:
    """An audit checkpoint for the entries up to `count`."""
    fields = {"node": ANNA.node_id, "community": ROOT.node_id, "sequence": 0, "previous": "", "time": 50}
    return AuditEntry(**fields, kind="removed", call="", instance="", count=count, outcome=hashed, rule="age")  # type: ignore[arg-type]


GONE = 4
VOUCHED, VOUCHED_END = chain(
    *(entry(number) for number in range(1, 2 * CALLS + 1)), removed(GONE, content_hash(LINES[GONE - 1]))
)
VOUCHED_HEAD = audit_chain.read_head(audit_chain.head(ANNA, ROOT.node_id, VOUCHED_END, 99))


@pytest.mark.req("AUDIT-11")
@pytest.mark.parametrize("gone", range(2 * CALLS + 2))
def test_a_checkpoint_stands_for_entries_up_to_its_own(gone: int) -> None:
    """All of them, or those that are not removed yet; and no later one."""
    verifier = Verifier(ANNA.node_id)
    for line in VOUCHED[gone:]:
        verifier.feed(line)
    found = verifier.end(VOUCHED_HEAD)
    if gone <= GONE:
        assert found is None
        assert verifier.start.sequence == gone
        assert verifier.checkpoint is not None
        assert verifier.checkpoint.count == GONE
    else:
        assert found is not None
        problem = "cut off" if gone > 2 * CALLS else "missing"
        assert (found.entry, found.problem) == (1, problem)


@pytest.mark.req("AUDIT-11")
@pytest.mark.parametrize(
    ("named", "hashed", "gone"),
    [(4, content_hash(b"another"), 4), (9, END.hash, 0), (12, END.hash, 2)],
)
def test_a_checkpoint_that_names_another_entry_is_altered(named: int, hashed: str, gone: int) -> None:
    """Even one that the node itself has signed."""
    lines, _ = chain(*(entry(number) for number in range(1, 2 * CALLS + 1)), removed(named, hashed))
    found = verdict(lines[gone:], head=None)
    assert found is not None
    assert found[:2] == (9, "altered")
    assert f"vouches for another entry {named}" in found[2]


@pytest.mark.req("AUDIT-11")
def test_a_forged_checkpoint_is_none() -> None:
    forged = resigned(VOUCHED[-1], by=ROOT, count=6, outcome=content_hash(LINES[5]))
    for line, problem in (
        (forged, "altered"),
        (resigned(VOUCHED[-1], by=BERTA), "foreign"),
        (VOUCHED[-1].replace(b'"count":4', b'"count":6'), "altered"),
    ):
        found = verdict([*LINES[6:], line], head=None)
        assert found is not None
        assert found[:2] == (9, problem)
    # One of another place in the chain.
    other, _ = chain(entry(1), removed(6, content_hash(LINES[5])))
    found = verdict([*LINES[6:], other[1]], head=None)
    assert found is not None
    assert found[:2] == (2, "reordered")


@pytest.mark.req("AUDIT-12")
def test_a_part_is_verified_as_a_part_only() -> None:
    place = ChainPosition(6, content_hash(LINES[5]))
    head = audit_chain.read_head(audit_chain.head(ANNA, ROOT.node_id, place, 99, first=3))
    assert head.first == 3
    for lines, finding in (
        (LINES[2:6], None),
        (LINES[3:6], "missing"),
        (LINES[1:6], "missing"),
        (LINES[:6], "missing"),
        (LINES[2:5], "cut off"),
        (LINES[2:7], "altered"),
        ([], "cut off"),
    ):
        verifier = Verifier(ANNA.node_id, first=3)
        for line in lines:
            verifier.feed(line)
        found = verifier.end(head)
        assert (found and found.problem) == finding
    assert verdict(LINES[2:6], head=head) is not None, "without its first entry's number it is no part"


def proof_of(*numbers: int) -> Lines:
    """The proof of these entries."""
    lines = [LINES[number - 1] for number in numbers]
    return [audit_chain.head(ANNA, ROOT.node_id, END, 99, proves=lines), *lines]


@pytest.mark.req("AUDIT-13")
def test_a_proof_is_read_back() -> None:
    for numbers in ((3, 4), (3,), (8,), (7, 8)):
        head, entries = audit_chain.proven(proof_of(*numbers))
        assert [entry.sequence for entry in entries] == list(numbers)
        assert ChainPosition(head.sequence, head.hash) == END


@pytest.mark.req("AUDIT-13")
def test_no_byte_of_a_proof_can_be_changed_unnoticed() -> None:
    whole = b"\n".join(proof_of(3, 4))
    for place in range(len(whole)):
        for mask in (1, 0x20, 0x80):
            changed = bytearray(whole)
            changed[place] ^= mask
            with pytest.raises(HearthNetError):
                audit_chain.proven(bytes(changed).split(b"\n"))


@pytest.mark.req("AUDIT-13")
@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ([], "bad_request"),
        ([audit_chain.head(ANNA, ROOT.node_id, END, 99), LINES[0]], "bad_request"),
        (proof_of(3, 4)[:2], "bad_request"),
        ([*proof_of(3, 4), LINES[4]], "bad_request"),
        (proof_of(1, 3, 4), "bad_request"),
        ([proof_of(3, 4)[0], LINES[3], LINES[2]], "invalid_signature"),
        (proof_of(4, 3), "invalid_signature"),
        (proof_of(3, 6), "invalid_signature"),
        ([proof_of(3)[0], LINES[0]], "invalid_signature"),
        # What the node itself signs and is not so.
        ([audit_chain.head(ANNA, ROOT.node_id, END, 9, proves=[line := resigned(LINES[7], time=1)]), line],
         "invalid_signature"),
        ([audit_chain.head(ANNA, ROOT.node_id, ChainPosition(2, ""), 9, proves=LINES[2:3]), LINES[2]],
         "invalid_signature"),
        ([audit_chain.head(BERTA, ROOT.node_id, END, 9, proves=LINES[2:3]), LINES[2]], "invalid_signature"),
        ([audit_chain.head(ANNA, ROOT.node_id, END, 9, proves=[line := resigned(LINES[2], by=BERTA)]), line],
         "invalid_signature"),
        ([proof_of(3)[0].replace(b',"time"', b', "time"'), LINES[2]], "invalid_signature"),
    ],
)  # fmt: skip
def test_what_is_no_proof_is_refused(lines: Lines, code: str) -> None:
    with pytest.raises(HearthNetError) as caught:
        audit_chain.proven(lines)
    assert caught.value.code == code


@pytest.mark.req("AUDIT-2", "AUDIT-13")
def test_a_head_names_hashes_alone() -> None:
    """Also one that the node itself has signed."""
    for changes in (
        {"hash": "blake3:0"},
        {"proves": ((1, "blake3:0"),)},
        {"proves": ((1, END.hash), (2, ""))},
    ):
        unsigned = msgspec.structs.replace(HEAD, **changes)
        signed = signed_document.sign(unsigned, ANNA, audit_chain.HEAD_PURPOSE)
        with pytest.raises(HearthNetError, match="has a hash that is none") as caught:
            audit_chain.read_head(canonical_json(msgspec.to_builtins(signed)))
        assert caught.value.code == "bad_request"
