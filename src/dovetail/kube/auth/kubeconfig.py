"""The kubeconfig format: one file read into structs, several merged as kubectl merges them.

Given paths; returns clusters, users and contexts, each with its file, because relative paths start there. Every error
names the file and the field. Never connects, never opens the files it refers to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from dovetail import errors


class ExecVariable(msgspec.Struct, frozen=True):
    """One environment variable of a credential plugin."""

    name: str = ""
    value: str = ""


class Exec(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A credential plugin as configured."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[ExecVariable, ...] = ()
    api_version: str = ""
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class Extension(msgspec.Struct, frozen=True):
    """Data that a tool stored with a cluster."""

    name: str = ""
    extension: Any = None


class Cluster(msgspec.Struct, frozen=True, rename="kebab", kw_only=True):
    """A server's address and certificate authority."""

    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: str = ""
    extensions: tuple[Extension, ...] = ()


class User(msgspec.Struct, frozen=True, rename="kebab", kw_only=True):
    """Credentials for a server."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    as_user: str = msgspec.field(default="", name="as")
    as_uid: str = ""
    as_groups: tuple[str, ...] = ()
    as_user_extra: dict[str, tuple[str, ...]] = {}
    auth_provider: Any = None
    exec: Exec | None = None

    def __repr__(self) -> str:
        return "User(...)"


class Context(msgspec.Struct, frozen=True):
    """A cluster, a user and a namespace that go together."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str = ""
    cluster: Cluster = Cluster()


class _NamedUser(msgspec.Struct, frozen=True):
    name: str = ""
    user: User = User()


class _NamedContext(msgspec.Struct, frozen=True):
    name: str = ""
    context: Context = Context()


class _Document(msgspec.Struct, frozen=True, rename="kebab"):
    clusters: tuple[_NamedCluster, ...] = ()
    users: tuple[_NamedUser, ...] = ()
    contexts: tuple[_NamedContext, ...] = ()
    current_context: str = ""


T = TypeVar("T")
Origin = tuple[T, Path]  # an entry and the file it came from


class Kubeconfig(msgspec.Struct, frozen=True):
    """One or several files, merged. Of entries with the same name, the first file's is used as a whole."""

    files: tuple[Path, ...]
    clusters: dict[str, Origin[Cluster]]
    users: dict[str, Origin[User]]
    contexts: dict[str, Origin[Context]]
    current_context: str


def read(paths: Sequence[Path]) -> Kubeconfig:
    """Merges the files, the first one winning. All of them must exist."""
    clusters: dict[str, Origin[Cluster]] = {}
    users: dict[str, Origin[User]] = {}
    contexts: dict[str, Origin[Context]] = {}
    current = ""
    for path in paths:
        document = _document(path)
        _merge(
            clusters,
            [(entry.name, entry.cluster) for entry in document.clusters],
            path=path,
            field="clusters",
        )
        _merge(
            users, [(entry.name, entry.user) for entry in document.users], path=path, field="users"
        )
        _merge(
            contexts,
            [(entry.name, entry.context) for entry in document.contexts],
            path=path,
            field="contexts",
        )
        current = current or document.current_context
    return Kubeconfig(tuple(paths), clusters, users, contexts, current)


def _merge(
    merged: dict[str, Origin[T]], entries: list[tuple[str, T]], *, path: Path, field: str
) -> None:
    names = set()
    for index, (name, entry) in enumerate(entries):
        if name in names:
            raise errors.InputError(
                f'{path}: {field}[{index}].name: "{name}" is there twice; remove one'
            )
        names.add(name)
        merged.setdefault(name, (entry, path))


_MAX_BYTES: Final = 16 * 1024 * 1024  # ours; a kubeconfig is a few kilobytes per cluster


def _document(path: Path) -> _Document:
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise errors.InputError(
            f"{path}: no such file; name a kubeconfig by --kubeconfig or KUBECONFIG"
        ) from None
    except OSError as error:
        raise errors.InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(text) > _MAX_BYTES:
        raise errors.InputError(
            f"{path}: larger than {_MAX_BYTES >> 20} MiB; is it really a kubeconfig?"
        )
    if text.startswith(b"{"):
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return _fitted(path, msgspec.json.decode(text))  # in a tenth of the time
    from dovetail.manifest import yaml_text

    try:
        documents = list(yaml_text.documents(text.decode()))
    except UnicodeDecodeError:
        raise errors.InputError(f"{path}: not text; is it really a kubeconfig?") from None
    except yaml_text.TextError as error:
        raise errors.InputError(f"{path}: {error}") from None
    if len(documents) > 1:
        raise errors.InputError(
            f"{path}: line {documents[1].line}: a kubeconfig is one document; remove the others"
        )
    return _fitted(path, documents[0].tree if documents else {})


def _fitted(path: Path, tree: object) -> _Document:
    if not isinstance(tree, dict):
        raise errors.InputError(f"{path}: expected a mapping with clusters, users and contexts")
    try:
        return msgspec.convert(_without_nulls(tree), _Document)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        field = where.removesuffix("`")
        raise errors.InputError(
            f"{path}: {field}: {what}" if field else f"{path}: {what}"
        ) from None


def _without_nulls(tree: Any) -> Any:
    """Kubernetes reads null as absent."""
    if isinstance(tree, dict):
        return {key: _without_nulls(value) for key, value in tree.items() if value is not None}
    if isinstance(tree, list):
        return [_without_nulls(item) for item in tree]
    return tree
