"""Makes and keeps the certificate of the server on loopback.

kubectl sends a token over TLS only, so the server needs a key and a certificate that its kubeconfig vouches for: one
self-signed P-256 certificate, made once per state directory. The key can be read by its owner alone. Never signs
anything else.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
from pathlib import Path
from typing import Final, NamedTuple

NAME: Final = "dovetail-loopback"
ADDRESSES: Final = ("127.0.0.1", "::1")
VALID_DAYS: Final = 3650
_RENEW: Final = datetime.timedelta(days=30)


class Files(NamedTuple):
    """A certificate and its key, both PEM files."""

    certificate: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """What a server needs for TLS."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.certificate, self.key)
        return context


def kept_in(directory: Path, now: datetime.datetime) -> Files:
    """The certificate of a directory; a new one if there is none or it ends soon."""
    files = Files(directory / "server.crt", directory / "server.key")
    if not _is_valid(files, now):
        certificate, key = made(now)
        _write(files.key, key)
        _write(files.certificate, certificate)
    return files


def made(now: datetime.datetime) -> tuple[bytes, bytes]:
    """A new certificate and its key, PEM."""
    # Only the first start in a state directory needs these, and importing them takes a while.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509 import oid

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, NAME)])
    addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in ADDRESSES]
    alternative_names = x509.SubjectAlternativeName([x509.DNSName("localhost"), *addresses])
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    server_auth = x509.ExtendedKeyUsage([oid.ExtendedKeyUsageOID.SERVER_AUTH])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(server_auth, critical=False)
        .add_extension(identifier, critical=False)
        .add_extension(alternative_names, critical=False)
    )
    certificate = builder.sign(key, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return certificate.public_bytes(serialization.Encoding.PEM), private


def _is_valid(files: Files, now: datetime.datetime) -> bool:
    try:
        context = files.context()
        context.load_verify_locations(files.certificate)
    except (OSError, ssl.SSLError):
        return False
    [known] = context.get_ca_certs()
    ends = ssl.cert_time_to_seconds(str(known["notAfter"]))
    return ends > (now + _RENEW).timestamp()


def _write(path: Path, content: bytes) -> None:
    """Replaces a file that only its owner may read."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    os.replace(temporary, path)
