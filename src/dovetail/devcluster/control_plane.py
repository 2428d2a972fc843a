"""Runs a real Kubernetes control plane on loopback: etcd, kube-apiserver, kube-controller-manager.

Given the programs and a directory for all it writes, starts them on free ports and waits until they answer. Its own
kube-scheduler, and more of them under other names, can be added. The data is scratch: etcd is neither encrypted nor
synced to disk. Never listens beyond 127.0.0.1, and never runs a kubelet: callers create the nodes, or start one of
`real_node`.
"""

from __future__ import annotations

import secrets
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from dovetail import errors
from dovetail.devcluster import (
    certificates,
    free_ports,
    kube_binaries,
    kube_flags,
    probe,
    processes,
)
from dovetail.files import private_files

READY_SECONDS: Final = 90.0  # a busy machine with two cores needs a tenth of it
POLL_SECONDS: Final = 0.05
STOP_SECONDS: Final = 25.0  # kube-apiserver lets open requests finish for up to 15 s
ROSTER: Final = "processes.json"
WITH_PORT: Final = (*kube_flags.PARTS, kube_flags.ETCD_PEER, kube_binaries.SCHEDULER)

Bearer = kube_flags.Bearer  # a token and its user
Say = Callable[[str], None]


class StartFailed(errors.DovetailError):
    """A part of the control plane did not come up; the message ends with the last lines of its log."""


class ControlPlane:
    """A running control plane. For one thread at a time; tethered processes end with the thread that started them."""

    def __init__(
        self, layout: kube_flags.Layout, *, token: str, is_tethered: bool, say: Say
    ) -> None:
        self.layout = layout
        self.parts = layout.parts
        self.directory = layout.directory
        self.kubeconfig = layout.kubeconfig
        self.token = token
        self.port = layout.port
        self.etcd_port = layout.etcd_port
        self.roster = processes.ProcessRecords(layout.directory / ROSTER)
        self._is_tethered = is_tethered
        self._say = say
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._ports = list(layout.ports.values())

    @property
    def url(self) -> str:
        """Where the API is served."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def ca(self) -> Path:
        """The certificate to trust."""
        return self.layout.ca

    @property
    def pids(self) -> dict[str, int]:
        """The process ids of the parts that run, by name."""
        return {
            name: process.pid for name, process in self._running.items() if process.poll() is None
        }

    def log_of(self, name: str) -> Path:
        """The log file of a part."""
        return self.directory / f"{name}.log"

    def start(self, name: str) -> None:
        """Starts a part of the control plane on its port, also again, and waits until it answers."""
        began = time.monotonic()
        self.launch(name)
        self.wait_for(name)
        self._say(f"{name} ready after {time.monotonic() - began:.1f} s")

    def launch(self, name: str) -> None:
        """Starts a part of the control plane on its port without waiting for it."""
        if name == kube_binaries.SCHEDULER:
            self.scheduler_kubeconfig()
        self._spawn(name, self.layout.command(name), port=self.layout.ports[name])

    def wait_for(self, name: str) -> None:
        """Waits until a part that was launched answers."""
        self._await(name, self.layout.ports[name])

    def kill(self, name: str) -> None:
        """Kills a part, as a power cut would."""
        self._end(name, grace_seconds=0)

    def terminate(self, name: str) -> None:
        """Stops a part gracefully."""
        self._end(name, grace_seconds=STOP_SECONDS)

    def start_etcd(self) -> None:
        """Starts etcd again with the data it had."""
        self.start(kube_binaries.ETCD)

    def kill_etcd(self) -> None:
        """Kills etcd, as a power cut would."""
        self.kill(kube_binaries.ETCD)

    def restart_etcd(self) -> None:
        """Stops etcd gracefully, starts it again and waits until the API server is ready."""
        self.terminate(kube_binaries.ETCD)
        self.start_etcd()
        self.wait_ready()

    def wait_ready(self) -> None:
        """Waits until the API server is ready."""
        self._await(kube_binaries.APISERVER, self.port)

    def start_scheduler(
        self,
        name: str = "default-scheduler",
        *,
        qps: float = 50,
        burst: int = 100,
        kubeconfig: Path | None = None,
        flags: Sequence[str] = (),
    ) -> subprocess.Popen[bytes]:
        """Starts a further kube-scheduler for pods of this scheduler name and waits until its caches are filled.

        The client limits default to its own. It ends with the control plane, or by `kill("kube-scheduler-NAME")`.
        """
        part = f"{kube_binaries.SCHEDULER}-{name}"
        port = free_ports.reserve()
        self._ports.append(port)
        configuration = self.directory / f"{part}.json"
        profile = kube_flags.scheduler_configuration(
            name, kubeconfig or self.kubeconfig, qps=qps, burst=burst
        )
        private_files.replace(configuration, msgspec.json.encode(profile))
        command = self.layout.scheduler_command(
            configuration, port=port, kubeconfig=kubeconfig or self.kubeconfig
        )
        process = self._spawn(part, [*command, *flags], port=port)
        self._await(part, port)
        return process

    def scheduler_kubeconfig(self) -> Path:
        """The kubeconfig of kube-scheduler's user, to whom the API server grants rights by itself."""
        pair = self.client_certificate(kube_flags.SCHEDULER_USER)
        return self.write_kubeconfig(kube_binaries.SCHEDULER, pair=pair)

    def client_certificate(self, name: str, groups: Sequence[str] = ()) -> certificates.Pair:
        """A certificate and key with which the API server authenticates this user."""
        return self.layout.authority.client(name, groups)

    def write_kubeconfig(
        self, name: str, *, token: str | None = None, pair: certificates.Pair | None = None
    ) -> Path:
        """A separate kubeconfig for a token or a client certificate."""
        path = self.directory / f"{name}.kubeconfig"
        kube_flags.write_kubeconfig(
            path, port=self.port, ca=self.ca, user=name, token=token, pair=pair
        )
        return path

    def stop(self, *, graceful: bool = True) -> None:
        """Stops every part, clients before servers. Without grace they are killed."""
        for name in reversed(list(self._running)):
            self._end(name, grace_seconds=STOP_SECONDS if graceful else 0)
        for port in self._ports:
            free_ports.release(port)

    def _spawn(
        self, name: str, command: Sequence[str | Path], *, port: int
    ) -> subprocess.Popen[bytes]:
        if name in self.pids:
            raise StartFailed(f"{name} already runs")
        log = self.log_of(name)
        process = processes.start(
            command,
            log=log,
            is_tethered=self._is_tethered,
            note=lambda pid: self.roster.add(processes.recorded(name, pid, log=log, port=port)),
        )
        self._running[name] = process
        return process

    def _end(self, name: str, *, grace_seconds: float) -> None:
        process = self._running[name]
        if process.poll() is None:
            if grace_seconds > 0:
                process.terminate()
                try:
                    process.wait(grace_seconds)
                except subprocess.TimeoutExpired:
                    process.kill()
            else:
                process.kill()
        process.wait()
        del self._running[name]
        self.roster.remove(name)

    def _await(self, name: str, port: int) -> None:
        """Waits until the part answers. Raises StartFailed if it ends or the timeout passes."""
        deadline = time.monotonic() + READY_SECONDS
        process = self._running[name]
        while not (
            health := health_of(name, process.pid, port=port, ca=self.ca, token=self.token)
        ).is_ok:
            if process.poll() is not None:
                problem = f"{name} ended with exit code {process.returncode} while it was starting"
            elif time.monotonic() > deadline:
                problem = f"{name} was not ready after {READY_SECONDS:.0f} s ({health})"
            else:
                time.sleep(POLL_SECONDS)
                continue
            raise StartFailed(
                f"{problem}; the end of {self.log_of(name)}:\n{processes.tail_of(self.log_of(name))}"
            )


