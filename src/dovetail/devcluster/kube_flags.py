"""The command lines and files a local control plane is started with.

Given programs, directory and ports, returns each part's command line, and writes token files and kubeconfigs. Never
starts anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from dovetail.devcluster import certificates, kube_binaries
from dovetail.files import private_files

PARTS: Final = (
    kube_binaries.ETCD,
    kube_binaries.APISERVER,
    kube_binaries.CONTROLLER_MANAGER,
)  # in the order they start
ETCD_PEER: Final = "etcd-peer"
# The user to whom every API server binds the rights of a scheduler; kubeadm signs its certificate for it.
SCHEDULER_USER: Final = "system:kube-scheduler"
# As whom the API server asks a kubelet for logs and for commands in containers, as kubeadm sets it up.
KUBELET_CLIENT: Final = ("kube-apiserver-kubelet-client", ("system:masters",))

# Nodes are plain objects here: the second plugin would taint each new one until a kubelet reports it ready. Pods
# need no service account, and without the first plugin they are not refused before their namespace has one.
DISABLED_ADMISSION: Final = "ServiceAccount,TaintNodesByCondition"
# For pods that real kubelets run: with the first plugin they get the token of their service account.
DISABLED_ADMISSION_WITH_TOKENS: Final = "TaintNodesByCondition"

# DeviceTaintRule is stable in 1.37. In 1.36 its gate and the version that serves it are off by default.
_GATES: Final[Mapping[str, Mapping[str, bool]]] = {"1.36": {"DRADeviceTaintRules": True}}
_RUNTIME_CONFIG: Final[Mapping[str, tuple[str, ...]]] = {"1.36": ("resource.k8s.io/v1beta2=true",)}


class Bearer(NamedTuple):
    """A secret that makes its bearer this user."""

    token: str
    user: str
    groups: tuple[str, ...] = ()


class Layout(NamedTuple):
    """All that the command lines of one control plane are made of."""

    parts: kube_binaries.Parts
    directory: Path
    authority: certificates.Authority
    server: certificates.Pair
    kubelet_client: certificates.Pair
    ports: Mapping[str, int]
    feature_gates: Mapping[str, bool]
    runtime_config: tuple[str, ...]
    extra_apiserver_flags: tuple[str, ...]
    disabled_admission: str = DISABLED_ADMISSION

    @property
    def port(self) -> int:
        """Where the API is served."""
        return self.ports[kube_binaries.APISERVER]

    @property
    def etcd_port(self) -> int:
        """Where etcd serves its clients."""
        return self.ports[kube_binaries.ETCD]

    @property
    def ca(self) -> Path:
        """The certificate to trust."""
        return self.authority.pair.certificate

    @property
    def kubeconfig(self) -> Path:
        """The admin's kubeconfig."""
        return self.directory / "admin.kubeconfig"

    @property
    def scheduler_kubeconfig(self) -> Path:
        """The kubeconfig of kube-scheduler."""
        return self.directory / f"{kube_binaries.SCHEDULER}.kubeconfig"

    @property
    def tokens(self) -> Path:
        """The file of bearer tokens."""
        return self.directory / "pki" / "tokens.csv"

    @property
    def accounts(self) -> certificates.Pair:
        """The key that signs service account tokens and its public half."""
        return certificates.Pair(
            self.directory / "pki" / "accounts.pub", self.directory / "pki" / "accounts.key"
        )

    def command(self, name: str) -> list[str]:
        """How a part is called."""
        make = {
            kube_binaries.ETCD: self._etcd,
            kube_binaries.APISERVER: self._apiserver,
            kube_binaries.CONTROLLER_MANAGER: self._controller_manager,
            kube_binaries.SCHEDULER: self._scheduler,
        }
        return make[name]()

    def scheduler_command(self, configuration: Path, *, port: int, kubeconfig: Path) -> list[str]:
        """How a further kube-scheduler, with this configuration file, is called."""
        serving = self._serving(port, kubeconfig)
        return [str(self.parts.scheduler), f"--config={configuration}", *serving, *self._gates()]

    def _etcd(self) -> list[str]:
        clients, peers = (
            f"http://127.0.0.1:{self.ports[name]}" for name in (kube_binaries.ETCD, ETCD_PEER)
        )
        return [
            str(self.parts.etcd),
            "--name=local",
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=local={peers}",
            "--log-level=warn",
            "--quota-backend-bytes=8589934592",  # the most etcd recommends; a large fleet outgrows its default
            "--unsafe-no-fsync",
        ]

    def _apiserver(self) -> list[str]:
        runtime = (
            [f"--runtime-config={','.join(self.runtime_config)}"] if self.runtime_config else []
        )
        return [
            str(self.parts.apiserver),
            f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",  # loopback is no address an endpoint may have
            f"--tls-cert-file={self.server.certificate}",
            f"--tls-private-key-file={self.server.key}",
            f"--client-ca-file={self.ca}",
            f"--token-auth-file={self.tokens}",
            # Kubelets have the rights that the Node authorizer gives them, and change no node but theirs.
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--kubelet-client-certificate={self.kubelet_client.certificate}",
            f"--kubelet-client-key={self.kubelet_client.key}",
            "--kubelet-preferred-address-types=InternalIP,Hostname",
            f"--disable-admission-plugins={self.disabled_admission}",
            "--allow-privileged=true",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.accounts.certificate}",
            f"--service-account-signing-key-file={self.accounts.key}",
            "--max-requests-inflight=3000",
            "--max-mutating-requests-inflight=1500",
            "--profiling=false",
            *runtime,
            *self._gates(),
            *self.extra_apiserver_flags,
        ]

    def _controller_manager(self) -> list[str]:
        return [
            str(self.parts.controller_manager),
            f"--kubeconfig={self.kubeconfig}",
            *self._serving(self.ports[kube_binaries.CONTROLLER_MANAGER], self.kubeconfig),
            "--leader-elect=false",
            "--use-service-account-credentials=false",
            f"--service-account-private-key-file={self.accounts.key}",
            f"--root-ca-file={self.ca}",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            "--profiling=false",
            *self._gates(),
        ]

    def _scheduler(self) -> list[str]:
        """As kubeadm calls it. The Lease shows other programs that it runs."""
        return [
            str(self.parts.scheduler),
            f"--kubeconfig={self.scheduler_kubeconfig}",
            *self._serving(self.ports[kube_binaries.SCHEDULER], self.scheduler_kubeconfig),
            "--leader-elect=true",
            *self._gates(),
        ]

    def _serving(self, port: int, kubeconfig: Path) -> list[str]:
        """Health and metrics on loopback; the API server authorises their readers."""
        return [
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--tls-cert-file={self.server.certificate}",
            f"--tls-private-key-file={self.server.key}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
        ]

    def _gates(self) -> list[str]:
        if not self.feature_gates:
            return []
        return [
            "--feature-gates="
            + ",".join(f"{name}={str(on).lower()}" for name, on in self.feature_gates.items())
        ]


