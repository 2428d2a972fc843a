"""Writes a kubeconfig file for the server on loopback, and makes its token.

Given a path, an address and a token; the file can be read by its owner alone and is replaced in one step. Never
changes a kubeconfig that holds anything else: the caller names a file of its own.
"""

from __future__ import annotations

import base64
import os
import secrets
from pathlib import Path
from typing import Final

import msgspec

NAME: Final = "dovetail"  # of the cluster, the user and the context


def new_token() -> str:
    """A token that cannot be guessed."""
    return secrets.token_urlsafe(32)


def write(
    path: Path, *, server: str, token: str, certificate: Path, namespace: str = "default"
) -> None:
    """Writes the file, mode 0600. JSON is YAML, so kubectl and our own client read it."""
    authority = base64.b64encode(certificate.read_bytes()).decode()
    cluster = {"server": server, "certificate-authority-data": authority}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": cluster}],
        "users": [{"name": NAME, "user": {"token": token}}],
        "contexts": [
            {"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": namespace}}
        ],
        "current-context": NAME,
    }
    content = msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n"
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    os.replace(temporary, path)
