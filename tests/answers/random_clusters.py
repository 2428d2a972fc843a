"""Random clusters with pending pods: `python -m tests.answers.random_clusters --seeds 0:200`.

Every pending pod is asked about: the verdict of `dovetail why` has to be what the live scheduler does, and every fix
has to work. No cause is planted, so none is judged. Prints a line per fault; exit 1 if there was any. The same seed
draws the same cluster.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from dovetail.sim.fleet import fleet_objects, fleet_spec
from tests.answers import answer_form, asking, live_checks, story_file

NAMESPACES: Final = ("red", "blue")
ZONES: Final = ("zone-a", "zone-b")
PRODUCTS: Final = ("NVIDIA-H100-80GB-HBM3", "NVIDIA-L4")
TAINTS: Final = ("nvidia.com/gpu", "example.com/team")
PRIORITIES: Final = {"low": 100, "high": 1000}
GPU: Final = "nvidia.com/gpu"
CREATED: Final = "2026-11-16T09:{:02}:00Z"
OFTEN, SOMETIMES, RARELY = 0.5, 0.25, 0.1
Tree = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Asks about every pending pod of every cluster."""
    parser = argparse.ArgumentParser(prog="python -m tests.answers.random_clusters")
    parser.add_argument("--seeds", default="0:50", help="FIRST:LAST, the last one excluded")
    options = parser.parse_args(arguments)
    first, _, last = options.seeds.partition(":")
    faults = asked = 0
    for seed in range(int(first), int(last)):
        for story in stories(seed):
            asked += 1
            for fault in faults_of(story):
                faults += 1
                print(f"{story.name}: {story.header.ask}: {fault}", flush=True)
    print(f"{asked} pods, {faults} faults")
    return 1 if faults else 0


def stories(seed: int) -> Iterator[story_file.Story]:
    """One story for each pending pod of a cluster."""
    objects = story_file.completed(_Drawing(random.Random(seed)).objects())
    for tree in objects:
        if tree["kind"] == "Pod" and "nodeName" not in tree["spec"]:
            metadata = tree["metadata"]
            header = story_file.Header(
                api_version="dovetail.dev/tests",
                kind="Story",
                title=f"A random cluster of seed {seed}",
                ask=f"pod/{metadata['name']} -n {metadata['namespace']}",
                verdict="blocked",  # unknown before the live scheduler has decided
            )
            yield story_file.Story(f"random-{seed}", header, objects)


def faults_of(story: story_file.Story) -> Iterator[str]:
    """What is wrong with the answer about one pod."""
    live = live_checks.LiveStory(story)
    reply = asking.ask(story).json
    try:
        answer = answer_form.read(reply.out)
    except msgspec.MsgspecError as error:
        yield f"{error}: {reply.err.strip()}"
        return

    does_start = live.starts()
    if answer.schedulable != does_start:
        sentence = answer.cause.sentence if answer.cause is not None else "no cause"
        yield f"schedulable is {answer.schedulable}, does start: {does_start} ({sentence})"
        return
    for fix in answer.fixes:
        problem = live.problem_with(fix.patch)
        if problem:
            yield f"fix {fix.title}: {problem}"


