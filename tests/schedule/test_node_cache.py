"""The node cache: only changed nodes are evaluated again, and stale entries do not pile up."""

from __future__ import annotations

import gc
import types
import weakref

import pytest

from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.resource import claims
from dovetail.model import pod_requests, policy
from dovetail.model.reasons import Reason
from dovetail.schedule.node import equivalence, evaluate_node, node_cache
from dovetail.world.world import World
from tests.schedule import build


class Counting(evaluate_node.NodeEvaluator):
    """Counts the nodes it is asked about."""

    def __init__(self, world: World) -> None:
        super().__init__(world, policy.DEFAULT, policy.UNLIMITED)
        self.standings: list[str] = []
        self.choices: list[str] = []

    def static_refusal(self, kind: evaluate_node.PodKind, node: nodes.Node) -> Reason | None:
        self.standings.append(node.metadata.name)
        return super().static_refusal(kind, node)

    def device_choice(
        self, kind: evaluate_node.PodKind, node: str, served: tuple[str, ...]
    ) -> evaluate_node.Choice | evaluate_node.NodeVerdict:
        self.choices.append(node)
        return super().device_choice(kind, node, served)


def gathered(world: World, gpus: int = 1) -> tuple[node_cache.NodeClasses, Counting]:
    """The cohort of pods that want so many GPUs, filed once."""
    pod, claim = build.pod("p", uses=("c",)), build.claim("c", count=gpus)
    resource_claim = claims.ResourceClaim(spec=claim.spec)
    kind = evaluate_node.PodKind(pod, pod_requests.pod_request(pod), (), (resource_claim,))
    reads = equivalence.reads_of((resource_claim,), world.classes)
    node_classes = node_cache.NodeClasses(kind, equivalence.keys_for(world, reads))
    counting = Counting(world)
    node_classes.refresh(counting)
    return node_classes, counting


def test_of_many_nodes_alike_one_is_judged_and_later_only_what_changed() -> None:
    world = build.world(nodes=50)
    result, counting = gathered(world)
    assert (len(counting.standings), len(counting.choices)) == (50, 1)
    result.refresh(counting)
    build.put(world, build.node("n7", allocatable={"cpu": "32"}))
    result.refresh(counting)
    assert counting.standings[50:] == ["n7"]
    assert len(counting.choices) == 1  # its devices are like all others'
    assert result.best() == "n7"  # less cpu stays idle there


def test_a_node_that_differs_in_room_only_is_not_searched_again() -> None:
    world = build.world(nodes=3)
    _, counting = gathered(world)
    for index in range(3):
        build.put(world, build.pod(f"busy-{index}", cpu=str(index + 1), nodeName=f"n{index}"))
    result, again = gathered(world)
    assert len(counting.choices) == len(again.choices) == 1
    assert result.best() == "n2"


