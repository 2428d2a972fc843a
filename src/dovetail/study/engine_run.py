"""Drives the engine itself with the shapes of a workload: `decide` places each pod, as the live scheduler would.

Given nodes in the order that decides between equal scores. A GPU is a device of which claims take shares of 1000, so
that whole GPUs and parts of them stand side by side. Placements are assumed, as the live scheduler does before it has
written them. Never scores and never places by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.model import pod_mix, policy
from dovetail.schedule import decide
from dovetail.study import workload
from dovetail.world import events
from dovetail.world.events import Changed, ObjectKey
from dovetail.world.world import MixInForce, World

DRIVER: Final = "gpu.study.dovetail.dev"
NAMESPACE: Final = "study"
CAPACITY: Final = "milli"
POLICY: Final = policy.Policy(placement=policy.Placement.EXPECTED_LOSS)
Tree = dict[str, Any]


class EnginePlacement(NamedTuple):
    """Where the engine put a pod; the devices by number."""

    node: int
    devices: tuple[int, ...]


class EngineCluster:
    """A World that pods are put into one by one."""

    def __init__(
        self,
        nodes: Sequence[workload.Node],
        *,
        mix: pod_mix.Mix | None = None,
        policy_: policy.Policy = POLICY,
    ) -> None:
        """All nodes empty. Without a mix it is counted from the pods that have arrived."""
        self.world = World()
        self._mix = mix
        self._policy = policy_
        self._numbers: dict[str, int] = {}
        self._pods = 0
        self._apply("DeviceClass", {"metadata": {"name": "gpu"}, "spec": _class_spec()})
        for number, node in enumerate(nodes):
            name = f"node-{number:06}"
            self._numbers[name] = number
            self._apply("Node", _node(name, node))
            if node.gpus:
                self._apply("ResourceSlice", _slice(name, node))

    def place(self, shape: pod_mix.Shape) -> EnginePlacement | None:
        """Decides about one more pod; None where it fits nowhere. It is gone then."""
        name = f"pod-{self._pods:06}"
        self._pods += 1
        if shape.gpus:
            self._apply("ResourceClaim", _claim(name, shape))
        pod = self._apply("Pod", _pod(name, shape))
        assert isinstance(pod, pods.Pod)
        if self._mix is not None:
            counted = pod_mix.last_count(len(self.world.pods))
            self.world.mix_in_force = MixInForce(self._mix, counted, self.world.pods_gone)

        plan = decide.decide(self.world, self._policy, among={pod.metadata.uid})
        if not plan.placements:
            return None
        placement = plan.placements[0]
        results = [allocation.result for allocation in placement.allocations]
        allocations: dict[ObjectKey, claims.AllocationResult] = {}
        if results:
            allocations[NAMESPACE, name] = results[0]
        self.world.assume(pod, placement.node, allocations)
        devices = [device.device for result in results for device in result.devices.results]
        numbers = sorted(int(device.removeprefix("gpu-")) for device in devices)
        return EnginePlacement(self._numbers[placement.node], tuple(numbers))

    def _apply(self, kind: str, tree: Tree) -> object:
        version = "v1" if kind in ("Pod", "Node") else registry.RESOURCE_V1
        decoded = codec.decode({"apiVersion": version, "kind": kind, **tree}).struct
        assert isinstance(decoded, events.Object), kind
        self.world.apply(Changed(decoded))
        return decoded


def _class_spec() -> Tree:
    return {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}


def _node(name: str, node: workload.Node) -> Tree:
    allocatable = {
        "cpu": f"{node.cpu_milli}m",
        "memory": f"{node.memory_mib}Mi",
        "pods": "100000",
    }
    return {"metadata": {"name": name}, "status": {"allocatable": allocatable}}


def _slice(name: str, node: workload.Node) -> Tree:
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {"productName": {"string": node.model}},
            "capacity": {CAPACITY: {"value": str(pod_mix.MILLI)}},
            "allowMultipleAllocations": True,
        }
        for number in range(node.gpus)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}
    return {"metadata": {"name": f"{name}-slice"}, "spec": spec}


def _claim(name: str, shape: pod_mix.Shape) -> Tree:
    exactly: Tree = {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": shape.gpus,
        "capacity": {"requests": {CAPACITY: str(shape.gpu_milli)}},
    }
    if shape.models:
        listed = ", ".join(f'"{model}"' for model in shape.models)
        expression = f'device.attributes["{DRIVER}"].productName in [{listed}]'
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    metadata = {"name": name, "namespace": NAMESPACE, "uid": f"uid-of-claim-{name}"}
    return {
        "metadata": metadata,
        "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}},
    }


def _pod(name: str, shape: pod_mix.Shape) -> Tree:
    requests = {"cpu": f"{shape.cpu_milli}m", "memory": f"{shape.memory_mib}Mi"}
    spec: Tree = {"containers": [{"name": "main", "resources": {"requests": requests}}]}
    if shape.gpus:
        spec["resourceClaims"] = [{"name": "gpus", "resourceClaimName": name}]
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": f"uid-of-{name}",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return {"metadata": metadata, "spec": spec}
