"""Random storage: classes, drivers, capacities, attach limits, volumes, claims in every state, and what pods mount.

Sizes of volumes are all different, so that the smallest that fits is the same for both schedulers. Given a
`random.Random`.
"""

from __future__ import annotations

import random
from typing import Any, Final, NamedTuple

from tests.generators import constraints_intree as intree
from tests.generators import constraints_nodes as places

Tree = dict[str, Any]

DRIVER: Final = "csi.example.com"
TRACKED: Final = "tracked.example.com"
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_GIB: Final = 1 << 30


class Storage(NamedTuple):
    """What a cluster stores, and the volumes pods of a namespace may mount."""

    objects: list[Tree]
    mounts: dict[str, list[Tree]]  # by namespace
    disks: list[Tree]  # of any claim


def storage(rng: random.Random, nodes: list[Tree], *, is_old: bool = False) -> Storage:
    """All storage of one cluster; that of an old one began with in-tree plugins."""
    made = _storage(rng, nodes)
    if not is_old:
        return made
    aged = [_aged(rng, item) for item in made.objects]
    return made._replace(objects=[*aged, *intree.drivers(), *_old_classes()])


def _aged(rng: random.Random, tree: Tree) -> Tree:
    match tree["kind"]:
        case "PersistentVolume":
            return intree.aged_volume(rng, tree)
        case "CSINode":
            return intree.aged_csi_node(rng, tree)
        case "PersistentVolumeClaim" if "volumeName" not in tree["spec"] and rng.random() < 0.3:
            number = rng.randrange(len(intree.PROVISIONERS))
            return {**tree, "spec": {**tree["spec"], "storageClassName": f"old-{number}"}}
        case _:
            return tree


def _old_classes() -> list[Tree]:
    return [
        _class(f"old-{place}", name, "WaitForFirstConsumer")
        for place, name in enumerate(intree.PROVISIONERS)
    ]


def _storage(rng: random.Random, nodes: list[Tree]) -> Storage:
    objects = [
        *_classes(),
        *_drivers(),
        *_capacities(rng),
        *(_csi_node(rng, node) for node in nodes if rng.random() < 0.9),
    ]
    objects += [_free_volume(rng, at, nodes) for at in range(rng.choice((0, 3, 6)))]
    objects += _attachments(
        rng,
        nodes,
        [item["metadata"]["name"] for item in objects if item["kind"] == "PersistentVolume"],
    )
    mounts: dict[str, list[Tree]] = {}
    for namespace in places.NAMESPACES[:2]:
        made = [_claim(rng, namespace, at, nodes) for at in range(rng.choice((2, 6, 10)))]
        objects += [item for group in made for item in group]
        names = [group[0]["metadata"]["name"] for group in made]
        mounts[namespace] = [
            {"persistentVolumeClaim": {"claimName": name}} for name in (*names, "no-such-claim")
        ]
    return Storage(objects, mounts, _inline_disks())


def ephemeral_claim(rng: random.Random, pod: Tree, nodes: list[Tree]) -> list[Tree]:
    """The claim of a pod's ephemeral volume as the controller makes it, or a foreign one of the same name."""
    metadata = pod["metadata"]
    trees = _claim(rng, metadata["namespace"], 0, nodes)
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }
    trees[0]["metadata"]["name"] = f"{metadata['name']}-scratch"
    if rng.random() < 0.85:
        trees[0]["metadata"]["ownerReferences"] = [owner]
    for volume in trees[1:]:
        volume["metadata"]["name"] = f"pv-of-{metadata['name']}"
        volume["spec"]["claimRef"]["name"] = trees[0]["metadata"]["name"]
        trees[0]["spec"]["volumeName"] = volume["metadata"]["name"]
    return trees


def ephemeral_mount() -> Tree:
    """The entry of a pod's volumes that asks for such a claim."""
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "late",
    }
    return {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}


