"""Which pods form a gang: from the declarations of their owners and from what the pods say."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dovetail.kubetypes import meta
from dovetail.kubetypes.core import pods
from dovetail.model import gangs
from dovetail.world.events import Changed, Deleted
from dovetail.world.gang_index import GangIndex
from dovetail.world.world import World
from tests.model.test_gangs import JOB, JOBSET, LEADER, SET, WORKER, pod

LOOSE, TIED = ("ml", "job/train"), ("ml", "jobset/llama")


def declared_gang(key: gangs.GangKey, **facts: Any) -> gangs.Gang:
    metadata = meta.ObjectMeta(
        namespace=key[0], name=key[1], creation_timestamp="2026-05-01T12:00:00Z"
    )
    return gangs.Gang(metadata=metadata, **facts)


def job_pod(name: str, **annotations: str) -> pods.Pod:
    return pod(name, owner=(*JOB, "train"), annotations=annotations)


def test_an_owner_ties_pods_that_say_nothing_and_lets_them_go_again() -> None:
    index = GangIndex()
    for name in ("a", "b"):
        index.put_pod(name, job_pod(name))
    assert index.is_trivial
    assert [*index.keys()] == [("ml", "pod/a"), ("ml", "pod/b")]
    index.put(LOOSE, declared_gang(LOOSE, groups=(gangs.Group(name="default", min=2),)))
    assert [*index.keys()] == [LOOSE]
    assert index.members(LOOSE) == {"a": "default", "b": "default"}
    assert (index.tied, index.is_trivial, index.definition(LOOSE).groups[0].min) == (1, False, 2)
    assert index.definition(LOOSE).metadata.creation_timestamp == "2026-05-01T12:00:00Z"
    index.put(LOOSE, None)
    assert (index.tied, index.is_trivial) == (0, True)


def test_pods_of_a_loose_owner_stay_alone_and_know_what_it_says() -> None:
    index = GangIndex()
    index.put_pod("a", job_pod("a"))
    index.put(
        LOOSE,
        declared_gang(LOOSE, is_loose=True, queue="research", counts_failures=True, max_runtime=60),
    )
    assert index.is_trivial
    known = index.definition(("ml", "pod/a"))
    assert (known.queue, known.counts_failures, known.max_runtime) == ("research", True, 60)
    assert (known.metadata.name, known.metadata.creation_timestamp, known.groups) == (
        "pod/a",
        None,
        (gangs.LONE_GROUP,),
    )
    assert not known.is_loose


def test_a_pod_whose_owner_is_not_seen_is_not_alone() -> None:
    index = GangIndex()
    index.put_pod("a", pod("a", owner=(*JOB, "llama-workers-1"), labels=JOBSET))
    assert not index.is_trivial
    assert not index.definition(TIED).is_known
    index.put(TIED, declared_gang(TIED, groups=(gangs.Group(name="workers/1", min=4),)))
    assert index.definition(TIED).is_known


def test_every_replica_of_a_family_takes_its_groups_from_the_owner() -> None:
    gang_index = GangIndex()
    gang_index.put_pod("a", pod("a", owner=(*SET, "serve"), labels=LEADER))
    gang_index.put_pod("b", pod("b", owner=(*SET, "serve-2"), labels=WORKER))
    other = LEADER | {"leaderworkerset.sigs.k8s.io/group-index": "3"}
    gang_index.put_pod("c", pod("c", owner=(*SET, "serve"), labels=other))
    family = ("ml", "leaderworkerset/serve")
    assert not gang_index.definition(("ml", "leaderworkerset/serve/2")).is_known
    gang_index.put(family, declared_gang(family, groups=gangs.leader_and_workers(4), min_groups=2))
    for index in "23":
        known = gang_index.definition(("ml", f"leaderworkerset/serve/{index}"))
        assert (known.metadata.name, known.is_known) == (f"leaderworkerset/serve/{index}", True)
        assert [group.min for group in known.groups] == [1, 3]
    assert sorted(gang_index.owned(family)) == ["a", "b", "c"]


def test_pods_complete_what_their_owner_declared() -> None:
    index = GangIndex()
    key = ("ml", "podgroup/pg")
    group = {"podGroupName": "pg"}
    notes = {"dovetail.dev/queue": "research", "dovetail.dev/max-runtime": "1h"}
    index.put_pod("a", pod("a", schedulingGroup=group, annotations=notes))
    index.put(key, declared_gang(key, max_runtime=60))
    known = index.definition(key)
    assert (known.queue, known.max_runtime, known.is_recreated) == ("research", 60, False)
    index.put_pod(
        "a", pod("a", schedulingGroup=group, annotations=notes | {"dovetail.dev/queue": "other"})
    )
    assert index.definition(key).queue == "other"


def test_undeclared_groups_join_a_gang_without_being_required() -> None:
    index = GangIndex()
    index.put(TIED, declared_gang(TIED, groups=(gangs.Group(name="driver/0"),)))
    index.put_pod("a", pod("a", owner=(*JOB, "x"), labels=JOBSET))
    known = index.definition(TIED)
    assert [(group.name, group.min) for group in known.groups] == [
        ("driver/0", 1),
        ("workers/1", 0),
    ]
    assert known.min_groups == 2


def test_groups_of_a_labelled_gang_are_what_their_pods_say() -> None:
    index = GangIndex()
    for name, group, least in (("a", "ps", "1"), ("b", "worker", "3"), ("c", "worker", "3")):
        labels = {
            "dovetail.dev/gang": "g",
            "dovetail.dev/gang-group": group,
            "dovetail.dev/gang-min": least,
        }
        index.put_pod(name, pod(name, labels=labels))
    known = index.definition(("ml", "gang/g"))
    assert [(group.name, group.min) for group in known.groups] == [("ps", 1), ("worker", 3)]
    assert known.min_groups == 2


def test_problems_are_the_owners_and_the_pods() -> None:
    index = GangIndex()
    index.put(LOOSE, declared_gang(LOOSE, is_loose=True, problems=("owner",)))
    index.put_pod("a", job_pod("a", **{"dovetail.dev/max-runtime": "soon"}))
    owner, own = index.problems("a")
    assert owner == "owner"
    assert own.startswith("dovetail.dev/max-runtime")
    assert index.problems("no-such-pod") == ()


PODS = st.sampled_from("abc")
KINDS = st.sampled_from(["job", "asking", "jobset", "bare", "gone"])
SAID = st.sampled_from(["tied", "loose", "gone"])
STEPS = st.lists(
    st.one_of(st.tuples(PODS, KINDS), st.tuples(st.sampled_from([LOOSE, TIED]), SAID)), max_size=12
)


def made(name: str, kind: str) -> pods.Pod | None:
    match kind:
        case "job":
            return job_pod(name)
        case "asking":
            return job_pod(name, **{"dovetail.dev/gang-min": "2"})
        case "jobset":
            return pod(name, owner=(*JOB, "x"), labels=JOBSET)
        case "bare":
            return pod(name)
    return None


def shown(index: GangIndex) -> dict[gangs.GangKey, Any]:
    """Every gang with its members and all that is known about it."""
    return {key: (dict(index.members(key)), index.definition(key)) for key in [*index.keys()]}


@given(STEPS)
def test_whatever_the_order_it_is_what_a_fresh_one_would_be(steps: list[Any]) -> None:
    live = GangIndex()
    there: dict[str, pods.Pod] = {}
    declared: dict[gangs.GangKey, gangs.Gang] = {}
    for subject, what in steps:
        if isinstance(subject, str):
            item = made(subject, what)
            live.put_pod(subject, item)
            there.pop(subject, None)
            if item is not None:
                there[subject] = item
        else:
            gang = (
                None
                if what == "gone"
                else declared_gang(subject, is_loose=what == "loose", queue=what)
            )
            live.put(subject, gang)
            declared.pop(subject, None)
            if gang is not None:
                declared[subject] = gang
        shown(live)  # answers are remembered from now on
    fresh = GangIndex()
    for id_, item in there.items():
        fresh.put_pod(id_, item)
    for key, gang in declared.items():
        fresh.put(key, gang)
    assert shown(live) == shown(fresh)
    assert (live.tied, live.is_trivial) == (fresh.tied, fresh.is_trivial)


def test_a_world_takes_gangs_as_events() -> None:
    world = World()
    world.apply(Changed(job_pod("a")))
    world.apply(Changed(declared_gang(LOOSE)))
    assert [*world.gangs.keys()] == [LOOSE]
    world.apply(Deleted(declared_gang(LOOSE)))
    assert [*world.gangs.keys()] == [("ml", "pod/a")]
