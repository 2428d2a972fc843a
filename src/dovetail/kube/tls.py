"""The TLS side of a connection: whom we trust, which certificate we show. TLS 1.2 at least.

Given a connection and an identity; answers a context for new connections. Private keys given inline never stay on disk.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator

from dovetail import errors
from dovetail.kube import config, credentials


def context(connection: config.Connection, identity: credentials.Identity) -> ssl.SSLContext:
    """Checks the server against the connection's authority and shows the identity's certificate."""
    made = _trusting(connection)
    if identity.certificate:
        _show(made, identity, origin=connection.origin)
    return made


def _trusting(connection: config.Connection) -> ssl.SSLContext:
    if not connection.authority:
        made = ssl.create_default_context()
    else:
        try:
            made = ssl.create_default_context(cadata=connection.authority.decode("ascii"))
        except (ssl.SSLError, ValueError):
            raise errors.InputError(f"{connection.origin}: the certificate authority is not PEM text") from None
        # As Go: whatever is listed is trusted, even an intermediate, and old authorities without key ids are fine.
        made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        made.verify_flags &= ~ssl.VERIFY_X509_STRICT
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    if connection.is_insecure:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    return made


def _show(made: ssl.SSLContext, identity: credentials.Identity, *, origin: str) -> None:
    try:
        with _as_file(identity.certificate) as certificate, _as_file(identity.key) as key:
            made.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise errors.InputError(
            f"{origin}: the client certificate and key cannot be used ({_reason(error)}); "
            "both must be PEM, belong together, and the key must not be encrypted"
        ) from None


def _no_password() -> str:
    return ""  # OpenSSL would ask the terminal otherwise


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or type(error).__name__


@contextlib.contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """A path OpenSSL can open once: memory where the system has that, else a private file that is gone afterwards."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("pem"), "wb", buffering=0) as file:
            file.write(data)
            yield f"/proc/self/fd/{file.fileno()}"
        return
    with tempfile.NamedTemporaryFile() as named:
        named.write(data)
        named.flush()
        yield named.name
