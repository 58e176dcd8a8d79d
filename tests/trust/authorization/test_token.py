"""Tokens: signed, narrow, short-lived authority.

See: docs/protocol/tokens.md#format, docs/protocol/tokens.md#verification.
"""

from __future__ import annotations

import json
from typing import Any

import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jws
from joserfc.errors import SecurityWarning
from joserfc.jwk import OKPKey

from hearthnet.contracts.registry import contracts
from hearthnet.core import ids
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.authorization import token
from hearthnet.trust.authorization.token import (
    MAX_BYTES,
    MAX_TTL_SECONDS,
    SCHEME,
    SKEW_SECONDS,
    Claims,
    Scope,
    Verified,
)
from hearthnet.trust.keys import Identity

ANNA, BERTA, CARLA, GUEST = (Identity(bytes([number]) * 32) for number in (1, 2, 3, 4))
NOW = 1_795_292_100
SCOPE = Scope(("rag.query@1.0", "market.list"), {"corpus": ["system"], "input.k": [3, 5]})
HEADER = {"alg": "EdDSA", "typ": "hntoken", "v": 1}


def mint(scope: Scope = SCOPE, ttl: int = 300, run: str = "r") -> str:
    """A token of Anna's for Berta in Carla's community."""
    return token.mint(
        ANNA,
        subject=BERTA.node_id,
        audience=CARLA.node_id,
        scope=scope,
        now_ms=NOW * 1000,
        ttl_seconds=ttl,
        run=run,
    )


def session(**changes: Any) -> str:
    """A session token of Anna's: Berta's gateway acts for the guest Eva, who keeps a key of her own."""
    limited = Scope(("llm.chat", "rag.query@1.0"), {"corpus": ["system"]}, 60, 500, 20)
    given: dict[str, Any] = {
        "subject": BERTA.node_id,
        "audience": CARLA.node_id,
        "scope": limited,
        "now_ms": NOW * 1000,
        "ttl_seconds": 3600,
        "principal": "eva",
        "cnf": GUEST.node_id,
        "issued_via": "onboarding",
    }
    return token.mint(ANNA, **{**given, **changes})


TOKEN = mint()
CLAIMS: dict[str, Any] = json.loads(ids.unb64(TOKEN.split(".")[1]))


def forged(payload: bytes, header: object = HEADER, signer: Identity = ANNA) -> str:
    """A token with any header and payload, properly signed."""
    content = f"{ids.b64(json.dumps(header, separators=(',', ':')).encode())}.{ids.b64(payload)}"
    return f"{SCHEME}{content}.{ids.b64(signer.sign_raw(content.encode()))}"


def claiming(**changes: Any) -> str:
    """A properly signed token with changed claims; None takes one away."""
    claims = {name: value for name, value in {**CLAIMS, **changes}.items() if value is not None}
    return forged(json.dumps(claims).encode())


@pytest.mark.req("TRUST-4")
def test_a_token_says_who_lets_whom_do_what_where_and_until_when() -> None:
    claims = token.decode(TOKEN)
    assert (claims.iss, claims.sub, claims.aud) == (ANNA.node_id, BERTA.node_id, CARLA.node_id)
    assert (claims.iat, claims.nbf, claims.exp) == (NOW, NOW, NOW + 300)
    assert ids.is_ulid(claims.jti)
    assert (claims.scope, claims.run) == (SCOPE, "r")
    assert TOKEN.startswith("hntoken://v1/")
    assert token.decode(mint()).jti != claims.jti


def said(text: str) -> dict[str, Any]:
    """The payload of a token, as JSON says it."""
    payload: dict[str, Any] = json.loads(ids.unb64(text.split(".")[1]))
    return payload


