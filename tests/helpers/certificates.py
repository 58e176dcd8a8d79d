"""Certificates for gateways of tests."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certificate(folder: Path, days: tuple[int, int] = (-1, 1)) -> str:
    """A PEM file with a key and its own certificate for kitchen.example, valid between `days` from now."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kitchen.example")])
    now = datetime.datetime.now(datetime.UTC)
    begin, end = (now + datetime.timedelta(day) for day in days)
    found = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, begin, end)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("kitchen.example")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / "gateway.pem"
    path.write_bytes(private + found.public_bytes(serialization.Encoding.PEM))
    return str(path)
