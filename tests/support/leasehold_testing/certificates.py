"""Certificates of this machine that sign themselves."""

from __future__ import annotations

import datetime as dt
import ipaddress
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path


def write_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Make a private key and write it to a file."""
    key = ec.generate_private_key(ec.SECP256R1())
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return key


def write_certificate(
    path: Path, key: ec.EllipticCurvePrivateKey, *, for_s: float = 30 * 86_400.0
) -> None:
    """Write a certificate of ``localhost`` and 127.0.0.1, valid for so long, to a file."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    places = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(seconds=for_s))
        .add_extension(x509.SubjectAlternativeName(places), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    new = path.with_name(f"{path.name}.new")  # another file, as after a renewal
    new.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    new.replace(path)
