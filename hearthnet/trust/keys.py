"""Identity keys, the logins derived from them, and signatures.

See: docs/protocol/identity.md#keys.
"""

from __future__ import annotations

import base64
import os
import re
from typing import Final

import blake3
import nkeys
from nacl import bindings
from nacl.exceptions import BadSignatureError, CryptoError

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError

_LOGIN_CONTEXT: Final = "hearthnet 2026 nats login"
_STORE_CONTEXT: Final = "hearthnet 2026 nats store login"
_PEER_CONTEXT: Final = "hearthnet 2026 nats peer login"
_BOX_CONTEXT: Final = "hearthnet box v1"
_MARKS_CONTEXT: Final = "hearthnet 2026 proved signatures"
_RUNS_CONTEXT: Final = "hearthnet 2026 saved runs"
_SEAL_CONTEXT: Final = "hearthnet 2026 sealed between nodes"
_SEAL_NONCE: Final = 24
_FILE_HEADER: Final = "hearthnet-key-1"
SIGNATURE_BYTES: Final = 64
_LOGIN: Final = re.compile("U[A-Z2-7]{55}")


def signing_input(purpose: str, data: bytes) -> bytes:
    """Return the bytes to sign for `purpose`.

    They differ for each purpose and from every server's nonce, so no signature can be used for another.
    """
    return b"\xffHN1" + purpose.encode("ascii") + b"\x00" + data


def verify(node: str, purpose: str, data: bytes, signature: bytes) -> bool:
    """Return whether `signature` (64 bytes) is by `node` over `data` for `purpose`."""
    return verify_raw(node, signing_input(purpose, data), signature)


def verify_raw(node: str, data: bytes, signature: bytes) -> bool:
    """Return whether `signature` is by `node` over exactly `data`.

    For formats with a framing of their own (JWS).
    """
    if len(signature) != SIGNATURE_BYTES:
        return False
    try:
        bindings.crypto_sign_open(signature + data, ids.public_key(node))
    except BadSignatureError:
        return False
    return True


def is_login(text: str) -> bool:
    """Return whether `text` is the public nkey of a user.

    It is written into a server's configuration, where any other text could open a block of its own.
    """
    if not _LOGIN.fullmatch(text):
        return False
    data = base64.b32decode(text)
    return bool(nkeys.crc16(data[:33]) == int.from_bytes(data[33:], "little"))


def verify_login(login: str, purpose: str, data: bytes, signature: bytes) -> bool:
    """Return whether `signature` is by the user nkey `login` over `data` for `purpose`."""
    if not is_login(login):
        return False
    return verify(ids.node_id(base64.b32decode(login)[1:33]), purpose, data, signature)


def seal_for(node: str, data: bytes) -> bytes:
    """Return `data` in a sealed box that only the holder of the key of `node` opens (`Identity.unseal`).

    It takes no secret and names no sender.

    Raises:
        HearthNetError: `invalid_signature` if the id is not a usable key.
    """
    try:
        public = bindings.crypto_sign_ed25519_pk_to_curve25519(ids.public_key(node))
        return bytes(bindings.crypto_box_seal(data, public))
    except (RuntimeError, ValueError) as error:
        raise HearthNetError("invalid_signature", f"{node} is not a usable key") from error


class Login:
    """The nkey of type user by which a process logs in to NATS; never an identity key."""

    def __init__(self, seed: bytes) -> None:
        self.seed: Final[bytes] = nkeys.encode_seed(seed, nkeys.PREFIX_BYTE_USER)
        self.public: Final[str] = nkeys.from_seed(bytearray(self.seed)).public_key.decode("ascii")

    def sign(self, purpose: str, data: bytes) -> bytes:
        """Sign `data` for `purpose` (64 bytes).

        A server cannot obtain such a signature by its nonce, since a nonce is text.
        """
        return bytes(nkeys.from_seed(bytearray(self.seed)).sign(signing_input(purpose, data)))

    def answer(self, nonce: str) -> dict[str, str]:
        """Return the reply to a NATS server's `nonce`: public key, and signature over the nonce."""
        signature = nkeys.from_seed(bytearray(self.seed)).sign(nonce.encode("utf-8"))
        return {"nkey": self.public, "sig": ids.b64(bytes(signature))}


