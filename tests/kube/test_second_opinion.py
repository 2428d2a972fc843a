"""The same kubeconfig means the same to us, to the official Python client and to kubectl."""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import yaml
from kubernetes import client as official
from kubernetes import config as official_config

from dovetail.devcluster import certificates
from dovetail.kube.auth import client_config, credentials
from tests.support import cluster, real

EXEC_VERSIONS = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"]


class Meaning(NamedTuple):
    """What a kubeconfig comes down to."""

    server: str
    authority: bytes
    certificate: bytes
    key: bytes
    authorization: str
    is_insecure: bool
    server_name: str


def ours(path: str, context: str | None = None) -> Meaning:
    connection = client_config.load(
        path if ":" not in path else None,
        context=context,
        environ={**os.environ, "KUBECONFIG": path},
    )
    identity = asyncio.run(credentials.Source(connection.credentials).current())
    return Meaning(
        server=connection.server,
        authority=connection.authority,
        certificate=identity.certificate,
        key=identity.key,
        authorization=dict(identity.headers).get("Authorization", ""),
        is_insecure=connection.is_insecure,
        server_name=connection.server_name,
    )


def theirs(path: str, context: str | None = None) -> Meaning:
    made = official.Configuration()
    official_config.load_kube_config(
        config_file=path, context=context, client_configuration=made, persist_config=False
    )
    return Meaning(
        server=made.host,
        authority=_read(made.ssl_ca_cert),
        certificate=_read(made.cert_file),
        key=_read(made.key_file),
        authorization=made.api_key.get("BearerToken", ""),
        is_insecure=not made.verify_ssl,
        server_name=made.tls_server_name or "",
    )


