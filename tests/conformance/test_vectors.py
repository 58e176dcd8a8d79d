"""This implementation against the vectors.

See: docs/protocol/vectors.md.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hearthnet.core import ids
from hearthnet.core.canonical_json import canonical_json, digest
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.auth.session_routes import PURPOSE, PageKey
from hearthnet.protocol import batch, frame, header, subjects
from hearthnet.trust import signed_document
from hearthnet.trust.authorization import approval, grant, revocation, token
from hearthnet.trust.community import (
    event_validation,
    events,
    invites,
    person_statements,
    proposals,
    recovery_statements,
    roster,
)
from hearthnet.trust.keys import Identity, signing_input, verify
from tests.helpers.envelopes import opening, parts_of

VECTORS = Path(__file__).parent / "vectors"


def load(name: str) -> dict[str, Any]:
    """The vectors of one file."""
    data: dict[str, Any] = json.loads((VECTORS / f"{name}.json").read_text("utf-8"))
    return data


KEYS, FRAMES, SUBJECTS = load("keys"), load("frames"), load("subjects")
TOKEN, APPROVAL, JCS = load("token"), load("approval"), load("jcs")
PACKS = load("packs")
GRANT, REVOCATION = load("grant"), load("revocation")
COMMUNITY, INVITE, PERSONS = load("community"), load("invite"), load("persons")
SESSION = load("session")


def identity(seed: str) -> Identity:
    """The identity of a seed in hexadecimal."""
    return Identity(bytes.fromhex(seed))


@pytest.mark.req("WIRE-1")
@pytest.mark.parametrize("vector", KEYS["identities"], ids=lambda vector: str(vector["name"]))
def test_all_that_follows_from_a_seed(vector: dict[str, str]) -> None:
    one = identity(vector["seed_hex"])
    assert one.node_id == vector["node_id"]
    assert one.token == ids.token_form(one.node_id) == vector["token_form"]
    assert ids.public_key(one.node_id).hex() == vector["public_hex"]
    assert ids.short_id(one.node_id) == vector["short_id"]
    assert one.to_text() == vector["key_file"]
    assert Identity.from_text(vector["key_file"]).node_id == one.node_id
    assert one.login().seed.decode() == vector["login_seed"]
    assert one.login().public == vector["login_public"]
    assert one.store_login().public == vector["store_login_public"]


@pytest.mark.req("WIRE-6")
def test_the_keys_between_two_nodes() -> None:
    pair = KEYS["pair"]
    by_id = {vector["node_id"]: identity(vector["seed_hex"]) for vector in KEYS["identities"]}
    one, other = pair["one"], pair["other"]
    for here, there in ((one, other), (other, one)):
        assert by_id[here].shared_secret(there).hex() == pair["shared_hex"]
        assert by_id[here].box_key(one, other).hex() == pair["one_to_other_hex"]
        assert by_id[here].box_key(other, one).hex() == pair["other_to_one_hex"]


@pytest.mark.req("TRUST-1")
@pytest.mark.parametrize(
    "vector", KEYS["signatures"], ids=lambda vector: f"{vector['purpose']}-{vector['data_hex'][:4]}"
)
def test_signatures_and_what_they_cover(vector: dict[str, str]) -> None:
    data, signature = bytes.fromhex(vector["data_hex"]), bytes.fromhex(vector["signature_hex"])
    assert signing_input(vector["purpose"], data).hex() == vector["signing_input_hex"]
    assert identity(vector["seed_hex"]).sign(vector["purpose"], data) == signature
    assert verify(vector["signer"], vector["purpose"], data, signature)


@pytest.mark.req("WIRE-4")
def test_a_frame_in_its_three_forms() -> None:
    sender, receiver = identity(FRAMES["sender_seed_hex"]), identity(FRAMES["receiver_seed_hex"])
    said = header.decode(msgspec.json.encode(FRAMES["header"]))
    body = FRAMES["body"].encode()
    assert frame.plain(said, body).hex() == FRAMES["plain_hex"]
    assert frame.signed(said, body, sender).hex() == FRAMES["signed_hex"]
    boxed = bytes.fromhex(FRAMES["boxed_hex"])
    assert boxed[len(frame.BOXED) :][:24].hex() == FRAMES["nonce_hex"]
    inner = frame.unbox(boxed, frame.BoxKeys(receiver).of(sender.node_id))
    assert inner.hex() == FRAMES["signed_hex"]
    assert frame.read(inner, sender.node_id) == frame.Frame(said, body, inner)


@pytest.mark.req("WIRE-17")
@pytest.mark.parametrize(
    ("name", "kind", "read"),
    [("calls", batch.BatchedCall, batch.calls), ("replies", batch.Answered, batch.answers)],
)
def test_a_pack_and_what_is_in_it(
    name: str, kind: type[batch.BatchedCall], read: Callable[[frame.Frame], list[frame.Frame]]
) -> None:
    vector = PACKS[name]
    said, items = header.decode(msgspec.json.encode(vector["header"])), msgspec.json.encode(vector["items"])
    body = batch.encode(msgspec.json.decode(items, type=list[kind]))  # type: ignore[valid-type]
    assert frame.plain(said, body).hex() == vector["plain_hex"]
    found = read(frame.read(bytes.fromhex(vector["plain_hex"]), said.sender))
    for one, item in zip(found, vector["items"], strict=True):
        told = json.loads(header.encode(one.header))
        assert {key: told[key] for key in item if key != "body"} == {
            k: v for k, v in item.items() if k != "body"
        }
        assert json.loads(one.body) == item["body"]
        shared = {key: value for key, value in vector["header"].items() if key not in ("kind", "id")}
        assert {key: told[key] for key in shared} == shared
    assert [one.header.kind for one in found] == {
        "calls": ["call"] * 2,
        "replies": ["reply"] * 2 + ["frame"],
    }[name]


@pytest.mark.req("WIRE-17")
def test_where_answers_go_together() -> None:
    said = PACKS["replies"]["header"]
    subject = subjects.replies(said["from"], said["to"], said["to_instance"])
    assert subject == PACKS["replies"]["subject"]


@pytest.mark.req("WIRE-10")
def test_subjects_follow_from_ids() -> None:
    caller, provider = SUBJECTS["caller"], SUBJECTS["provider"]
    asking, serving, call = SUBJECTS["caller_instance"], SUBJECTS["instance"], SUBJECTS["id"]
    capability = parse_capability(SUBJECTS["capability"])
    topic = subjects.topic(capability)
    assert SUBJECTS["subjects"] == {
        "call": subjects.call(caller, provider, serving, capability),
        "control": subjects.control(caller, provider, serving, call),
        "reply": subjects.reply(provider, caller, asking, call),
        "find": subjects.find(caller, topic),
        "find_everything": subjects.find(caller, subjects.EVERYTHING),
        "announce": subjects.announce(provider, capability),
        "event": subjects.event(provider, "auth.token.revoked"),
    }
    assert SUBJECTS["subscriptions"] == {
        "calls_to": subjects.calls_to(provider, serving),
        "control_to": subjects.control_to(provider, serving),
        "replies_to": subjects.replies_to(caller, asking),
        "finds_of": subjects.finds_of(topic),
        "finds_of_everything": subjects.finds_of(subjects.EVERYTHING),
        "announcements_of": subjects.announcements_of(capability),
        "events_of": subjects.events_of("auth.token.revoked"),
    }


@pytest.mark.req("TRUST-4")
def test_a_token_and_its_claims() -> None:
    claims = token.decode(TOKEN["token"])
    assert json.loads(msgspec.json.encode(claims)) == TOKEN["claims"]
    assert claims.iss == identity(TOKEN["issuer_seed_hex"]).node_id


@pytest.mark.req("TOKEN-2")
@pytest.mark.parametrize("vector", TOKEN["sessions"], ids=lambda vector: str(vector["name"]))
def test_a_session_and_its_claims(vector: dict[str, Any]) -> None:
    claims = token.decode(vector["token"])
    assert json.loads(msgspec.json.encode(claims)) == vector["claims"]
    assert claims.kind == "session"


@pytest.mark.req("TRUST-8")
def test_an_approval_and_what_its_signature_covers() -> None:
    document = approval.decode(APPROVAL["approval"])
    assert canonical_json(APPROVAL["arguments"]).decode() == APPROVAL["arguments_canonical"]
    assert digest(APPROVAL["arguments"]) == document.arguments_digest
    assert document.signing_bytes().decode() == APPROVAL["signing_bytes"]
    approver = identity(APPROVAL["approver_seed_hex"])
    unsigned = msgspec.structs.replace(document, signature="")
    assert approval.sign_approval(approver, unsigned) == document
    by_gateway = approval.decode(APPROVAL["by_gateway"]["approval"])
    assert by_gateway.signing_bytes().decode() == APPROVAL["by_gateway"]["signing_bytes"]
    assert by_gateway == approval.sign_approval(approver, msgspec.structs.replace(unsigned, via="gateway"))
    vector = APPROVAL["by_device"]
    by_device, page = approval.decode(vector["approval"]), identity(vector["approver_seed_hex"])
    assert by_device.signing_bytes().decode() == vector["signing_bytes"]
    assert by_device == approval.sign_approval(page, msgspec.structs.replace(by_device, signature=""))
    assert by_device.person == identity(PERSONS["seeds_hex"]["recovery"]).node_id


@pytest.mark.req("GRANT-1")
def test_a_standing_grant_and_what_its_signature_covers() -> None:
    document = grant.decode(GRANT["grant"])
    assert document.signing_bytes().decode() == GRANT["signing_bytes"]
    approver = identity(GRANT["approver_seed_hex"])
    assert grant.sign_grant(approver, msgspec.structs.replace(document, signature="")) == document


@pytest.mark.req("TOKEN-1")
def test_a_revocation_and_what_its_signature_covers() -> None:
    document = revocation.decode(json.dumps(REVOCATION["revocation"]).encode())
    assert document.signing_bytes().decode() == REVOCATION["signing_bytes"]
    signer = identity(REVOCATION["signer_seed_hex"])
    again = revocation.TokenRevocation.sign(
        signer, document.token_id, document.issuer, document.reason, now_ms=document.revoked_at
    )
    assert again == document


@pytest.mark.req("WIRE-3")
@pytest.mark.parametrize(("bits", "text"), JCS["numbers"])
def test_numbers_are_written_as_the_standard_says(bits: str, text: str | None) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    if text is None:
        with pytest.raises(HearthNetError, match="no canonical JSON"):
            canonical_json(number)
    else:
        assert canonical_json(number).decode() == text


@pytest.mark.req("WIRE-3")
def test_the_texts_of_the_standard() -> None:
    mixed, order = JCS["texts"]
    assert canonical_json(json.loads(mixed["json"])).decode() == mixed["canonical"]
    ordered = json.loads(canonical_json(json.loads(order["json"])))
    assert list(ordered.values()) == order["values_in_order"]


@pytest.mark.req("COMM-1", "COMM-5", "COMM-8", "TRUST-3")
def test_the_events_of_a_community_and_what_they_come_to() -> None:
    by_id = {identity(seed).node_id: identity(seed) for seed in COMMUNITY["seeds_hex"].values()}
    community_id = identity(COMMUNITY["seeds_hex"]["root"]).node_id
    decoded = [events.decode(json.dumps(event).encode()) for event in COMMUNITY["events"]]
    for event in decoded:
        event_validation.validate_event(event, community_id)
        unsigned = msgspec.structs.replace(event, signature="")
        assert signed_document.sign(unsigned, by_id[event.author], events.PURPOSE) == event
    assert [event.hash for event in decoded] == COMMUNITY["hashes"]
    assert decoded[0].signing_bytes().decode() == COMMUNITY["signing_bytes_of_the_first"]
    held = roster.derive(community_id, reversed(decoded))
    assert held.events == tuple(decoded)
    expected = COMMUNITY["comes_to"]
    assert (held.version, held.name, held.created_at) == (
        expected["version"],
        expected["name"],
        expected["created_at"],
    )
    assert msgspec.to_builtins(held.policy) == expected["policy"]
    assert {member.node_id: member.level for member in held.members} == expected["levels"]
    assert [one.node_id for one in held.revoked] == expected["revoked"]
    assert [one.invite_key for one in held.invites] == expected["invites"]
    assert held.head_lamport == expected["head_lamport"]
    assert list(held.folded.flaws) == expected["flawed"]
    assert held.heads() == expected["heads"]
    assert roster.decode(roster.encode(held)) == held


@pytest.mark.req("COMM-9")
def test_an_invite_and_a_proposal_as_texts() -> None:
    handed = invites.decode(INVITE["text"])
    assert msgspec.to_builtins(handed) == INVITE["invite"]
    assert handed.key().node_id == INVITE["invite_key"]
    assert handed.encode() == INVITE["text"]
    decoded = [events.decode(json.dumps(event).encode()) for event in COMMUNITY["events"]]
    held = roster.derive(handed.community_id, [one for one in decoded if one.lamport <= 11])
    for text, said, agreed in (
        ("proposal_text", "proposal", "agreement"),
        ("inviting_text", "inviting", "inviting_agreement"),
    ):
        proposal = proposals.decode(INVITE[text])
        assert msgspec.to_builtins(proposal) == {**INVITE[said], "s": tuple(INVITE[said]["s"])}
        assert proposal.agreement().decode() == INVITE[agreed]
        assert proposals.encode(proposal) == INVITE[text]
        assert proposal.check(held) == tuple(one["node_id"] for one in INVITE[said]["s"])


@pytest.mark.req("PERSON-2", "PERSON-83")
@pytest.mark.parametrize("vector", PERSONS["statements"], ids=lambda vector: str(vector["name"]))
def test_a_statement_of_a_person_and_what_is_signed(vector: dict[str, Any]) -> None:
    kind = recovery_statements.STATEMENTS[vector["event_type"]]
    statement = msgspec.convert(vector["data"], kind)
    community, keys = PERSONS["community_id"], PERSONS["seeds_hex"]
    assert person_statements.statement_bytes(community, statement).decode() == vector["signing_bytes"]
    if isinstance(statement, recovery_statements.Content):
        recovery_statements.check_recovery_statement(community, statement)
    else:
        person_statements.check_statement(community, vector["author"], statement)
    signers = {identity(seed).node_id: identity(seed) for seed in keys.values()}
    assert signed_again(community, statement, signers) == statement


def signed_again(community: str, statement: Any, signers: dict[str, Identity]) -> person_statements.Statement:
    """The same statement, made and signed by this implementation."""
    match statement:
        case person_statements.PersonKeyed():
            stay = tuple(map(ids.from_token_form, statement.devices))
            recovery = signers[statement.person]
            return person_statements.keyed(community, recovery, statement.epoch, statement.key, stay)
        case person_statements.DeviceAdded(key=key, device=device):
            offered = person_statements.offered_device(
                community, statement.person, signers[key], device, statement.kind, statement.name
            )
            return person_statements.consented(community, offered, signers[device])
        case recovery_statements.HelpersNamed():
            return recovery_statements.helpers_named(
                community,
                signers[statement.person],
                statement.key,
                number=statement.number,
                epoch=statement.epoch,
                wait_seconds=statement.wait_seconds,
                witnesses=tuple(map(ids.from_token_form, statement.witnesses)),
            )
        case recovery_statements.RecoveryBegun(helpers=helpers, key=key):
            return recovery_statements.recovery_begun(
                community,
                statement.person,
                signers[helpers],
                key,
                base=statement.base,
                epoch=statement.epoch,
                stay=tuple(map(ids.from_token_form, statement.devices)),
            )
        case recovery_statements.RecoveryWitnessed(person=person, recovery=recovery):
            return recovery_statements.witnessed(community, person, recovery, signers[statement.key])
        case recovery_statements.RecoveryObjected(person=person, recovery=recovery):
            return recovery_statements.objected(community, person, recovery, signers[statement.key])
    return person_statements.device_removed(
        community,
        statement.person,
        signers[statement.key],
        statement.device,
        statement.target_heads,
        statement.reason,
    )


@pytest.mark.req("PERSON-83")
def test_words_about_a_recovery_name_the_hash_of_its_beginning() -> None:
    by_name = {one["name"]: one for one in PERSONS["statements"]}
    begun = msgspec.convert(by_name["a recovery that begins"]["data"], recovery_statements.RecoveryBegun)
    name = recovery_statements.recovery_id(PERSONS["community_id"], begun)
    for about in ("the word of a witness", "an objection"):
        assert by_name[about]["data"]["recovery"] == name


@pytest.mark.req("PERSON-82")
def test_a_link_and_what_a_page_signs_to_open_it() -> None:
    page, node = (identity(SESSION["seeds_hex"][name]) for name in ("page", "node"))
    body = SESSION["body"]
    document = PageKey(code=body["code"], key=page.node_id, name=body["name"], node=node.node_id)
    assert document.signing_bytes().decode() == SESSION["signing_bytes"]
    assert signed_document.sign(document, page, PURPOSE).signature == body["signature"]
    assert parts_of(SESSION["link"]) == ("https://kitchen.example:8420", body["code"], node.node_id)
    assert opening(page, body["code"], node.node_id, body["name"]) == body
