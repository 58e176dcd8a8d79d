"""The frames of `hearthnet-bus.v2` against tests/conformance/vectors/socket.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hearthnet.core.canonical_json import canonical_json
from hearthnet.gateway.http.signed_request import PURPOSE, SIGNED
from hearthnet.gateway.socket.frames import read, write
from hearthnet.gateway.socket.protocol import Closed, SocketProtocol
from hearthnet.trust.keys import Identity
from tests.helpers.envelopes import sign_envelope

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "vectors" / "socket.json").read_text("utf-8"))
CALL = '{"type":"call","capability":"llm.chat","body":{}}'
SUBSCRIBE = '{"type":"subscribe","topic":"mesh"}'


def at(state: str, sent: int = 0) -> SocketProtocol:
    """A connection in this state, over which `sent` frames went."""
    made = SocketProtocol(1 << 20)
    if state == "waiting":
        return made
    made.receive(SUBSCRIBE if state == "following" else CALL)
    (made.followed if state == "following" else made.opened)(0)
    for seq in range(1, sent + 1):
        made.sent("token", seq)
    if state == "ended":
        made.sent("done", sent + 1)
    return made


@pytest.mark.req("SOCK-21")
@pytest.mark.parametrize("vector", VECTORS["client"])
def test_frames_of_a_client_are_taken(vector: dict[str, Any]) -> None:
    made = at(vector["state"], vector["sent"])
    taken, frame = msgspec.to_builtins(made.receive(vector["text"])), json.loads(vector["text"])
    assert made.state == vector["then"]
    if vector["state"] == "ended":
        assert taken is None, "it crossed with the end"
        return
    assert {name: taken.get(name) for name in frame} == frame
    assert made.acked == frame.get("upto", 0)


@pytest.mark.req("SOCK-21", "SOCK-3")
@pytest.mark.parametrize("vector", VECTORS["refused"])
def test_what_must_not_come_closes_the_connection(vector: dict[str, Any]) -> None:
    if "binary_hex" in vector:
        sent: str | bytes = bytes.fromhex(vector["binary_hex"])
    else:
        sent = vector["repeated"] * vector["count"] if "repeated" in vector else vector["text"]
    with pytest.raises(Closed) as closed:
        at(vector["state"]).receive(sent)
    assert closed.value.code == vector["close"]


@pytest.mark.req("SOCK-21")
@pytest.mark.parametrize("vector", VECTORS["server"])
def test_frames_of_the_server_are_written_so(vector: dict[str, Any]) -> None:
    assert write(vector["event"], vector["data"], vector["seq"]).decode() == vector["text"]


@pytest.mark.req("SOCK-21", "SOCK-19")
@pytest.mark.parametrize("vector", VECTORS["signed"])
def test_first_frames_are_signed_so(vector: dict[str, Any]) -> None:
    identity = Identity(bytes.fromhex(VECTORS["seed_hex"]))
    who = {name: VECTORS[name] for name in ("request_id", "community", "timestamp")}
    text = msgspec.json.encode({**vector["frame"], **who, "from": identity.node_id}).decode()
    frame = read(text)
    envelope = frame.envelope()  # type: ignore[union-attr]
    assert canonical_json({name: envelope[name] for name in SIGNED}).decode() == vector["canonical"]
    assert sign_envelope(identity, envelope)["signature"] == vector["signature"]
    assert PURPOSE == "gateway call"
