"""Random clusters in which priority decides: full nodes, running pods of many priorities, budgets, and pods that wait.

Given a `random.Random`. No two pods started at the same moment: kube-scheduler has no order for such. Budgets allow
nothing or everything; docs/explanation/oracle.md describes what lies between.
"""

from __future__ import annotations

import datetime
import random
from typing import Any, Final, NamedTuple

Tree = dict[str, Any]

NAMESPACE: Final = "default"
GPU: Final = "example.com/gpu"
BEGIN: Final = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
APPS: Final = ("web", "db", "train", "batch")
ZONES: Final = ("east", "west")
RUNNING: Final = (None, -10, 0, 0, 0, 100, 100, 1000, 5000)
WAITING: Final = (0, 50, 100, 500, 2000, 2000, 10_000)
PLENTY: Final = 1000


class Case(NamedTuple):
    """A cluster, and pods that wait in it."""

    objects: list[Tree]
    waiting: list[Tree]


class Room:
    """What is left of a node while it is filled."""

    def __init__(self, node: Tree) -> None:
        offered = node["status"]["allocatable"]
        self.name = node["metadata"]["name"]
        self.milli_cpu = int(offered["cpu"]) * 1000
        self.gibibytes = int(offered["memory"].removesuffix("Gi"))
        self.gpus = int(offered.get(GPU, "0"))
        self.pods = int(offered["pods"])
        self.ports: set[int] = set()
        self.loners: set[str] = set()  # apps of which one pod is here that wants no second
        self.apps: set[str] = set()

    def takes(self, pod: Tree) -> bool:
        """Whether the pod fits; it then counts."""
        requests, ports, app, is_loner = _wishes(pod)
        gpus = requests.get(GPU, 0)
        if (
            requests["cpu"] > self.milli_cpu
            or requests["memory"] > self.gibibytes
            or gpus > self.gpus
        ):
            return False
        if (
            not self.pods
            or ports & self.ports
            or app in self.loners
            or (is_loner and app in self.apps)
        ):
            return False
        self.milli_cpu -= requests["cpu"]
        self.gibibytes -= requests["memory"]
        self.gpus -= gpus
        self.pods -= 1
        self.ports |= ports
        self.apps.add(app)
        if is_loner:
            self.loners.add(app)
        return True


def case(rng: random.Random) -> Case:
    """One cluster of up to seven nodes."""
    nodes = [_node(rng, number) for number in range(rng.randint(1, 7))]
    rooms = [Room(node) for node in nodes]
    moments = rng.sample(range(1, 100_000), 200)
    running: list[Tree] = []
    for number in range(rng.randint(3, 60)):
        pod = _pod(rng, f"run-{number}", priority=rng.choice(RUNNING), second=moments.pop())
        room = next((item for item in rng.sample(rooms, len(rooms)) if item.takes(pod)), None)
        if room is not None:
            running.append(_running(pod, room.name, moments.pop()))
    waiting = [
        _asking(
            rng,
            _pod(
                rng, f"wait-{number}", priority=rng.choice(WAITING), second=100_000 + moments.pop()
            ),
        )
        for number in range(rng.randint(1, 5))
    ]
    if rng.random() < 0.3:
        waiting = [
            _like(waiting[0], f"like-{number}", 100_000 + moments.pop())
            for number in range(rng.randint(2, 8))
        ]
    return Case([*nodes, *_budgets(rng), *running], waiting)


def _node(rng: random.Random, number: int) -> Tree:
    offered = {
        "cpu": str(rng.choice((4, 8, 16))),
        "memory": f"{rng.choice((8, 16, 32))}Gi",
        "pods": str(rng.choice((4, 8, 110))),
    }
    if gpus := rng.choice((0, 2, 4, 8)):
        offered[GPU] = str(gpus)
    name = f"n{number}"
    labels = {"kubernetes.io/hostname": name, "zone": rng.choice(ZONES)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-of-{name}", "labels": labels},
        "spec": {},
        "status": {"allocatable": offered, "capacity": offered},
    }


def _pod(rng: random.Random, name: str, *, priority: int | None, second: int) -> Tree:
    requests = {
        "cpu": f"{rng.choice((0, 250, 500, 1000, 2000, 4000))}m",
        "memory": f"{rng.choice((0, 1, 2, 4, 8))}Gi",
    }
    if rng.random() < 0.4:
        requests[GPU] = str(rng.choice((1, 1, 2, 4)))
    container: Tree = {
        "name": "main",
        "image": "example.com/image",
        "resources": {"requests": requests},
    }
    if rng.random() < 0.08:
        container["ports"] = [
            {"containerPort": 80, "hostPort": rng.choice((8080, 9090)), "protocol": "TCP"}
        ]
    spec: Tree = {"schedulerName": "default-scheduler", "containers": [container]}
    if priority is not None:
        spec["priority"] = priority
    if rng.random() < 0.1:
        spec["preemptionPolicy"] = "Never"
    app = rng.choice(APPS)
    if rng.random() < 0.08:
        term = {
            "labelSelector": {"matchLabels": {"app": app}},
            "topologyKey": "kubernetes.io/hostname",
        }
        spec["affinity"] = {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        }
    metadata: Tree = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": f"uid-of-{name}",
        "labels": {"app": app},
        "creationTimestamp": _moment(second),
    }
    if rng.random() < 0.5:
        owner = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": app,
            "uid": f"uid-of-{app}",
            "controller": True,
        }
        metadata["ownerReferences"] = [owner]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": "Pending"},
    }


def _asking(rng: random.Random, pod: Tree) -> Tree:
    """A pod that waits asks for more, and may want to be somewhere."""
    requests = pod["spec"]["containers"][0]["resources"]["requests"]
    if rng.random() < 0.7:
        requests["cpu"] = f"{rng.choice((2000, 4000, 6000, 8000))}m"
    if rng.random() < 0.3:
        requests["memory"] = f"{rng.choice((8, 12, 24))}Gi"
    if rng.random() < 0.2:
        pod["spec"]["nodeSelector"] = {"zone": rng.choice(ZONES)}
    return pod


def _like(pod: Tree, name: str, second: int) -> Tree:
    """Another pod of the same kind, as a Deployment makes them."""
    metadata = pod["metadata"] | {
        "name": name,
        "uid": f"uid-of-{name}",
        "creationTimestamp": _moment(second),
    }
    return {**pod, "metadata": metadata}


def _running(pod: Tree, node: str, second: int) -> Tree:
    status = {
        "phase": "Running",
        "startTime": _moment(second),
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": status}


def _budgets(rng: random.Random) -> list[Tree]:
    chosen = [app for app in APPS if rng.random() < 0.2]
    return [
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": app, "namespace": NAMESPACE, "uid": f"uid-of-budget-{app}"},
            "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {"disruptionsAllowed": rng.choice((0, 0, PLENTY))},
        }
        for app in chosen
    ]


def _moment(second: int) -> str:
    return (BEGIN + datetime.timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _wishes(pod: Tree) -> tuple[dict[str, int], set[int], str, bool]:
    container = pod["spec"]["containers"][0]
    asked = container["resources"]["requests"]
    requests = {
        "cpu": int(asked["cpu"].removesuffix("m")),
        "memory": int(asked["memory"].removesuffix("Gi")),
    }
    if GPU in asked:
        requests[GPU] = int(asked[GPU])
    ports = {item["hostPort"] for item in container.get("ports", ())}
    return requests, ports, pod["metadata"]["labels"]["app"], "affinity" in pod["spec"]
