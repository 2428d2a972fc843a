"""Makes and keeps the certificate of the server on loopback, without any program or package but Python.

kubectl sends a token over TLS only, so the server needs a key and a certificate that its kubeconfig vouches for: one
self-signed certificate for P-256, made once per state directory. The key can be read by its owner alone. The arithmetic
is not constant-time: it runs once, on the machine whose user owns the key. Never signs anything else.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import ipaddress
import os
import secrets
import ssl
from pathlib import Path
from typing import Final, NamedTuple

NAME: Final = "dovetail-loopback"
ADDRESSES: Final = ("127.0.0.1", "::1")
YEARS: Final = 10
_RENEW: Final = datetime.timedelta(days=30)

# NIST P-256 (FIPS 186-5, SP 800-186)
_P: Final = 2**256 - 2**224 + 2**192 + 2**96 - 1
_N: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_A: Final = _P - 3
_G: Final = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)

# Object identifiers, already encoded.
_EC_KEY: Final = bytes.fromhex("06072a8648ce3d0201")  # id-ecPublicKey
_CURVE: Final = bytes.fromhex("06082a8648ce3d030107")  # prime256v1
_SIGNATURE: Final = bytes.fromhex("06082a8648ce3d040302")  # ecdsa-with-SHA256
_COMMON_NAME: Final = bytes.fromhex("0603550403")
_BASIC_CONSTRAINTS: Final = bytes.fromhex("0603551d13")
_KEY_USAGE: Final = bytes.fromhex("0603551d0f")
_EXTENDED_USAGE: Final = bytes.fromhex("0603551d25")
_SERVER_AUTH: Final = bytes.fromhex("06082b06010505070301")
_ALTERNATIVE_NAMES: Final = bytes.fromhex("0603551d11")
_KEY_IDENTIFIER: Final = bytes.fromhex("0603551d0e")
_TRUE: Final = bytes.fromhex("0101ff")

_Point = tuple[int, int] | None


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
        certificate, key = new_pair(now)
        _write(files.key, key)
        _write(files.certificate, certificate)
    return files


def new_pair(now: datetime.datetime) -> tuple[bytes, bytes]:
    """A new certificate and its key, PEM."""
    secret = secrets.randbelow(_N - 1) + 1
    point = _times(secret, _G)
    assert point is not None
    public = b"\x04" + _octets(point[0]) + _octets(point[1])
    body = _to_be_signed(public, now)
    signed = _sequence(body, _sequence(_SIGNATURE), _bits(_signature(secret, body)))
    return _pem("CERTIFICATE", signed), _pem("EC PRIVATE KEY", _private_key(secret, public))


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


# The certificate (RFC 5280)


def _to_be_signed(public: bytes, now: datetime.datetime) -> bytes:
    name = _sequence(_set(_sequence(_COMMON_NAME, _part(0x0C, NAME.encode()))))
    begins = now - datetime.timedelta(hours=1)
    ends = now + datetime.timedelta(days=365 * YEARS)
    return _sequence(
        _part(0xA0, _integer(2)),  # version 3
        _integer(secrets.randbits(120) | 1 << 120),
        _sequence(_SIGNATURE),
        name,
        _sequence(_time(begins), _time(ends)),
        name,
        _sequence(_sequence(_EC_KEY, _CURVE), _bits(public)),
        _part(0xA3, _sequence(*_extensions(public))),
    )


def _extensions(public: bytes) -> list[bytes]:
    addresses = [_part(0x87, ipaddress.ip_address(address).packed) for address in ADDRESSES]
    names = _sequence(_part(0x82, b"localhost"), *addresses)
    usage = bytes.fromhex("03020284")  # digitalSignature, keyCertSign
    identifier = _part(0x04, hashlib.sha256(public).digest()[:20])
    return [
        _sequence(_BASIC_CONSTRAINTS, _TRUE, _part(0x04, _sequence(_TRUE))),
        _sequence(_KEY_USAGE, _TRUE, _part(0x04, usage)),
        _sequence(_EXTENDED_USAGE, _part(0x04, _sequence(_SERVER_AUTH))),
        _sequence(_KEY_IDENTIFIER, _part(0x04, identifier)),
        _sequence(_ALTERNATIVE_NAMES, _part(0x04, names)),
    ]


def _private_key(secret: int, public: bytes) -> bytes:
    """RFC 5915."""
    return _sequence(
        _integer(1),
        _part(0x04, _octets(secret)),
        _part(0xA0, _CURVE),
        _part(0xA1, _bits(public)),
    )


def _time(moment: datetime.datetime) -> bytes:
    text = moment.astimezone(datetime.UTC).strftime("%y%m%d%H%M%SZ")
    return _part(0x17, text.encode())


def _pem(label: str, content: bytes) -> bytes:
    text = base64.encodebytes(content).replace(b"\n", b"")
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    marks = (f"-----BEGIN {label}-----".encode(), f"-----END {label}-----".encode())
    return b"\n".join([marks[0], *lines, marks[1], b""])


# DER


def _part(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    octets = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(octets)]) + octets + content


def _sequence(*parts: bytes) -> bytes:
    return _part(0x30, b"".join(parts))


def _set(*parts: bytes) -> bytes:
    return _part(0x31, b"".join(parts))


def _integer(value: int) -> bytes:
    return _part(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _bits(content: bytes) -> bytes:
    return _part(0x03, b"\x00" + content)


def _octets(value: int) -> bytes:
    return value.to_bytes(32, "big")


# The curve


def _signature(secret: int, message: bytes) -> bytes:
    """ECDSA with SHA-256."""
    digest = int.from_bytes(hashlib.sha256(message).digest(), "big")
    while True:
        nonce = secrets.randbelow(_N - 1) + 1
        point = _times(nonce, _G)
        assert point is not None
        first = point[0] % _N
        second = pow(nonce, -1, _N) * (digest + first * secret) % _N
        if first and second:
            return _sequence(_integer(first), _integer(second))


def _times(factor: int, point: _Point) -> _Point:
    result: _Point = None
    while factor:
        if factor & 1:
            result = _plus(result, point)
        point = _plus(point, point)
        factor >>= 1
    return result


def _plus(left: _Point, right: _Point) -> _Point:
    if left is None:
        return right
    if right is None:
        return left
    (x1, y1), (x2, y2) = left, right
    if x1 == x2 and (y1 + y2) % _P == 0:
        return None
    if left == right:
        slope = (3 * x1 * x1 + _A) * pow(2 * y1, -1, _P) % _P
    else:
        slope = (y2 - y1) * pow(x2 - x1, -1, _P) % _P
    x3 = (slope * slope - x1 - x2) % _P
    return x3, (slope * (x1 - x3) - y1) % _P
