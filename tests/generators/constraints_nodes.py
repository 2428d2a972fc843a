"""Random nodes and namespaces for constraints: labels that may be missing, taints, cordons, little room, features.

Few values of each kind, so that pods and nodes meet often and refuse each other often. Given a `random.Random`.
"""

from __future__ import annotations

import random
from typing import Any, Final

Tree = dict[str, Any]

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
RACK: Final = "example.com/rack"
TOPOLOGY_KEYS: Final = (HOSTNAME, ZONE, ZONE, RACK, REGION, "example.com/nowhere")
OWN: Final = "example.com/itself"  # no rule reads it: a test that asks about a single node selects the node by it
ZONES: Final = ("z1", "z2", "z3")
OLD_ZONES: Final = (  # where storage drivers and earlier releases look for a node's zone
    "topology.ebs.csi.aws.com/zone",
    "topology.gke.io/zone",
    "topology.cinder.csi.openstack.org/zone",
    "failure-domain.beta.kubernetes.io/zone",
)
EXTENDED: Final = "example.com/widget"
NAMESPACES: Final = ("blue", "green", "grey")
TAINTS: Final = (
    ("dedicated", "ml"),
    ("dedicated", "web"),
    ("spot", "true"),
    ("drain", ""),
    ("size", "5"),
)
EFFECTS: Final = ("NoSchedule", "NoSchedule", "PreferNoSchedule", "NoExecute")
TAINTED: Final = 0.22  # of the nodes
IMAGES: Final = ("example.com/train:1", "example.com/serve:2", "example.com/tool:3")
FEATURES: Final = (
    "RestartAllContainersOnContainerExits",
    "UserNamespacesHostNetworkSupport",
    "InPlacePodLevelResourcesVerticalScaling",
    "SomethingNobodyKnows",
)


def nodes(rng: random.Random, count: int, *, tainted: float = TAINTED) -> list[Tree]:
    """Nodes of one cluster."""
    return [node(rng, f"node-{at:02}", tainted=tainted) for at in range(count)]


def node(rng: random.Random, name: str, *, tainted: float = TAINTED) -> Tree:
    """One node, tainted with this chance."""
    spec: Tree = {}
    if rng.random() < tainted:
        spec["taints"] = _taints(rng)
    if rng.random() < 0.06:
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": _labels(rng, name)},
        "spec": spec,
        "status": {
            "allocatable": _allocatable(rng),
            "images": [
                {
                    "names": [image],
                    "sizeBytes": rng.choice((30_000_000, 400_000_000, 2_000_000_000)),
                }
                for image in IMAGES
                if rng.random() < 0.3
            ],
            "declaredFeatures": sorted(feature for feature in FEATURES if rng.random() < 0.5),
        },
    }


def namespaces(rng: random.Random, *, unknown: float = 0.1) -> list[Tree]:
    """The namespaces, each of which a selector may or may not pick; the last is missing with a small chance."""
    made = []
    for name in NAMESPACES:
        if name == NAMESPACES[-1] and rng.random() < unknown:
            continue  # it is not known yet; pods are in it all the same
        labels = {"kubernetes.io/metadata.name": name}
        if rng.random() < 0.7:
            labels["team"] = rng.choice(("one", "two"))
        made.append(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        )
    return made


def changed(rng: random.Random, tree: Tree) -> Tree:
    """The node after an admin cordoned, tainted, relabelled or emptied it."""
    fresh = node(rng, tree["metadata"]["name"])
    what = rng.choice(("spec", "labels", "status"))
    if what == "labels":
        metadata = {**tree["metadata"], "labels": fresh["metadata"]["labels"]}
        return {**tree, "metadata": metadata}
    return {**tree, what: fresh[what]}


def _labels(rng: random.Random, name: str) -> dict[str, str]:
    labels = {
        HOSTNAME: name,
        ZONE: rng.choice(ZONES),
        REGION: "r1" if rng.random() < 0.8 else "r2",
        RACK: rng.choice(("k1", "k2", "k3", "k4")),
        "disk": rng.choice(("ssd", "hdd")),
        "gpus": rng.choice(("0", "4", "8", "many")),
    }
    labels |= dict.fromkeys(OLD_ZONES, rng.choice(ZONES))
    absent = {
        HOSTNAME: 0.05,
        ZONE: 0.12,
        REGION: 0.1,
        RACK: 0.2,
        "disk": 0.2,
        "gpus": 0.2,
        **dict.fromkeys(OLD_ZONES, 0.4),
    }
    return {OWN: name} | {
        key: value for key, value in labels.items() if rng.random() >= absent[key]
    }


def _taints(rng: random.Random) -> list[Tree]:
    chosen: dict[tuple[str, str], Tree] = {}  # a node has one taint of a key and effect
    for _ in range(rng.choice((1, 1, 2))):
        key, value = rng.choice(TAINTS)
        made = {"key": key, "effect": rng.choice(EFFECTS), **({"value": value} if value else {})}
        chosen[key, made["effect"]] = made
    return list(chosen.values())


def _allocatable(rng: random.Random) -> dict[str, str]:
    room = {
        "cpu": rng.choice(("2", "8", "16", "7500m")),
        "memory": rng.choice(("4Gi", "16Gi", "32Gi", "8G")),
        "ephemeral-storage": rng.choice(("10Gi", "100Gi")),
        "pods": str(rng.choice((5, 30, 110, 110))),
        "hugepages-2Mi": rng.choice(("0", "4Mi")),
        EXTENDED: str(rng.choice((0, 2, 8))),
    }
    return {name: amount for name, amount in room.items() if name == "pods" or rng.random() < 0.97}