def start(
    parts: kube_binaries.Parts,
    directory: Path,
    *,
    tokens: Sequence[Bearer] = (),
    feature_gates: Mapping[str, bool] | None = None,
    runtime_config: Sequence[str] = (),
    extra_apiserver_flags: Sequence[str] = (),
    pods_get_tokens: bool = False,
    is_tethered: bool = True,
    say: Say = lambda _: None,
) -> ControlPlane:
    """Starts a control plane in an empty directory and waits until it is ready.

    `tokens` are further users besides the admin. `pods_get_tokens` mounts the token of a pod's service account, and
    refuses pods until their namespace has one. Tethered processes die with the thread that called this.
    """
    private_files.make_directory(directory, option="--dir")
    admin = secrets.token_hex(16)
    authority = certificates.Authority(directory / "pki")
    layout = kube_flags.Layout(
        parts=parts,
        directory=directory,
        authority=authority,
        server=authority.server("server"),
        kubelet_client=authority.client(*kube_flags.KUBELET_CLIENT),
        ports={name: free_ports.reserve() for name in WITH_PORT},
        feature_gates=kube_flags.gates_of(parts.minor) | dict(feature_gates or {}),
        runtime_config=(*kube_flags.runtime_config_of(parts.minor), *runtime_config),
        extra_apiserver_flags=tuple(extra_apiserver_flags),
        disabled_admission=(
            kube_flags.DISABLED_ADMISSION_WITH_TOKENS
            if pods_get_tokens
            else kube_flags.DISABLED_ADMISSION
        ),
    )
    certificates.signing_key(layout.accounts.key, layout.accounts.certificate)
    bearers = [Bearer(admin, "admin", ("system:masters",)), *tokens]
    kube_flags.write_tokens(layout.tokens, bearers)
    kube_flags.write_kubeconfig(
        layout.kubeconfig, port=layout.port, ca=layout.ca, user="admin", token=admin
    )
    plane = ControlPlane(layout, token=admin, is_tethered=is_tethered, say=say)
    try:
        for name in kube_flags.PARTS:
            plane.start(name)
    except BaseException:
        plane.stop(graceful=False)
        raise
    return plane


def health_of(name: str, pid: int, *, port: int, ca: Path, token: str) -> probe.Answer:
    """What the health endpoint of a part answers. kube-controller-manager has no readiness endpoint."""
    if not processes.listens(pid, port):
        return probe.Answer(0, b"it does not listen yet")
    path = "/healthz" if name == kube_binaries.CONTROLLER_MANAGER else "/readyz"
    return probe.ask(port, path, ca=None if name == kube_binaries.ETCD else ca, token=token)
