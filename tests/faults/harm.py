"""Harm done to neighbours and by disks, for the tests of the checker: each changes a history that was sound before."""

from __future__ import annotations

from tests.faults.story import HistoryBuilder, selector


def two_pods_with_one_port(history_builder: HistoryBuilder) -> None:
    container = {"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}
    for name in ("first", "second"):
        history_builder.pod(name, containers=[container])
        history_builder.bind(name, "b", by="two")


def a_pod_beside_one_that_wants_to_be_alone(history_builder: HistoryBuilder) -> None:
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "any"}},
    }
    wish = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    history_builder.pod("hermit", affinity=wish)
    history_builder.bind("hermit", "b", by="two")
    history_builder.pod("guest")
    history_builder.change("pods", "t/guest", metadata={"labels": {"app": "any"}})
    history_builder.bind("guest", "b", by="two")


def a_binding_before_its_volume(history_builder: HistoryBuilder) -> None:
    history_builder.pod("early", volumes=[{"name": "scratch", "ephemeral": {}}])
    history_builder.bind("early", "a", by="two")


def a_binding_away_from_its_disk(history_builder: HistoryBuilder) -> None:
    history_builder.pod("far", volumes=[{"name": "scratch", "ephemeral": {}}])
    place = {"metadata": {"name": "disk"}, "spec": {"nodeAffinity": {"required": selector("b")}}}
    history_builder.put("persistentvolumes", place)
    meta = {"name": "far-scratch", "namespace": "t"}
    claim = {"metadata": meta, "spec": {"volumeName": "disk"}, "status": {"phase": "Bound"}}
    history_builder.put("persistentvolumeclaims", claim)
    history_builder.bind("far", "a", by="two")
