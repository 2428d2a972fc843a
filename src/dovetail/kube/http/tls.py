"""TLS contexts: the authorities we trust, the certificate we present. TLS 1.2 at least.

Given a connection and an identity; returns a context for new connections. Inline private keys never stay on disk.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator

from dovetail import errors
from dovetail.kube.auth import client_config, credentials


def context(connection: client_config.Connection, identity: credentials.Identity) -> ssl.SSLContext:
    """A context that verifies the server by the connection's authority and presents the identity's certificate."""
    ssl_context = _trusting(connection)
    if identity.certificate:
        _show(ssl_context, identity, origin=connection.origin)
    return ssl_context


def _trusting(connection: client_config.Connection) -> ssl.SSLContext:
    if not connection.authority:
        ssl_context = ssl.create_default_context()
    else:
        try:
            ssl_context = ssl.create_default_context(cadata=connection.authority.decode("ascii"))
        except (ssl.SSLError, ValueError):
            raise errors.InputError(
                f"{connection.origin}: the certificate authority is not PEM text"
            ) from None
        # As in Go: every listed certificate is trusted, also intermediates and old authorities without key ids.
        ssl_context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        ssl_context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    ssl_context.minimum_version = ssl.TLSVersion.TLSv1_2
    if connection.is_insecure:
        ssl_context.check_hostname = False
        ssl_context.verify_mode = ssl.CERT_NONE
    return ssl_context


def _show(ssl_context: ssl.SSLContext, identity: credentials.Identity, *, origin: str) -> None:
    try:
        with _as_file(identity.certificate) as certificate, _as_file(identity.key) as key:
            ssl_context.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise errors.InputError(
            f"{origin}: the client certificate and key cannot be used ({_reason(error)}); "
            "both must be PEM, belong together, and the key must not be encrypted"
        ) from None


def _no_password() -> str:
    return ""  # otherwise OpenSSL would prompt on the terminal


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or type(error).__name__


@contextlib.contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """A path for OpenSSL: a file in memory if the system has that, else a private file that is deleted afterwards."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("pem"), "wb", buffering=0) as file:
            file.write(data)
            yield f"/proc/self/fd/{file.fileno()}"
        return
    with tempfile.NamedTemporaryFile() as temporary:
        temporary.write(data)
        temporary.flush()
        yield temporary.name
