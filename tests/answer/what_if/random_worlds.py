"""Random small clusters with work on them, and random changes: the same for the same seed.

Fleets of whole GPUs, MIG and device plugins; bare pods, Jobs, gangs and Deployments with and without queues. Pods run
until they are ended, so that what happens after a change is due to the change alone.
"""

from __future__ import annotations

import random
from typing import Any, Final, NamedTuple

from dovetail.sim.fleet import fleet_spec

Tree = dict[str, Any]
NAMESPACE: Final = "default"
POOLS: Final = (
    {"gpu": "H100-SXM5-80GB", "gpus_per_node": 8},
    {"gpu": "H100-SXM5-80GB", "gpus_per_node": 4},
    {"gpu": "H100-SXM5-80GB", "gpus_per_node": 2, "mig": True},
    {"gpu": "A100-SXM4-80GB", "gpus_per_node": 2, "mig": True},
    {"gpu": "L40S", "gpus_per_node": 4},
)
PLUGIN_PRODUCT: Final = "NVIDIA-A30"


class RandomWorld(NamedTuple):
    """A fleet, the objects it begins with, and batches of work that arrive one after the other."""

    fleet: fleet_spec.Fleet
    objects: list[Tree]
    batches: list[list[Tree]]
    queues: tuple[str, ...]


