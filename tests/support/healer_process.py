"""`dovetail lifecycle` as a process on a real API server; as a healer with the rights that it needs and no others.

Given a control plane and a policy. The rights are stated here from what the healer reads and writes, so that a story
that passes proves the list complete.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from dovetail.devcluster import control_plane, free_ports
from dovetail.install import chart
from dovetail.kubetypes import registry
from dovetail.upgrade.heal import healer_loop
from tests.support import cluster as planes

NAMESPACE: Final = "kube-system"
NAME: Final = "dovetail-healer"
TETHER: Final = ("setpriv", "--pdeathsig", "KILL")  # ends with this process, however that ends
PROGRAM: Final = "import sys; from dovetail.cli.main import main; sys.exit(main())"
READS: Final = (*healer_loop.KINDS, registry.STACK_UPGRADE)

Tree = dict[str, Any]


class HealerProcess:
    """One process, and what it shows."""

    def __init__(self, port: int, log: Path) -> None:
        self.port = port
        self._log = log

    def log(self) -> str:
        """What it said."""
        return self._log.read_text(encoding="utf-8")

    def metrics(self) -> set[str]:
        """The samples of the healer that are not zero, without their prefix."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        prefix = "dovetail_heal_"
        return {
            line.removeprefix(prefix)
            for line in lines
            if line.startswith(prefix) and not line.endswith(" 0.0")
        }


@contextlib.contextmanager
def healing(
    plane: control_plane.ControlPlane, directory: Path, policy: Mapping[str, Any]
) -> Iterator[HealerProcess]:
    """The process with the healer's rights, until the end of the block."""
    planes.apply(plane, rights(), namespace=NAMESPACE)
    token = planes.kubectl(plane, "create", "token", NAME, "-n", NAMESPACE, "--duration=24h")
    kubeconfig = plane.write_kubeconfig(NAME, token=token.strip())
    rules = directory / "heal.yaml"
    rules.write_text(yaml.safe_dump(dict(policy)), encoding="utf-8")
    with running(plane, kubeconfig, directory, "--heal", f"--heal-policy={rules}") as process:
        yield process


@contextlib.contextmanager
def running(
    plane: control_plane.ControlPlane, kubeconfig: Path, directory: Path, *more: str
) -> Iterator[HealerProcess]:
    """The process, until the end of the block; it ends in order. Upgrades are defined meanwhile."""
    kind = registry.STACK_UPGRADE
    definition = f"{kind.plural}.{kind.group}"
    trees = [tree for tree in chart.definitions() if tree["metadata"]["name"] == definition]
    planes.apply(plane, trees)
    planes.kubectl(plane, "wait", "--for=condition=Established", f"crd/{definition}")
    port = free_ports.reserve()
    log = directory / "lifecycle.log"
    options = (
        f"--kubeconfig={kubeconfig}",
        f"--leader-elect={NAMESPACE}/test-{uuid.uuid4().hex[:8]}",
        f"--listen=127.0.0.1:{port}",
        *more,
    )
    with log.open("ab") as sink:
        process = subprocess.Popen(
            [*TETHER, sys.executable, "-c", PROGRAM, "lifecycle", *options],
            stdout=sink,
            stderr=sink,
        )
    try:
        yield HealerProcess(port, log)
    finally:
        process.terminate()
        code = process.wait(timeout=60)
        free_ports.release(port)
        planes.kubectl(plane, "delete", f"crd/{definition}", "--ignore-not-found")
    assert code == 0, log.read_text(encoding="utf-8")[-3000:]


def rights() -> list[Tree]:
    """Account, role and binding. Names of leases and events are its own."""
    reads = [
        {"apiGroups": [kind.group], "resources": [kind.plural], "verbs": ["get", "list", "watch"]}
        for kind in dict.fromkeys(READS)
    ]
    writes = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
        {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]},
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "verbs": ["get", "create", "patch"],
        },
    ]
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
    group = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME}},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": NAME},
            "rules": reads + writes,
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": NAME},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": NAME},
            "subjects": [account],
        },
    ]
