"""The oracle's cluster: each change it is sent changes what kube-scheduler's plugins say, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import oracle as upstream

pytestmark = pytest.mark.slow

Tree = dict[str, Any]
NODES = [
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"zone": zone}},
        "status": {"allocatable": {"cpu": "4", "pods": "10"}},
    }
    for name, zone in (("a", "z1"), ("b", "z2"))
]


@pytest.fixture(scope="module")
def oracle() -> Iterator[upstream.Oracle]:
    with upstream.start() as running:
        yield running


def pod(name: str, *, cpu: str = "1", node: str = "", away_from: str = "", **status: str) -> Tree:
    """A pod with a label of its name, possibly somewhere, possibly away from another."""
    spec: Tree = {
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]
    }
    if node:
        spec["nodeName"] = node
    if away_from:
        term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"name": away_from}}}
        spec["affinity"] = {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        }
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": {"name": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def asked(oracle: upstream.Oracle, **request: Any) -> Tree:
    """One answer about the cluster as it is."""
    answer = oracle.ask({"op": "filters", **request})
    assert "failure" not in answer, answer
    return answer


def test_pods_that_come_and_go_change_the_answer(oracle: upstream.Oracle) -> None:
    web = pod("web", node="a")
    asked(oracle, objects=[*NODES, web])
    answer = asked(oracle, pod=pod("new", away_from="web"), scores=True)
    assert answer["accepted"] == ["b"]
    assert answer["refused"]["a"]["plugin"] == "InterPodAffinity"
    assert "NodeResourcesFit" in answer["scores"]["b"]
    asked(oracle, changed=[pod("big", cpu="4", node="b")])
    answer = asked(oracle, pod=pod("new", away_from="web"))
    assert {node: one["plugin"] for node, one in answer["refused"].items()} == {
        "a": "InterPodAffinity",
        "b": "NodeResourcesFit",
    }
    assert asked(oracle, gone=[web], pod=pod("new", away_from="web"))["accepted"] == ["a"]
    assert asked(oracle, changed=[web | {"status": {"phase": "Failed"}}], pod=pod("n"))[
        "accepted"
    ] == ["a"]


def test_a_nominated_pod_keeps_room_on_its_node(oracle: upstream.Oracle) -> None:
    asked(oracle, objects=[*NODES, pod("kept", cpu="4", nominatedNodeName="a")])
    assert asked(oracle, pod=pod("new"))["accepted"] == ["b"]


def test_a_node_that_is_gone_is_not_asked(oracle: upstream.Oracle) -> None:
    asked(oracle, objects=[*NODES, pod("web", node="a")])
    assert asked(oracle, gone=[NODES[0]], pod=pod("new"))["accepted"] == ["b"]
    assert asked(oracle, changed=[NODES[0]], pod=pod("new", cpu="4"))["accepted"] == [
        "b"
    ]  # its pod is still there


def test_what_is_stored_of_a_pod_has_its_label_keys_merged(oracle: upstream.Oracle) -> None:
    written = pod("new", away_from="web")
    term = written["spec"]["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ][0]
    term["matchLabelKeys"] = ["name"]
    term["labelSelector"] = {"matchLabels": {"app": "web"}}
    answer = oracle.ask({"op": "admit", "pods": [written, {**written, "spec": {"containers": []}}]})
    spec, nothing = answer["specs"]
    kept = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]
    assert kept["labelSelector"]["matchExpressions"] == [
        {"key": "name", "operator": "In", "values": ["new"]}
    ]
    assert spec["schedulerName"] == "default-scheduler"
    assert nothing is None
    assert answer["refused"]["1"][0]["field"] == "spec.containers"


def test_a_question_before_there_is_a_cluster_fails(oracle: upstream.Oracle) -> None:
    with upstream.start() as fresh:
        assert "no cluster" in fresh.ask({"op": "filters", "pod": pod("new")})["failure"]
    assert (
        "no place for"
        in oracle.ask({"op": "filters", "objects": [{"apiVersion": "v1", "kind": "Secret"}]})[
            "failure"
        ]
    )
