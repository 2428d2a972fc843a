"""Kubeconfigs and pods become connections; faults name the file, the field and what to do."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from dovetail import errors
from dovetail.kube.auth import client_config

CA = b"-----BEGIN CERTIFICATE-----\nauthority\n-----END CERTIFICATE-----\n"


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def tree(
    *,
    cluster: dict[str, Any] | None = None,
    user: dict[str, Any] | None = None,
    context: dict[str, Any] | None = None,
    name: str = "here",
) -> dict[str, Any]:
    """A kubeconfig of one cluster, user and context of one name."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": name, "cluster": {"server": "https://10.0.0.1:6443", **(cluster or {})}}
        ],
        "users": [{"name": name, "user": user or {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, **(context or {})}}],
        "current-context": name,
    }


def written(path: Path, content: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return path


def load(
    tmp_path: Path, content: dict[str, Any], *, context: str | None = None
) -> client_config.Connection:
    return client_config.load(
        str(written(tmp_path / "config", content)), context=context, environ={}
    )


def fault(tmp_path: Path, content: dict[str, Any], *, context: str | None = None) -> str:
    """What is said about it, without the path of the file it must begin with."""
    with pytest.raises(errors.InputError) as caught:
        load(tmp_path, content, context=context)
    messages = str(caught.value)
    assert messages.startswith(f"{tmp_path / 'config'}: ")
    return messages.removeprefix(f"{tmp_path / 'config'}: ")


def test_a_plain_kubeconfig(tmp_path: Path) -> None:
    connection = load(
        tmp_path,
        tree(
            cluster={"certificate-authority-data": encoded(CA), "tls-server-name": "api.example"},
            user={"token": "secret"},
            context={"namespace": "team"},
        ),
    )
    assert connection.server == "https://10.0.0.1:6443"
    assert connection.authority == CA
    assert connection.server_name == "api.example"
    assert connection.namespace == "team"
    assert connection.credentials.token == "secret"
    assert not connection.is_insecure
    assert connection.origin == f'{tmp_path / "config"}, context "here"'


def test_files_count_from_the_kubeconfig_and_data_beats_files(tmp_path: Path) -> None:
    for name, content in (
        ("ca.crt", CA),
        ("me.crt", b"certificate"),
        ("me.key", b"key"),
        ("token", b"t\n"),
    ):
        (tmp_path / name).write_bytes(content)
    connection = load(
        tmp_path,
        tree(
            cluster={"certificate-authority": "ca.crt"},
            user={
                "client-certificate": "me.crt",
                "client-key": str(tmp_path / "me.key"),
                "tokenFile": "./token",
            },
        ),
    )
    assert connection.authority == CA
    assert Path(connection.credentials.certificate_file) == tmp_path / "me.crt"
    assert Path(connection.credentials.key_file) == tmp_path / "me.key"
    assert Path(connection.credentials.token_file) == tmp_path / "token"

    connection = load(
        tmp_path,
        tree(
            cluster={
                "certificate-authority": "missing",
                "certificate-authority-data": encoded(b"inline"),
            },
            user={
                "client-certificate": "missing",
                "client-certificate-data": encoded(b"c"),
                "client-key": "missing",
                "client-key-data": encoded(b"k"),
            },
        ),
    )
    assert connection.authority == b"inline"
    assert (connection.credentials.certificate, connection.credentials.certificate_file) == (
        b"c",
        "",
    )
    assert (connection.credentials.key, connection.credentials.key_file) == (b"k", "")


def test_a_context_can_be_chosen(tmp_path: Path) -> None:
    both = tree(name="a")
    other = tree(name="b", cluster={"server": "https://10.0.0.2"})
    for part in ("clusters", "users", "contexts"):
        both[part] += other[part]
    assert load(tmp_path, both).server == "https://10.0.0.1:6443"
    assert load(tmp_path, both, context="b").server == "https://10.0.0.2"
    assert fault(tmp_path, both, context="c") == '--context: there is no context "c"; known: a, b'


def test_the_files_of_kubeconfig_are_merged_as_kubectl_does(tmp_path: Path) -> None:
    first = tree(name="shared", user={"token": "first"})
    first["current-context"] = ""
    second = tree(
        name="shared", user={"token": "second"}, cluster={"certificate-authority": "ca.crt"}
    )
    third = tree(name="own", cluster={"certificate-authority": "ca.crt"}, user={"token": "third"})
    second["current-context"] = "own"
    written(tmp_path / "1/config", first)
    written(tmp_path / "2/config", second)
    written(tmp_path / "3/config", third)
    (tmp_path / "3/ca.crt").write_bytes(CA)
    files = [
        tmp_path / "1/config",
        tmp_path / "absent",
        "",
        tmp_path / "2/config",
        tmp_path / "3/config",
    ]
    environ = {"KUBECONFIG": ":".join(map(str, files)), "HOME": str(tmp_path)}
    connection = client_config.load(None, environ=environ)
    assert connection.credentials.token == "third", "the first current-context that is set counts"
    assert connection.authority == CA, "relative paths count from the file they stand in"
    assert client_config.load(None, context="shared", environ=environ).credentials.token == "first"
    assert client_config.load(None, context="shared", environ=environ).authority == b"", (
        "entries are not mixed"
    )


def test_where_a_kubeconfig_is_looked_for(tmp_path: Path) -> None:
    written(tmp_path / ".kube/config", tree(user={"token": "home"}))
    named = written(tmp_path / "named", tree(user={"token": "named"}))
    listed = written(tmp_path / "listed", tree(user={"token": "listed"}))
    home = {"HOME": str(tmp_path)}
    assert client_config.load(None, environ=home).credentials.token == "home"
    assert client_config.load(None, environ={**home, "KUBECONFIG": ""}).credentials.token == "home"
    assert (
        client_config.load(None, environ={**home, "KUBECONFIG": str(listed)}).credentials.token
        == "listed"
    )
    assert (
        client_config.load(
            str(named), environ={**home, "KUBECONFIG": str(listed)}
        ).credentials.token
        == "named"
    )
    with pytest.raises(
        errors.InputError, match="KUBECONFIG: none of its files exists: /no/a, /no/b"
    ):
        client_config.load(None, environ={**home, "KUBECONFIG": "/no/a:/no/b"})
    with pytest.raises(errors.InputError, match=r"/no/a: no such file; .*--kubeconfig"):
        client_config.load("/no/a", environ=home)


def test_relative_kubeconfigs_count_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "sub/config", tree(cluster={"certificate-authority": "ca.crt"}))
    (tmp_path / "sub/ca.crt").write_bytes(CA)
    monkeypatch.chdir(tmp_path)
    assert client_config.load("sub/config", environ={}).authority == CA