def for_one_pod(objects: list[Tree]) -> set[str]:
    """Names of claims, of whatever namespace, that one pod alone may use."""
    claims = [item for item in objects if item["kind"] == "PersistentVolumeClaim"]
    return {
        claim["metadata"]["name"]
        for claim in claims
        if "ReadWriteOncePod" in claim["spec"]["accessModes"]
    }


def provisioned(claim: Tree, class_: Tree, node: Tree) -> Tree:
    """The volume a driver makes for a claim whose first pod goes to the node: reachable from the node's zone."""
    metadata = claim["metadata"]
    tree = _object("v1", "PersistentVolume", f"made-{metadata['namespace']}-{metadata['name']}")
    tree["spec"] = {
        "capacity": claim["spec"]["resources"]["requests"],
        "accessModes": claim["spec"]["accessModes"],
        "volumeMode": claim["spec"]["volumeMode"],
        "storageClassName": class_["metadata"]["name"],
        "csi": {"driver": class_["provisioner"], "volumeHandle": tree["metadata"]["name"]},
    }
    labels = node["metadata"]["labels"]
    for key in (places.ZONE, places.HOSTNAME):
        if key in labels:
            term = {"matchExpressions": [{"key": key, "operator": "In", "values": [labels[key]]}]}
            tree["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
            break
    return tree


def promised(volume: Tree, claim: Tree) -> Tree:
    """A volume that is a claim's, though the controller has not bound them yet."""
    reference = {key: claim["metadata"][key] for key in ("namespace", "name", "uid")}
    return {
        **volume,
        "spec": {**volume["spec"], "claimRef": {"kind": "PersistentVolumeClaim", **reference}},
    }


def destined(claim: Tree, node: str) -> Tree:
    """A claim whose volume is to be made for a node."""
    notes = {**claim["metadata"].get("annotations", {}), SELECTED_NODE: node}
    return {**claim, "metadata": {**claim["metadata"], "annotations": notes}}


def bound_together(claim: Tree, volume: Tree) -> list[Tree]:
    """A claim and a volume after the controller is done with them."""
    metadata, name = claim["metadata"], volume["metadata"]["name"]
    notes = {**metadata.get("annotations", {}), BIND_COMPLETED: "yes"}
    return [
        {**promised(volume, claim), "status": {"phase": "Bound"}},
        {
            **claim,
            "metadata": {**metadata, "annotations": notes},
            "spec": {**claim["spec"], "volumeName": name},
            "status": {"phase": "Bound"},
        },
    ]


def _classes() -> list[Tree]:
    zonal = [{"matchLabelExpressions": [{"key": places.ZONE, "values": ["z1", "z2"]}]}]
    return [
        _class("instant", DRIVER, "Immediate"),
        _class("late", DRIVER, "WaitForFirstConsumer"),
        _class("zonal", DRIVER, "WaitForFirstConsumer") | {"allowedTopologies": zonal},
        _class("tracked", TRACKED, "WaitForFirstConsumer"),
        _class("local", NO_PROVISIONER, "WaitForFirstConsumer"),
    ]


def _class(name: str, provisioner: str, mode: str) -> Tree:
    tree = _object("storage.k8s.io/v1", "StorageClass", name)
    return tree | {"provisioner": provisioner, "volumeBindingMode": mode, "reclaimPolicy": "Delete"}


def _drivers() -> list[Tree]:
    made = []
    for name, tracks in ((DRIVER, False), (TRACKED, True)):
        spec = {"attachRequired": True, "storageCapacity": tracks}
        made.append(_object("storage.k8s.io/v1", "CSIDriver", name) | {"spec": spec})
    return made


def _capacities(rng: random.Random) -> list[Tree]:
    """What is left to provision, by zone; a zone without an object has nothing."""
    made = []
    for zone in places.ZONES:
        if rng.random() < 0.3:
            continue
        tree = _object("storage.k8s.io/v1", "CSIStorageCapacity", f"room-{zone}", namespace="grey")
        tree |= {"storageClassName": "tracked", "capacity": rng.choice(("2Gi", "20Gi", "100Gi"))}
        tree["nodeTopology"] = {"matchLabels": {places.ZONE: zone}}
        if rng.random() < 0.3:
            tree["maximumVolumeSize"] = rng.choice(("5Gi", "50Gi"))
        made.append(tree)
    return made


def _csi_node(rng: random.Random, node: Tree) -> Tree:
    drivers = []
    for name in (DRIVER, TRACKED):
        if rng.random() < 0.85:
            driver: Tree = {
                "name": name,
                "nodeID": node["metadata"]["name"],
                "topologyKeys": [places.ZONE],
            }
            if rng.random() < 0.6:
                driver["allocatable"] = {"count": rng.choice((0, 1, 1, 2, 5))}
            drivers.append(driver)
    return _object("storage.k8s.io/v1", "CSINode", node["metadata"]["name"]) | {
        "spec": {"drivers": drivers}
    }


def _attachments(rng: random.Random, nodes: list[Tree], volumes: list[str]) -> list[Tree]:
    """Volumes that hang on a node although no pod there uses them."""
    made = []
    for at in range(rng.choice((0, 0, 2))):
        source = {"persistentVolumeName": rng.choice([*volumes, "no-such-volume"])}
        spec = {
            "attacher": DRIVER,
            "nodeName": rng.choice(nodes)["metadata"]["name"],
            "source": source,
        }
        made.append(_object("storage.k8s.io/v1", "VolumeAttachment", f"hung-{at}") | {"spec": spec})
    return made


def _free_volume(rng: random.Random, at: int, nodes: list[Tree]) -> Tree:
    """A volume made by hand, most of them free to take."""
    tree = _volume(rng, f"free-{at}", _GIB * rng.choice((1, 5, 20)) + at * 1024, nodes)
    tree["spec"]["storageClassName"] = rng.choice(("local", "local", "late"))
    tree["spec"]["accessModes"] = rng.choice(
        (["ReadWriteOnce"], ["ReadWriteOnce", "ReadWriteMany"])
    )
    tree["status"] = {
        "phase": rng.choice(("Available", "Available", "Available", "Released", "Pending"))
    }
    if rng.random() < 0.05:
        tree["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    if rng.random() < 0.1:
        tree["spec"]["volumeMode"] = "Block"
    if rng.random() < 0.3:
        tree["metadata"].setdefault("labels", {})["tier"] = "fast"
    return tree


def _volume(rng: random.Random, name: str, size_bytes: int, nodes: list[Tree]) -> Tree:
    """A volume with a driver, usable from some nodes."""
    spec: Tree = {
        "capacity": {"storage": str(size_bytes)},
        "accessModes": ["ReadWriteOnce"],
        "volumeMode": "Filesystem",
        "persistentVolumeReclaimPolicy": "Retain",
    }
    if rng.random() < 0.75:
        spec["csi"] = {
            "driver": rng.choice((DRIVER, DRIVER, TRACKED)),
            "volumeHandle": f"handle-{name}",
        }
    else:
        spec["local"] = {"path": "/mnt"}
    made = _object("v1", "PersistentVolume", name) | {
        "spec": spec,
        "status": {"phase": "Available"},
    }
    if "local" in spec or rng.random() < 0.4:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [_reachable(rng, nodes)]}}
    if rng.random() < 0.25:
        made["metadata"]["labels"] = _zone_labels(rng)
    return made