@pytest.mark.req("TRUST-4", "TOKEN-2")
@pytest.mark.parametrize("text", [TOKEN, mint(run=""), session(), session(cnf="")], ids=range(4))
def test_pyjwt_verifies_it(text: str) -> None:
    key = Ed25519PublicKey.from_public_bytes(ids.public_key(ANNA.node_id))
    compact = text.removeprefix(SCHEME)
    read = jwt.api_jws.decode_complete(compact, key, algorithms=["EdDSA"])
    assert json.loads(read["payload"]) == said(text)
    assert read["header"] == HEADER
    other = Ed25519PublicKey.from_public_bytes(ids.public_key(BERTA.node_id))
    with pytest.raises(jwt.InvalidSignatureError):
        jwt.api_jws.decode(compact, other, algorithms=["EdDSA"])
    claims = jwt.decode(
        compact,
        key,
        algorithms=["EdDSA"],
        audience=CARLA.node_id,
        options={"verify_exp": False, "verify_nbf": False, "verify_iat": False},
    )
    assert claims == said(text)


@pytest.mark.req("TRUST-4", "TOKEN-2")
@pytest.mark.parametrize("text", [TOKEN, mint(run=""), session(), session(cnf="")], ids=range(4))
def test_joserfc_verifies_it(text: str) -> None:
    public: dict[str, str | list[str]] = {
        "kty": "OKP",
        "crv": "Ed25519",
        "x": ids.b64(ids.public_key(ANNA.node_id)),
    }
    registry = jws.JWSRegistry(algorithms=["EdDSA"], strict_check_header=False)
    key = OKPKey.import_key(public)
    # RFC 9864 prefers the name Ed25519 to EdDSA, which our format fixes; the check itself is the same.
    with pytest.warns(SecurityWarning, match="RFC 9864"):
        read = jws.deserialize_compact(text.removeprefix(SCHEME), key, registry=registry)
    assert json.loads(read.payload) == said(text)
    assert read.headers() == HEADER


@pytest.mark.req("TOKEN-2")
def test_a_session_says_for_whom_with_which_key_and_how_much() -> None:
    text = session()
    assert said(text) == {
        "iss": ANNA.node_id,
        "sub": BERTA.node_id,
        "aud": CARLA.node_id,
        "iat": NOW,
        "nbf": NOW,
        "exp": NOW + 3600,
        "jti": said(text)["jti"],
        "scope": {
            "capabilities": ["llm.chat", "rag.query@1.0"],
            "params_constraints": {"corpus": ["system"]},
            "rate_limit_per_minute": 60,
            "max_calls_total": 500,
            "max_effects": 20,
        },
        "principal": "eva",
        "cnf": {"jwk": {"kty": "OKP", "crv": "Ed25519", "x": GUEST.token}},
        "issued_via": "onboarding",
    }
    claims = token.decode(text)
    assert claims.cnf is not None
    assert (claims.kind, claims.principal, claims.cnf.key) == ("session", "eva", GUEST.node_id)
    # The key is one that a JOSE library reads, and it is the client's.
    assert OKPKey.import_key(said(text)["cnf"]["jwk"]).as_dict(private=False)["x"] == GUEST.token


@pytest.mark.req("TOKEN-2")
def test_a_token_is_of_one_of_three_kinds() -> None:
    texts = (mint(run=""), mint(), session(), session(cnf=""))
    assert [token.decode(text).kind for text in texts] == ["grant", "run", "session", "session"]


@pytest.mark.req("TOKEN-2")
def test_only_limits_are_counted() -> None:
    assert not SCOPE.counted
    for limit in ("rate_limit_per_minute", "max_calls_total", "max_effects"):
        assert Scope(("rag.query",), **{limit: 1}).counted  # type: ignore[arg-type]
    assert Scope(("rag.query",), max_effects=0).counted


@pytest.mark.req("TOKEN-2")
@pytest.mark.parametrize("principal", ["Eva Müller", "a/b", "x" * 65, "eva\n", "../eva", "eva*"])
def test_a_principal_is_a_plain_name(principal: str) -> None:
    assert token.decode(session(principal="A-z_0.9" + "x" * 57)).kind == "session"
    with pytest.raises(HearthNetError, match="1 to 64 letters"):
        session(principal=principal)
    with pytest.raises(HearthNetError, match="claims are malformed"):
        token.decode(claiming(principal=principal, run=None))


@pytest.mark.req("TOKEN-2")
@pytest.mark.parametrize(
    "changes",
    [
        {"principal": "eva"},
        {"run": None, "cnf": said(session())["cnf"]},
        {"cnf": said(session())["cnf"]},
        {"run": None, "principal": "eva", "cnf": {"jwk": {"kty": "OKP", "crv": "Ed25519", "x": "A"}}},
        {"run": None, "principal": "eva", "cnf": {"jwk": {"kty": "EC", "crv": "P-256", "x": GUEST.token}}},
        {"run": None, "principal": "eva", "cnf": {"jwk": {"kty": "OKP", "crv": "Ed25519"}}},
        {"run": None, "principal": "eva", "cnf": {"kid": "mine"}},
        {"issued_via": "telephone"},
        {"iss_community": CARLA.node_id},
    ],
    ids=range(9),
)
def test_a_session_that_contradicts_itself_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(HearthNetError, match="claims are malformed") as caught:
        token.decode(claiming(**changes))
    assert caught.value.code == "bad_request"


@pytest.mark.req("TOKEN-2")
def test_a_session_that_contradicts_itself_is_not_minted() -> None:
    for wrong, why in (
        ({"run": "r"}, "a session's token is not bound to one run"),
        ({"principal": ""}, "cnf is a session's, which has a principal"),
        ({"cnf": "somebody"}, "'somebody' is not a node id"),
    ):
        with pytest.raises(HearthNetError, match=why) as caught:
            session(**wrong)
        assert caught.value.code == "bad_request"


@pytest.mark.req("TRUST-4")
def test_a_token_made_by_another_library_is_ours_too() -> None:
    key = Ed25519PrivateKey.from_private_bytes(bytes([1]) * 32)
    payload = json.dumps(CLAIMS, separators=(",", ":")).encode()
    made = jwt.api_jws.encode(payload, key, algorithm="EdDSA", headers={"typ": "hntoken", "v": 1})
    read = jwt.get_unverified_header(made)
    assert read == HEADER
    header, body, _ = made.split(".")
    assert ids.b64(json.dumps(HEADER, separators=(",", ":")).encode()) == header
    assert token.decode(SCHEME + made) == token.decode(TOKEN)
    assert body == TOKEN.split(".")[1]


@pytest.mark.req("TRUST-5")
@pytest.mark.parametrize("ttl", [0, -1, MAX_TTL_SECONDS + 1])
def test_a_token_lives_a_day_at_most(ttl: int) -> None:
    assert token.decode(mint(ttl=MAX_TTL_SECONDS)).exp == NOW + MAX_TTL_SECONDS
    with pytest.raises(HearthNetError, match="a token lives 1 to 86400 seconds") as caught:
        mint(ttl=ttl)
    assert caught.value.code == "bad_request"


@pytest.mark.req("TRUST-5")
def test_a_token_has_a_largest_size() -> None:
    with pytest.raises(HearthNetError, match="name fewer capabilities") as caught:
        mint(Scope(tuple(f"experimental.number_{number}@1.0" for number in range(60))))
    assert caught.value.code == "payload_too_large"
    largest = next(size for size in range(2000) if len(mint(run="x" * size)) >= MAX_BYTES - 1)
    assert len(mint(run="x" * largest)) <= MAX_BYTES
    assert token.decode(mint(run="x" * largest))


@pytest.mark.req("GATE-18")
def test_a_scope_covers_one_mcp_server_whole() -> None:
    scope = Scope(("rag.query@1.0", "experimental.mcp.notes.*"))
    claims = token.decode(mint(scope))
    for name in ("rag.query@1.3", "experimental.mcp.notes.read@7.0", "experimental.mcp.notes.later@4711.0"):
        assert claims.scope.covers(parse_capability(name)), name
    for name in (
        "rag.query@2.0",
        "experimental.mcp.notes2.read@7.0",
        "experimental.mcp.notes.read.more@7.0",
        "experimental.mcp.notes@7.0",
        "experimental.notes.read@7.0",
    ):
        assert not claims.scope.covers(parse_capability(name)), name


