"""Harm done to neighbours and by disks, for the tests of the checker: each changes a tale that was sound before."""

from __future__ import annotations

from tests.faults.story import Tale, selector


def two_pods_with_one_port(tale: Tale) -> None:
    container = {"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}
    for name in ("first", "second"):
        tale.pod(name, containers=[container])
        tale.bind(name, "b", by="two")


def a_pod_beside_one_that_wants_to_be_alone(tale: Tale) -> None:
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "any"}},
    }
    wish = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    tale.pod("hermit", affinity=wish)
    tale.bind("hermit", "b", by="two")
    tale.pod("guest")
    tale.change("pods", "t/guest", metadata={"labels": {"app": "any"}})
    tale.bind("guest", "b", by="two")


def a_binding_before_its_volume(tale: Tale) -> None:
    tale.pod("early", volumes=[{"name": "scratch", "ephemeral": {}}])
    tale.bind("early", "a", by="two")


def a_binding_away_from_its_disk(tale: Tale) -> None:
    tale.pod("far", volumes=[{"name": "scratch", "ephemeral": {}}])
    place = {"metadata": {"name": "disk"}, "spec": {"nodeAffinity": {"required": selector("b")}}}
    tale.put("persistentvolumes", place)
    meta = {"name": "far-scratch", "namespace": "t"}
    claim = {"metadata": meta, "spec": {"volumeName": "disk"}, "status": {"phase": "Bound"}}
    tale.put("persistentvolumeclaims", claim)
    tale.bind("far", "a", by="two")
