"""Whether more nodes would start a pod: asked of the engine, on copies of the nodes there are."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from dovetail.answer import scale_up
from dovetail.answer.scale_up import Help
from dovetail.kubetypes.core import pods
from dovetail.model import policy
from dovetail.world import dump
from dovetail.world.world import World
from tests.schedule import build

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def _pod_of(world: World, name: str = "pod") -> pods.Pod:
    return next(pod for pod in world.pods.values() if pod.metadata.name == name)


def _answer(world: World, name: str = "pod") -> Help:
    return scale_up.ScaleUp(world, policy.DEFAULT).would_help(_pod_of(world, name), NOW)


def _full(*facts: Any, gpus: int = 2, **node: Any) -> World:
    """One node whose GPUs are all taken."""
    world = build.world(build.node("n-0", **node), build.gpu_slice("n-0", gpus))
    build.put(
        world,
        build.claim("taken", gpus),
        build.pod("holder", uses=("taken",), tolerations=[{"operator": "Exists"}]),
    )
    build.carried_out(world, build.decided(world))
    return build.put(world, *facts)


def _gang(size: int, *, gpus: int, least: int = 0, **spec: Any) -> list[Any]:
    labels = {"dovetail.dev/gang": "g", "dovetail.dev/gang-min": str(least or size)}
    claims = [build.claim(f"claim-{number}", gpus) for number in range(size)]
    members = [
        build.pod(f"pod-{number}", uses=(f"claim-{number}",), metadata={"labels": labels, **spec})
        for number in range(size)
    ]
    return [*claims, *members]


def test_a_pod_that_waits_for_devices_starts_on_one_more_node() -> None:
    world = _full(build.claim("wants", 2), build.pod("pod", uses=("wants",)))
    assert _answer(world) is Help.STARTS


def test_a_pod_that_waits_for_cpu_starts_on_one_more_node() -> None:
    world = build.world(
        build.node("n-0"), build.pod("holder", cpu="60", nodeName="n-0"), build.pod("pod", cpu="8")
    )
    assert _answer(world) is Help.STARTS


@pytest.mark.parametrize(
    "spec",
    [{"cpu": "65"}, {"nodeSelector": {"no-such": "label"}}, {"uses": ("many",)}],
    ids=["more cpu than any node has", "labels of no node", "more devices than any node has"],
)
def test_a_pod_too_large_for_every_kind_of_node_needs_an_unseen_one(spec: dict[str, Any]) -> None:
    world = _full(build.claim("many", 3), build.pod("pod", **spec))
    assert _answer(world) is Help.UNSEEN


def test_a_pod_whose_devices_are_elsewhere_is_helped_by_no_node() -> None:
    world = _full(build.pod("pod", uses=("taken",), cpu="64"))
    assert _answer(world) is Help.NEVER


def test_a_cluster_without_nodes_needs_an_unseen_one() -> None:
    assert _answer(build.world(build.pod("pod"))) is Help.UNSEEN


@pytest.mark.parametrize(
    "taint", ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
)
def test_a_new_node_is_well_where_the_old_one_is_not(taint: str) -> None:
    unwell = build.node("n-0", taints=[{"key": taint, "effect": "NoSchedule"}], unschedulable=True)
    assert _answer(build.world(unwell, build.pod("pod"))) is Help.STARTS


def test_taints_of_a_pool_are_on_its_new_nodes_as_well() -> None:
    kept = build.node("n-0", taints=[{"key": "example.com/team", "effect": "NoSchedule"}])
    assert _answer(build.world(kept, build.pod("pod"))) is Help.UNSEEN


def test_a_gang_may_need_as_many_nodes_as_it_has_pods() -> None:
    world = _full(*_gang(3, gpus=2))
    assert _answer(world, "pod-0") is Help.STARTS


def test_a_gang_one_of_whose_pods_fits_nowhere_is_not_helped_by_nodes_like_these() -> None:
    world = _full(*_gang(2, gpus=2, least=3), build.claim("huge", 4))
    labels = {"dovetail.dev/gang": "g", "dovetail.dev/gang-min": "3"}
    build.put(world, build.pod("pod-2", uses=("huge",), metadata={"labels": labels}))
    assert _answer(world, "pod-0") is Help.UNSEEN


def test_a_gang_that_names_a_level_no_node_has_needs_an_unseen_node() -> None:
    annotations = {"dovetail.dev/topology-required": "no-such-label"}
    world = _full(*_gang(2, gpus=1, annotations=annotations))
    assert _answer(world, "pod-0") is Help.UNSEEN


def test_a_gang_of_which_a_part_runs_is_judged_as_a_whole() -> None:
    world = build.world(build.node("n-0"), build.gpu_slice("n-0", 2), *_gang(2, gpus=2))
    running = build.replaced(_pod_of(world, "pod-0").spec, node_name="n-0")
    build.put(world, build.replaced(_pod_of(world, "pod-0"), spec=running))
    assert _answer(world, "pod-1") is Help.STARTS


def test_where_other_pods_are_is_left_to_the_autoscaler() -> None:
    term = {
        "labelSelector": {"matchLabels": {"app": "none"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    lonely = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    assert _answer(build.world(build.node("n-0"), build.pod("pod", affinity=lonely))) is Help.STARTS


def test_asking_changes_nothing() -> None:
    world = _full(*_gang(2, gpus=2))
    before = dump.dump(world)
    _answer(world, "pod-0")
    assert dump.dump(world) == before


def test_pods_that_are_alike_are_asked_about_once() -> None:
    world = _full(
        *(
            fact
            for n in range(3)
            for fact in (build.claim(f"c-{n}", 2), build.pod(f"p-{n}", uses=(f"c-{n}",)))
        )
    )
    asked = scale_up.ScaleUp(world, policy.DEFAULT)
    assert not asked.is_answered(_pod_of(world, "p-0"))
    asked.would_help(_pod_of(world, "p-0"), NOW)
    assert asked.is_answered(_pod_of(world, "p-2"))
    build.put(world, build.node("n-1"))
    assert not asked.is_answered(_pod_of(world, "p-2"))