class _Drawing:
    """One cluster."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._has_devices = self._maybe(SOMETIMES)
        self._has_queues = self._maybe(OFTEN)

    def objects(self) -> list[Tree]:
        nodes = self._nodes()
        plugin_nodes = [tree for tree in nodes if tree["kind"] == "Node"]
        trees = [*nodes, *self._priority_classes(), *self._queues()]
        if self._has_devices:
            trees.append(_template(self._rng.randint(1, 3)))
        created = [*self._running(plugin_nodes), *self._pending()]
        return [*trees, *created, *_owners(created)]

    def _nodes(self) -> list[Tree]:
        if self._has_devices:
            kinds: list[Tree] = [{}, {"mig": True}, {"shares": "memory"}]
            kind = self._rng.choice(kinds)
            pool = fleet_spec.Pool(
                name="n",
                count=self._rng.randint(1, 3),
                gpu="A100-SXM4-80GB",
                gpus_per_node=2,
                **kind,
            )
            return fleet_objects.objects_of(fleet_spec.Fleet(name="random", pools=(pool,)))
        return [self._node(index) for index in range(self._rng.randint(1, 5))]

    def _node(self, index: int) -> Tree:
        amounts = {
            "cpu": str(self._rng.choice((8, 16, 64))),
            "memory": "256Gi",
            "pods": "110",
            GPU: str(self._rng.choice((1, 2, 4, 8))),
        }
        labels = {
            "kubernetes.io/hostname": f"n-{index}",
            "topology.kubernetes.io/zone": self._rng.choice(ZONES),
            "nvidia.com/gpu.product": self._rng.choice(PRODUCTS),
        }
        taints = [
            {"key": key, "value": "true", "effect": "NoSchedule"}
            for key in TAINTS
            if self._maybe(SOMETIMES)
        ]
        spec: Tree = {"taints": taints}
        if self._maybe(RARELY):
            spec["unschedulable"] = True
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": CREATED.format(0)}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"n-{index}", "labels": labels},
            "spec": spec,
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
        }

    def _priority_classes(self) -> list[Tree]:
        return [
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
            }
            for name, value in PRIORITIES.items()
        ]

    def _queues(self) -> list[Tree]:
        if not self._has_queues:
            return []
        trees = []
        for name in NAMESPACES:
            quota = self._rng.randint(0, 8)
            share: Tree = {"quota": quota}
            if self._maybe(OFTEN):
                share["limit"] = quota + self._rng.randint(0, 4)
            labels = {"kubernetes.io/metadata.name": name}
            spec: Tree = {"resources": {"gpu": share}, "namespaceSelector": {"matchLabels": labels}}
            if self._maybe(RARELY):
                spec["minRuntimeSeconds"] = self._rng.choice((600, 7200))
            trees.append(
                {
                    "apiVersion": "dovetail.dev/v1alpha1",
                    "kind": "Queue",
                    "metadata": {"name": name},
                    "spec": spec,
                }
            )
        return trees

    def _running(self, nodes: Sequence[Tree]) -> Iterator[Tree]:
        """Pods that hold GPUs of a device plugin, never more than there are."""
        if self._has_devices:
            return
        for node in nodes:
            free = int(node["status"]["allocatable"][GPU])
            for index in range(self._rng.randint(0, 3)):
                gpus = self._rng.randint(1, 4)
                if gpus > free:
                    break
                free -= gpus
                name = f"run-{node['metadata']['name']}-{index}"
                pod = self._pod(name, gpus=gpus, minute=self._rng.randint(0, 50))
                pod["spec"] |= {"nodeName": node["metadata"]["name"]}
                pod["spec"]["tolerations"] = [{"operator": "Exists"}]
                pod["status"] = {
                    "phase": "Running",
                    "startTime": pod["metadata"]["creationTimestamp"],
                }
                yield pod

    def _pending(self) -> Iterator[Tree]:
        for index in range(self._rng.randint(1, 3)):
            pod = self._pod(f"wait-{index}", gpus=self._rng.randint(1, 5), minute=55 + index)
            if self._has_devices:
                container = pod["spec"]["containers"][0]
                container["resources"] = {"claims": [{"name": "gpu"}]}
                claim = {"name": "gpu", "resourceClaimTemplateName": "gpus"}
                pod["spec"]["resourceClaims"] = [claim]
            self._add_rules(pod)
            yield pod
        if self._maybe(SOMETIMES):
            yield from self._gang()

    def _gang(self) -> Iterator[Tree]:
        count = self._rng.randint(2, 3)
        for index in range(count):
            pod = self._pod(f"gang-{index}", gpus=self._rng.randint(1, 2), minute=58)
            labels = {"dovetail.dev/gang": "g", "dovetail.dev/gang-min": str(count)}
            pod["metadata"]["labels"] |= labels
            pod["metadata"]["namespace"] = NAMESPACES[0]
            yield pod

    def _add_rules(self, pod: Tree) -> None:
        spec, metadata = pod["spec"], pod["metadata"]
        if self._maybe(SOMETIMES):
            spec["nodeSelector"] = {
                "nvidia.com/gpu.product": self._rng.choice((*PRODUCTS, "NVIDIA-B200"))
            }
        if self._maybe(SOMETIMES):
            spec["nodeSelector"] = spec.get("nodeSelector", {}) | {
                "topology.kubernetes.io/zone": self._rng.choice(ZONES)
            }
        spec["tolerations"] = [
            {"key": key, "operator": "Exists"} for key in TAINTS if self._maybe(OFTEN)
        ]
        if self._maybe(RARELY):
            spec["schedulingGates"] = [{"name": "example.com/gate"}]
        if self._maybe(RARELY):
            metadata["annotations"] = {"dovetail.dev/may-evict-after": "1h"}
        if self._maybe(RARELY):
            selector = {"labelSelector": {"matchLabels": {"app": "x"}}}
            term = selector | {"topologyKey": "kubernetes.io/hostname"}
            rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            spec["affinity"] = {"podAntiAffinity": rule}

    def _pod(self, name: str, *, gpus: int, minute: int) -> Tree:
        namespace = self._rng.choice(NAMESPACES)
        requests = {"cpu": str(self._rng.randint(1, 4)), GPU: str(gpus)}
        container = {
            "name": "main",
            "image": "train:1",
            "resources": {"requests": requests, "limits": {GPU: str(gpus)}},
        }
        metadata: Tree = {
            "name": name,
            "namespace": namespace,
            "labels": {"app": self._rng.choice("xyz")},
            "creationTimestamp": CREATED.format(minute),
        }
        if self._maybe(OFTEN):
            metadata["labels"]["set"] = name
            owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name}
            metadata["ownerReferences"] = [owner | {"controller": True}]
        spec: Tree = {"containers": [container]}
        if self._maybe(OFTEN):
            spec["priorityClassName"] = self._rng.choice(sorted(PRIORITIES))
            spec["priority"] = PRIORITIES[spec["priorityClassName"]]
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def _maybe(self, chance: float) -> bool:
        return self._rng.random() < chance


def _owners(created: Iterable[Tree]) -> Iterator[Tree]:
    """The ReplicaSets that create such pods again when they are evicted."""
    for pod in created:
        metadata = pod["metadata"]
        for reference in metadata.get("ownerReferences", []):
            spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
            yield {
                "apiVersion": reference["apiVersion"],
                "kind": reference["kind"],
                "metadata": {
                    "name": reference["name"],
                    "namespace": metadata["namespace"],
                    "uid": reference["uid"],
                },
                "spec": {
                    "replicas": 1,
                    "selector": {"matchLabels": {"set": reference["name"]}},
                    "template": {"metadata": {"labels": metadata["labels"]}, "spec": spec},
                },
            }


def _template(count: int) -> Tree:
    exactly = {"deviceClassName": "gpu.nvidia.com", "count": count}
    request = {"name": "gpu", "exactly": exactly}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpus", "namespace": NAMESPACES[0]},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


if __name__ == "__main__":
    sys.exit(main())