def test_classes_and_entries_out_of_date_are_swept() -> None:
    """However often nodes change, a cohort of four nodes keeps no more than it did after the first sweeps."""
    world = build.world(nodes=4)
    result, counting = gathered(world)
    sizes = []
    for index in range(8 * node_cache.SLACK):
        build.put(world, build.pod("busy", cpu=f"{index + 1}m", nodeName=f"n{index % 4}"))
        result.refresh(counting)
        assert result.classes <= 2 * node_cache.SLACK
        if index % 16 == 0:
            sizes.append(objects_within(result))
    early, late = sizes[: len(sizes) // 2], sizes[len(sizes) // 2 :]
    assert max(late) <= 1.05 * max(early)  # without a sweep it grows by a third or more
    assert result.best() == "n3"


def objects_within(node_classes: node_cache.NodeClasses) -> int:
    """Everything a cohort holds, however it is laid out; classes, functions and modules aside."""
    seen = {id(node_classes)}
    waiting: list[object] = [node_classes]
    while waiting:
        for held in gc.get_referents(waiting.pop()):
            is_code = isinstance(held, type | types.FunctionType | types.ModuleType)
            if not is_code and id(held) not in seen:
                seen.add(id(held))
                waiting.append(held)
    return len(seen)


def test_reasons_can_be_asked_for_after_a_sweep() -> None:
    world = build.world(nodes=2)
    result, counting = gathered(world, gpus=9)
    for index in range(2 * node_cache.SLACK):
        build.put(world, build.pod("busy", cpu=f"{index + 1}m", nodeName="n0"))
        result.refresh(counting)
    tally = result.tally(counting)
    assert (tally.nodes, [obstacle.nodes for obstacle in tally.obstacles()]) == (2, [2])


def test_nodes_that_differ_only_in_names_within_reasons_are_distinguished() -> None:
    world = build.world(
        build.claim("c"), build.pod("p", uses=("c",)), build.node("a"), build.node("b")
    )
    for name in "ab":
        half = build.gpu_slice(name, 1)
        pool = build.replaced(half.spec.pool, resource_slice_count=2)
        build.put(world, build.replaced(half, spec=build.replaced(half.spec, pool=pool)))
    [refusal] = build.decided(world).refusals
    subjects = {obstacle.reason.subject for obstacle in refusal.obstacles}
    assert {f"pool {build.DRIVER}/a", f"pool {build.DRIVER}/b"} <= subjects


def test_only_so_many_kinds_are_kept_those_used_last() -> None:
    kept = node_cache.NodeClassesCache(most=2)
    made = {name: gathered(build.world(nodes=1))[0] for name in "abc"}
    kept.keep("a", made["a"], {})
    kept.keep("b", made["b"], {})
    assert kept.get("a") is made["a"]
    kept.keep("c", made["c"], {})
    assert (kept.get("a"), kept.get("b"), kept.get("c")) == (made["a"], None, made["c"])


def test_a_cohort_is_dropped_when_a_class_it_read_says_something_else() -> None:
    kept = node_cache.NodeClassesCache(most=9)
    result, _ = gathered(build.world(nodes=1))
    gpu = build.gpu_class()
    kept.keep("reads gpu", result, {"gpu": gpu})
    kept.keep("misses other", result, {"other": None})
    kept.drop_readers({"gpu": build.gpu_class()})  # the same again, as after a new list
    assert len(kept) == 2
    kept.drop_readers({"gpu": build.gpu_class(when="true"), "other": gpu})
    assert len(kept) == 0


@pytest.mark.parametrize("memo", [True, False])
def test_what_is_kept_does_not_keep_the_world(memo: bool) -> None:
    world = build.world(build.claim("c"), build.pod("p", uses=("c",)), nodes=2)
    assert build.decided(world, policy=policy.Policy(memo=memo)).placements
    watched = weakref.ref(world)
    del world
    gc.collect()
    assert watched() is None


def test_pods_whose_claims_have_devices_leave_nothing_behind() -> None:
    world = build.world(build.claim("c"), build.pod("a", uses=("c",)), nodes=2)
    build.carried_out(world, build.decided(world))
    build.put(world, build.pod("b", uses=("c",)))
    before = cohorts_alive()
    assert build.nodes_of(build.decided(world)) == {"b": "n0"}
    assert cohorts_alive() == before

    build.put(world, build.claim("d"), build.pod("e", uses=("d",), cpu="2"))
    assert build.nodes_of(build.decided(world)) == {"b": "n0", "e": "n0"}
    assert cohorts_alive() == before + 1  # a kind of pod that is searched for does


def cohorts_alive() -> int:
    """Cohorts that are kept for this story's pods; clusters of other stories may run in other threads."""
    gc.collect()
    cohorts = [each for each in gc.get_objects() if isinstance(each, node_cache.NodeClasses)]
    return sum(cohort.kind.pod.metadata.name in ("a", "b", "e") for cohort in cohorts)
