"""A cluster in memory with an upgrade, a player for what runs on nodes, and a loop that can be killed at any write.

Given nodes and gangs. The player ends pods whose time is over, creates evicted ones again and installs what the
installer asked for. A kill is an exception of no failure's kind, raised before a write, which is after the one before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

from dovetail.kubetypes import codec, object_set, registry
from dovetail.kubetypes.custom.stack_upgrades import NodePhase, Phase, StackUpgrade
from dovetail.model import node_annotations
from dovetail.ports.api import Target
from dovetail.sim.server.api_server import SimApi
from dovetail.sim.virtual_clock import VirtualClock
from dovetail.upgrade import read_facts, upgrade_loop, upgrade_watch
from dovetail.upgrade.adapters import adapter
from dovetail.upgrade.machine import upgrade_machine
from dovetail.upgrade.machine.cluster_facts import (
    Judgement,
    Judges,
    Ongoing,
    Passed,
    Readiness,
    Rejected,
    Versions,
)

Tree = dict[str, Any]
LOADED = "nvidia.com/cuda.driver-version.full"
WANTED = "example.com/wanted-driver"
OLD, NEW = "570.10", "580.20"
READS = ("get", "rehearse")


class Killed(BaseException):
    """The process ends here."""


class SimulatedUpgrade:
    """The cluster, the player and the present loop."""

    def __init__(
        self, *, nodes: int = 3, spec: Tree | None = None, lag: int = 0, pod_lag: int = 0
    ) -> None:
        self.lag = lag  # passes by which the loop's watches are behind
        self.pod_lag = pod_lag  # and that of pods still more
        self._readings: list[object_set.ObjectSet] = []
        self.clock = VirtualClock()
        self.api = SimApi(self.clock)
        self.bad: set[str] = set()  # nodes on which the new driver does not work
        self.intolerant: set[str] = set()  # nodes whose driver's pod does not tolerate our taint
        self.writes = 0
        self.kill_at = 0
        self.is_fragile = False  # each process makes one write and is killed before its next one
        self._writes_of_life = 0
        self._sizes: dict[str, int] = {}
        self._places: dict[str, set[str]] = {}
        for number in range(nodes):
            self.api.put(self.node_tree(f"gpu-{number}"))
        self.api.put(
            {
                "apiVersion": "dovetail.dev/v1alpha1",
                "kind": "StackUpgrade",
                "metadata": {"name": "roll"},
                "spec": self.brings() | (spec or {}),
            }
        )
        self.api.before = self._before
        self.api.after = self._after
        self._restart()

    def brings(self) -> Tree:
        """What the upgrade is for."""
        return {"to": {"driver": NEW}}

    def node_tree(self, name: str) -> Tree:
        """A node before it."""
        return _node(name)

    # What runs

    def run_gang(self, name: str, *nodes: str) -> None:
        """A Job with one pod on each of these nodes, which needs them all."""
        for number, node in enumerate(nodes):
            self._put_pod(name, number, len(nodes), node)

    def run_driver(self, node: str) -> None:
        """The pod of a driver's DaemonSet, with the tolerations that the operator gives it."""
        self.intolerant.add(node)
        owner = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "name": "driver",
            "uid": "driver",
            "controller": True,
        }
        self.api.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"driver-{node}",
                    "namespace": "default",
                    "labels": {"app": "nvidia-driver-daemonset"},
                    "ownerReferences": [owner],
                },
                "spec": {
                    "nodeName": node,
                    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
                    "containers": [{"name": "driver", "image": "driver"}],
                },
                "status": {"phase": "Running"},
            }
        )

    def run_pod(self, name: str, node: str) -> None:
        """A pod of a ReplicaSet."""
        self._put_pod(name, 0, 1, node)

    def taint(self, node: str, **taint: str) -> None:
        """Another writer taints a node."""
        tree = self.api.tree(registry.NODE, node)
        taints = [*tree["spec"].get("taints", ()), taint]
        self._patch(node, {"spec": {"taints": taints}})

    def _patch(self, node: str, patch: Tree) -> None:
        tree = self.api.tree(registry.NODE, node)
        for part, fields in patch.items():
            tree[part] = tree.get(part, {}) | fields
        self.api.write(Target(registry.NODE, "", node), tree)

    # What is seen

    @property
    def upgrade(self) -> StackUpgrade:
        upgrade: StackUpgrade = self.api.find(registry.STACK_UPGRADE, "roll")
        return upgrade

    def phases(self) -> dict[str, str]:
        return {node.name: str(node.phase) for node in self.upgrade.status.nodes}

    def fences(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for node in self.api.all(registry.NODE):
            for taint in node.spec.taints:
                if taint.key == read_facts.FENCE:
                    found[node.metadata.name] = taint.value
            if node.spec.unschedulable and node_annotations.CORDON in node.metadata.annotations:
                assert node.metadata.name not in found, "fenced twice"
                found[node.metadata.name] = node.metadata.annotations[node_annotations.CORDON]
        return found

    def drivers(self) -> dict[str, str]:
        nodes = self.api.all(registry.NODE)
        return {node.metadata.name: node.metadata.labels[LOADED] for node in nodes}

    def edit(self, **fields: Any) -> None:
        """A person changes the spec."""
        tree = self.api.tree(registry.STACK_UPGRADE, "roll")
        tree["spec"] = tree["spec"] | fields
        self.api.write(Target(registry.STACK_UPGRADE, "", "roll"), tree)

    # Time

    def run(
        self, passes: int = 200, *, until: Callable[[SimulatedUpgrade], bool] | None = None
    ) -> None:
        """Lets the loop and the player work; a killed loop is followed by another one."""
        for _ in range(passes):
            if until is not None and until(self):
                return
            try:
                asyncio.run(self._pass())
            except Killed:
                self._restart()
            if until is None and ended(self):
                return

    async def _pass(self) -> None:
        await self.loop.run_once()
        await self.clock.advance(10)
        self._play()

    def _restart(self) -> None:
        self._writes_of_life = 0
        self._readings.clear()  # a new process begins with a list
        self.loop = upgrade_loop.UpgradeLoop(
            self.api, self._read, self.clock, self._judges, confirm=self._confirm
        )

    async def _read(self) -> upgrade_loop.Reading:
        self._readings.append(self._now())
        seen = self._readings[-1 - self.lag :][0]
        pods = self._readings[-1 - self.lag - self.pod_lag :][0].listed(registry.POD.name)
        others = [each for each in seen.all() if each.struct.kind != registry.POD.name]
        return upgrade_loop.Reading(object_set.of("sim", [*others, *pods]), has_rules=True)

    async def _confirm(
        self, reading: upgrade_loop.Reading, names: Collection[str]
    ) -> upgrade_loop.Reading:
        objects = upgrade_watch.with_nodes(reading.objects, self._now(), names)
        return reading._replace(objects=objects)

    def _now(self) -> object_set.ObjectSet:
        stored = [
            object_set.stored_item(kind, codec.encode_tree(self.api.tree(kind, name, namespace=ns)))
            for kind in upgrade_loop.KINDS
            if kind in registry.ALL
            for ns, name in self._names(kind)
        ]
        return object_set.of("sim", stored)

    def _names(self, kind: registry.Kind) -> list[tuple[str, str]]:
        objects = self.api.all(kind)
        return [(each.metadata.namespace, each.metadata.name) for each in objects]

    def _before(self, verb: str, target: Target) -> None:
        if verb in READS:
            return
        self.writes += 1
        if self.writes == self.kill_at or (self.is_fragile and self._writes_of_life):
            raise Killed
        self._writes_of_life += target.kind is not registry.EVENT

    def _after(self, verb: str, target: Target) -> None:
        self._check()

    # What must hold after every write

    def _check(self) -> None:
        if not self.api.all(registry.STACK_UPGRADE):
            return  # it was deleted, and is gone
        status = self.upgrade.status
        fences = self.fences()
        most = max(1, -(-int(self._max_unavailable()) * len(self.drivers()) // 100))
        assert len(fences) <= most, f"{fences} with {most} allowed"
        drivers = self.drivers()
        for node in status.nodes:
            is_changed = drivers.get(node.name) != OLD or self._wanted(node.name)
            is_open = fences.get(node.name) != "roll"
            if is_changed and is_open and not node.is_going_back:
                is_valid = node.phase in (NodePhase.UNFENCING, NodePhase.DONE)
                assert is_valid, f"{node} is open without a validation"
                assert drivers[node.name] == NEW
        half_evicted = self._half_evicted()
        assert len(half_evicted) <= 1
        for gang in half_evicted:
            assert self._places[gang] & fences.keys(), f"{gang} is half evicted without a fence"

    def _half_evicted(self) -> list[str]:
        gangs: dict[str, list[bool]] = {}
        for pod in self.api.all(registry.POD):
            is_gone = pod.metadata.deletion_timestamp is not None
            if (gang := pod.metadata.labels.get("dovetail.dev/gang")) is not None:
                gangs.setdefault(gang, []).append(is_gone)
        sizes = self._sizes
        return [
            name
            for name, gone in gangs.items()
            if sizes[name] > 1 and 0 < sizes[name] - gone.count(False) < sizes[name]
        ]

    def _max_unavailable(self) -> str:
        return self.upgrade.spec.waves.max_unavailable.removesuffix("%")

    def _wanted(self, node: str) -> bool:
        labels: dict[str, str] = self.api.find(registry.NODE, node).metadata.labels
        return WANTED in labels

    # The player

    def _play(self) -> None:
        self.api.settle()
        for node in self.api.all(registry.NODE):
            wanted = node.metadata.labels.get(WANTED)
            if node.metadata.name in self.intolerant and node.spec.taints:
                continue  # the DaemonSet controller creates no pod there
            if wanted and node.metadata.labels[LOADED] != wanted:
                assert not self._gpu_pods(node.metadata.name), "installed under running work"
                labels = node.metadata.labels | {LOADED: wanted}
                self._patch(node.metadata.name, {"metadata": {"labels": labels}})
        for pod in self.api.all(registry.POD):
            if pod.metadata.deletion_timestamp is not None:
                key = (pod.metadata.namespace, pod.metadata.name)
                self.api.shelf.delete(registry.POD, key, grace_seconds=0)

    def _gpu_pods(self, node: str) -> list[str]:
        return [
            pod.metadata.name
            for pod in self.api.all(registry.POD)
            if pod.spec.node_name == node and "dovetail.dev/gang" in pod.metadata.labels
        ]

    def _put_pod(self, gang: str, number: int, size: int, node: str) -> None:
        self._sizes[gang] = size
        self._places.setdefault(gang, set()).add(node)
        limits = {"nvidia.com/gpu": "1"}
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": gang,
            "uid": f"job-{gang}",
            "controller": True,
        }
        self.api.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{gang}-{number}",
                    "namespace": "default",
                    "labels": {"dovetail.dev/gang": gang, "dovetail.dev/gang-min": str(size)},
                    "ownerReferences": [owner],
                },
                "spec": {
                    "nodeName": node,
                    "containers": [{"name": "a", "image": "a", "resources": {"limits": limits}}],
                },
                "status": {"phase": "Running"},
            }
        )

    # The installer: a label that the player answers

    def _judges(self, objects: object_set.ObjectSet) -> Judges:
        def readiness(node: str, versions: Versions) -> Readiness:
            return Readiness("label", is_current=self.drivers()[node] == versions["driver"])

        def installing(node: str, versions: Versions, seconds: int) -> Judgement:
            wanted = versions["driver"]
            labels = self.api.find(registry.NODE, node).metadata.labels
            if labels.get(WANTED) != wanted:
                patch = adapter.NodePatch(node=node, labels={WANTED: wanted}, why="installs")
                return Ongoing("the label", (patch,))
            return Passed() if labels[LOADED] == wanted else Ongoing("the player")

        def validity(node: str, versions: Versions) -> Judgement:
            is_bad = node in self.bad and versions["driver"] == NEW
            return Rejected("2 of 8 GPUs are missing") if is_bad else Passed()

        return Judges(readiness, installing, validity)


def ended(rig: SimulatedUpgrade) -> bool:
    return rig.upgrade.status.phase in upgrade_machine.ENDED


def in_phase(phase: Phase) -> Callable[[SimulatedUpgrade], bool]:
    return lambda rig: rig.upgrade.status.phase is phase


def _node(name: str) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {LOADED: OLD}},
        "status": {
            "allocatable": {"nvidia.com/gpu": "8", "cpu": "64", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
