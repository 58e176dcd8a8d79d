"""What the page computes itself: canonical JSON, BLAKE3, digests, signatures, and what it refuses to sign."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, Final

import blake3
import pytest

from hearthnet.core import ids, visible
from hearthnet.core.canonical_json import canonical_json, digest
from hearthnet.gateway.http.signed_request import check_envelope
from hearthnet.protocol.replay import ReplayWindow
from hearthnet.trust.authorization.approval import PURPOSE, Approval, decode
from hearthnet.trust.community.recovery_statements import OBJECTED
from hearthnet.trust.keys import Identity
from hearthnet.trust.signed_document import check
from tests.gateway.page.library import Refusal, ask, ask_all

VECTORS: Final = Path(__file__).resolve().parents[2] / "conformance" / "vectors"
SEED: Final = bytes(range(32))
NOW: Final = 1_795_292_100_000


def vectors(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((VECTORS / f"{name}.json").read_text())
    return found


def ulid_ms(ulid: str) -> int:
    """When it was made, by its first ten characters."""
    return sum(
        "0123456789ABCDEFGHJKMNPQRSTVWXYZ".index(one) << 5 * place for place, one in enumerate(ulid[9::-1])
    )


# --- canonical JSON, hashes -------------------------------------------------------------------------------


@pytest.mark.req("PAGE-1")
def test_numbers_have_the_text_of_rfc_8785() -> None:
    numbers = vectors("jcs")["numbers"]
    for (bits, text), found in zip(numbers, ask_all([["number", bits] for bits, _ in numbers]), strict=True):
        assert found == text if text is not None else isinstance(found, Refusal), bits


@pytest.mark.req("PAGE-1")
def test_texts_and_orders_of_rfc_8785() -> None:
    for one in vectors("jcs")["texts"]:
        if "canonical" in one:
            assert ask("parsed", one["json"]) == one["canonical"]
        else:
            written = json.loads(ask("parsed", one["json"]))
            assert list(written.values()) == one["values_in_order"]


def anything(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.randrange(6 if depth > 3 else 8)
    if kind == 0:
        return chance.choice([None, True, False])
    if kind == 1:
        return chance.randint(-(2**53) + 1, 2**53 - 1)
    if kind == 2:
        return chance.uniform(-1, 1) * 10 ** chance.randint(-30, 30)
    if kind < 6:
        return "".join(chance.choice('aZ0 "\\/\n\t\x00\x1f\x7fäß€\u2028\u202e🕯\U0010ffff') for _ in range(8))
    if kind == 6:
        return [anything(chance, depth + 1) for _ in range(chance.randrange(4))]
    return {str(anything(chance, 9)): anything(chance, depth + 1) for _ in range(chance.randrange(5))}


@pytest.mark.req("PAGE-1")
def test_the_page_and_the_node_write_the_same_bytes() -> None:
    chance = random.Random(4)
    values = [anything(chance) for _ in range(300)]
    values += [{"__proto__": 1, "constructor": {"toString": []}}, -0.0, 1.0, ""]
    found = ask_all([["canonical", value] for value in values] + [["digest", value] for value in values])
    assert found[: len(values)] == [canonical_json(value).decode() for value in values]
    assert found[len(values) :] == [digest(value) for value in values]


@pytest.mark.req("PAGE-1")
@pytest.mark.parametrize("odd", ["undefined", "nan", "big", "half", "deep"])
def test_what_has_no_canonical_form_is_refused(odd: str) -> None:
    found = ask("odd", odd)
    assert isinstance(found, Refusal)
    assert found.words.startswith("TypeError")


@pytest.mark.req("PAGE-1")
def test_hashes_are_those_of_blake3() -> None:
    edges = (0, 1, 63, 64, 65, 127, 128, 1023, 1024, 1025, 2048, 2049, 3072, 3073, 4096, 5121, 8193, 31745)
    found = ask_all([["pattern", length] for length in edges])
    data = bytes(place % 251 for place in range(max(edges)))
    assert found == [blake3.blake3(data[:length]).hexdigest() for length in edges]


@pytest.mark.req("PAGE-1")
def test_hashes_are_those_of_the_vectors() -> None:
    whole = [one for one in vectors("content")["content"] if one["chunks"] in ([], [one["cid"]])]
    found = ask_all([["pattern", one["size_bytes"]] for one in whole])
    assert whole
    assert [f"blake3:{one}" for one in found] == [one["cid"] for one in whole]


@pytest.mark.req("PAGE-1")
def test_base64url_and_ulids_are_the_projects() -> None:
    data = random.Random(1).randbytes(64)
    text, one, other = ask_all([["base64url", data.hex()], ["ulid", NOW], ["ulid", NOW]])
    assert text == ids.b64(data)
    assert ids.is_ulid(one)
    assert ulid_ms(one) == NOW
    assert one != other


# --- signatures -------------------------------------------------------------------------------------------


@pytest.mark.req("PAGE-2")
def test_an_approval_is_signed_as_in_the_vectors() -> None:
    found = vectors("approval")
    approval = found["approval"]
    key = Identity(bytes.fromhex(found["approver_seed_hex"]))
    unsigned, signature = ask_all(
        [["unsigned", approval], ["sign", key_hex(found), key.node_id, PURPOSE, approval]]
    )
    assert unsigned == found["signing_bytes"]
    assert signature == approval["signature"]
    assert ask("digest", found["arguments"]) == approval["arguments_digest"]


def key_hex(found: dict[str, Any]) -> str:
    return str(found["approver_seed_hex"])


@pytest.mark.req("PAGE-2")
def test_a_call_of_the_page_is_taken_by_the_gateway() -> None:
    key = Identity(SEED)
    call = {"capability": "llm.chat", "version": "2.0", "community": "ed25519:c", "now": NOW}
    said = ask("envelope", SEED.hex(), key.node_id, {**call, "body": {"params": {}, "input": {"ä": 1.0}}})
    check_envelope(said, key.node_id, "ed25519:c", ReplayWindow(), NOW)
    assert ulid_ms(said["request_id"]) == NOW


KEY: Final = Identity(SEED)
NODE: Final = Identity(bytes(32))
WHO: Final = {"key": KEY.node_id, "community": "ed25519:community", "node": NODE.node_id, "now": NOW}


def asked(**changes: Any) -> dict[str, Any]:
    body = {"params": {}, "input": {"client_id": "01HZX3Q4R5S6T7V8W9XA0BC1DF", "title": "Kerzen"}}
    approval = {
        "v": 1,
        "id": "01HZX3Q4R5S6T7V8W9XA0BC1DH",
        "community": WHO["community"],
        "approver": KEY.node_id,
        "actor": NODE.node_id,
        "provider": "*",
        "capability": "market.post@1.0",
        "arguments_digest": digest(body),
        "idempotency_key": "01HZX3Q4R5S6T7V8W9XA0BC1DF",
        "run": "01HZX3Q4R5S6T7V8W9XA0BC1DG",
        "tool_call_id": "call_1",
        "time": NOW,
        "expires": NOW + 120_000,
    }
    return {
        "confirmation_id": "01HZX3Q4R5S6T7V8W9XA0BC1DJ",
        "run": approval["run"],
        "tool_call_id": "call_1",
        "name": "market_post",
        "capability": "market.post@1.0",
        "arguments": {"title": "Kerzen"},
        "body": body,
        "arguments_digest": digest(body),
        "client_id": approval["idempotency_key"],
        "expires_at": NOW + 86_400_000,
        "approval": {**approval, **changes.pop("approval", {})},
        **changes,
    }


@pytest.mark.req("PAGE-2")
def test_what_the_page_signs_counts_as_its_approval() -> None:
    signed = decode(ask("approve", SEED.hex(), KEY.node_id, asked(), WHO))
    assert isinstance(signed, Approval)
    check(signed, KEY.node_id, PURPOSE)
    assert signed.arguments_digest == asked()["arguments_digest"]


@pytest.mark.req("PAGE-2", "ATTACK-34")
def test_a_call_that_takes_no_approval_is_not_signed() -> None:
    """A question to another home's tool: what is shown has to be what is sent all the same."""
    unsigned = {**asked(capability="experimental.mcp.notes.read@4711.0"), "approval": None}
    assert ask("check", unsigned, WHO) == "fits"
    assert ask("check", {**unsigned, "body": OTHER}, WHO).rule == "digest"
    assert ask("check", {**unsigned, "approval_problem": "nobody offers it"}, WHO).rule == "form"


