"""What tests of the installation share: running our own commands, and finding everything an installation left."""

from __future__ import annotations

import subprocess
from typing import Any

from tests.cli import running
from tests.deploy import build
from tests.support import cluster as planes
from tests.support.live import Live

# Kinds that come and go by themselves, or that no client owns.
PASSING = (
    "events",
    "events.events.k8s.io",
    "componentstatuses",
    "apiservices.apiregistration.k8s.io",
)
COLUMNS = "custom-columns=KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name"


def arguments(cluster: Live, command: str, name: str, *others: str) -> list[str]:
    """A command on this cluster for an installation whose name is also its namespace."""
    common = ["--kubeconfig", str(cluster.plane.kubeconfig), "--name", name, "--namespace", name]
    image = ["--set", build.IMAGE] if command != "uninstall" else []
    return [command, *common, *image, *others]


def run(cluster: Live, command: str, name: str, *others: str) -> running.Run:
    """How a command of ours ended."""
    return running.inside(cluster.directory, *arguments(cluster, command, name, *others))


def start(cluster: Live, command: str, name: str, *others: str) -> subprocess.Popen[str]:
    """A command of ours as a process."""
    return subprocess.Popen(
        [*running.PROGRAM, *arguments(cluster, command, name, *others)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def everything(cluster: Live, name: str) -> set[tuple[str, ...]]:
    """Kind, namespace and name of every object on the cluster that has to do with this installation."""
    plane = cluster.plane
    listed = planes.kubectl(plane, "api-resources", "--verbs=list", "-o", "name").split()
    kinds = ",".join(item for item in listed if item not in PASSING)
    text = planes.kubectl(plane, "get", kinds, "-A", "--no-headers", "-o", COLUMNS)
    rows = {tuple(line.split()) for line in text.splitlines()}
    return {
        row for row in rows if name in row[1] or name in row[2] or row[2].endswith("dovetail.dev")
    }


def present(cluster: Live, trees: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """Kind and name of those of the objects that are on the cluster."""
    result = set()
    for tree in trees:
        group, _, version = tree["apiVersion"].rpartition("/")
        kind = f"{tree['kind'].lower()}.{version}.{group}" if group else tree["kind"].lower()
        place = ["-n", tree["metadata"]["namespace"]] if "namespace" in tree["metadata"] else []
        done = planes.run_kubectl(cluster.plane, "get", kind, tree["metadata"]["name"], *place)
        if done.returncode == 0:
            result.add((tree["kind"], tree["metadata"]["name"]))
    return result
