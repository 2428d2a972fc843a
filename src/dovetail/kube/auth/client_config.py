"""Finds the API server and our identity: from a kubeconfig as kubectl reads it, or from inside a pod.

Given a path, a context and the environment; returns a `Connection`. Every error is an `InputError` with the file, the
field and the next step. Never connects.
"""

from __future__ import annotations

import base64
import binascii
import os
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from dovetail import errors
from dovetail.files import small_files
from dovetail.kube.auth import credentials as credentials_
from dovetail.kube.auth import exec_plugin, kubeconfig

SERVICE_ACCOUNT_DIRECTORY: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
DEFAULT_NAMESPACE: Final = "default"


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """A server and the identity to use there. `authority` is PEM; empty means the system's authorities."""

    server: str
    authority: bytes = b""
    is_insecure: bool = False
    server_name: str = ""
    namespace: str = DEFAULT_NAMESPACE
    credentials: credentials_.Credentials = credentials_.Credentials()
    origin: str = ""

    def __repr__(self) -> str:
        return f"Connection(server={self.server!r}, origin={self.origin!r}, credentials={self.credentials!r})"


def load(
    path: str | None,
    *,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
    service_account: str = SERVICE_ACCOUNT_DIRECTORY,
) -> Connection:
    """The path if given, else the files of KUBECONFIG, else ~/.kube/config, else the pod we run in."""
    files = _files(path, environ)
    if files:
        return from_kubeconfig(kubeconfig.read(files), context=context)
    if context is not None:
        raise errors.InputError(
            f'there is no kubeconfig to take context "{context}" from; name one by --kubeconfig'
        )
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environ, directory=service_account)
    raise errors.InputError(
        "no cluster: there is no ~/.kube/config, KUBECONFIG is not set, and this is not a pod; "
        "name a kubeconfig with --kubeconfig"
    )


def in_cluster(
    environ: Mapping[str, str], *, directory: str = SERVICE_ACCOUNT_DIRECTORY
) -> Connection:
    """The API server of the pod we run in, as the pod's service account."""
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    port = environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise errors.InputError(
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must both be set inside a pod"
        )
    place = Path(directory)
    namespace = place / "namespace"
    token = place / "token"
    if not token.is_file():
        raise errors.InputError(
            f"{token}: no such file; the pod needs automountServiceAccountToken: true"
        )
    return Connection(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        authority=_content(place / "ca.crt", "the service account's authority"),
        namespace=namespace.read_text().strip() if namespace.is_file() else DEFAULT_NAMESPACE,
        credentials=credentials_.Credentials(token_file=str(token)),
        origin="the pod's service account",
    )


def from_kubeconfig(config: kubeconfig.Kubeconfig, *, context: str | None = None) -> Connection:
    """The connection of a context of a kubeconfig, by default of its current context."""
    chosen, name, file = _context(config, context)
    where = f'context "{name}"'
    if chosen.cluster not in config.clusters:
        raise errors.InputError(
            f'{file}: {where}: cluster "{chosen.cluster}" is not defined; {_known(config.clusters)}'
        )
    if chosen.user and chosen.user not in config.users:
        raise errors.InputError(
            f'{file}: {where}: user "{chosen.user}" is not defined; {_known(config.users)}'
        )
    cluster = _Cluster(*config.clusters[chosen.cluster], name=chosen.cluster)
    connection = cluster.connection(
        namespace=chosen.namespace or DEFAULT_NAMESPACE, origin=f"{file}, {where}"
    )
    if not chosen.user or connection.server.startswith("http://"):
        return connection  # as kubectl: credentials are never sent in clear text
    user = _User(*config.users[chosen.user], name=chosen.user)
    return msgspec.structs.replace(connection, credentials=user.credentials(cluster, connection))


def context_names(
    path: str | None = None, *, environ: Mapping[str, str] = os.environ
) -> tuple[str, ...]:
    """The contexts of the kubeconfig files that `load` would read."""
    return tuple(kubeconfig.read(_files(path, environ)).contexts)


def _files(path: str | None, environ: Mapping[str, str]) -> list[Path]:
    if path:
        return [Path(path)]
    if listed := _listed_files(environ.get("KUBECONFIG", "")):
        return listed
    home = environ.get("HOME", "")
    default = Path(home) / ".kube" / "config"
    return [default] if home and default.is_file() else []


def _listed_files(variable: str) -> list[Path]:
    """The files of KUBECONFIG. As with kubectl, some of the list may be missing."""
    parts = filter(None, variable.split(os.pathsep))
    paths = [Path(part) for part in parts]
    files = [path for path in paths if path.exists()]
    if paths and not files:
        raise errors.InputError(
            f"KUBECONFIG: none of its files exists: {', '.join(map(str, paths))}"
        )
    return files