class Draws:
    """Draws worlds and changes from one seed."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(f"what-if {seed}")
        self._serial = 0
        self.queues: tuple[str, ...] = ()
        self.has_plugin = False

    def world(self) -> RandomWorld:
        rng = self._rng
        pools = tuple(
            fleet_spec.Pool(
                name=f"p{index}",
                count=rng.choice((1, 2, 2, 3)),
                rack=f"r{index}",
                **rng.choice(POOLS),
            )
            for index in range(rng.choice((1, 1, 2)))
        )
        self.has_mig = any(pool.mig for pool in pools)
        objects = [*_templates()]
        self.has_plugin = rng.random() < 0.3
        if self.has_plugin:
            objects += [_plugin_node(f"plugin{index}", 4) for index in range(rng.choice((1, 2)))]
        if rng.random() < 0.5:
            self.queues = ("alpha", "beta", "gamma")[: rng.choice((2, 3))]
            objects += [self._queue(name) for name in self.queues]
        # More than the fleet can hold, most of the time: what waits is what changes act on.
        gpus = sum(pool.count * pool.gpus_per_node for pool in pools)
        batches = [[self.work() for _ in range(rng.randint(1, 2 + gpus // 5))] for _ in range(3)]
        fleet = fleet_spec.Fleet(name="truth", pools=pools)
        return RandomWorld(fleet, objects, batches, self.queues)

    def work(self) -> Tree:
        """One workload."""
        rng = self._rng
        self._serial += 1
        kind = rng.choice(("pod", "job", "job", "gang", "deployment"))
        name = f"{kind}{self._serial}"
        spec = self._pod_spec()
        metadata: Tree = {"labels": {}, "annotations": {}}
        if self.queues:
            metadata["labels"]["dovetail.dev/queue"] = rng.choice(self.queues)
        if kind == "pod":
            metadata |= {"name": name, "namespace": NAMESPACE}
            return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        count = rng.choice((1, 2, 3))
        if kind == "gang":
            count = rng.choice((2, 3))
            metadata["annotations"]["dovetail.dev/gang-min"] = str(count)
        template = {"metadata": metadata, "spec": spec}
        head = {"metadata": {"name": name, "namespace": NAMESPACE, "labels": metadata["labels"]}}
        if kind == "deployment":
            metadata["labels"] = metadata["labels"] | {"app": name}
            template["spec"] = spec | {"restartPolicy": "Always"}
            selector = {"matchLabels": {"app": name}}
            body = {"replicas": count, "selector": selector, "template": template}
            return {"apiVersion": "apps/v1", "kind": "Deployment", **head, "spec": body}
        head["metadata"]["annotations"] = metadata["annotations"]
        body = {
            "parallelism": count,
            "completions": count,
            "backoffLimit": 100,
            "template": template,
        }
        return {"apiVersion": "batch/v1", "kind": "Job", **head, "spec": body}

    def _pod_spec(self) -> Tree:
        rng = self._rng
        forms = ["extended", "extended", "claim", "claim", "cpu"] + (
            ["mig"] if self.has_mig else []
        )
        form = rng.choice(forms)
        resources: Tree = {"requests": {"cpu": "1"}}
        spec: Tree = {
            "schedulerName": "dovetail",
            "restartPolicy": "Never",
            "priority": rng.choice((0, 0, 0, 10, 50)),
            "containers": [{"name": "main", "image": "work", "resources": resources}],
        }
        if form == "extended":
            resources["limits"] = {"nvidia.com/gpu": str(rng.choice((1, 2, 2, 4)))}
        elif form != "cpu":
            template = f"{form}-{rng.choice((1, 2, 4))}" if form == "claim" else "mig-1"
            spec["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": template}]
            resources["claims"] = [{"name": "gpus"}]
        return spec

    def _queue(self, name: str) -> Tree:
        rng = self._rng
        share: Tree = {"quota": str(rng.choice((0, 1, 2, 4, 8))), "weight": rng.choice((1, 1, 2))}
        if rng.random() < 0.3:
            share["limit"] = str(int(share["quota"]) + rng.choice((0, 2, 6)))
        return {
            "apiVersion": "dovetail.dev/v1alpha1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {"resources": {"gpu": share}, "namespaceSelector": {}},
        }

    # Changes, given what is there when they are made

    def changes(
        self, nodes: list[str], gpu_nodes: list[str], work: list[tuple[str, str]]
    ) -> list[tuple[str, str | Tree]]:
        """One change, sometimes with new work on top: a verb, and the text of the option or the manifest."""
        first = self.change(nodes, gpu_nodes, work)
        is_at_once = first[0] in ("add", "cordon", "new") or "queue/" in first[1]
        if is_at_once and self._rng.random() < 0.6:
            return [first, ("new", self.work())]
        return [first]

    def change(
        self, nodes: list[str], gpu_nodes: list[str], work: list[tuple[str, str]]
    ) -> tuple[str, str | Tree]:
        """One change."""
        rng = self._rng
        verbs = ["add", "add", "remove", "cordon", "drain", "priority", "end", "new", "new"]
        verbs += ["queue"] * 3 if self.queues else []
        verbs += ["mig", "sharing"] if gpu_nodes else []
        verb = rng.choice(verbs)
        match verb:
            case "add":
                return "add", f"{rng.choice((1, 2))}xnode/{rng.choice(nodes)}"
            case "remove" | "cordon" | "drain":
                return verb, f"node/{rng.choice(nodes)}"
            case "queue":
                field = rng.choice(("quota", "weight", "priority"))
                value = rng.choice((0, 2, 4, 8)) if field == "quota" else rng.choice((1, 3, 5))
                return "set", f"queue/{rng.choice(self.queues)}.{field}={value}"
            case "mig":
                return "set", f"node/{rng.choice(gpu_nodes)}.mig=3g.40gb,2g.20gb,1g.10gb"
            case "sharing":
                return "set", f"node/{rng.choice(nodes)}.sharing=time-slicing:{rng.choice((2, 4))}"
            case "priority" if work:
                kind, name = rng.choice(work)
                return "set", f"{kind}/{NAMESPACE}/{name}.priority={rng.choice((0, 20, 100))}"
            case "end" if work:
                kind, name = rng.choice(work)
                return "end", f"{kind}/{NAMESPACE}/{name}"
            case _:
                return "new", self.work()


def _templates() -> list[Tree]:
    def template(name: str, request: Tree) -> Tree:
        devices = {"requests": [{"name": "gpu", "exactly": request}]}
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"spec": {"devices": devices}},
        }

    whole = [
        template(f"claim-{count}", {"deviceClassName": "gpu.nvidia.com", "count": count})
        for count in (1, 2, 4)
    ]
    expression = "device.attributes['gpu.nvidia.com'].profile == '1g.10gb'"
    slice_ = {
        "deviceClassName": "mig.nvidia.com",
        "count": 1,
        "selectors": [{"cel": {"expression": expression}}],
    }
    return [*whole, template("mig-1", slice_)]


def _plugin_node(name: str, gpus: int) -> Tree:
    resources = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "nvidia.com/gpu.product": PLUGIN_PRODUCT,
                "nvidia.com/gpu.count": str(gpus),
            },
        },
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }
