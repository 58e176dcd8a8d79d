"""Identity keys, what follows from them, and what a signature can be shown for.

See: docs/protocol/identity.md#keys.
"""

from __future__ import annotations

import base64

import nkeys
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import example, given
from hypothesis import strategies as st

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol import frame
from hearthnet.trust import audit_chain, contract_signature
from hearthnet.trust.authorization import approval, grant, revocation
from hearthnet.trust.community import events, roster
from hearthnet.trust.keys import Identity, is_login, seal_for, signing_input, verify, verify_login, verify_raw

ANNA, BERTA = Identity(bytes([1]) * 32), Identity(bytes([2]) * 32)
PURPOSES = (
    frame.PURPOSE,
    approval.PURPOSE,
    roster.PURPOSE,
    events.PURPOSE,
    events.LOGIN_PURPOSE,
    events.PROOF_PURPOSE,
    events.INVITE_PURPOSE,
    events.COSIGN_PURPOSE,
    grant.PURPOSE,
    revocation.PURPOSE,
    contract_signature.PURPOSE,
    audit_chain.PURPOSE,
    audit_chain.HEAD_PURPOSE,
)
DATA = st.binary(max_size=64)

P = 2**255 - 19
# The points of small order and their second encodings: a signature under them holds for any bytes.
WEAK = [
    bytes(32),
    (1).to_bytes(32, "little"),
    (P - 1).to_bytes(32, "little"),
    P.to_bytes(32, "little"),
    (P + 1).to_bytes(32, "little"),
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85"),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa"),
]


@pytest.mark.req("TRUST-1")
@given(st.sampled_from(PURPOSES), DATA)
def test_a_signature_is_its_signers_over_these_bytes_for_this_purpose(purpose: str, data: bytes) -> None:
    signature = ANNA.sign(purpose, data)
    assert verify(ANNA.node_id, purpose, data, signature)
    assert not verify(BERTA.node_id, purpose, data, signature)
    assert not verify(ANNA.node_id, purpose, data + b"x", signature)
    assert not verify_raw(ANNA.node_id, data, signature)
    for other in PURPOSES:
        assert verify(ANNA.node_id, other, data, signature) is (other == purpose)
    Ed25519PublicKey.from_public_bytes(ids.public_key(ANNA.node_id)).verify(
        signature, signing_input(purpose, data)
    )


@pytest.mark.req("TRUST-1")
@given(st.sampled_from(PURPOSES), DATA, st.sampled_from(PURPOSES), DATA)
@example("login", b" proofx", "login proof", b"x")
@example("audit", b" head{}", "audit head", b"{}")
def test_two_things_signed_are_never_the_same_bytes(
    one: str, first: bytes, other: str, second: bytes
) -> None:
    same = signing_input(one, first) == signing_input(other, second)
    assert same is ((one, first) == (other, second))


@pytest.mark.req("TRUST-1")
def test_what_is_signed_for_us_is_neither_text_nor_a_token() -> None:
    # A server's nonce and a JWS are ASCII; our own signatures begin with a byte that no text has.
    for purpose in PURPOSES:
        assert signing_input(purpose, b"").startswith(b"\xffHN1")
        with pytest.raises(UnicodeDecodeError):
            signing_input(purpose, b"").decode("utf-8")


@pytest.mark.req("TRUST-1")
@pytest.mark.parametrize("length", [0, 1, 63, 65, 128])
def test_a_signature_has_64_bytes(length: int) -> None:
    assert not verify(ANNA.node_id, "frame", b"", (ANNA.sign("frame", b"") * 2)[:length])
    # The rest of a longer one is not read as the beginning of what is signed.
    rest = bytes(max(0, length - 64))
    longer = ANNA.sign_raw(rest + signing_input("frame", b"")) + rest
    assert verify(ANNA.node_id, "frame", b"", longer[:64]) is (rest == b"")
    assert not verify(ANNA.node_id, "frame", b"", longer[:length])


@pytest.mark.req("TRUST-2")
def test_the_login_is_a_key_of_its_own_and_its_signatures_are_not_the_nodes() -> None:
    nonce = b"a nonce that some server chose"
    seen = {ANNA.token}
    for login in (ANNA.login(), ANNA.peer_login(), ANNA.store_login(), BERTA.login()):
        pair = nkeys.from_seed(bytearray(login.seed))
        signature = pair.sign(nonce)
        assert pair.verify(nonce, signature)
        assert not verify_raw(ANNA.node_id, nonce, signature)
        public = base64.b32decode(login.public)[1:33]
        assert ids.b64(public) not in seen
        seen.add(ids.b64(public))
        with pytest.raises(InvalidSignature):
            Ed25519PublicKey.from_public_bytes(ids.public_key(ANNA.node_id)).verify(signature, nonce)
    again = Identity(bytes([1]) * 32)
    for login, same in ((ANNA.login(), again.login()), (ANNA.peer_login(), again.peer_login())):
        assert login.public == same.public


@pytest.mark.req("TRUST-2")
def test_only_the_public_key_of_a_user_is_a_login() -> None:
    good = ANNA.login().public
    assert is_login(good)
    body = bytes([nkeys.PREFIX_BYTE_ACCOUNT]) + bytes(32)
    account = base64.b32encode(body + nkeys.crc16(body).to_bytes(2, "little")).decode()
    for bad in (
        "",
        good.lower(),
        good[:-1],
        good + "A",
        good + "\n",
        good[:-1] + ("A" if good[-1] != "A" else "B"),
        good[:20] + ("A" if good[20] != "A" else "B") + good[21:],
        account,
        ANNA.login().seed.decode(),
        "U" + "A" * 55,
        good[:50] + "} } {",
    ):
        assert not is_login(bad)


@pytest.mark.req("TRUST-2")
@given(st.binary(min_size=32, max_size=32))
def test_a_key_file_leads_back_to_its_identity(seed: bytes) -> None:
    identity = Identity(seed)
    assert Identity.from_text(identity.to_text()).node_id == identity.node_id
    assert ids.b64(seed) not in repr(identity)
    assert identity.node_id in repr(identity)


@pytest.mark.req("TRUST-2")
def test_new_identities_differ() -> None:
    assert Identity.generate().node_id != Identity.generate().node_id


@pytest.mark.req("TRUST-2")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no HearthNet key"),
        ("hearthnet-key-1", "is no HearthNet key"),
        (ANNA.to_text() * 2, "is no HearthNet key"),
        (ANNA.to_text().replace("key-1", "key-2"), "is no HearthNet key"),
        (f"hearthnet-key-1 {ids.b64(bytes(31))} {ANNA.node_id}", "an identity seed has 32 bytes"),
        (f"hearthnet-key-1 ?? {ANNA.node_id}", "not base64url"),
        (
            f"hearthnet-key-1 {ids.b64(bytes([1]) * 32)} {BERTA.node_id}",
            "its seed and its node id do not belong together",
        ),
    ],
    ids=range(7),
)
def test_a_damaged_key_file_is_refused_and_its_seed_not_repeated(text: str, said: str) -> None:
    with pytest.raises(HearthNetError, match=said) as caught:
        Identity.from_text(text)
    assert caught.value.code == "bad_request"
    assert ids.b64(bytes([1]) * 32) not in caught.value.message


@pytest.mark.req("TRUST-2")
@given(st.integers(0, 200), st.sampled_from(["", "A", "_", "=", " ", "é"]))
def test_a_key_file_with_one_character_changed_is_refused_or_the_same(at: int, put: str) -> None:
    text = ANNA.to_text()
    at %= len(text) - 1
    altered = text[:at] + put + text[at + 1 :]
    if altered.split() != text.split():
        with pytest.raises(HearthNetError) as caught:
            Identity.from_text(altered)
        assert caught.value.code == "bad_request"
    else:
        assert Identity.from_text(altered).node_id == ANNA.node_id


@pytest.mark.req("TRUST-2", "TRUST-3")
def test_a_login_proves_itself_by_what_no_server_can_have_it_sign() -> None:
    login, other = ANNA.login(), BERTA.login()
    proof = login.sign("login proof", b"x")
    assert verify_login(login.public, "login proof", b"x", proof)
    assert not verify_login(other.public, "login proof", b"x", proof)
    assert not verify_login(login.public, "login proof", b"y", proof)
    assert not verify_login(login.public, "login", b"x", proof)
    assert not verify_login("UABC", "login proof", b"x", proof)
    assert not verify(ANNA.node_id, "login proof", b"x", proof)
    # nats clients sign the nonce of the server's INFO, which is JSON, hence text; this is none.
    with pytest.raises(UnicodeDecodeError):
        signing_input("login proof", b"x").decode("utf-8")


@pytest.mark.req("WIRE-6")
def test_the_keys_of_a_pair_are_shared_directed_and_nobody_elses() -> None:
    carla = Identity(bytes([3]) * 32)
    assert ANNA.shared_secret(BERTA.node_id) == BERTA.shared_secret(ANNA.node_id)
    there = ANNA.box_key(ANNA.node_id, BERTA.node_id)
    back = ANNA.box_key(BERTA.node_id, ANNA.node_id)
    assert there == BERTA.box_key(ANNA.node_id, BERTA.node_id)
    assert back == BERTA.box_key(BERTA.node_id, ANNA.node_id)
    others = {carla.box_key(carla.node_id, node) for node in (ANNA.node_id, BERTA.node_id)}
    assert len({there, back, *others}) == 4


@pytest.mark.req("WIRE-6")
def test_two_processes_of_one_node_have_a_key_too() -> None:
    key = ANNA.box_key(ANNA.node_id, ANNA.node_id)
    assert key == Identity(bytes([1]) * 32).box_key(ANNA.node_id, ANNA.node_id)
    assert key not in (bytes(32), BERTA.box_key(BERTA.node_id, BERTA.node_id))
    assert key not in (BERTA.box_key(BERTA.node_id, ANNA.node_id), BERTA.box_key(ANNA.node_id, BERTA.node_id))


@pytest.mark.req("TRUST-10")
@pytest.mark.parametrize("key", WEAK, ids=bytes.hex)
def test_a_point_of_small_order_is_nobody(key: bytes) -> None:
    node = ids.node_id(key)
    with pytest.raises(HearthNetError, match="not a usable key") as caught:
        ANNA.shared_secret(node)
    assert caught.value.code == "invalid_signature"
    for commitment in (*WEAK, ids.public_key(ANNA.node_id)):
        assert not verify(node, "frame", b"anything", commitment + bytes(32))


@pytest.mark.req("TRUST-10")
def test_what_is_no_node_id_signs_nothing() -> None:
    with pytest.raises(HearthNetError, match="not a node id"):
        verify("ed25519:short", "frame", b"", bytes(64))


@pytest.mark.req("BACKUP-3")
def test_sealed_box_opens_for_its_holder_alone() -> None:
    holder, other = Identity(bytes([1]) * 32), Identity(bytes([2]) * 32)
    sealed = seal_for(holder.node_id, b"a key")
    assert holder.unseal(sealed) == b"a key"
    assert sealed != seal_for(holder.node_id, b"a key")
    for opener, box in ((other, sealed), (holder, sealed[:-1]), (holder, b"")):
        with pytest.raises(HearthNetError) as raised:
            opener.unseal(box)
        assert raised.value.code == "invalid_signature"
    with pytest.raises(HearthNetError, match="not a usable key"):
        seal_for(ids.node_id(bytes(32)), b"a key")
    assert Identity(holder.seed).node_id == holder.node_id


@pytest.mark.req("PERSON-30")
def test_what_is_sealed_opens_for_its_receiver_purpose_and_secret() -> None:
    sender, receiver = Identity.generate(), Identity.generate()
    sealed = sender.seal_to(receiver.node_id, "a purpose", b"data", b"secret")
    assert receiver.open_from(sender.node_id, "a purpose", sealed, b"secret") == b"data"
    assert sealed != sender.seal_to(receiver.node_id, "a purpose", b"data", b"secret")
    for who, of, purpose, data, secret in (
        (receiver, sender, "another", sealed, b"secret"),
        (receiver, sender, "a purpose", sealed, b""),
        (receiver, receiver, "a purpose", sealed, b"secret"),
        (sender, receiver, "a purpose", sealed, b"secret"),
        (Identity.generate(), sender, "a purpose", sealed, b"secret"),
        (receiver, sender, "a purpose", sealed[:-1], b"secret"),
        (receiver, sender, "a purpose", sealed[:20], b"secret"),
    ):
        with pytest.raises(HearthNetError) as refused:
            who.open_from(of.node_id, purpose, data, secret)
        assert refused.value.code == "invalid_signature"
