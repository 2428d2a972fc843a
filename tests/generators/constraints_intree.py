"""Random storage of before CSI: volumes, classes and nodes of in-tree plugins that drivers have taken over since.

Makes such of what `constraints_volumes` made. The names are those of Kubernetes. Given a `random.Random`.
"""

from __future__ import annotations

import random
from typing import Any, Final

from tests.generators import constraints_nodes as places

Tree = dict[str, Any]

MIGRATED: Final = "storage.alpha.kubernetes.io/migrated-plugins"
BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"
DRIVERS: Final = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}
PROVISIONERS: Final = (*DRIVERS, "kubernetes.io/azure-file")


def aged_volume(rng: random.Random, volume: Tree) -> Tree:
    """The volume, most often as one of an in-tree plugin."""
    if rng.random() < 0.3:
        return volume
    spec = {
        key: value for key, value in volume["spec"].items() if key not in ("csi", "local")
    } | _source(rng)
    metadata = volume["metadata"]
    chance = rng.random()
    if chance < 0.4:
        spec["nodeAffinity"] = {
            "required": {"nodeSelectorTerms": [{"matchExpressions": _zones(rng)}]}
        }
    elif chance < 0.7:
        spec.pop("nodeAffinity", None)
    if rng.random() < 0.4:
        zone = rng.choice(("z1", "z2", "z1__z3", "a-b-c", "a-b-c__a-b-d"))
        metadata = {**metadata, "labels": {rng.choice((places.ZONE, BETA_ZONE)): zone}}
    return {**volume, "metadata": metadata, "spec": spec}


def aged_csi_node(rng: random.Random, csi_node: Tree) -> Tree:
    """The node's drivers, with those that took plugins over, and which plugins they took over here."""
    metadata, drivers = csi_node["metadata"], list(csi_node["spec"]["drivers"])
    if rng.random() < 0.7:
        taken_over = ",".join(name for name in DRIVERS if rng.random() < 0.8)
        metadata = {**metadata, "annotations": {MIGRATED: taken_over}}
    for name in DRIVERS.values():
        if rng.random() < 0.8:
            driver: Tree = {"name": name, "nodeID": metadata["name"], "topologyKeys": []}
            if rng.random() < 0.6:
                driver["allocatable"] = {"count": rng.choice((0, 1, 1, 2, 3))}
            drivers.append(driver)
    return {**csi_node, "metadata": metadata, "spec": {"drivers": drivers}}


def drivers() -> list[Tree]:
    """The drivers that took over, half of which want no pod where they are not installed."""
    made = []
    for place, name in enumerate(DRIVERS.values()):
        spec = {"attachRequired": True, "preventPodSchedulingIfMissing": place % 2 == 0}
        made.append(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "CSIDriver",
                "metadata": {"name": name},
                "spec": spec,
            }
        )
    return made


def _source(rng: random.Random) -> Tree:
    number = rng.randint(0, 5)
    return rng.choice(
        (
            {"gcePersistentDisk": {"pdName": f"d-{number}"}},
            {"gcePersistentDisk": {"pdName": f"d-{number}"}},
            {"awsElasticBlockStore": {"volumeID": f"vol-{number}"}},
            {"awsElasticBlockStore": {"volumeID": f"aws://z1/vol-{number}"}},
            {
                "azureDisk": {
                    "diskName": "x",
                    "diskURI": f"uri-{number}",
                    "kind": rng.choice(("Managed", "Dedicated")),
                }
            },
            {"cinder": {"volumeID": f"c-{number}"}},
            {"portworxVolume": {"volumeID": f"p-{number}"}},
        )
    )


def _zones(rng: random.Random) -> list[Tree]:
    zones = rng.sample(places.ZONES, rng.choice((1, 2)))
    trees: list[Tree] = [
        {"key": rng.choice((places.ZONE, BETA_ZONE)), "operator": "In", "values": zones}
    ]
    if rng.random() < 0.3:
        trees.append(
            {"key": rng.choice((places.REGION, BETA_REGION)), "operator": "In", "values": ["r1"]}
        )
    return trees