def _reachable(rng: random.Random, nodes: list[Tree]) -> Tree:
    if rng.random() < 0.5:
        name = rng.choice(nodes)["metadata"]["name"]
        return {"matchExpressions": [{"key": places.HOSTNAME, "operator": "In", "values": [name]}]}
    zones = rng.sample(places.ZONES, rng.choice((1, 2)))
    return {"matchExpressions": [{"key": places.ZONE, "operator": "In", "values": zones}]}


def _zone_labels(rng: random.Random) -> dict[str, str]:
    """As volumes of old carry them: several zones in one value, some under the names of before."""
    labels = {}
    if rng.random() < 0.8:
        key = places.ZONE if rng.random() < 0.6 else "failure-domain.beta.kubernetes.io/zone"
        labels[key] = rng.choice(("z1", "z2", "z1__z3"))
    if rng.random() < 0.3:
        labels[places.REGION] = "r1"
    return labels


def _claim(rng: random.Random, namespace: str, at: int, nodes: list[Tree]) -> list[Tree]:
    """A claim in one of its states, and the volume it is bound to if it is."""
    tree = _object("v1", "PersistentVolumeClaim", f"claim-{at}", namespace=namespace)
    tree["spec"] = {
        "accessModes": [
            rng.choice(("ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany"))
        ],
        "resources": {"requests": {"storage": rng.choice(("1Gi", "4Gi", "10Gi"))}},
        "volumeMode": "Filesystem",
    }
    tree["status"] = {"phase": "Pending"}
    state = rng.choice(
        ("bound", "bound", "bound", "late", "late", "zonal", "tracked", "local", "local", "odd")
    )
    if state == "bound":
        return _bound(rng, tree, nodes)
    if state != "odd":
        return [_waiting(rng, tree, state, nodes)]
    return _odd(rng, tree, nodes)