# Inside a pod


def service_account(tmp_path: Path) -> dict[str, Any]:
    for name, content in (("token", b"pod"), ("ca.crt", CA), ("namespace", b"team\n")):
        (tmp_path / name).write_bytes(content)
    environ = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    return {"environ": environ, "service_account": str(tmp_path)}


def test_a_pod_is_its_service_account(tmp_path: Path) -> None:
    connection = client_config.load(None, **service_account(tmp_path))
    assert connection.server == "https://10.96.0.1:443"
    assert connection.authority == CA
    assert connection.namespace == "team"
    assert connection.credentials.token_file == str(tmp_path / "token")
    assert connection.credentials.token == "", "tokens of pods change: they are read when needed"


def test_a_pod_may_speak_ipv6_and_lack_a_namespace_file(tmp_path: Path) -> None:
    body = service_account(tmp_path)
    body["environ"]["KUBERNETES_SERVICE_HOST"] = "fd00::1"
    (tmp_path / "namespace").unlink()
    connection = client_config.load(None, **body)
    assert connection.server == "https://[fd00::1]:443"
    assert connection.namespace == "default"


def test_faults_of_pods_say_what_is_missing(tmp_path: Path) -> None:
    body = service_account(tmp_path)
    (tmp_path / "ca.crt").unlink()
    with pytest.raises(errors.InputError, match=r"ca.crt: .*cannot be read"):
        client_config.load(None, **body)
    (tmp_path / "token").unlink()
    with pytest.raises(errors.InputError, match="automountServiceAccountToken"):
        client_config.load(None, **body)
    del body["environ"]["KUBERNETES_SERVICE_PORT"]
    with pytest.raises(errors.InputError, match="KUBERNETES_SERVICE_PORT"):
        client_config.load(None, **body)
    with pytest.raises(errors.InputError, match=r"no cluster: .*--kubeconfig"):
        client_config.load(None, environ={"HOME": str(tmp_path)})
    with pytest.raises(errors.InputError, match='no kubeconfig to take context "x" from'):
        client_config.load(None, context="x", **service_account(tmp_path))


def test_a_kubeconfig_beats_the_pod(tmp_path: Path) -> None:
    body = service_account(tmp_path)
    written(tmp_path / ".kube/config", tree(user={"token": "home"}))
    body["environ"]["HOME"] = str(tmp_path)
    assert client_config.load(None, **body).credentials.token == "home"


