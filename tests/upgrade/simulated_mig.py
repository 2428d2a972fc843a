"""A cluster in memory whose nodes get other MIG partitions, with a MIG manager and a device plugin on each.

Given nodes and configurations. The manager of a node is played by its labels; the device plugin counts what the
manager made. Judgements are those of the real adapters and validations.
"""

from __future__ import annotations

from typing import Any, Final

from dovetail.kubetypes import object_set, registry
from dovetail.ports.api import Target
from dovetail.upgrade import judging
from dovetail.upgrade.machine.cluster_facts import Judges
from dovetail.upgrade.validation import validation_checks
from tests.upgrade import trees
from tests.upgrade.mig_manager_player import CLIENTS, CONFIG, STATE, MigManager
from tests.upgrade.simulated_upgrade import SimulatedUpgrade

Tree = dict[str, Any]
WHOLE: Final = "all-disabled"
SLICED: Final = "dovetail-slices"
OFFERED: Final = {
    WHOLE: {"nvidia.com/gpu": "2"},
    SLICED: {"nvidia.com/mig-1g.10gb": "14"},
}
PARTITIONS: Final = {"1g.10gb": 14}


class SimulatedMig(SimulatedUpgrade):
    """Nodes with two whole GPUs that become 14 partitions."""

    def __init__(self, *, nodes: int = 2, spec: Tree | None = None) -> None:
        self.offered = dict(OFFERED)  # what the plugin counts, by configuration
        self.managers: dict[str, MigManager] = {}
        self._count = nodes
        super().__init__(nodes=nodes, spec=spec)
        self.api.put(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpu-operator"}}
        )
        for number in range(nodes):
            name = f"gpu-{number}"
            self.api.put(trees.pod("nvidia-mig-manager", "test/mig-manager:v0.15.0", name))
            manager = MigManager(self.api.tree(registry.NODE, name))
            manager.known = (*self.offered, "broken")
            self.managers[name] = manager

    def brings(self) -> Tree:
        """A geometry for each node."""
        nodes = [
            {"node": f"gpu-{number}", "config": SLICED, "partitions": PARTITIONS}
            for number in range(self._count)
        ]
        return {"mig": {"nodes": nodes}, "rollback": "FailedNodes"}

    def node_tree(self, name: str) -> Tree:
        """A node with whole GPUs."""
        labels = {
            "nvidia.com/cuda.driver-version.full": trees.OLD,
            "nvidia.com/gpu.count": "2",
            CONFIG: WHOLE,
            STATE: "success",
            **dict.fromkeys(CLIENTS, "true"),
        }
        node = trees.node(name, labels)
        node["status"]["allocatable"] = {"cpu": "64", "pods": "110"} | OFFERED[WHOLE]
        return node

    def run_without_gpus(self, name: str, node: str) -> None:
        """A pod that needs no GPU."""
        self.run_pod(name, node)
        tree = self.api.tree(registry.POD, f"{name}-0", namespace="default")
        self.api.shelf.delete(registry.POD, ("default", f"{name}-0"), grace_seconds=0)
        tree["spec"]["containers"][0]["resources"] = {}
        self.api.put(
            {key: tree[key] for key in ("apiVersion", "kind", "spec", "status")}
            | {
                "metadata": {
                    key: tree["metadata"][key]
                    for key in ("name", "namespace", "labels", "ownerReferences")
                }
            }
        )

    # What is seen

    def configs(self) -> dict[str, str]:
        """The label of each node."""
        nodes = self.api.all(registry.NODE)
        return {node.metadata.name: node.metadata.labels[CONFIG] for node in nodes}

    def partitions(self) -> dict[str, Tree]:
        """What the device plugin of each node counts."""
        trees_ = [
            self.api.tree(registry.NODE, node.metadata.name) for node in self.api.all(registry.NODE)
        ]
        return {tree["metadata"]["name"]: _gpus(tree) for tree in trees_}

    def drivers(self) -> dict[str, str]:
        """The configurations stand in for versions."""
        return self.configs()

    def _check(self) -> None:
        """No node whose partitions are not what they were or are to be is open to work."""
        if not self.api.all(registry.STACK_UPGRADE):
            return
        fences = self.fences()
        assert len(fences) <= 1, fences
        configs, partitions = self.configs(), self.partitions()
        for name, config in configs.items():
            is_settled = partitions[name] in (OFFERED[WHOLE], OFFERED[SLICED])
            if fences.get(name) != "roll":
                assert is_settled, f"{name} is open with {partitions[name]}"
                assert config in (WHOLE, SLICED), f"{name} is open with {config}"
                assert OFFERED[config] == partitions[name], f"{name} is open before its validation"
        assert len(self._half_evicted()) <= 1

    # The player

    def _play(self) -> None:
        self.api.settle()
        for name, manager in self.managers.items():
            self._run_manager(name, manager)
        for pod in self.api.all(registry.POD):
            if pod.metadata.deletion_timestamp is not None:
                key = (pod.metadata.namespace, pod.metadata.name)
                self.api.shelf.delete(registry.POD, key, grace_seconds=0)

    def _run_manager(self, name: str, manager: MigManager) -> None:
        tree = self.api.tree(registry.NODE, name)
        before = dict(tree["metadata"]["labels"])
        manager.node = tree
        seen = len(manager.changes)
        manager.act()
        if before != manager.labels:
            self._patch(name, {"metadata": {"labels": manager.labels}})
        if len(manager.changes) > seen:
            holders = [
                pod for pod in self._gpu_pods(name) if not pod.startswith(("nvidia-", "cpu"))
            ]
            assert not holders, f"partitioned under {holders}"
            tree = self.api.tree(registry.NODE, name)
            counted = {"cpu": "64", "pods": "110"} | self.offered[manager.changes[-1]]
            tree["status"]["allocatable"] = counted
            self.api.write(Target(registry.NODE, "", name, "status"), tree)

    def _half_evicted(self) -> list[str]:
        gangs: dict[str, int] = {}
        for pod in self.api.all(registry.POD):
            gang = pod.metadata.labels.get("dovetail.dev/gang", "")
            if gang and pod.metadata.deletion_timestamp is None:
                gangs[gang] = gangs.get(gang, 0) + 1
        return [gang for gang, count in gangs.items() if count < self._sizes[gang]]

    def _judges(self, objects: object_set.ObjectSet) -> Judges:
        return judging.judges_of(objects, validation_checks.DEFAULTS)


def _gpus(tree: Tree) -> Tree:
    allocatable = tree["status"]["allocatable"]
    return {name: count for name, count in allocatable.items() if name.startswith("nvidia.com/")}