@pytest.mark.req("AUTH-5")
@pytest.mark.parametrize(
    ("entry", "is_one"),
    [
        ("rag.query", True),
        ("rag.query@1.0", True),
        ("experimental.mcp.notes.read@123456789012345.9999", True),
        ("rag.query@999999999999999.0", True),
        ("rag.query@1000000000000000.0", False),
        ("rag.query@1.9999", True),
        ("rag.query@1.10000", False),
        ("experimental." + "x" * 127, True),
        ("experimental." + "x" * 128, False),
        ("experimental." + "x" * 123 + "@1.0", True),
        ("experimental." + "x" * 124 + "@1.0", False),
        ("experimental.mcp.notes.*", True),
        (f"experimental.mcp.{'x' * 32}.*", True),
        (f"experimental.mcp.{'x' * 33}.*", False),
        ("experimental.mcp.notes.*@1.0", False),
        ("experimental.mcp.Notes.*", False),
        ("experimental.mcp.*", False),
        ("rag.*", False),
        ("rag.query@01.0", False),
        ("rag", False),
    ],
)
def test_contract_and_token_agree_what_an_entry_is(entry: str, is_one: bool) -> None:
    wanted = {"client_id": ids.new_ulid(), "subject": BERTA.node_id, "scope": {"capabilities": [entry]}}
    scope = Scope((entry,))
    if is_one:
        scope.check()
        contracts().get("auth.token.issue@1.0").check_request({"params": {}, "input": wanted})
        return
    with pytest.raises(HearthNetError, match="is not a capability"):
        scope.check()
    with pytest.raises(HearthNetError, match="/input/scope/capabilities/0"):
        contracts().get("auth.token.issue@1.0").check_request({"params": {}, "input": wanted})


@pytest.mark.req("GATE-18")
@pytest.mark.parametrize(
    "entry",
    [
        "*",
        "market.*",
        "experimental.*",
        "experimental.mcp.*",
        "experimental.mcp.*.read",
        "experimental.mcp.notes.*@1.0",
        "experimental.mcp.notes.re*",
        "experimental.mcp.Notes.*",
        "experimental.mcp.a.b.*",
    ],
)
def test_a_wildcard_of_anything_else_is_no_scope(entry: str) -> None:
    with pytest.raises(HearthNetError, match="is not a capability"):
        mint(Scope((entry,)))


@pytest.mark.req("TRUST-5", "TOKEN-2")
def test_a_session_with_all_that_it_may_say_has_room_for_a_useful_scope() -> None:
    every = dict.fromkeys(("rate_limit_per_minute", "max_calls_total"), 2**53 - 1)
    names = tuple(f"experimental.capability_{number}@10.10" for number in range(40))

    def largest(count: int) -> str:
        scope = Scope(names[:count], {"corpus": ["system"]}, max_effects=1000, **every)
        return session(scope=scope, principal="x" * 64, cnf=GUEST.node_id)

    count = next(count for count in range(1, 40) if len(largest(count)) > MAX_BYTES - 60)
    assert count >= 15
    assert token.decode(largest(count)).scope.capabilities == names[:count]
    with pytest.raises(HearthNetError, match="over 2048") as caught:
        largest(count + 1)
    assert caught.value.code == "payload_too_large"


@pytest.mark.req("TRUST-5")
def test_a_scope_that_names_no_capability_is_not_minted() -> None:
    with pytest.raises(HearthNetError, match=r"'rag\.\*' is not a capability"):
        mint(Scope(("rag.*",)))


@pytest.mark.req("TRUST-5")
@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("", "bad_request", "is malformed"),
        (TOKEN.removeprefix(SCHEME), "bad_request", "is malformed"),
        (TOKEN.replace("v1", "v2", 1), "bad_request", "is malformed"),
        (TOKEN.rpartition(".")[0], "bad_request", "is malformed"),
        (TOKEN + ".x", "bad_request", "is malformed"),
        (TOKEN + "=", "bad_request", "not base64url"),
        (TOKEN + "A" * MAX_BYTES, "bad_request", "is malformed"),
        (TOKEN + "\n", "bad_request", "not base64url"),
        (TOKEN.replace("://", "://v1/"), "token_invalid", "header is not ours"),
        ("hntoken://v1/..", "token_invalid", "header is not ours"),
        (TOKEN.replace(".", ".é", 1), "bad_request", "not base64url"),
        (TOKEN.rpartition(".")[0] + ".é", "bad_request", "not base64url"),
    ],
    ids=range(12),
)
def test_what_has_not_the_form_is_refused(text: str, code: str, said: str) -> None:
    with pytest.raises(HearthNetError, match=said) as caught:
        token.decode(text)
    assert caught.value.code == code