def _context(
    config: kubeconfig.Kubeconfig, context_name: str | None
) -> tuple[kubeconfig.Context, str, Path]:
    first = config.files[0]
    name = context_name or config.current_context
    if not name:
        raise errors.InputError(
            f"{first}: current-context: is not set; name one with --context; {_known(config.contexts)}"
        )
    if name not in config.contexts:
        place = "--context" if context_name else "current-context"
        raise errors.InputError(
            f'{first}: {place}: there is no context "{name}"; {_known(config.contexts)}'
        )
    context, file = config.contexts[name]
    return context, name, file


class _Cluster:
    """One cluster entry and its place in the file."""

    def __init__(self, entry: kubeconfig.Cluster, file: Path, *, name: str) -> None:
        self.entry = entry
        self.place = _Place(file, f'cluster "{name}"')

    def connection(self, *, namespace: str, origin: str) -> Connection:
        entry = self.entry
        if entry.proxy_url:
            raise self.place.fault(
                "proxy-url", "proxies are not supported; reach the server directly and remove it"
            )
        authority = self.place.data_or_file(
            entry.certificate_authority_data,
            entry.certificate_authority,
            field="certificate-authority",
        )
        if authority and entry.insecure_skip_tls_verify:
            raise self.place.fault(
                "insecure-skip-tls-verify",
                "contradicts certificate-authority; remove one of the two",
            )
        return Connection(
            server=self._server(is_secure=bool(authority) or entry.insecure_skip_tls_verify),
            authority=authority,
            is_insecure=entry.insecure_skip_tls_verify,
            server_name=entry.tls_server_name,
            namespace=namespace,
            origin=origin,
        )

    def plugin_cluster_info(self, connection: Connection) -> bytes:
        """The cluster info that credential plugins may read."""
        cluster_info: dict[str, Any] = {"server": self.entry.server}
        if connection.server_name:
            cluster_info["tls-server-name"] = connection.server_name
        if connection.is_insecure:
            cluster_info["insecure-skip-tls-verify"] = True
        if connection.authority:
            cluster_info["certificate-authority-data"] = base64.b64encode(
                connection.authority
            ).decode()
        for extension in self.entry.extensions:
            if extension.name == f"{exec_plugin.GROUP}/exec":
                cluster_info["config"] = extension.extension
        return msgspec.json.encode(cluster_info)

    def _server(self, *, is_secure: bool) -> str:
        server = self.entry.server
        if not server:
            raise self.place.fault("server", "is required, for example https://10.0.0.1:6443")
        if "://" not in server:
            server = f"{'https' if is_secure else 'http'}://{server}"
        if not _is_server_address(server):
            raise self.place.fault(
                "server", f'"{self.entry.server}" is not the address of a server'
            )
        return server.rstrip("/")


