"""A whole cluster under test: control plane, hollow nodes, our scheduler, each a process of its own.

`cluster(version)` gives the one all tests of this process share; `Live` starts a private one. Everything is asked
for through kubectl or plain HTTP, never through the scheduler's own client.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from dovetail.devcluster import control_plane, free_ports, kube_binaries
from dovetail.install import chart
from dovetail.sim.fleet import fleet_spec
from tests.support import cluster as planes
from tests.support import rest
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "live"
PATIENCE_SECONDS = 120.0
TETHER = ("setpriv", "--pdeathsig", "KILL")  # ends with this process, however that ends
SERVICE_ACCOUNT = "system:serviceaccount:kube-system:dovetail-scheduler"
RELEASE = chart.Release("dovetail", "kube-system")
RIGHTS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


class Live:
    """One cluster with hollow nodes, and the schedulers a test starts on it."""

    def __init__(self, plane: control_plane.ControlPlane, directory: Path) -> None:
        self.plane = plane
        self.directory = directory
        self.rest = rest.Rest(plane)
        self.ports: dict[str, int] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        planes.apply(plane, rights(), namespace=RELEASE.namespace)
        self.token = planes.kubectl(
            plane,
            "create",
            "token",
            "dovetail-scheduler",
            "-n",
            RELEASE.namespace,
            "--duration=24h",
        ).strip()

    def play(self, *arguments: str) -> None:
        """Starts the hollow nodes and waits until they are published."""
        log = self.directory / "player.log"
        command = [
            *TETHER,
            sys.executable,
            "-m",
            "dovetail.boot.hollow_nodes",
            "--kubeconfig",
            str(self.plane.kubeconfig),
            *arguments,
        ]
        with log.open("ab") as sink:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sink, cwd=ROOT)
        self._processes["player"] = process
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"the player ended: {log.read_text()[-2000:]}"
        assert json.loads(line)["ready"]

    def schedule(
        self,
        name: str = "dovetail",
        *,
        configuration: dict[str, Any] | None = None,
        arguments: Sequence[str] = (),
        token: str = "",
        through: int = 0,
    ) -> subprocess.Popen[bytes]:
        """Starts a scheduler as the chart's service account, with exactly the chart's rights.

        `through` is the port of a proxy its requests go to instead of the API server.
        """
        port = free_ports.reserve()
        self.ports[name] = port
        tree: dict[str, Any] = {
            "apiVersion": "dovetail.dev/v1alpha1",
            "kind": "SchedulerConfiguration",
            "serving": {"port": port},
            "quarantine": {"slackSeconds": 0.5},
            "kaiShares": {"enabled": True},
        } | (configuration or {})
        file = self.directory / f"{name}.yaml"
        file.write_text(yaml.safe_dump(tree), encoding="utf-8")
        kubeconfig = self.plane.write_kubeconfig(name, token=token or self.token)
        if through:
            direct, detour = f"127.0.0.1:{self.plane.port}", f"127.0.0.1:{through}"
            kubeconfig.write_text(
                kubeconfig.read_text(encoding="utf-8").replace(direct, detour), encoding="utf-8"
            )
        command = [
            *TETHER,
            sys.executable,
            "-m",
            "dovetail.boot.scheduler",
            "--kubeconfig",
            str(kubeconfig),
        ]
        command += ["--config", str(file), *arguments]
        with (self.directory / f"{name}.log").open("ab") as sink:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sink, cwd=ROOT)
        self._processes[name] = process
        return process

    def stop(self, name: str = "dovetail", *, kill: bool = False) -> int:
        """Ends a process and returns its exit code."""
        process = self._processes.pop(name)
        if kill:
            process.kill()
        else:
            process.terminate()
        code = process.wait(timeout=60)
        if process.stdout is not None:
            process.stdout.close()
        return code

    def close(self) -> None:
        """Ends every process that is left."""
        for name in list(self._processes):
            self.stop(name, kill=True)
        self.rest.close()

    def log(self, name: str = "dovetail") -> str:
        """What a process said."""
        return (self.directory / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def ask(self, path: str, name: str = "dovetail") -> str:
        """What the scheduler serves under a path."""
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.ports[name]}{path}", timeout=60
        ) as answer:
            text: str = answer.read().decode()
            return text

    def is_serving(self, path: str = "/readyz", name: str = "dovetail") -> bool:
        """Whether a path answers with success."""
        try:
            self.ask(path, name)
        except (urllib.error.URLError, OSError):
            return False
        return True

    def metric(self, metric: str, *, of: str = "dovetail", **labels: str) -> float:
        """The sum of a metric's samples with these labels; 0 where there is none."""
        expected = [f'{name}="{value}"' for name, value in labels.items()]
        lines = [
            line
            for line in self.ask("/metrics", of).splitlines()
            if line.startswith((f"{metric}{{", f"{metric} "))
        ]
        return sum(
            float(line.rpartition(" ")[2])
            for line in lines
            if all(label in line for label in expected)
        )

    def consistent(self, name: str = "dovetail") -> dict[str, Any]:
        """Whether the scheduler's picture equals one made of a fresh list."""
        verdict: dict[str, Any] = json.loads(self.ask("/debug/consistent", name))
        return verdict

    def is_running(self, name: str = "dovetail") -> bool:
        """Whether the process was started and has not ended."""
        return name in self._processes and self._processes[name].poll() is None

    def pid(self, name: str = "dovetail") -> int:
        """The process id."""
        return self._processes[name].pid

    def leads(self, name: str = "dovetail") -> bool:
        """Whether this scheduler is the one that writes, and has looked around."""
        return self.is_serving("/readyz", name) and self.metric("dovetail_leader", of=name) == 1

    def apply_file(self, name: str) -> None:
        """Applies an example as a user would."""
        planes.kubectl(self.plane, "apply", "-f", str(EXAMPLES / name))

    def pods(self, namespace: str) -> list[dict[str, Any]]:
        """The pods of a namespace, as trees. Over HTTP: tests ask again and again, and kubectl takes long to start."""
        return self.rest.list("pods", namespace)

    def claims(self, namespace: str) -> list[dict[str, Any]]:
        """The claims of a namespace, as trees."""
        return self.rest.list("resourceclaims", namespace)

    def wait_for(
        self,
        what: str,
        is_so: Callable[[], Any],
        *,
        seconds: float = PATIENCE_SECONDS,
        pause: float = 0.2,
    ) -> Any:
        """Waits for a condition; its value. Fails with the scheduler's last words."""

        def last_words() -> str:
            return "\n".join(f"{name}: {self.log(name)[-1500:]}" for name in self.ports)

        return wait_until(is_so, what, at_most=seconds, pause=pause, so_far=last_words)

    def wait_running(self, namespace: str, count: int) -> list[dict[str, Any]]:
        """Waits until so many pods of the namespace run."""

        def running() -> list[dict[str, Any]] | None:
            pods = [pod for pod in self.pods(namespace) if pod["status"].get("phase") == "Running"]
            return pods if len(pods) >= count else None

        pods: list[dict[str, Any]] = self.wait_for(f"{count} running pods in {namespace}", running)
        return pods

    def delete_namespace(self, namespace: str) -> None:
        """Deletes a namespace without waiting."""
        planes.kubectl(
            self.plane, "delete", "namespace", namespace, "--wait=false", "--ignore-not-found"
        )


