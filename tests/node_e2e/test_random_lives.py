"""Random lives of a GPU node: pods come and go while its parts are killed and restarted, as a seed has it.

At no time do two claims have the same silicon; in the end every placed pod runs, and without pods the GPUs are as they
were.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
import yaml

from tests.node_e2e.gpu_cluster import GpuCluster, Tree, pod_of, trees_of
from tests.support import cluster as planes

pytestmark = pytest.mark.slow

SEEDS = (1, 2)
STEPS = 14
EXAMPLES = ("whole-gpu.yaml", "mig-slice.yaml")


class Life:
    """One life in a namespace of its own."""

    def __init__(self, cluster: GpuCluster, seed: int) -> None:
        self.cluster = cluster
        self.namespace = planes.fresh_namespace(cluster.plane)
        self.random = random.Random(seed)
        self.names: list[str] = []
        self._count = 0
        templates = [
            tree | {"metadata": {"name": tree["metadata"]["name"], "namespace": self.namespace}}
            for example in EXAMPLES
            for tree in trees_of(example)
            if tree["kind"] == "ResourceClaimTemplate"
        ]
        planes.apply(cluster.plane, templates, namespace=self.namespace)

    def step(self) -> str:
        """Does something; says what."""
        node = self.cluster.node
        steps = {
            "start a pod": (8, self._start),
            "delete a pod": (4, self._delete),
            "kill the agent": (2, self._kill_agent),
            "restart the kubelet": (1, node.restart_kubelet),
            "restart containerd": (1, node.restart_containerd),
        }
        weights = [weight for weight, _ in steps.values()]
        (name,) = self.random.choices(list(steps), weights=weights)
        steps[name][1]()
        return name

    def pods(self) -> list[Tree]:
        """The pods of this life."""
        return self.cluster.live.pods(self.namespace)

    def all_placed_run(self) -> bool:
        """Whether every pod that has a node runs, and none is on its way out."""
        pods = self.pods()
        placed = [pod for pod in pods if pod["spec"].get("nodeName")]
        is_settled = not any("deletionTimestamp" in pod["metadata"] for pod in pods)
        return is_settled and all(pod["status"].get("phase") == "Running" for pod in placed)

    def _start(self) -> None:
        self._count += 1
        name = f"pod-{self._count}"
        pod = pod_of(self.random.choice(EXAMPLES))
        pod["metadata"] = {"name": name, "namespace": self.namespace}
        planes.apply(self.cluster.plane, [pod], namespace=self.namespace)
        self.names.append(name)

    def _delete(self) -> None:
        if not self.names:
            return
        name = self.names.pop(self.random.randrange(len(self.names)))
        planes.kubectl(
            self.cluster.plane, "delete", "pod", name, "-n", self.namespace, "--wait=false"
        )

    def _kill_agent(self) -> None:
        self.cluster.node.kill_agent()
        self.cluster.node.node.start_agent_again()


def held_devices(cluster: GpuCluster) -> list[str]:
    """The devices of all claims that are prepared on the node, by their CDI files."""
    names: list[str] = []
    for file in cluster.node.cdi.glob("*claim*.yaml"):
        try:
            tree = yaml.safe_load(file.read_text(encoding="utf-8"))
        except FileNotFoundError:  # unprepared meanwhile
            continue
        uid = file.stem.rpartition("_")[2]
        names += [device["name"].removeprefix(f"{uid}-") for device in tree["devices"]]
    return names


def overlaps(devices: list[str]) -> list[str]:
    """Devices that two claims have, and GPUs that are held as a whole and in part."""
    twice = [device for device, count in Counter(devices).items() if count > 1]
    wholes = {device for device in devices if "-mig-" not in device}
    parents = {device.partition("-mig-")[0] for device in devices if "-mig-" in device}
    return twice + sorted(wholes & parents)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_life_of_kills_and_restarts_ends_as_it_began(cluster: GpuCluster, seed: int) -> None:
    life = Life(cluster, seed)
    story: list[str] = []
    earlier = len(cluster.agent_log())
    for _ in range(STEPS):
        story.append(life.step())
        assert overlaps(held_devices(cluster)) == [], story
    cluster.wait_for(
        f"placed pods to run after {story}", life.all_placed_run, namespace=life.namespace
    )
    assert cluster.allocated(life.namespace) == sorted(held_devices(cluster)), story
    assert "Traceback" not in cluster.agent_log()[earlier:], story
    cluster.delete_namespace(life.namespace)
