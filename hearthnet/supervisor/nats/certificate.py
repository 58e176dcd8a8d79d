"""The certificate of a home's server, verified by the fingerprint of its key.

The key is permanent; the certificate is made again when the computer has other names. A home that once
received a certificate trusts what its key signs, so that this needs no new invite. This module
is imported only where a certificate is made or fetched, because of `cryptography`.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import errno
import hashlib
import hmac
import ipaddress
import socket
import ssl
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError, Unavailable
from hearthnet.core.files import write_whole
from hearthnet.supervisor.nats.address import Address
from hearthnet.supervisor.os.disk import file_errors

FETCH_SECONDS: Final = 5.0
_NAME: Final = "HearthNet home"
# Wide, since nats-server goes by the computer's clock: without a battery it may begin in 1970 at each start.
_BEGIN: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_END: Final = datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC)


def local_names(*more: str) -> tuple[str, ...]:
    """Return the names and addresses of this computer: `more`, and those it finds itself."""
    host = socket.gethostname()
    found = dict.fromkeys(["localhost", "127.0.0.1", "::1", host, f"{host.partition('.')[0]}.local", *more])
    with contextlib.suppress(OSError):
        found |= dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in socket.getaddrinfo(host, None))
    return tuple(name for name in found if name.isascii())


def ensure(certificate: Path, key: Path, names: tuple[str, ...]) -> str:
    """Make the PEM files `key` (0600) and `certificate` where they are missing or lack a name.

    Returns the fingerprint of the key.

    Raises:
        HearthNetError: `bad_request` for a damaged file, which is left as it is.
    """
    private = _load_key(key) if key.exists() else _new_key(key)
    if not certificate.exists() or not _covers(certificate, private.public_key(), names):
        with file_errors(certificate):
            write_whole(certificate, _issue(private, names))
    return _fingerprint(private.public_key())


async def fetch(address: Address, fingerprint: str) -> str:
    """Return the certificate (PEM) of the server at `address`, if its key has `fingerprint`.

    Raises:
        HearthNetError: `partition` if no server answers with TLS, with the reason for a person;
            `invalid_signature` if another server, with another key, answers.
    """
    # Only the TLS handshake is sent, and of the answer only the key's fingerprint is used.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    writer = await _open(address, context)
    data = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    await _close(writer)
    found = x509.load_der_x509_certificate(data or b"")
    public = found.public_key()
    if isinstance(public, Ed25519PublicKey) and hmac.compare_digest(_fingerprint(public), fingerprint):
        return found.public_bytes(Encoding.PEM).decode("ascii")
    raise HearthNetError(
        "invalid_signature",
        f"the server at {address} is not the one of the invite, for it has another certificate; ask for a "
        "new invite",
    )


async def check_answers(address: Address) -> None:
    """Check that a server answers at `address`.

    Raises:
        HearthNetError: `partition` if none does.
    """
    await _close(await _open(address, None))


async def _open(address: Address, context: ssl.SSLContext | None) -> asyncio.StreamWriter:
    try:
        async with asyncio.timeout(FETCH_SECONDS):
            _, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
    except (OSError, TimeoutError) as error:
        raise Unavailable(f"no home answers at {address}: {_reason(error)}", rule="no_home") from error
    return writer


def _reason(error: OSError) -> str:
    """Return why nothing answers at an address, and what to do, for the person who joins there."""
    if isinstance(error, ssl.SSLError):
        return "what listens there does not speak TLS, so it is not a home; ask for a new invite"
    if isinstance(error, ConnectionRefusedError):
        return (
            "that computer refuses the connection: no node runs there (hearthnet up), or its port is closed"
        )
    if isinstance(error, socket.gaierror):
        return (
            "nobody knows that name; ask for an invite with an address (hearthnet.toml, [community] address)"
        )
    if error.errno == errno.ENETUNREACH:
        return "this computer has no network that leads there; connect it first"
    if isinstance(error, ConnectionError):
        return "it hangs up at once; ask whether a node runs there"
    return "nothing is there: a wrong address, a firewall, or that computer is off; ask about all three"


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(1):
            await writer.wait_closed()


def key_id(key: Path) -> str:
    """Return the public half of the key in the PEM file `key`, as an id.

    Raises:
        HearthNetError: `bad_request` for a damaged file.
    """
    return ids.node_id(_load_key(key).public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))


def fingerprint_of(key: str) -> str:
    """Return the fingerprint of the public key `key`, an id."""
    return _fingerprint(Ed25519PublicKey.from_public_bytes(ids.public_key(key)))


def authority(key: str) -> str:
    """Return a certificate (PEM) to trust, by which all certificates that the key `key` has signed are valid.

    TLS reads names, key and constraints of a trusted certificate, not its signature, which is by a constant
    key; so the certificate is the same each time.
    """
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
    public = Ed25519PublicKey.from_public_bytes(ids.public_key(key))
    builder = (
        x509.CertificateBuilder(name, name, public, 1, _BEGIN, _END)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )
    signed = builder.sign(Ed25519PrivateKey.from_private_bytes(bytes(32)), None)
    return signed.public_bytes(Encoding.PEM).decode("ascii")


def _new_key(path: Path) -> Ed25519PrivateKey:
    private = Ed25519PrivateKey.generate()
    text = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with file_errors(path):
        write_whole(path, text)
    return private


def _load_key(path: Path) -> Ed25519PrivateKey:
    with file_errors(path):
        data = path.read_bytes()
    with contextlib.suppress(ValueError, TypeError):
        private = load_pem_private_key(data, None)
        if isinstance(private, Ed25519PrivateKey):
            return private
    raise HearthNetError(
        "bad_request",
        f"{path} is damaged; put back a copy, or move it away: a new one is made, and homes that joined "
        "before need new invites",
    )


def _covers(path: Path, public: Ed25519PublicKey, names: tuple[str, ...]) -> bool:
    with contextlib.suppress(ValueError, OSError):
        found = x509.load_pem_x509_certificate(path.read_bytes())
        extension = found.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        is_wide = found.not_valid_before_utc <= _BEGIN and found.not_valid_after_utc >= _END
        return is_wide and found.public_key() == public and set(_subjects(names)) <= set(extension.value)
    return False


def _issue(private: Ed25519PrivateKey, names: tuple[str, ...]) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
    public = private.public_key()
    builder = (
        x509.CertificateBuilder(name, name, public, x509.random_serial_number(), _BEGIN, _END)
        # A CA for itself: those who trust this certificate also trust later ones made with this key.
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.SubjectAlternativeName(_subjects(names)), critical=False)
    )
    return builder.sign(private, None).public_bytes(Encoding.PEM)


def _subjects(names: tuple[str, ...]) -> list[x509.GeneralName]:
    found: list[x509.GeneralName] = []
    for name in names:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return found


def _fingerprint(public: Ed25519PublicKey) -> str:
    """Return the SHA-256 of the public key as in a certificate (SubjectPublicKeyInfo), in hex."""
    return hashlib.sha256(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()
