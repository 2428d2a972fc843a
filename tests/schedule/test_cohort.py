"""What is kept about kinds of pods: only changed nodes are looked at again, and what is stale does not pile up."""

from __future__ import annotations

import gc
import weakref

import pytest

from dovetail.model import claims, nodes, policy, requests
from dovetail.model.reasons import Reason
from dovetail.schedule import cohort, judge, likeness, placement
from dovetail.world.world import World
from tests.schedule import build


class Counting(judge.Judge):
    """Counts the nodes it is asked about."""

    def __init__(self, world: World) -> None:
        super().__init__(world, policy.DEFAULT, policy.UNLIMITED)
        self.standings: list[str] = []
        self.choices: list[str] = []

    def standing(self, kind: judge.Kind, node: nodes.Node) -> Reason | None:
        self.standings.append(node.metadata.name)
        return super().standing(kind, node)

    def choice(self, kind: judge.Kind, node: str, served: tuple[str, ...]) -> judge.Choice | judge.Told:
        self.choices.append(node)
        return super().choice(kind, node, served)


def gathered(world: World, gpus: int = 1) -> tuple[cohort.Cohort, Counting]:
    """The cohort of pods that want so many GPUs, filed once."""
    pod, claim = build.pod("p", uses=("c",)), build.claim("c", count=gpus)
    wanted = claims.ResourceClaim(spec=claim.spec)
    kind = judge.Kind(pod, requests.pod_request(pod), (), (wanted,))
    reads = likeness.reads_of((wanted,), world.classes)
    found = cohort.Cohort(kind, likeness.keys_for(world, reads))
    counting = Counting(world)
    found.refresh(counting)
    return found, counting


def test_of_many_nodes_alike_one_is_judged_and_later_only_what_changed() -> None:
    world = build.world(nodes=50)
    found, counting = gathered(world)
    assert (len(counting.standings), len(counting.choices)) == (50, 1)
    found.refresh(counting)
    build.put(world, build.node("n7", allocatable={"cpu": "32"}))
    found.refresh(counting)
    assert counting.standings[50:] == ["n7"]
    assert len(counting.choices) == 1  # its devices are like all others'
    assert found.best() == "n7"  # less cpu stays idle there


def test_a_node_that_differs_in_room_only_is_not_searched_again() -> None:
    world = build.world(nodes=3)
    _, counting = gathered(world)
    for index in range(3):
        build.put(world, build.pod(f"busy-{index}", cpu=str(index + 1), nodeName=f"n{index}"))
    found, again = gathered(world)
    assert len(counting.choices) == len(again.choices) == 1
    assert found.best() == "n2"


def test_classes_and_entries_out_of_date_are_swept() -> None:
    world = build.world(nodes=4)
    found, counting = gathered(world)
    for index in range(4 * cohort.SLACK):
        build.put(world, build.pod("busy", cpu=f"{index + 1}m", nodeName=f"n{index % 4}"))
        found.refresh(counting)
    assert len(found._numbers) <= 2 * cohort.SLACK
    assert len(found._answers) == len(found._numbers)
    assert len(found._heap) <= 2 * cohort.SLACK
    assert found.best() == "n3"


def test_reasons_can_be_asked_for_after_a_sweep() -> None:
    world = build.world(nodes=2)
    found, counting = gathered(world, gpus=9)
    for index in range(2 * cohort.SLACK):
        build.put(world, build.pod("busy", cpu=f"{index + 1}m", nodeName="n0"))
        found.refresh(counting)
    tally = found.tally(counting)
    assert (tally.nodes, [obstacle.nodes for obstacle in tally.obstacles()]) == (2, [2])


def test_nodes_alike_but_for_the_names_their_reasons_tell_are_told_apart() -> None:
    world = build.world(build.claim("c"), build.pod("p", uses=("c",)), build.node("a"), build.node("b"))
    for name in "ab":
        half = build.gpu_slice(name, 1)
        pool = build.replaced(half.spec.pool, resource_slice_count=2)
        build.put(world, build.replaced(half, spec=build.replaced(half.spec, pool=pool)))
    [refusal] = build.decided(world).refusals
    subjects = {one.reason.subject for one in refusal.obstacles}
    assert {f"pool {build.DRIVER}/a", f"pool {build.DRIVER}/b"} <= subjects


def test_only_so_many_kinds_are_kept_those_used_last() -> None:
    kept = cohort.Cohorts(most=2)
    made = {name: gathered(build.world(nodes=1))[0] for name in "abc"}
    kept.keep("a", made["a"], {})
    kept.keep("b", made["b"], {})
    assert kept.get("a") is made["a"]
    kept.keep("c", made["c"], {})
    assert (kept.get("a"), kept.get("b"), kept.get("c")) == (made["a"], None, made["c"])


def test_a_cohort_is_dropped_when_a_class_it_read_says_something_else() -> None:
    kept = cohort.Cohorts(most=9)
    found, _ = gathered(build.world(nodes=1))
    gpu = build.gpu_class()
    kept.keep("reads gpu", found, {"gpu": gpu})
    kept.keep("misses other", found, {"other": None})
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
    before = kinds_kept(world)
    assert build.nodes_of(build.decided(world)) == {"b": "n0"}
    assert kinds_kept(world) == before == 1


def kinds_kept(world: World) -> int:
    return sum(len(kept.cohorts) for kept in placement._MEMORY._kept[world].values())