OTHER: Final = {"params": {}, "input": {"client_id": "01HZX3Q4R5S6T7V8W9XA0BC1DF", "title": "Gold"}}
LIES: Final[list[tuple[str, dict[str, Any]]]] = [
    ("digest", {"body": OTHER}),
    ("digest", {"arguments_digest": digest(OTHER)}),
    ("digest", {"body": {"params": {}, "input": {"title": "\ud800"}}}),
    ("arguments", {"approval": {"arguments_digest": digest(OTHER)}}),
    ("form", {"approval": {"via": "gateway"}}),
    ("form", {"approval": {"more": 1}}),
    ("version", {"approval": {"v": 2}}),
    ("capability", {"approval": {"capability": "market.expire@1.0"}}),
    ("run", {"approval": {"run": "01HZX3Q4R5S6T7V8W9XA0BC1DZ"}}),
    ("call", {"approval": {"tool_call_id": "call_2"}}),
    ("key", {"approval": {"idempotency_key": "01HZX3Q4R5S6T7V8W9XA0BC1DZ"}}),
    ("key", {"client_id": "01HZX3Q4R5S6T7V8W9XA0BC1DZ"}),
    ("approver", {"approval": {"approver": NODE.node_id}}),
    ("community", {"approval": {"community": "ed25519:other"}}),
    ("actor", {"approval": {"actor": KEY.node_id}}),
    ("provider", {"approval": {"provider": "anybody"}}),
    ("time", {"approval": {"time": NOW + 3_600_000, "expires": NOW + 7_200_000}}),
    ("time", {"approval": {"expires": NOW + 7 * 86_400_000}}),
    ("time", {"approval": {"time": NOW - 9_000_000, "expires": NOW + 82_000_000}}),
    ("expired", {"approval": {"time": NOW - 9_000_000, "expires": NOW}}),
    ("time", {"approval": {"time": "now"}}),
]