# Servers


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("https://10.0.0.1:6443/", "https://10.0.0.1:6443"),
        ("https://rancher/k8s/clusters/c-1", "https://rancher/k8s/clusters/c-1"),
        ("https://[fd00::1]:6443", "https://[fd00::1]:6443"),
        ("http://localhost:8080", "http://localhost:8080"),
        ("localhost:8080", "http://localhost:8080"),
    ],
)
def test_servers_as_people_write_them(tmp_path: Path, server: str, expected: str) -> None:
    assert load(tmp_path, tree(cluster={"server": server})).server == expected


def test_a_server_without_scheme_is_secure_where_certificates_are_meant(tmp_path: Path) -> None:
    assert (
        load(tmp_path, tree(cluster={"server": "a:1", "insecure-skip-tls-verify": True})).server
        == "https://a:1"
    )


def test_credentials_never_travel_in_the_clear(tmp_path: Path) -> None:
    connection = load(tmp_path, tree(cluster={"server": "http://a:1"}, user={"token": "secret"}))
    assert connection.credentials.token == ""


@pytest.mark.parametrize(
    "server", ["", "ftp://a", "https://", "https://a:x", "https://u:p@a", "https://a?b=c"]
)
def test_what_is_no_server_is_refused(tmp_path: Path, server: str) -> None:
    assert fault(tmp_path, tree(cluster={"server": server})).startswith('cluster "here": server: ')


# Users


def test_a_user_may_have_no_credentials(tmp_path: Path) -> None:
    content = tree(context={"user": ""})
    assert load(tmp_path, content).credentials == client_config.Connection(server="x").credentials


def test_impersonation_is_carried(tmp_path: Path) -> None:
    user = {
        "token": "t",
        "as": "ann",
        "as-uid": "7",
        "as-groups": ["g", "h"],
        "as-user-extra": {"a/b": ["1", "2"]},
    }
    assert load(tmp_path, tree(user=user)).credentials.impersonation == (
        ("Impersonate-User", "ann"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "g"),
        ("Impersonate-Group", "h"),
        ("Impersonate-Extra-a%2Fb", "1"),
        ("Impersonate-Extra-a%2Fb", "2"),
    )


EXEC = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "command": "get-token",
    "interactiveMode": "Never",
}


def test_a_plugin_is_described_whole(tmp_path: Path) -> None:
    given = {
        **EXEC,
        "args": ["-i", "x"],
        "env": [{"name": "A", "value": "b"}],
        "installHint": "get\x1b[2J it",
    }
    plugin = load(tmp_path, tree(user={"exec": given})).credentials.plugin
    assert plugin is not None
    assert (plugin.command, plugin.args, plugin.environment) == (
        "get-token",
        ("-i", "x"),
        (("A", "b"),),
    )
    assert plugin.install_hint == "get[2J it", "control characters could repaint a terminal"
    assert plugin.cluster == b""


def test_a_plugin_with_a_path_counts_from_the_kubeconfig(tmp_path: Path) -> None:
    plugin = load(
        tmp_path, tree(user={"exec": {**EXEC, "command": "./bin/get-token"}})
    ).credentials.plugin
    assert plugin is not None
    assert Path(plugin.command) == tmp_path / "bin/get-token"


def test_a_plugin_learns_the_cluster_only_where_it_may(tmp_path: Path) -> None:
    cluster = {
        "certificate-authority-data": encoded(CA),
        "tls-server-name": "api",
        "extensions": [
            {"name": "other", "extension": {"x": 1}},
            {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}},
        ],
    }
    given = {**EXEC, "provideClusterInfo": True, "env": None, "args": None}
    plugin = load(tmp_path, tree(cluster=cluster, user={"exec": given})).credentials.plugin
    assert plugin is not None
    assert msgspec.json.decode(plugin.cluster) == {
        "server": "https://10.0.0.1:6443",
        "tls-server-name": "api",
        "certificate-authority-data": encoded(CA),
        "config": {"audience": "a"},
    }


# Faults


