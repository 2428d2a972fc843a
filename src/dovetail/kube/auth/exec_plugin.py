"""Runs a credential plugin of a kubeconfig (`client.authentication.k8s.io/v1`, `v1beta1`) and reads what it issues.

Given the plugin's configuration; returns a token, a client certificate, or both, and when they expire. The plugin runs
as a subprocess of the event loop, never with a terminal. Every error is `Unauthorised` with the next step. Never stores
credentials, never puts them into a message.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dovetail import timestamps
from dovetail.ports import failures

GROUP: Final = "client.authentication.k8s.io"
API_VERSIONS: Final = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
EXEC_INFO: Final = "KUBERNETES_EXEC_INFO"
TIMEOUT_SECONDS: Final = 60.0  # ours: a cloud's token service answers in a few seconds
_MAX_COMPLAINT: Final = 400  # characters of a plugin's stderr that a message repeats


class Plugin(msgspec.Struct, frozen=True, kw_only=True):
    """The command to run. `cluster` is the cluster info for the plugin as JSON, empty if it gets none."""

    command: str
    api_version: str
    args: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    install_hint: str = ""
    cluster: bytes = b""

    def __repr__(self) -> str:
        return f"Plugin(command={self.command!r}, api_version={self.api_version!r})"  # arguments may hold secrets


class Issued(msgspec.Struct, frozen=True, kw_only=True):
    """Credentials from a plugin. `expires` is in seconds since the epoch; None if the plugin set none."""

    token: str = ""
    certificate: bytes = b""
    key: bytes = b""
    expires: float | None = None

    def __repr__(self) -> str:
        return f"Issued(expires={self.expires!r})"


class _Status(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: str | None = None


class _Credential(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


async def issue(
    plugin: Plugin, *, environ: Mapping[str, str] = os.environ, timeout: float = TIMEOUT_SECONDS
) -> Issued:
    """Runs the plugin once. Cancellation and the timeout kill the plugin and its children."""
    surroundings = {**environ, **dict(plugin.environment), EXEC_INFO: exec_info(plugin)}
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.args,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=surroundings,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise failures.Unauthorised(_missing(plugin)) from None
    except OSError as error:
        raise failures.Unauthorised(
            f"{_named(plugin)} cannot be started: {error.strerror or error}"
        ) from None
    output, complaint = await _finished(plugin, process, timeout=timeout)
    if process.returncode:
        message = (
            complaint.decode(errors="replace").strip()[-_MAX_COMPLAINT:] or "nothing on stderr"
        )
        raise failures.Unauthorised(
            f"{_named(plugin)} ended with code {process.returncode}: {message}"
        )
    return read(plugin, output)


def exec_info(plugin: Plugin) -> str:
    """The KUBERNETES_EXEC_INFO of a plugin: API version, no terminal, and the cluster if it is provided."""
    spec: dict[str, Any] = {"interactive": False}
    if plugin.cluster:
        spec["cluster"] = msgspec.Raw(plugin.cluster)
    return msgspec.json.encode(
        {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    ).decode()


def read(plugin: Plugin, output: bytes) -> Issued:
    """Reads the ExecCredential that a plugin printed."""
    try:
        credential = msgspec.json.decode(output, type=_Credential)
    except (msgspec.DecodeError, UnicodeDecodeError):  # their messages could repeat the output
        raise failures.Unauthorised(
            f"{_named(plugin)} printed something that is not an ExecCredential"
        ) from None
    if credential.kind != "ExecCredential" or credential.api_version != plugin.api_version:
        answer_kind = f"{credential.api_version or 'no apiVersion'} {credential.kind or 'no kind'}"
        raise failures.Unauthorised(
            f"{_named(plugin)} printed {answer_kind}; the kubeconfig expects {plugin.api_version} ExecCredential"
        )

    status = credential.status or _Status()
    certificate = status.client_certificate_data or ""
    key = status.client_key_data or ""
    if bool(certificate) != bool(key):
        raise failures.Unauthorised(
            f"{_named(plugin)} printed a certificate or a key alone; both are needed"
        )
    if not status.token and not certificate:
        raise failures.Unauthorised(f"{_named(plugin)} printed neither a token nor a certificate")
    return Issued(
        token=status.token or "",
        certificate=certificate.encode(),
        key=key.encode(),
        expires=_instant(plugin, status.expiration_timestamp),
    )


async def _finished(
    plugin: Plugin, process: asyncio.subprocess.Process, *, timeout: float
) -> tuple[bytes, bytes]:
    try:
        async with asyncio.timeout(timeout):
            return await process.communicate()
    except TimeoutError:
        raise failures.Unauthorised(f"{_named(plugin)} did not end within {timeout:g} s") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its own session, so its children go too
            await process.communicate()


def _instant(plugin: Plugin, text: str | None) -> float | None:
    if not text:
        return None
    try:
        instant = timestamps.parse_as_utc(text)
    except ValueError:
        raise failures.Unauthorised(
            f"{_named(plugin)} printed an expirationTimestamp that is not a time"
        ) from None
    return instant.timestamp()


def _missing(plugin: Plugin) -> str:
    hint = plugin.install_hint.strip()
    return f"{_named(plugin)} is not installed or not on PATH" + (f"\n{hint}" if hint else "")


def _named(plugin: Plugin) -> str:
    return f'credential plugin "{plugin.command}"'