class Identity:
    """A node's Ed25519 key (32-byte seed) and everything derived from it."""

    def __init__(self, seed: bytes) -> None:
        if len(seed) != 32:
            raise HearthNetError("bad_request", "an identity seed has 32 bytes")
        self._seed = seed
        self._public, self._secret = bindings.crypto_sign_seed_keypair(seed)
        self._box_secret = bindings.crypto_sign_ed25519_sk_to_curve25519(self._secret)
        self.node_id: Final[str] = ids.node_id(self._public)
        self.token: Final[str] = ids.token_form(self.node_id)

    @classmethod
    def generate(cls) -> Identity:
        """Return a new identity from the system's random source."""
        return cls(os.urandom(32))

    @property
    def seed(self) -> bytes:
        """The 32 bytes of the seed, of which recovery words are made."""
        return self._seed

    @classmethod
    def from_text(cls, text: str) -> Identity:
        """Read the identity in the text of a key file.

        Raises:
            HearthNetError: `bad_request` if the text is damaged or its node id belongs to another key.
        """
        fields = text.split()
        if len(fields) != 3 or fields[0] != _FILE_HEADER:
            raise HearthNetError("bad_request", "is no HearthNet key (one line of three words)")
        identity = cls(ids.unb64(fields[1]))
        if identity.node_id != fields[2]:
            raise HearthNetError("bad_request", "is damaged: its seed and its node id do not belong together")
        return identity

    def to_text(self) -> str:
        """Return the text of a key file: one line with header, seed and, as a check, the node id."""
        return f"{_FILE_HEADER} {ids.b64(self._seed)} {self.node_id}\n"

    def sign(self, purpose: str, data: bytes) -> bytes:
        """Sign `data` for `purpose`, one of the project's own kinds of object (64 bytes)."""
        return self.sign_raw(signing_input(purpose, data))

    def sign_raw(self, data: bytes) -> bytes:
        """Sign exactly `data` (64 bytes); only for JWS, which has its own framing."""
        return bytes(bindings.crypto_sign(data, self._secret)[:SIGNATURE_BYTES])

    def login(self) -> Login:
        """Return the node's login to the bus account."""
        return self._derived(_LOGIN_CONTEXT)

    def peer_login(self) -> Login:
        """Return the login of this node's own processes to the bus account for the frames of other nodes."""
        return self._derived(_PEER_CONTEXT)

    def store_login(self) -> Login:
        """Return the login of this operator's own processes to the account that holds JetStream."""
        return self._derived(_STORE_CONTEXT)

    def shared_secret(self, peer: str) -> bytes:
        """Return the X25519 shared key with `peer`; takes about 175 us.

        Raises:
            HearthNetError: `invalid_signature` if the id of `peer` is not a usable key.
        """
        try:
            peer_box = bindings.crypto_sign_ed25519_pk_to_curve25519(ids.public_key(peer))
            return bytes(bindings.crypto_box_beforenm(peer_box, self._box_secret))
        except (RuntimeError, ValueError) as error:
            raise HearthNetError("invalid_signature", f"{peer} is not a usable key") from error

    def box_key(self, sender: str, receiver: str) -> bytes:
        """Return the 32-byte key for frames from `sender` to `receiver`; one is this identity."""
        peer = receiver if sender == self.node_id else sender
        return _direction(self.shared_secret(peer), sender, receiver)

    def box_keys(self, peer: str) -> tuple[bytes, bytes]:
        """Return the keys for frames to and from `peer`, for hardly more than the cost of one."""
        shared = self.shared_secret(peer)
        return _direction(shared, self.node_id, peer), _direction(shared, peer, self.node_id)

    def unseal(self, sealed: bytes) -> bytes:
        """Return the content of a box that was sealed for this identity (`seal_for`).

        Raises:
            HearthNetError: `invalid_signature` if it was sealed for another one, or altered.
        """
        public = bindings.crypto_sign_ed25519_pk_to_curve25519(self._public)
        try:
            return bytes(bindings.crypto_box_seal_open(sealed, public, self._box_secret))
        except (CryptoError, ValueError, TypeError) as error:
            raise HearthNetError(
                "invalid_signature", "was not sealed for this key, or was altered"
            ) from error

    def seal_to(self, receiver: str, purpose: str, data: bytes, secret: bytes = b"") -> bytes:
        """Return `data` sealed for `receiver`, which opens it with its own key and `secret`.

        `purpose` names the kind of data; data sealed for another purpose does not open.
        """
        nonce = os.urandom(_SEAL_NONCE)
        key = self._seal_key(self.node_id, receiver, purpose, secret)
        return nonce + bindings.crypto_secretbox(data, nonce, key)

    def open_from(self, sender: str, purpose: str, sealed: bytes, secret: bytes = b"") -> bytes:
        """Return what `sender` sealed for this identity with `seal_to`.

        Raises:
            HearthNetError: `invalid_signature` if it was changed, or is for others, another purpose or with
                another secret.
        """
        key = self._seal_key(sender, self.node_id, purpose, secret)
        try:
            return bytes(bindings.crypto_secretbox_open(sealed[_SEAL_NONCE:], sealed[:_SEAL_NONCE], key))
        except (CryptoError, ValueError) as error:
            raise HearthNetError("invalid_signature", f"the sealed {purpose} does not open") from error

    def _seal_key(self, sender: str, receiver: str, purpose: str, secret: bytes) -> bytes:
        shared = self.shared_secret(receiver if sender == self.node_id else sender)
        ends = ids.public_key(sender) + ids.public_key(receiver)
        material = shared + ends + purpose.encode("ascii") + b"\x00" + secret
        return blake3.blake3(material, derive_key_context=_SEAL_CONTEXT).digest()

    def marks_key(self) -> bytes:
        """Return the 32-byte key that authenticates the shared record of verified signatures."""
        return blake3.blake3(self._seed, derive_key_context=_MARKS_CONTEXT).digest()

    def runs_key(self) -> bytes:
        """Return the 32-byte key by which this node detects altered files of saved runs."""
        return blake3.blake3(self._seed, derive_key_context=_RUNS_CONTEXT).digest()

    def _derived(self, context: str) -> Login:
        return Login(blake3.blake3(self._seed, derive_key_context=context).digest())

    def __repr__(self) -> str:
        return f"Identity({self.node_id})"


def _direction(shared: bytes, sender: str, receiver: str) -> bytes:
    material = shared + ids.public_key(sender) + ids.public_key(receiver)
    return blake3.blake3(material, derive_key_context=_BOX_CONTEXT).digest()