@pytest.mark.req("TRUST-5")
@pytest.mark.parametrize(
    "header",
    [
        {"alg": "none", "typ": "hntoken", "v": 1},
        {"alg": "HS256", "typ": "hntoken", "v": 1},
        {"alg": "EdDSA", "typ": "JWT", "v": 1},
        {"alg": "EdDSA", "typ": "hntoken", "v": 2},
        {"alg": "EdDSA", "typ": "hntoken", "v": 1, "kid": "x"},
        {"typ": "hntoken", "alg": "EdDSA", "v": 1},
        {},
    ],
    ids=str,
)
def test_the_token_does_not_choose_its_algorithm(header: dict[str, Any]) -> None:
    with pytest.raises(HearthNetError, match="header is not ours") as caught:
        token.decode(forged(json.dumps(CLAIMS).encode(), header))
    assert caught.value.code == "token_invalid"


@pytest.mark.req("TRUST-5")
@given(st.integers(0, len(TOKEN) - 1), st.characters(codec="ascii", categories=["L", "N"]))
def test_any_changed_character_is_refused(place: int, letter: str) -> None:
    changed = TOKEN[:place] + letter + TOKEN[place + 1 :]
    if changed == TOKEN:
        return
    with pytest.raises(HearthNetError) as caught:
        token.decode(changed)
    assert caught.value.code in ("bad_request", "token_invalid")


@pytest.mark.req("TRUST-5")
def test_nobody_issues_in_anothers_name() -> None:
    with pytest.raises(HearthNetError, match="not signed by its issuer") as caught:
        token.decode(forged(json.dumps(CLAIMS).encode(), signer=BERTA))
    assert caught.value.code == "token_invalid"


@pytest.mark.req("TRUST-5")
@pytest.mark.parametrize(
    "changes",
    [
        {"max_calls_total": 1},
        {"cnf": {"jwk": {}}},
        {"scope": {"capabilities": [], "corpora": ["system"]}},
        {"scope": {"capabilities": [], "rate_limit_per_minute": 0}},
        {"scope": {"capabilities": [], "max_calls_total": 0}},
        {"scope": {"capabilities": [], "max_effects": -1}},
        {"scope": {"capabilities": [], "max_effects": 1_000_001}},
        {"scope": {"capabilities": ["rag.*"]}},
        {"scope": {"capabilities": ["rag.query@1"]}},
        {"scope": {"capabilities": "rag.query"}},
        {"scope": {"params_constraints": {}}},
        {"scope": {"capabilities": [], "params_constraints": {"corpus": "system"}}},
        {"scope": None},
        {"iss": "ed25519:x"},
        {"iss": ANNA.node_id + "="},
        {"iss": None},
        {"sub": None},
        {"aud": None},
        {"aud": [CARLA.node_id]},
        {"exp": None},
        {"exp": -1},
        {"nbf": -1},
        {"exp": 2**53},
        {"exp": 1.5},
        {"exp": "never"},
        {"jti": "x"},
        {"jti": "../" * 8 + "ab"},
    ],
    ids=str,
)
def test_claims_that_are_unknown_or_say_nothing_are_refused(changes: dict[str, Any]) -> None:
    assert token.decode(claiming()).iss == ANNA.node_id
    with pytest.raises(HearthNetError, match="claims are malformed") as caught:
        token.decode(claiming(**changes))
    assert caught.value.code == "bad_request"


@pytest.mark.req("TRUST-5", "WIRE-13")
def test_claims_have_one_meaning() -> None:
    good = json.dumps(CLAIMS).encode()
    for payload in (
        good.replace(b'"exp"', b'"exp": 0, "exp"'),
        good.replace(b'"corpus"', b'"corpus": ["personal"], "corpus"'),
        b"[" * 1400,
        b"\xff",
        b"null",
        good + b"{}",
    ):
        with pytest.raises(HearthNetError, match="claims are malformed") as caught:
            token.decode(forged(payload))
        assert caught.value.code == "bad_request"


