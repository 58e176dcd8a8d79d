"""Frames that somebody spoilt: bytes changed, headers rewritten, and closed again as a hostile member would.

What is drawn follows from the seed alone: the same frames in every run.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from hearthnet.core import ids
from hearthnet.protocol import frame, header
from hearthnet.protocol.header import Header
from hearthnet.trust.keys import Identity

ANNA, BERTA = Identity(bytes([1]) * 32), Identity(bytes([2]) * 32)
KEY: Final = ANNA.box_key(ANNA.node_id, BERTA.node_id)
SPLICES: Final = [
    b"",
    b"\n",
    b'"',
    b"\\ud800",
    b"\xff",
    b"\x00",
    b"[" * 2000,
    b'{"a":' * 2000,
    b"9" * 5000,
    b"1e999",
    b"-1",
    b"null",
    b"HN1 s ",
    b"HN1 p\n",
    b"HN1 b\n",
    b'"kind":"call",',
    b"NaN",
    "🕯".encode(),
]
_VALUES: Final[list[Any]] = [
    None,
    True,
    0,
    -1,
    2**53,
    2**64,
    10**400,
    1.5,
    1e308,
    "",
    "call",
    "a" * 5000,
    "\ud800",
    "\x00\n\u202e",
    "🕯",
    [],
    {},
    [[[[[[[[]]]]]]]],
    {"v": 1, "nested": {"time": []}},
    ANNA.node_id,
    BERTA.node_id,
]
_RARE: Final = 2_000
"""Once in so many frames there is one of up to a megabyte, as large as the server lets through."""
_LARGE: Final[list[Callable[[int], str]]] = [
    lambda size: "[" * size,
    lambda size: '{"a":' * (size // 5),
    lambda size: "[" + "1," * (size // 2) + "1]",
    lambda size: "{" + ",".join(f'"{number:x}":0' for number in range(size // 10)) + "}",
    lambda size: '"' + "\\u00e9" * (size // 6) + '"',
    lambda size: "9" * size,
    lambda size: "1e-" + "9" * size,
    lambda size: " " * size + "0",
]


class Sample(NamedTuple):
    """A frame as it may be sent."""

    header: Header
    body: bytes


def _said(kind: header.Kind, **fields: Any) -> Header:
    return Header(
        kind=kind,
        id="01HZX3Q4R5S6T7V8W9XA0BC1DE",
        sender=ANNA.node_id,
        community=BERTA.node_id,
        time=1_795_292_100_000,
        from_instance="a1b2c3d4",
        to=BERTA.node_id,
        to_instance="z9y8x7w6",
        **fields,
    )


OPEN: Final = Sample(
    _said(
        "open",
        capability="market.post@1.0",
        deadline=30_000,
        seq=3,
        approval={"v": 1, "time": 5, "nested": [{"a": None}, "é🕯"]},
    ),
    '{"params":{"a":1},"input":{"title":"Kerzen 🕯","tags":["a","b"],"ttl_seconds":3600}}'.encode(),
)
SAMPLES: Final = [
    OPEN,
    Sample(
        _said(
            "call",
            capability="rag.query@1.0",
            deadline=1,
            token="hntoken://v1/e30.e30.e30",
            run="r",
            grant={"id": "g", "max_uses": 3},
            use=2,
            idempotency_key="k",
            hops=1,
            session="table 7",
            packs=True,
            traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ),
        b'{"params":{},"input":{"query":"water"}}',
    ),
    Sample(_said("reply", code="not_found"), b'{"error":"not_found","message":"no"}'),
    Sample(_said("frame", seq=7, event="token"), b'{"text":"word"}'),
    Sample(_said("ack", stream="01HZX3Q4R5S6T7V8W9XA0BC1DF"), b'{"upto":8}'),
    Sample(
        _said("calls", capability="rag.query@1.0"),
        b'[{"id":"01HZX3Q4R5S6T7V8W9XA0BC1D1","body":{"params":{}},"deadline":5,"run":"r"},'
        b'{"id":"01HZX3Q4R5S6T7V8W9XA0BC1D2","body":{},"deadline":7,"session":"s","hops":1}]',
    ),
    Sample(
        _said("replies"),
        b'[{"id":"01HZX3Q4R5S6T7V8W9XA0BC1D1","body":{"output":1}},'
        b'{"id":"01HZX3Q4R5S6T7V8W9XA0BC1D2","body":{"text":"word"},"seq":7,"event":"token"}]',
    ),
    Sample(_said("offer", capability="rag.query@1"), b'{"offers":[],"withdrawn":false}'),
]


def mutated(chance: random.Random, whole: bytes) -> bytes:
    """`whole` with bytes changed, cut out, doubled, or something spliced in, at one to three places."""
    data = bytearray(whole)
    for _ in range(chance.randint(1, 3)):
        start = chance.randrange(len(data) + 1)
        end = min(len(data), start + chance.choice((0, 1, 2, 10)))
        match chance.randrange(4):
            case 0:
                data[start:end] = bytes(chance.randrange(256) for _ in range(end - start))
            case 1:
                del data[start:end]
            case 2:
                data[start:start] = data[start:end]
            case _:
                data[start:end] = chance.choice(SPLICES)
    return bytes(data)


def _changed(chance: random.Random, whole: bytes) -> bytes:
    """As `mutated`, and never the same."""
    while (changed := mutated(chance, whole)) == whole:
        pass
    return changed


def mutations(whole: bytes, number: int, seed: int) -> Iterator[bytes]:
    """`number` versions of `whole`."""
    chance = random.Random(seed)
    for _ in range(number):
        yield mutated(chance, whole)


def resigned(content: bytes) -> bytes:
    """A frame that a hostile member really signed, whatever is in it."""
    return b"HN1 s " + ids.b64(ANNA.sign(frame.PURPOSE, content)).encode() + b"\n" + content


def rewritten(chance: random.Random, original: Header) -> bytes:
    """The line of a header whose members were taken away, added, renamed, doubled or given other values."""
    members: list[tuple[str, str]] = [
        (json.dumps(name), json.dumps(value)) for name, value in json.loads(header.encode(original)).items()
    ]
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(members)) if members else 0
        value = json.dumps(chance.choice(_VALUES))
        match chance.randrange(6 if members else 1):
            case 0:
                members.insert(place, (json.dumps(chance.choice(("later", "seq", "from", "é"))), value))
            case 1:
                del members[place]
            case 2:
                members[place] = members[place][0], value
            case 3:
                members[place] = members[place][0].upper(), members[place][1]
            case 4:
                members.append((members[place][0], value))
            case _:
                chance.shuffle(members)
    if not chance.randrange(_RARE // 4):
        name = chance.choice(('"later"', '"approval"', '"token"', '"seq"'))
        members.append((name, chance.choice(_LARGE)(chance.randrange(chance.choice((65_000, 900_000))))))
    text = "{" + ",".join(f"{name}:{value}" for name, value in members) + "}"
    return text.encode("utf-8", "surrogatepass")


def _outside(chance: random.Random, sample: Sample) -> bytes:
    """Somebody on the way changed what was boxed."""
    return _changed(chance, frame.box(frame.plain(*sample), KEY))


def _plain(chance: random.Random, sample: Sample) -> bytes:
    return frame.box(mutated(chance, frame.plain(*sample)), KEY)


def _signed(chance: random.Random, sample: Sample) -> bytes:
    """The signature no longer fits, or is none."""
    return frame.box(_changed(chance, frame.signed(*sample, ANNA)), KEY)


def _signed_again(chance: random.Random, sample: Sample) -> bytes:
    return frame.box(resigned(mutated(chance, header.encode(sample.header) + b"\n" + sample.body)), KEY)


def _rewritten(chance: random.Random, sample: Sample) -> bytes:
    return frame.box(frame.PLAIN + rewritten(chance, sample.header) + b"\n" + sample.body, KEY)


def _rewritten_and_signed(chance: random.Random, sample: Sample) -> bytes:
    return frame.box(resigned(rewritten(chance, sample.header) + b"\n" + sample.body), KEY)


def _noise(chance: random.Random, sample: Sample) -> bytes:
    """No frame at all, boxed or not."""
    data = chance.choice(SPLICES) + chance.randbytes(chance.randrange(400))
    return frame.box(data, KEY) if chance.randrange(2) else data


WAYS: Final[dict[str, Callable[[random.Random, Sample], bytes]]] = {
    "box changed": _outside,
    "plain frame changed": _plain,
    "signed frame changed": _signed,
    "changed, then signed": _signed_again,
    "header rewritten": _rewritten,
    "header rewritten, signed": _rewritten_and_signed,
    "noise": _noise,
}


def spoilt(seed: int) -> Iterator[tuple[str, bytes]]:
    """Spoilt frames without end, each with the way it was spoilt; all are boxed for Berta, or should be."""
    chance, ways = random.Random(seed), list(WAYS.items())
    while True:
        name, spoil = chance.choice(ways)
        yield name, spoil(chance, chance.choice(SAMPLES))