def gates_of(minor: str) -> dict[str, bool]:
    """The feature gates a version needs to serve what Dovetail reads."""
    return dict(_GATES.get(minor, {}))


def runtime_config_of(minor: str) -> tuple[str, ...]:
    """The API versions to switch on so that a version serves what Dovetail reads."""
    return _RUNTIME_CONFIG.get(minor, ())


def scheduler_configuration(
    name: str, kubeconfig: Path, *, qps: float, burst: int
) -> dict[str, Any]:
    """A KubeSchedulerConfiguration with one profile of this name."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": qps, "burst": burst},
        "profiles": [{"schedulerName": name}],
    }


def write_tokens(path: Path, bearers: Iterable[Bearer]) -> None:
    """The token file of kube-apiserver: token, user, user id, groups in quotes."""
    lines = [
        f'{bearer.token},{bearer.user},{bearer.user},"{",".join(bearer.groups)}"\n'
        for bearer in bearers
    ]
    _write_secret(path, "".join(lines).encode())


def write_kubeconfig(
    path: Path,
    *,
    port: int,
    ca: Path,
    user: str,
    token: str | None = None,
    pair: certificates.Pair | None = None,
) -> None:
    """A kubeconfig for a user with a token or a client certificate. JSON, which every reader of YAML reads."""
    credentials: dict[str, str] = {}
    if token is not None:
        credentials["token"] = token
    if pair is not None:
        credentials |= {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
    server = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(ca)}
    tree = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "local", "cluster": server}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": user}}],
        "current-context": "local",
    }
    _write_secret(path, msgspec.json.format(msgspec.json.encode(tree)) + b"\n")


def _write_secret(path: Path, content: bytes) -> None:
    """Writes a file that only the owner may ever read."""
    private_files.replace(path, content)