@pytest.mark.req("TRUST-5")
@pytest.mark.parametrize(
    "changes",
    [
        {"exp": NOW},
        {"exp": NOW - 1},
        {"exp": NOW + MAX_TTL_SECONDS + 1},
        {"exp": 2**53 - 1},
        {"iat": NOW + 1},
        {"iat": 0},
        {"iat": NOW - MAX_TTL_SECONDS + 299},
        {"nbf": NOW + MAX_TTL_SECONDS, "exp": NOW + MAX_TTL_SECONDS + 300},
    ],
    ids=str,
)
def test_a_life_that_no_honest_issuer_gives_is_refused(changes: dict[str, int]) -> None:
    """Counted from its issue: a token that begins later could outlast the memory of its revocation."""
    with pytest.raises(HearthNetError, match="up to a day") as caught:
        token.decode(claiming(**changes))
    assert caught.value.code == "token_invalid"


def use(now: int = NOW, caller: Identity = BERTA, community: Identity = CARLA) -> None:
    """Shows the token."""
    claims: Claims = token.decode(TOKEN)
    claims.check_use(caller=caller.node_id, community=community.node_id, now_ms=now * 1000)


@pytest.mark.req("TRUST-5")
@pytest.mark.parametrize("now", [NOW - SKEW_SECONDS, NOW, NOW + 300, NOW + 299 + SKEW_SECONDS])
def test_it_may_be_shown_in_its_life_with_a_minute_for_clocks(now: int) -> None:
    use(now)