@pytest.mark.req("PAGE-2")
def test_an_approval_of_anything_else_is_not_signed() -> None:
    assert ask("check", asked(), WHO) == "fits"
    found = ask_all([["check", asked(**lie), WHO] for _, lie in LIES])
    assert [one.rule for one in found] == [rule for rule, _ in LIES]
    none = asked()
    none["approval"] = None
    assert ask("check", none, WHO).rule == "form"


@pytest.mark.req("PAGE-2")
def test_an_edited_call_holds_what_the_person_wrote() -> None:
    fits, changed, left_out, odd = ask_all(
        [
            ["checkEdited", asked(), {"title": "Kerzen"}],
            ["checkEdited", asked(), {"title": "Gold"}],
            ["checkEdited", asked(), {"title": "Kerzen", "tags": ["a"]}],
            ["checkEdited", asked(), {"constructor": "x"}],
        ]
    )
    assert fits == "fits"
    assert [changed.rule, left_out.rule, odd.rule] == ["edited title", "edited tags", "edited constructor"]


@pytest.mark.req("PAGE-2")
def test_what_is_approved_is_what_was_shown() -> None:
    other = asked(body=OTHER, arguments_digest=digest(OTHER), approval={"arguments_digest": digest(OTHER)})
    assert ask("checkShown", asked(), asked()) == "fits"
    assert ask("checkShown", other, asked()).rule == "arguments_digest"


@pytest.mark.req("PERSON-82")
def test_a_link_is_opened_with_the_bytes_of_the_vector() -> None:
    session = vectors("session")
    body, seeds = session["body"], session["seeds_hex"]
    node = Identity(bytes.fromhex(seeds["node"])).node_id
    assert ask("opening", seeds["page"], body["key"], body["code"], node, body["name"]) == body


@pytest.mark.req("PERSON-85")
def test_an_objection_has_the_bytes_of_the_vector() -> None:
    persons = vectors("persons")
    (data,) = [one["data"] for one in persons["statements"] if one["event_type"] == OBJECTED]
    me = {"person": {"id": data["person"]}, "community": persons["community_id"]}
    signed = ask("objection", persons["seeds_hex"]["page"], data["key"], me, data["recovery"])
    assert signed == {"recovery": data["recovery"], "signature": data["signature"]}


# --- what is shown ----------------------------------------------------------------------------------------


@pytest.mark.req("PAGE-3")
def test_hidden_characters_become_their_codes() -> None:
    hidden = (
        "\x00\x1b\u00a0\u00ad\u061c\u115f\u200b\u200e\u202e\u2028\u2066\u2800\u3164\ufe0f\ufeff\U000e0041"
    )
    for character, found in zip(hidden, ask_all([["plain", f"a{one}b"] for one in hidden]), strict=True):
        assert found == f"a\u2039U+{ord(character):04X}\u203ab"
    assert ask("plain", "Tür „ok“ 日本 שלום\n2") == "Tür „ok“ 日本 שלום ↵ 2"
    assert ask("pieces", "a\n\u202eb") == [
        {"text": "a"},
        {"hidden": "U+000A", "line": True},
        {"hidden": "U+202E"},
        {"text": "b"},
    ]


@pytest.mark.req("ATTACK-44", "PAGE-3")
def test_the_page_and_the_terminal_draw_the_same_characters_as_codes() -> None:
    assert [tuple(pair) for pair in ask("hidden")] == list(visible.HIDDEN)
    texts = [chr(first) + "a" + chr(last) for first, last in visible.HIDDEN if not 0xD800 <= first <= 0xDFFF]
    texts += [
        "e\u0301",
        "e" + "\u0301" * 9,
        "\u0301e",
        " a",
        "a ",
        "a  b",
        "a b",
        "a \nb",
        "a\n b",
        "",
        " ",
        "\t",
    ]
    texts += ["a" + " " * 5000 + "pay", "\n" * 300, "\u202ea \u0301", "Grüße, 日本 שלום", "क्षि"]
    for text, found in zip(texts, ask_all([["marked", text] for text in texts]), strict=True):
        assert found == visible.marked(text), text