def _is_server_address(server: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(server)
        port = parts.port
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        return False
    return not parts.query and not parts.fragment and parts.username is None


class _User:
    """One user entry and its place in the file."""

    def __init__(self, entry: kubeconfig.User, file: Path, *, name: str) -> None:
        self.entry = entry
        self.place = _Place(file, f'user "{name}"')

    def credentials(self, cluster: _Cluster, connection: Connection) -> credentials_.Credentials:
        self._check_contradictions()
        entry = self.entry
        certificate = self.place.decoded(
            entry.client_certificate_data, field="client-certificate-data"
        )
        key = self.place.decoded(entry.client_key_data, field="client-key-data")
        certificate_file = "" if certificate else self.place.resolved(entry.client_certificate)
        key_file = "" if key else self.place.resolved(entry.client_key)
        self._check_pair(
            has_certificate=bool(certificate or certificate_file), has_key=bool(key or key_file)
        )

        for field, file in (("client-certificate", certificate_file), ("client-key", key_file)):
            if file:
                self.place.readable(Path(file), field=field)
        token_file = self.place.resolved(entry.token_file)
        if token_file and not entry.token:
            self.place.readable(Path(token_file), field="tokenFile")

        return credentials_.Credentials(
            token=entry.token,
            token_file=token_file,
            username=entry.username,
            password=entry.password,
            certificate=certificate,
            key=key,
            certificate_file=certificate_file,
            key_file=key_file,
            plugin=self._plugin(cluster, connection) if entry.exec is not None else None,
            impersonation=self._impersonation(),
        )

    def _check_contradictions(self) -> None:
        entry = self.entry
        if entry.auth_provider is not None:
            raise self.place.fault(
                "auth-provider", "no longer exists in Kubernetes; use an exec plugin instead"
            )
        if (entry.token or entry.token_file) and (entry.username or entry.password):
            raise self.place.fault(
                "token", "contradicts username and password; remove one of the two"
            )

    def _check_pair(self, *, has_certificate: bool, has_key: bool) -> None:
        if has_certificate == has_key:
            return
        missing = "client-key" if has_certificate else "client-certificate"
        raise self.place.fault(
            missing, "is missing; a client certificate and its key are needed together"
        )

    def _plugin(self, cluster: _Cluster, connection: Connection) -> exec_plugin.Plugin:
        entry = self.entry.exec
        assert entry is not None
        self._check_plugin(entry)
        command = entry.command
        if os.sep in command:
            command = self.place.resolved(command)
        return exec_plugin.Plugin(
            command=command,
            api_version=entry.api_version,
            args=entry.args,
            environment=tuple((variable.name, variable.value) for variable in entry.env),
            install_hint=_plain(entry.install_hint),
            cluster=cluster.plugin_cluster_info(connection) if entry.provide_cluster_info else b"",
        )

    def _check_plugin(self, entry: kubeconfig.Exec) -> None:
        if not entry.command:
            raise self.place.fault("exec.command", "is required")
        if entry.api_version not in exec_plugin.API_VERSIONS:
            supported = " and ".join(exec_plugin.API_VERSIONS)
            raise self.place.fault(
                "exec.apiVersion",
                f'"{entry.api_version}" is not supported; {supported} are. Update the plugin',
            )

        modes = ("Never", "IfAvailable", "Always")
        needs_mode = bool(entry.interactive_mode) or entry.api_version.endswith("/v1")
        if needs_mode and entry.interactive_mode not in modes:
            raise self.place.fault("exec.interactiveMode", f"must be one of {', '.join(modes)}")
        if entry.interactive_mode == "Always":
            raise self.place.fault(
                "exec.interactiveMode",
                "Always needs a person at a terminal; use a plugin that works without",
            )
        if any(not variable.name for variable in entry.env):
            raise self.place.fault("exec.env", "a variable has no name")

    def _impersonation(self) -> tuple[credentials_.Header, ...]:
        entry = self.entry
        if not entry.as_user:
            if entry.as_uid or entry.as_groups or entry.as_user_extra:
                raise self.place.fault(
                    "as", "is required if as-uid, as-groups or as-user-extra is set"
                )
            return ()

        headers = [("Impersonate-User", entry.as_user)]
        if entry.as_uid:
            headers.append(("Impersonate-Uid", entry.as_uid))
        headers += [("Impersonate-Group", group) for group in entry.as_groups]
        for key, values in sorted(entry.as_user_extra.items()):
            name = f"Impersonate-Extra-{urllib.parse.quote(key, safe='')}"
            headers += [(name, value) for value in values]

        if not all(value.isprintable() for _, value in headers):
            raise self.place.fault("as", "holds characters that no header can carry")
        return tuple(headers)


class _Place:
    """An entry of a kubeconfig: resolves its relative paths and names it in errors."""

    def __init__(self, file: Path, entry: str) -> None:
        self._file = file
        self._entry = entry

    def fault(self, field: str, problem: str) -> errors.InputError:
        return errors.InputError(f"{self._file}: {self._entry}: {field}: {problem}")

    def resolved(self, path: str) -> str:
        """A path of the kubeconfig; relative ones start at its directory."""
        return str(self._file.absolute().parent / path) if path else ""

    def decoded(self, data: str, *, field: str) -> bytes:
        try:
            return base64.b64decode("".join(data.split()), validate=True)
        except (binascii.Error, ValueError):
            raise self.fault(
                field, "is not base64; encode the PEM text with `base64 -w0`"
            ) from None

    def readable(self, path: Path, *, field: str) -> bytes:
        try:
            return small_files.content(path)
        except (OSError, ValueError) as error:  # ValueError: a name with a NUL in it
            reason = getattr(error, "strerror", None) or error
            raise self.fault(field, f"{path}: cannot be read: {reason}") from None

    def data_or_file(self, data: str, path: str, *, field: str) -> bytes:
        if data:
            return self.decoded(data, field=f"{field}-data")
        return self.readable(Path(self.resolved(path)), field=field) if path else b""


def _content(path: Path, what: str) -> bytes:
    try:
        return small_files.content(path)
    except OSError as error:
        raise errors.InputError(
            f"{path}: {what} cannot be read: {error.strerror or error}"
        ) from None


def _plain(text: str) -> str:
    """Without control characters, which a hostile hint could use to repaint a terminal."""
    return "".join(letter for letter in text if letter.isprintable() or letter in "\n\t")


def _known(entries: Mapping[str, object]) -> str:
    return f"known: {', '.join(sorted(entries))}" if entries else "none are defined"
