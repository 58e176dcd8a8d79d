"""Headers: one line of JSON, checked before anything believes it.

See: docs/protocol/frames.md#header.
"""

from __future__ import annotations

import json
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.core.errors import HearthNetError
from hearthnet.core.ids import new_ulid, node_id
from hearthnet.protocol.header import LONGEST, SUBJECT_KINDS, Header, Kind, decode, encode

ID = "01HZX3Q4R5S6T7V8W9XA0BC1DE"
NODE = node_id(bytes(32))
MINIMAL: dict[str, Any] = {
    "kind": "call",
    "id": ID,
    "from": NODE,
    "community": NODE,
    "time": 1,
    "from_instance": "a1b2c3d4",
}
COUNTS = st.integers(0, 2**53 - 1)
STRATEGY: dict[str, st.SearchStrategy[Any]] = {
    "kind": st.sampled_from(get_args(Kind)),
    "id": st.builds(new_ulid, st.integers(0, 2**48 - 1)),
    "sender": st.text(),
    "community": st.text(),
    "time": COUNTS,
    "from_instance": st.from_regex(r"\A[a-z0-9]{8}\Z"),
    "to": st.text(),
    "to_instance": st.text(),
    "capability": st.text(),
    "deadline": COUNTS,
    "stream": st.text(),
    "seq": COUNTS,
    "event": st.text(),
    "code": st.text(),
    "token": st.text(),
    "run": st.text(),
    "approval": st.none() | st.dictionaries(st.text(), st.text() | COUNTS, max_size=3),
    "grant": st.none() | st.dictionaries(st.text(), st.text() | COUNTS, max_size=3),
    "use": COUNTS,
    "idempotency_key": st.text(),
    "hops": COUNTS,
    "traceparent": st.text() | st.from_regex(r"\A00-[0-9a-f]{32}-[0-9a-f]{16}-01\Z"),
    "session": st.text(),
    "packs": st.booleans(),
    "waits": st.booleans(),
}
HEADERS = st.builds(Header, **STRATEGY)
OPTIONAL = {field.name: field.default for field in msgspec.structs.fields(Header) if not field.required}
GIVEN: dict[type, Any] = {bool: True, str: "x \n🕯", int: 7, dict: {"v": 1, "x": [None, {"y": 0.5}]}}


def line(**changes: Any) -> bytes:
    """The line of a small header with `changes`; None takes a member away."""
    members = {name: value for name, value in {**MINIMAL, **changes}.items() if value is not None}
    return json.dumps(members).encode()


@pytest.mark.req("WIRE-4")
@given(HEADERS)
def test_a_header_is_read_as_it_was_written_and_is_one_line(header: Header) -> None:
    data = encode(header)
    assert decode(data) == header
    assert b"\n" not in data


@pytest.mark.req("WIRE-4")
def test_the_strategy_knows_every_field() -> None:
    """A field that comes later must come here, too."""
    assert set(STRATEGY) == set(Header.__struct_fields__)


@pytest.mark.req("WIRE-4")
def test_any_two_optional_fields_cross_together_and_in_any_company() -> None:
    """Each pair alone, and each field missing alone: no field hides, replaces or needs another."""
    values = {
        name: GIVEN[type(default) if default is not None else dict] for name, default in OPTIONAL.items()
    }
    chosen = [{first, second} for first in values for second in values]
    chosen += [values.keys() - {name} for name in values]
    for names in chosen:
        header = msgspec.structs.replace(decode(line()), **{name: values[name] for name in names})
        data = encode(header)
        assert decode(data) == header
        assert set(json.loads(data)) == MINIMAL.keys() | names


@pytest.mark.req("WIRE-4")
def test_what_is_empty_takes_no_room() -> None:
    assert json.loads(encode(decode(line()))) == MINIMAL


@pytest.mark.req("WIRE-13")
def test_members_of_a_later_version_are_passed_over() -> None:
    assert decode(line(colour="blue", nested={"a": [1]})) == decode(line())


@pytest.mark.req("WIRE-5")
@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "shout"},
        {"kind": None},
        {"kind": 1},
        {"id": ""},
        {"id": "8" + ID[1:]},
        {"id": ID.lower()},
        {"id": None},
        {"from": None},
        {"from": 7},
        {"community": None},
        {"time": None},
        {"time": "1"},
        {"time": 1.0},
        {"time": True},
        {"time": -1},
        {"time": 2**53},
        {"time": 10**60},
        {"deadline": -1},
        {"seq": -1},
        {"hops": -5},
        {"hops": "0"},
        {"from_instance": None},
        {"from_instance": ""},
        {"from_instance": "a1b2c3d4\n"},
        {"from_instance": "*"},
        {"from_instance": "A1B2C3D4"},
        {"approval": "yes"},
        {"approval": []},
        {"token": ["x"]},
    ],
    ids=str,
)
def test_members_of_other_types_are_refused(changes: dict[str, Any]) -> None:
    (name,) = changes
    with pytest.raises(HearthNetError, match=rf"`\$\.{name}`|field `{name}`|{name} is no ULID") as caught:
        decode(line(**changes))
    assert caught.value.code == "bad_request"


@pytest.mark.req("WIRE-5", "WIRE-13")
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"{}",
        line() + b" x",
        line()[:-1],
        line().decode().encode("utf-16"),
        b"\xef\xbb\xbf" + line(),
        line(token="\xff").replace(b"\\u00ff", b"\xff"),
        line(token="X").replace(b"X", b"\\ud800"),
        line(token="X").replace(b'"X"', b"NaN"),
        line(approval={"a": 1}).replace(b": 1}}", b": " + b"[" * 30_000 + b"]" * 30_000 + b"}}"),
        line(later=1).replace(b'"later": 1', b'"later": ' + b"[" * 30_000 + b"]" * 30_000),
        line(approval={"a": 1}).replace(b'"a": 1', b'"a": ' + b"9" * 5000),
    ],
    ids=range(15),
)
def test_what_is_no_header_is_refused_however_it_is_broken(data: bytes) -> None:
    with pytest.raises(HearthNetError) as caught:
        decode(data)
    assert caught.value.code == "bad_request"


@pytest.mark.req("WIRE-16")
def test_a_header_has_a_length_beyond_which_nobody_reads_or_writes_it() -> None:
    short = decode(line(token="x"))
    room = LONGEST - len(encode(short)) + 1
    longest = encode(msgspec.structs.replace(short, token="x" * room))
    assert len(longest) == LONGEST
    assert encode(decode(longest)) == longest
    with pytest.raises(HearthNetError, match="longer than 65536") as caught:
        decode(longest.replace(b'"x', b'"xx'))
    assert caught.value.code == "bad_request"
    with pytest.raises(HearthNetError, match="65537 bytes") as caught:
        encode(msgspec.structs.replace(short, token="x" * (room + 1)))
    assert (caught.value.code, caught.value.details["limit"]) == ("payload_too_large", LONGEST)


@pytest.mark.req("WIRE-7")
def test_every_kind_has_its_subjects_and_only_an_offer_has_two() -> None:
    families = [kind for kinds in SUBJECT_KINDS.values() for kind in kinds]
    assert set(families) == set(get_args(Kind))
    assert {kind for kind in families if families.count(kind) > 1} == {"offer"}