def _waiting(rng: random.Random, claim: Tree, state: str, nodes: list[Tree]) -> Tree:
    """A claim that waits for its first pod."""
    claim["spec"]["storageClassName"] = state
    if rng.random() < 0.15:
        node = rng.choice(nodes)["metadata"]["name"]
        claim["metadata"]["annotations"] = {SELECTED_NODE: node}
    if state == "local" and rng.random() < 0.2:
        claim["spec"]["selector"] = {"matchLabels": {"tier": "fast"}}
    return claim


def _bound(rng: random.Random, claim: Tree, nodes: list[Tree]) -> list[Tree]:
    metadata = claim["metadata"]
    name = f"pv-{metadata['namespace']}-{metadata['name']}"
    volume = _volume(rng, name, 10 * _GIB, nodes)
    volume["spec"]["storageClassName"] = claim["spec"]["storageClassName"] = rng.choice(
        ("instant", "late")
    )
    return bound_together(claim, volume)[::-1]


def _odd(rng: random.Random, claim: Tree, nodes: list[Tree]) -> list[Tree]:
    """Claims no pod can use as they are."""
    kind = rng.choice(
        ("instant", "lost", "deleting", "prebound", "no class", "unknown class", "volume gone")
    )
    if kind == "instant":
        claim["spec"]["storageClassName"] = "instant"
    elif kind == "unknown class":
        claim["spec"]["storageClassName"] = "no-such-class"
    elif kind == "no class":
        claim["spec"]["storageClassName"] = ""
    elif kind == "prebound":
        claim["spec"] |= {"storageClassName": "late", "volumeName": "free-0"}
    else:
        claim, volume = _bound(rng, claim, nodes)
        if kind == "lost":
            return [{**claim, "status": {"phase": "Lost"}}]
        if kind == "volume gone":
            return [claim]
        claim["metadata"] |= {
            "deletionTimestamp": "2026-01-02T00:00:00Z",
            "finalizers": ["kubernetes.io/pvc-protection"],
        }
        return [claim, volume]
    return [claim]


def _inline_disks() -> list[Tree]:
    return [
        {"gcePersistentDisk": {"pdName": "disk-1", "readOnly": True}},
        {"gcePersistentDisk": {"pdName": "disk-1"}},
        {"awsElasticBlockStore": {"volumeID": "vol-1"}},
        {
            "iscsi": {
                "targetPortal": "10.0.0.1:3260",
                "iqn": "iqn.2026-01.com.example:one",
                "lun": 0,
            }
        },
        {"rbd": {"monitors": ["10.0.0.1:6789"], "image": "one", "pool": "rbd"}},
    ]


def _object(version: str, kind: str, name: str, *, namespace: str = "") -> Tree:
    metadata: Tree = {"name": name, "uid": f"uid-{namespace}-{kind}-{name}".lower()}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": version, "kind": kind, "metadata": metadata}