def kubectls(plane_kubectl: Path, path: str, context: str | None = None) -> dict[str, Any]:
    """The one cluster, user and context kubectl would use, with every file written out."""
    chosen = ["--context", context] if context else []
    done = subprocess.run(
        [plane_kubectl, "config", "view", "--raw", "--minify", "--flatten", "-o", "json", *chosen],
        env={**os.environ, "KUBECONFIG": path},
        check=True,
        capture_output=True,
    )
    tree = msgspec.json.decode(done.stdout)
    return {
        "cluster": tree["clusters"][0]["cluster"],
        "user": tree["users"][0]["user"],
        "context": tree["contexts"][0]["context"],
    }


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with ca.crt, me.crt, me.key and a token."""
    directory = tmp_path_factory.mktemp("keys")
    try:
        pair = certificates.Authority(directory).client("me")
    except certificates.OpensslMissing as missing:
        real.missing(str(missing))
    (directory / "me.crt").write_bytes(pair.certificate.read_bytes())
    (directory / "me.key").write_bytes(pair.key.read_bytes())
    (directory / "token").write_text("from-a-file")
    return directory


def users(keys: Path) -> dict[str, dict[str, Any]]:
    """A user of each sort."""
    result: dict[str, dict[str, Any]] = {
        "token": {"token": "secret"},
        "token-file": {"tokenFile": "token"},
        "absolute-token-file": {"tokenFile": str(keys / "token")},
        "certificate-files": {"client-certificate": "me.crt", "client-key": "me.key"},
        "certificate-data": {
            "client-certificate-data": _data(keys / "me.crt"),
            "client-key-data": _data(keys / "me.key"),
        },
        "password": {"username": "ann", "password": "word"},
        "certificate-and-token": {
            "token": "t",
            "client-certificate": "me.crt",
            "client-key": "me.key",
        },
        "nobody": {},
    }
    for version in EXEC_VERSIONS:
        short = version.rpartition("/")[2]
        common = {"apiVersion": version, "interactiveMode": "Never", "command": "./plugin"}
        result[f"exec-{short}"] = {
            "exec": {**common, "args": ["token", version], "env": [{"name": "WHO", "value": "ann"}]}
        }
        result[f"exec-{short}-certificate"] = {
            "exec": {**common, "args": ["certificate", version], "env": None}
        }
        result[f"exec-{short}-cluster"] = {
            "exec": {**common, "args": ["cluster", version], "provideClusterInfo": True}
        }
    return result


PLUGIN = r"""#!/bin/sh
server() { printf %s "$KUBERNETES_EXEC_INFO" | tr -d '\n ' | sed 's/.*"server":"\([^"]*\)".*/\1/'; }
case "$1" in
token) status='"token": "for-'$WHO'"' ;;
cluster) status='"token": "'$(server)'"' ;;
certificate) status='"clientCertificateData": "C", "clientKeyData": "K"' ;;
esac
echo '{"apiVersion": "'$2'", "kind": "ExecCredential", "status": {'$status'}}'
"""


@pytest.fixture(scope="module")
def kubeconfig(keys: Path) -> Path:
    """A kubeconfig with a context for every pair of cluster and user."""
    (keys / "plugin").write_text(PLUGIN)
    (keys / "plugin").chmod(0o755)
    clusters = {
        "file": {"server": "https://10.0.0.1:6443/", "certificate-authority": "ca.crt"},
        "data": {
            "server": "https://10.0.0.2/prefix",
            "certificate-authority-data": _data(keys / "ca.crt"),
        },
        "insecure": {
            "server": "https://10.0.0.3",
            "insecure-skip-tls-verify": True,
            "tls-server-name": "api",
        },
    }
    given = users(keys)
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "data.token",
        "clusters": [{"name": name, "cluster": entry} for name, entry in clusters.items()],
        "users": [{"name": name, "user": entry} for name, entry in given.items()],
        "contexts": [
            {"name": f"{item}.{other}", "context": {"cluster": item, "user": other}}
            for item in clusters
            for other in given
        ],
    }
    path = keys / "config"
    path.write_text(yaml.safe_dump(content))
    return path


def contexts(kubeconfig: Path) -> list[str]:
    return [entry["name"] for entry in yaml.safe_load(kubeconfig.read_text())["contexts"]]


def test_every_context_means_the_same_as_to_the_official_client(kubeconfig: Path) -> None:
    for context in contexts(kubeconfig):
        assert ours(str(kubeconfig), context) == theirs(str(kubeconfig), context), context
    assert ours(str(kubeconfig)) == theirs(str(kubeconfig))
    authorization = ours(str(kubeconfig), "file.exec-v1-cluster").authorization
    assert authorization == "Bearer https://10.0.0.1:6443/", "the plugin did not get the cluster"


def test_merged_files_mean_the_same_as_to_the_official_client(
    kubeconfig: Path, tmp_path: Path
) -> None:
    """Which current-context counts is left out: the official client takes the last, kubectl and we the first."""
    path = f"{_overriding(tmp_path)}:{tmp_path / 'absent'}:{kubeconfig}"
    for context in contexts(kubeconfig):
        assert ours(path, context) == theirs(path, context), context
    assert ours(path, "data.token").authorization == "Bearer overridden"


@pytest.mark.slow
def test_merged_files_mean_the_same_as_to_kubectl(kubeconfig: Path, tmp_path: Path) -> None:
    kubectl = cluster.parts().kubectl
    override = _overriding(tmp_path)
    for path in (
        f"{override}:{kubeconfig}",
        f"{kubeconfig}:{override}",
        f"{tmp_path / 'absent'}::{kubeconfig}",
    ):
        for context in [
            None,
            "data.token",
            "file.certificate-files",
            "insecure.token-file",
            "data.certificate-data",
        ]:
            seen, messages = ours(path, context), kubectls(kubectl, path, context)
            assert seen.server == messages["cluster"]["server"].rstrip("/")
            assert seen.authority == _decoded(messages["cluster"], "certificate-authority-data")
            assert seen.is_insecure == messages["cluster"].get("insecure-skip-tls-verify", False)
            assert seen.server_name == messages["cluster"].get("tls-server-name", "")
            assert seen.certificate == _decoded(messages["user"], "client-certificate-data")
            assert seen.key == _decoded(messages["user"], "client-key-data")
            if token := messages["user"].get("token"):
                assert seen.authorization == f"Bearer {token}"
            connection = client_config.load(None, context=context, environ={"KUBECONFIG": path})
            assert connection.namespace == messages["context"].get("namespace", "default")


def _overriding(directory: Path) -> Path:
    content = {
        "current-context": "file.token",
        "users": [{"name": "token", "user": {"token": "overridden"}}],
        "contexts": [
            {
                "name": "data.token",
                "context": {"cluster": "data", "user": "token", "namespace": "elsewhere"},
            },
        ],
    }
    path = directory / "override"
    path.write_text(yaml.safe_dump(content))
    return path


def _data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _decoded(tree: dict[str, Any], field: str) -> bytes:
    return base64.b64decode(tree.get(field, ""))


def _read(path: str | None) -> bytes:
    return Path(path).read_bytes() if path else b""