@pytest.mark.parametrize(
    ("cluster", "user", "said"),
    [
        ({"proxy-url": "http://p"}, {}, 'cluster "here": proxy-url: proxies are not supported'),
        (
            {"certificate-authority-data": "%%"},
            {},
            'cluster "here": certificate-authority-data: is not base64',
        ),
        ({"certificate-authority": "no.crt"}, {}, 'cluster "here": certificate-authority: '),
        (
            {"certificate-authority-data": encoded(CA), "insecure-skip-tls-verify": True},
            {},
            'cluster "here": insecure-skip-tls-verify: contradicts',
        ),
        ({"server": 7}, {}, "clusters[0].cluster.server: Expected `str`, got `int`"),
        ({}, {"token": 7}, "users[0].user.token: Expected `str`, got `int`"),
        ({}, {"client-key-data": encoded(b"k")}, 'user "here": client-certificate: is missing'),
        ({}, {"client-certificate-data": encoded(b"c")}, 'user "here": client-key: is missing'),
        (
            {},
            {"client-certificate": "no.crt", "client-key": "no.key"},
            'user "here": client-certificate: ',
        ),
        ({}, {"tokenFile": "no"}, 'user "here": tokenFile: '),
        (
            {},
            {"token": "t", "username": "u", "password": "p"},
            'user "here": token: contradicts username',
        ),
        ({}, {"auth-provider": {"name": "gcp"}}, 'user "here": auth-provider: no longer exists'),
        ({}, {"as-groups": ["g"]}, 'user "here": as: is required'),
        ({}, {"as": "a\r\nX: y"}, 'user "here": as: holds characters'),
        ({}, {"exec": {**EXEC, "command": ""}}, 'user "here": exec.command: is required'),
        (
            {},
            {"exec": {**EXEC, "apiVersion": "client.authentication.k8s.io/v1alpha1"}},
            'user "here": exec.apiVersion: "client.authentication.k8s.io/v1alpha1" is not supported',
        ),
        (
            {},
            {"exec": {**EXEC, "interactiveMode": "Always"}},
            'user "here": exec.interactiveMode: Always needs',
        ),
        (
            {},
            {"exec": {**EXEC, "interactiveMode": None}},
            'user "here": exec.interactiveMode: must be one of',
        ),
        ({}, {"exec": {**EXEC, "env": [{"value": "v"}]}}, 'user "here": exec.env: '),
    ],
)
def test_faults_name_the_entry_and_the_field(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], said: str
) -> None:
    assert fault(tmp_path, tree(cluster=cluster, user=user)).startswith(said)


def test_v1beta1_need_not_say_how_interactive_it_is(tmp_path: Path) -> None:
    given = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "x"}
    assert load(tmp_path, tree(user={"exec": given})).credentials.plugin is not None


def test_faults_of_contexts(tmp_path: Path) -> None:
    assert fault(tmp_path, tree(context={"cluster": "x"})) == (
        'context "here": cluster "x" is not defined; known: here'
    )
    assert (
        fault(tmp_path, tree(context={"user": "x"}))
        == 'context "here": user "x" is not defined; known: here'
    )
    assert fault(tmp_path, {**tree(), "current-context": ""}).startswith(
        "current-context: is not set"
    )
    assert fault(tmp_path, {**tree(), "current-context": "x"}) == (
        'current-context: there is no context "x"; known: here'
    )
    assert fault(tmp_path, {}).endswith("none are defined")


def test_names_that_are_there_twice_are_refused(tmp_path: Path) -> None:
    content = tree()
    content["users"] *= 2
    assert fault(tmp_path, content) == 'users[1].name: "here" is there twice; remove one'


@pytest.mark.parametrize(
    "text", ["{", "a: b: c", "- 1", "7", "\x00", "a: 1\na: 2", "a: 1\n---\nb: 2"]
)
def test_files_that_are_no_kubeconfig_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(errors.InputError, match=str(tmp_path / "config")):
        client_config.load(str(tmp_path / "config"), environ={})


def test_a_directory_and_binary_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path, tmp_path / "config"):
        with pytest.raises(errors.InputError, match=str(path)):
            client_config.load(str(path), environ={})


def test_null_is_absent(tmp_path: Path) -> None:
    content = {
        **tree(cluster={"extensions": None}, user={"exec": None, "token": None}),
        "preferences": None,
    }
    assert load(tmp_path, content).credentials == client_config.Connection(server="x").credentials


def test_messages_never_hold_secrets(tmp_path: Path) -> None:
    for user in (
        {"token": ["s3cret"]},
        {"client-key-data": "s3cret!"},
        {"exec": {**EXEC, "args": [{"s3cret": 1}]}},
        {"exec": {**EXEC, "env": [{"name": "A", "value": ["s3cret"]}]}},
    ):
        assert "s3cret" not in fault(tmp_path, tree(user=user))