@pytest.mark.req("TRUST-5")
@pytest.mark.parametrize(
    ("code", "why", "arguments"),
    [
        ("token_expired", "is not valid yet", {"now": NOW - SKEW_SECONDS - 1}),
        ("token_expired", "life is over", {"now": NOW + 300 + SKEW_SECONDS}),
        ("token_expired", "is not valid yet", {"now": 0}),
        ("unauthorized", "is for another community", {"community": BERTA}),
        ("invalid_signature", "belongs to another node than the caller", {"caller": ANNA}),
        ("invalid_signature", "belongs to another node than the caller", {"caller": CARLA}),
    ],
    ids=range(6),
)
def test_outside_its_life_its_community_or_its_holder_it_is_nothing(
    code: str, why: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(HearthNetError, match=why) as caught:
        use(**arguments)
    assert caught.value.code == code


@pytest.mark.req("TRUST-5")
def test_too_early_is_told_from_too_late_with_our_time() -> None:
    for now, says in ((NOW - 300, "set the one that is wrong"), (NOW + 600, "ask its issuer for a new one")):
        with pytest.raises(HearthNetError, match=says) as caught:
            use(now)
        assert (caught.value.code, caught.value.details) == ("token_expired", {"now": now * 1000})


@pytest.mark.req("TRUST-5")
def test_a_token_for_all_is_not_known_here() -> None:
    bearer = token.decode(claiming(sub="*"))
    with pytest.raises(HearthNetError, match="from a bridge only") as caught:
        bearer.check_use(caller=BERTA.node_id, community=CARLA.node_id, now_ms=NOW * 1000)
    assert caught.value.code == "unauthorized"


def test_what_is_empty_takes_no_room() -> None:
    content = ids.unb64(mint(Scope(("rag.query",)), run="").split(".")[1])
    assert b"run" not in content
    assert b"params_constraints" not in content
    assert msgspec.json.decode(content)["scope"] == {"capabilities": ["rag.query"]}


@pytest.mark.req("TOKEN-3")
def test_a_known_token_is_not_verified_again(monkeypatch: pytest.MonkeyPatch) -> None:
    known, asked = Verified(), []

    def verify(*call: object) -> bool:
        asked.append(call)
        return True

    monkeypatch.setattr(token, "verify_raw", verify)
    assert known.claims(TOKEN) is known.claims(TOKEN)
    assert len(asked) == 1


@pytest.mark.req("TOKEN-3")
def test_what_is_no_token_is_none_again() -> None:
    known, bad = Verified(), TOKEN[:-86] + "A" * 86
    for _ in range(2):
        with pytest.raises(HearthNetError, match="not signed by its issuer") as caught:
            known.claims(bad)
        assert caught.value.code == "token_invalid"
    assert known.claims.cache_info().currsize == 0


@pytest.mark.req("TOKEN-3")
def test_the_memory_is_bounded_and_keeps_what_is_in_use() -> None:
    known, texts = Verified(most=3), [mint() for _ in range(4)]
    first, second, third = (known.claims(text) for text in texts[:3])
    assert known.claims(texts[0]) is first
    known.claims(texts[3])
    assert known.claims.cache_info().currsize == 3
    assert known.claims(texts[0]) is first
    assert known.claims(texts[2]) is third
    assert known.claims(texts[1]) is not second, "the least recently used was forgotten"
    assert known.claims.cache_info().currsize == 3


@pytest.mark.req("ATTACK-46")
@pytest.mark.parametrize(
    ("principal", "allowed", "fields", "expected"),
    [
        ("node", {}, {"corpus": "a"}, True),
        ("node/owner", {}, {"corpus": "a"}, True),
        ("node/anna", {}, {"corpus": "a"}, False),
        ("node/anna", {"corpus": ["b"]}, {"corpus": "a"}, False),
        ("node/anna", {"corpus": ["b", "a"]}, {"corpus": "a"}, True),
        ("node/anna", {"corpus": ["a"]}, {"corpus": "a", "k": 1}, False),
        ("node/anna", {"corpus": ["a"]}, {}, False),
        ("other", {"corpus": ["a"]}, {"corpus": "a"}, False),
        ("other/owner", {"corpus": ["a"]}, {"corpus": "a"}, False),
    ],
)
def test_offers_to_the_home_are_for_those_it_let_in(
    principal: str, allowed: dict[str, list[Any]], fields: dict[str, Any], expected: bool
) -> None:
    scope = Scope(("rag.query",), allowed)
    assert token.is_let_in(principal, scope, "node", fields) is expected


@pytest.mark.req("PERSON-60", "ATTACK-68")
@pytest.mark.parametrize(
    ("changes", "node", "person"),
    [
        ({}, ANNA, "eva"),
        ({}, BERTA, ""),
        ({"cnf": ""}, ANNA, ""),
        ({"principal": "owner"}, ANNA, ""),
    ],
)
def test_a_person_of_a_home_is_a_guest_with_a_key(
    changes: dict[str, Any], node: Identity, person: str
) -> None:
    claims = token.decode(session(**changes))
    assert claims.person_at(node.node_id) == person
    fields = {"corpus": "anything"}
    assert claims.is_of_home(node.node_id, fields, "eva") is (person == "eva")
    assert not claims.is_of_home(node.node_id, fields, "adam")
    owner_or_let_in = node is ANNA and (changes.get("principal") == "owner")
    assert claims.is_of_home(node.node_id, fields) is owner_or_let_in
    assert claims.is_of_home(node.node_id, {"corpus": "system"}) is (node is ANNA)


@pytest.mark.req("TRUST-6")
@pytest.mark.parametrize(
    ("text", "covered"),
    [
        ("rag.query", True),
        ("rag.query@1.0", True),
        ("rag.query@1.7", True),
        ("rag.query@2.0", False),
        ("market.list@9.9", True),
        ("market.post", False),
        ("market.post@1.0", False),
        ("experimental.mcp.fs.read", True),
        ("experimental.mcp.fs.read@1.0", True),
        ("experimental.mcp.web.read", False),
    ],
)
def test_a_scope_covers_names_with_and_without_version(text: str, covered: bool) -> None:
    scope = Scope(("rag.query@1.0", "market.list", "experimental.mcp.fs.*"))
    assert scope.covers_name(text) is covered


@pytest.mark.req("TRUST-6")
def test_a_name_that_is_no_capability_is_refused_by_a_scope() -> None:
    with pytest.raises(HearthNetError) as caught:
        SCOPE.covers_name("rag.query@1")
    assert caught.value.code == "bad_request"
