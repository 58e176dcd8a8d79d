r"""Frames: their signed and encrypted forms, and their readers.

    inner, plain     HN1 p\n<header>\n<body>
    inner, signed    HN1 s <signature>\n<header>\n<body>
    outer, directed  HN1 b\n<nonce><box of an inner frame>

A directed frame opens only with the key of the peer that its subject names. Opening and verifying come before
parsing.

See: docs/protocol/frames.md#layout, docs/protocol/frames.md#opening.
"""

from __future__ import annotations

import os
from typing import Final, Protocol

import msgspec
from nacl import bindings
from nacl.exceptions import CryptoError

from hearthnet.core import ids
from hearthnet.core.canonical_json import refuse_repeated_keys
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol import header as headers
from hearthnet.protocol.header import Header
from hearthnet.trust.keys import Identity, verify

PURPOSE: Final = "frame"
PLAIN: Final = b"HN1 p\n"
SIGNED: Final = b"HN1 s "
BOXED: Final = b"HN1 b\n"
MAX_FOREIGN_BYTES: Final = 1 << 20
"""Maximum of a frame from or to another node that its receiver did not request: of all but replies."""
_NONCE: Final = 24
_MAX_KEYS: Final = 2048


class FrameError(Exception):
    """A frame that this process cannot accept: it is dropped and counted, never answered."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """An opened frame.

    `body` is JSON not yet parsed; `evidence` is the signed inner frame, None if it was not signed.
    """

    header: Header
    body: bytes
    evidence: bytes | None


class BoxKeys:
    """The derived keys of one identity, one per direction and peer, cached for later frames."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._keys: dict[str, tuple[bytes, bytes]] = {}

    def to(self, peer: str) -> bytes:
        """Return the key for frames from this node to `peer`."""
        return (self._keys.get(peer) or self._derive(peer))[0]

    def of(self, peer: str) -> bytes:
        """Return the key for frames from `peer` to this node."""
        return (self._keys.get(peer) or self._derive(peer))[1]

    def _derive(self, peer: str) -> tuple[bytes, bytes]:
        if len(self._keys) >= _MAX_KEYS:
            self._keys.clear()
        both = self._keys[peer] = self._identity.box_keys(peer)
        return both


def plain(header: Header, body: bytes) -> bytes:
    """Build an inner frame that only its box authenticates."""
    return b"%b%b\n%b" % (PLAIN, headers.encode(header), body)


def signed(header: Header, body: bytes, identity: Identity) -> bytes:
    """Build an inner frame that can be proved later.

    Used for announcements, for calls with side effects and for their replies.
    """
    content = b"%b\n%b" % (headers.encode(header), body)
    signature = ids.b64(identity.sign(PURPOSE, content)).encode("ascii")
    return b"%b%b\n%b" % (SIGNED, signature, content)


def box(inner: bytes, key: bytes) -> bytes:
    """Encrypt `inner` into a directed frame."""
    nonce = os.urandom(_NONCE)
    return BOXED + nonce + bindings.crypto_secretbox(inner, nonce, key)


def sealed(header: Header, body: bytes, key: bytes) -> bytes:
    """Build a plain frame in its box, the form of most frames."""
    return box(b"%b%b\n%b" % (PLAIN, headers.encode(header), body), key)


def opened(data: bytes, key: bytes, sender: str) -> Frame:
    """Read the frame in a box that `sender` closed with `key`.

    Raises:
        FrameError: `data` is anything else.
    """
    return read(unbox(data, key), sender)


def unbox(data: bytes, key: bytes) -> bytes:
    """Decrypt a directed frame and return the inner frame.

    Raises:
        FrameError: `key` did not close it.
    """
    start = len(BOXED)
    if data[:start] != BOXED:
        raise FrameError("not a directed frame")
    try:
        return bindings.crypto_secretbox_open(data[start + _NONCE :], data[start : start + _NONCE], key)
    except (CryptoError, ValueError) as error:
        raise FrameError("the box does not open with the key of the peer in the subject") from error


def read(inner: bytes, sender: str) -> Frame:
    """Read the frame in `inner`.

    Raises:
        FrameError: It is malformed, names another sender, or is signed but not by `sender`.
    """
    if inner.startswith(SIGNED):
        return _read_signed(inner, sender)
    if inner.startswith(PLAIN):
        return _parse(inner[len(PLAIN) :], sender, None)
    raise FrameError("neither a plain nor a signed frame")


class Marks(Protocol):
    """A record of signed frames whose signatures were verified before by a trusted reader."""

    def known(self, signer: str, frame: bytes) -> bool:
        """Return whether `frame` was verified before as one of `signer`."""

    def add(self, signer: str, frame: bytes) -> None:
        """Record that `frame` was verified as one of `signer`."""


def read_signed(inner: bytes, sender: str, marks: Marks | None = None) -> Frame:
    """Read a frame that must be signed: an announcement, a find or evidence.

    The signature of a frame that `marks` knows is not verified again.

    Raises:
        FrameError: As `read`, and if the frame is not signed.
    """
    if not inner.startswith(SIGNED):
        raise FrameError("not signed")
    if marks is None:
        return _read_signed(inner, sender)
    if marks.known(sender, inner):
        return _parse(inner[inner.index(b"\n") + 1 :], sender, inner, unique=True)
    frame = _read_signed(inner, sender)
    marks.add(sender, inner)
    return frame


def _read_signed(inner: bytes, sender: str) -> Frame:
    line, _, content = inner.partition(b"\n")
    try:
        signature = ids.unb64(line[len(SIGNED) :].decode("ascii"))
    except (HearthNetError, UnicodeDecodeError) as error:
        raise FrameError("malformed signature") from error
    if not verify(sender, PURPOSE, content, signature):
        raise FrameError("the signature is not the sender's")
    return _parse(content, sender, inner)


def _parse(content: bytes, sender: str, evidence: bytes | None, *, unique: bool = False) -> Frame:
    line, _, body = content.partition(b"\n")
    try:
        header = headers.decode(line)
        if evidence is not None and not unique:
            refuse_repeated_keys(line)
    except HearthNetError as error:
        raise FrameError(error.message) from error
    if header.sender != sender:
        raise FrameError("the header names another sender than the subject")
    return Frame(header, body, evidence)
