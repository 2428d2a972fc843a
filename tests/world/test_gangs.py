"""Who belongs together: pods say it, owners decide, and what is known is what was told and what pods say."""

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


def told(key: gangs.GangKey, **facts: Any) -> gangs.Gang:
    metadata = meta.ObjectMeta(
        namespace=key[0], name=key[1], creation_timestamp="2026-05-01T12:00:00Z"
    )
    return gangs.Gang(metadata=metadata, **facts)


def job_pod(name: str, **annotations: str) -> pods.Pod:
    return pod(name, owner=(*JOB, "train"), annotations=annotations)


def test_an_owner_ties_pods_that_say_nothing_and_lets_them_go_again() -> None:
    found = GangIndex()
    for name in ("a", "b"):
        found.put_pod(name, job_pod(name))
    assert found.is_trivial
    assert [*found.keys()] == [("ml", "pod/a"), ("ml", "pod/b")]
    found.put(LOOSE, told(LOOSE, groups=(gangs.Group(name="default", min=2),)))
    assert [*found.keys()] == [LOOSE]
    assert found.members(LOOSE) == {"a": "default", "b": "default"}
    assert (found.tied, found.is_trivial, found.definition(LOOSE).groups[0].min) == (1, False, 2)
    assert found.definition(LOOSE).metadata.creation_timestamp == "2026-05-01T12:00:00Z"
    found.put(LOOSE, None)
    assert (found.tied, found.is_trivial) == (0, True)


def test_pods_of_a_loose_owner_stay_alone_and_know_what_it_says() -> None:
    found = GangIndex()
    found.put_pod("a", job_pod("a"))
    found.put(
        LOOSE, told(LOOSE, is_loose=True, queue="research", counts_failures=True, max_runtime=60)
    )
    assert found.is_trivial
    known = found.definition(("ml", "pod/a"))
    assert (known.queue, known.counts_failures, known.max_runtime) == ("research", True, 60)
    assert (known.metadata.name, known.metadata.creation_timestamp, known.groups) == (
        "pod/a",
        None,
        (gangs.LONE_GROUP,),
    )
    assert not known.is_loose


def test_a_pod_whose_owner_is_not_seen_is_not_alone() -> None:
    found = GangIndex()
    found.put_pod("a", pod("a", owner=(*JOB, "llama-workers-1"), labels=JOBSET))
    assert not found.is_trivial
    assert not found.definition(TIED).is_known
    found.put(TIED, told(TIED, groups=(gangs.Group(name="workers/1", min=4),)))
    assert found.definition(TIED).is_known


def test_every_replica_of_a_family_takes_its_groups_from_the_owner() -> None:
    found = GangIndex()
    found.put_pod("a", pod("a", owner=(*SET, "serve"), labels=LEADER))
    found.put_pod("b", pod("b", owner=(*SET, "serve-2"), labels=WORKER))
    other = LEADER | {"leaderworkerset.sigs.k8s.io/group-index": "3"}
    found.put_pod("c", pod("c", owner=(*SET, "serve"), labels=other))
    family = ("ml", "leaderworkerset/serve")
    assert not found.definition(("ml", "leaderworkerset/serve/2")).is_known
    found.put(family, told(family, groups=gangs.leader_and_workers(4), min_groups=2))
    for index in "23":
        known = found.definition(("ml", f"leaderworkerset/serve/{index}"))
        assert (known.metadata.name, known.is_known) == (f"leaderworkerset/serve/{index}", True)
        assert [group.min for group in known.groups] == [1, 3]
    assert sorted(found.owned(family)) == ["a", "b", "c"]


def test_pods_complete_what_their_owner_declared() -> None:
    found = GangIndex()
    key = ("ml", "podgroup/pg")
    group = {"podGroupName": "pg"}
    notes = {"dovetail.dev/queue": "research", "dovetail.dev/max-runtime": "1h"}
    found.put_pod("a", pod("a", schedulingGroup=group, annotations=notes))
    found.put(key, told(key, max_runtime=60))
    known = found.definition(key)
    assert (known.queue, known.max_runtime, known.is_recreated) == ("research", 60, False)
    found.put_pod(
        "a", pod("a", schedulingGroup=group, annotations=notes | {"dovetail.dev/queue": "other"})
    )
    assert found.definition(key).queue == "other"


def test_undeclared_groups_join_a_gang_without_being_required() -> None:
    found = GangIndex()
    found.put(TIED, told(TIED, groups=(gangs.Group(name="driver/0"),)))
    found.put_pod("a", pod("a", owner=(*JOB, "x"), labels=JOBSET))
    known = found.definition(TIED)
    assert [(group.name, group.min) for group in known.groups] == [
        ("driver/0", 1),
        ("workers/1", 0),
    ]
    assert known.min_groups == 2


def test_groups_of_a_labelled_gang_are_what_their_pods_say() -> None:
    found = GangIndex()
    for name, group, least in (("a", "ps", "1"), ("b", "worker", "3"), ("c", "worker", "3")):
        labels = {
            "dovetail.dev/gang": "g",
            "dovetail.dev/gang-group": group,
            "dovetail.dev/gang-min": least,
        }
        found.put_pod(name, pod(name, labels=labels))
    known = found.definition(("ml", "gang/g"))
    assert [(group.name, group.min) for group in known.groups] == [("ps", 1), ("worker", 3)]
    assert known.min_groups == 2


def test_problems_are_the_owners_and_the_pods() -> None:
    found = GangIndex()
    found.put(LOOSE, told(LOOSE, is_loose=True, problems=("owner",)))
    found.put_pod("a", job_pod("a", **{"dovetail.dev/max-runtime": "soon"}))
    owner, own = found.problems("a")
    assert owner == "owner"
    assert own.startswith("dovetail.dev/max-runtime")
    assert found.problems("nobody") == ()


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


def shown(found: GangIndex) -> dict[gangs.GangKey, Any]:
    """Every gang with its members and all that is known about it."""
    return {key: (dict(found.members(key)), found.definition(key)) for key in [*found.keys()]}


@given(STEPS)
def test_whatever_the_order_it_is_what_a_fresh_one_would_be(steps: list[Any]) -> None:
    live = GangIndex()
    there: dict[str, pods.Pod] = {}
    said: dict[gangs.GangKey, gangs.Gang] = {}
    for subject, what in steps:
        if isinstance(subject, str):
            one = made(subject, what)
            live.put_pod(subject, one)
            there.pop(subject, None)
            if one is not None:
                there[subject] = one
        else:
            gang = None if what == "gone" else told(subject, is_loose=what == "loose", queue=what)
            live.put(subject, gang)
            said.pop(subject, None)
            if gang is not None:
                said[subject] = gang
        shown(live)  # answers are remembered from now on
    fresh = GangIndex()
    for id_, one in there.items():
        fresh.put_pod(id_, one)
    for key, gang in said.items():
        fresh.put(key, gang)
    assert shown(live) == shown(fresh)
    assert (live.tied, live.is_trivial) == (fresh.tied, fresh.is_trivial)


def test_a_world_takes_gangs_as_events() -> None:
    world = World()
    world.apply(Changed(job_pod("a")))
    world.apply(Changed(told(LOOSE)))
    assert [*world.gangs.keys()] == [LOOSE]
    world.apply(Deleted(told(LOOSE)))
    assert [*world.gangs.keys()] == [("ml", "pod/a")]