@pytest.mark.req("ATTACK-44", "PAGE-3")
def test_long_calls_are_drawn_as_the_terminal_prints_them() -> None:
    hidden = ["xxx  ", "e" + "\u0301" * 9, "\t\n\u202e\U000e0041"]
    value: dict[str, Any] = {"a b": [*hidden, 1.5, None, 'q"\\', "\u05d0", {}, []]}
    assert ask("exactJson", value) == visible.exact_json(value)


@pytest.mark.req("ATTACK-44", "PAGE-3")
def test_runs_of_what_is_hidden_are_counted_and_nothing_is_left_out() -> None:
    assert ask("plain", "a" + " " * 5000 + "pay") == "a\u2039U+0020\u00d75000\u203apay"
    assert ask("plain", "a\n\n\n\nb ") == "a ↵\u00d74 b\u2039U+0020\u203a"
    assert ask("plain", "e" + "\u0301" * 6) == "e" + "\u0301" * 4 + "\u2039U+0301\u00d72\u203a"


# --- the texts --------------------------------------------------------------------------------------------


@pytest.mark.req("PAGE-4")
def test_every_text_is_there_in_both_languages_with_the_same_values() -> None:
    table: dict[str, dict[str, str]] = ask("texts")
    assert len(table) > 100
    for key, words in table.items():
        assert set(words) == {"en", "de"}, key
        assert all(one.strip() == one and one for one in words.values()), key
        values = [sorted({piece.partition("}")[0] for piece in one.split("{")[1:]}) for one in words.values()]
        assert values[0] == values[1], key


# --- forms ------------------------------------------------------------------------------------------------

SCHEMA: Final = {
    "type": "object",
    "required": ["title", "body"],
    "properties": {
        "category": {"enum": ["offer", "request"]},
        "title": {"type": "string", "maxLength": 120},
        "body": {"type": "string", "maxLength": 4000},
        "tags": {"type": "array", "items": {"type": "string"}},
        "ttl_seconds": {"type": "integer", "minimum": 60},
        "weight": {"type": "number"},
        "urgent": {"type": "boolean"},
        "location": {"type": "object"},
    },
}


@pytest.mark.req("PAGE-5")
def test_a_form_has_a_field_of_its_kind_for_each_argument() -> None:
    fields = ask("fieldsOf", SCHEMA, {"title": "T", "body": "B", "__proto__": 1})
    kinds = {one["name"]: one["kind"] for one in fields}
    assert kinds == {
        "category": "choice", "title": "text", "body": "long", "tags": "list", "ttl_seconds": "integer",
        "weight": "number", "urgent": "boolean", "location": "json", "__proto__": "integer",
    }  # fmt: skip


@pytest.mark.req("PAGE-5")
def test_what_is_not_touched_comes_back_as_it_was() -> None:
    values = {
        "category": "offer", "title": "", "body": "a\nb ", "tags": ["a", "b"], "ttl_seconds": 60,
        "weight": 1.5, "urgent": False, "location": {"lat": 1}, "more": "x", "odd": [1, None],
    }  # fmt: skip
    assert ask("round", SCHEMA, values) == values
    assert ask("round", SCHEMA, {"title": "T", "body": "B", "tags": ["a,b"]})["tags"] == ["a,b"]


@pytest.mark.req("PAGE-5")
def test_what_is_typed_wrongly_is_named() -> None:
    typed = {"title": "T", "body": "B"}
    wrong = ask_all(
        [
            ["form", SCHEMA, {}, {**typed, "ttl_seconds": "soon"}],
            ["form", SCHEMA, {}, {**typed, "location": "{"}],
            ["form", {"required": ["ttl_seconds"], **SCHEMA}, {}, {**typed, "weight": "1e999"}],
        ]
    )
    assert [(one.words, one.rule) for one in wrong] == [
        ("Error: ttl_seconds: number", "number"),
        ("Error: location: json", "json"),
        ("Error: weight: number", "number"),
    ]


@pytest.mark.req("ATTACK-35")
def test_a_short_id_is_that_of_the_command_line() -> None:
    nodes = [Identity(bytes([number]) * 32).node_id for number in range(1, 9)]
    assert ask_all([["shortId", node] for node in nodes]) == [ids.short_id(node) for node in nodes]
    assert ask("shortId", "no id") == "no id"