def installed() -> list[dict[str, Any]]:
    """All the chart would install, with every right that it can grant."""
    settings = ["image.repository=example", "kaiShares.mode=always"]
    return chart.objects(chart.values_of(settings=settings), RELEASE)


def rights() -> list[dict[str, Any]]:
    """The service account of the chart and what it may do."""
    return [item for item in installed() if item["kind"] in RIGHTS]


def devices_of(claim: dict[str, Any]) -> list[tuple[str, str, str]]:
    """What a claim holds: driver, pool, device."""
    allocation = claim.get("status", {}).get("allocation")
    results = allocation["devices"]["results"] if allocation else []
    return [(result["driver"], result["pool"], result["device"]) for result in results]


@contextlib.contextmanager
def private(version: str = kube_binaries.DEFAULT, **options: Any) -> Iterator[Live]:
    """A cluster only this test uses; nothing plays or schedules on it yet."""
    with (
        planes.private_plane(version, **options) as plane,
        tempfile.TemporaryDirectory(prefix="dovetail-live-") as scratch,
    ):
        live = Live(plane, Path(scratch))
        try:
            yield live
        finally:
            live.close()


_SHARED = contextlib.ExitStack()


def cluster(version: str = kube_binaries.DEFAULT) -> Live:
    """The sample fleet with our scheduler, shared by all tests of this process."""
    return _cluster(version)


@functools.cache  # by version; on `cluster` itself it would tell a default from the same version named
def _cluster(version: str) -> Live:
    live = _SHARED.enter_context(private(version))
    live.play("--fleet", str(sample_file(live.directory)))
    live.schedule()
    live.wait_for("a scheduler that leads", live.leads)
    return live


def stop_all() -> None:
    """Ends what `cluster` started."""
    _SHARED.close()
    _cluster.cache_clear()


def fleet_file(directory: Path, **pool: Any) -> Path:
    """A fleet of one pool, as a file."""
    given = {"name": "test", "count": 4, "gpu": "H100-SXM5-80GB"} | pool
    file = directory / "fleet.json"
    file.write_bytes(msgspec.json.encode({"name": "test", "pools": [given]}))
    return file


def sample_file(directory: Path) -> Path:
    """The sample fleet, as a file."""
    file = directory / "sample.json"
    file.write_bytes(msgspec.json.encode(fleet_spec.sample()))
    return file


def environment() -> dict[str, str]:
    """What a user's shell would have."""
    return dict(os.environ)
