"""Priority where no queue exists: pods preempt as with kube-scheduler, whatever it is that they lack."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from dovetail.kubetypes import meta
from dovetail.kubetypes.core import pods
from dovetail.model import gangs, policy, workload_annotations
from dovetail.schedule.evict import preemption_bound
from dovetail.world.events import Deleted
from dovetail.world.world import World
from tests.batch import stories
from tests.schedule import build


def pod(name: str, *, cpu: str = "1", node: str = "", since: int = 3600, **facts: Any) -> pods.Pod:
    """A pod that nothing makes again, and that names no queue."""
    if node:
        facts["nodeName"] = node
        facts["status"] = {"phase": "Running", "startTime": stories.stamp(since)}
    return build.pod(name, cpu=cpu, **facts)


def world(*given: Any, nodes: int = 1, cpu: str = "10") -> World:
    machines = [build.node(f"n{number}", allocatable={"cpu": cpu}) for number in range(nodes)]
    return stories.world(*machines, *given)


def outcome(cluster: World, **options: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Who is nominated for which node, and who has to go."""
    done = stories.decided(cluster, **options)
    return stories.nominated(done), stories.evicted(done)


# Who may ask whom


def test_a_pod_without_a_controller_is_evicted_for_a_higher_priority() -> None:
    cluster = world(
        pod("runs", cpu="8", node="n0", priority=1000), pod("important", cpu="8", priority=2000)
    )
    done = stories.decided(cluster)
    assert stories.evicted(done) == {"runs": "Preempted"}
    assert stories.nominated(done) == {"important": "n0"}
    assert stories.detail(done, "runs") == "priority 2000 comes before its 1000"


def test_no_pod_is_evicted_for_an_equal_priority() -> None:
    cluster = world(
        pod("runs", cpu="8", node="n0", priority=1000), pod("equal", cpu="8", priority=1000)
    )
    done = stories.decided(cluster)
    assert not done.evictions
    assert "lacks cpu" in stories.why(done, "equal")


def test_a_negative_priority_is_evicted_for_priority_zero() -> None:
    cluster = world(pod("idle-filler", cpu="8", node="n0", priority=-10), pod("plain", cpu="8"))
    assert outcome(cluster) == ({"plain": "n0"}, {"idle-filler": "Preempted"})


def test_a_pod_that_says_never_waits() -> None:
    cluster = world(
        pod("runs", cpu="8", node="n0"),
        pod("polite", cpu="8", priority=10, preemptionPolicy="Never"),
    )
    assert outcome(cluster) == ({}, {})


def test_a_pod_that_may_evict_only_later_is_asked_about_again_then() -> None:
    late = {
        "annotations": {workload_annotations.MAY_EVICT_AFTER: "300"},
        "creationTimestamp": stories.stamp(200),
    }
    cluster = world(
        pod("runs", cpu="8", node="n0"), pod("patient", cpu="8", priority=10, metadata=late)
    )
    done = stories.decided(cluster)
    assert not done.evictions
    assert done.wake_at == stories.NOW + datetime.timedelta(seconds=100)
    assert stories.evicted(stories.decided(cluster, now=done.wake_at)) == {"runs": "Preempted"}


def test_pods_of_other_schedulers_are_left_alone() -> None:
    cluster = world(
        pod("theirs", cpu="8", node="n0", schedulerName="default-scheduler"),
        pod("important", cpu="8", priority=10, schedulerName="dovetail"),
    )
    only_ours = policy.Policy(scheduler_names=("dovetail",))
    assert outcome(cluster, policy=only_ours) == ({}, {})
    assert outcome(cluster) == ({"important": "n0"}, {"theirs": "Preempted"})


def test_work_that_says_it_is_not_preemptible_stays() -> None:
    kept = pod(
        "kept",
        cpu="8",
        node="n0",
        metadata={"annotations": {workload_annotations.PREEMPTIBLE: "false"}},
    )
    cluster = world(kept, pod("important", cpu="8", priority=10))
    assert outcome(cluster) == ({}, {})


def test_a_pod_that_may_not_be_evicted_for_now_is_spared() -> None:
    cluster = world(
        pod("protected", cpu="8", node="n0"),
        pod("other", cpu="8", node="n1", priority=5),
        pod("important", cpu="8", priority=10),
        nodes=2,
    )
    assert outcome(cluster) == ({"important": "n0"}, {"protected": "Preempted"})
    assert outcome(cluster, spared={"uid-of-protected"}) == (
        {"important": "n1"},
        {"other": "Preempted"},
    )


# Which of several


@pytest.mark.parametrize(
    ("there", "node"),
    [
        (
            {"n0": [(5, 100)], "n1": [(4, 100), (4, 100)]},
            "n1",
        ),  # the highest priority of the victims comes first
        ({"n0": [(5, 100), (4, 100)], "n1": [(5, 100), (3, 100)]}, "n1"),  # then their sum
        (
            {"n0": [(-5, 100), (-5, 100)], "n1": [(-5, 100)]},
            "n1",
        ),  # in which two count more than one
        ({"n0": [(5, 900)], "n1": [(5, 100)]}, "n1"),  # then whose most important started last
        (
            {"n0": [(5, 100)], "n1": [(5, 100)]},
            "n0",
        ),  # then the name, so that it is the same each time
    ],
)
def test_the_node_is_chosen_whose_victims_matter_least(
    there: dict[str, list[tuple[int, int]]], node: str
) -> None:
    cluster = world(pod("important", cpu="10", priority=10), nodes=2)
    for name, listed in there.items():
        for number, (priority, since) in enumerate(listed):
            build.put(cluster, pod(f"{name}-{number}", node=name, priority=priority, since=since))
    assert outcome(cluster)[0] == {"important": node}


def test_victims_that_need_not_go_stay_the_most_important_first() -> None:
    cluster = world(
        pod("low", cpu="4", node="n0", priority=1),
        pod("middle", cpu="4", node="n0", priority=2),
        pod("small", cpu="1", node="n0"),
        pod("important", cpu="4", priority=10),
    )
    assert outcome(cluster) == ({"important": "n0"}, {"low": "Preempted"})


def test_more_important_pods_take_their_room_before_others_take_what_is_free() -> None:
    """The less important pod would fit now; the more important one then had to end two pods instead of one."""
    cluster = world(
        pod("runs", cpu="6", node="n0"),
        pod("important", cpu="8", priority=10),
        pod("small", cpu="3", priority=5),
    )
    done = stories.decided(cluster)
    assert stories.nominated(done) == {"important": "n0"}
    assert not done.placements


def test_each_pod_that_waits_finds_victims_of_its_own() -> None:
    cluster = world(
        pod("first", cpu="8", priority=10), pod("second", cpu="8", priority=10), nodes=2
    )
    build.put(cluster, pod("a", cpu="8", node="n0"), pod("b", cpu="8", node="n1"))
    assert outcome(cluster) == (
        {"first": "n0", "second": "n1"},
        {"a": "Preempted", "b": "Preempted"},
    )


# Whatever it is that is lacking


def test_devices_of_a_claim_become_free() -> None:
    cluster = stories.world(*stories.boards("n0", 2, stories.H100, "Hopper"))
    for number, priority in enumerate((5, 0)):
        build.put(
            cluster,
            stories.holding(f"claim-{number}", ("n0", f"gpu-{number}"), users=[f"runs-{number}"]),
        )
        build.put(
            cluster, pod(f"runs-{number}", node="n0", priority=priority, uses=(f"claim-{number}",))
        )
    build.put(cluster, build.claim("wanted", 1), pod("important", priority=10, uses=("wanted",)))
    assert outcome(cluster) == ({"important": "n0"}, {"runs-1": "Preempted"})


def test_pods_that_share_devices_go_together_and_only_if_all_may() -> None:
    cluster = stories.world(*stories.boards("n0", 1, stories.H100, "Hopper"))
    build.put(cluster, stories.holding("shared", ("n0", "gpu-0"), users=["one", "two"]))
    build.put(
        cluster,
        pod("one", node="n0", uses=("shared",)),
        pod("two", node="n0", uses=("shared",), priority=3),
    )
    build.put(cluster, build.claim("wanted", 1), pod("important", priority=10, uses=("wanted",)))
    assert outcome(cluster) == ({"important": "n0"}, {"one": "Preempted", "two": "Preempted"})
    build.put(cluster, pod("two", node="n0", uses=("shared",), priority=20))
    assert outcome(cluster) == ({}, {})


def test_gpus_of_a_device_plugin_become_free() -> None:
    cluster = stories.world(stories.plugin_node("n0", 8))
    expected = {
        "containers": [{"name": "main", "resources": {"requests": {"nvidia.com/gpu": "8"}}}]
    }
    build.put(
        cluster, pod("runs", node="n0", **expected), pod("important", priority=10, **expected)
    )
    assert outcome(cluster) == ({"important": "n0"}, {"runs": "Preempted"})


def test_a_host_port_becomes_free() -> None:
    expected = {
        "containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 8080}]}]
    }
    cluster = world(
        pod("runs", node="n0", **expected),
        pod("other", node="n0"),
        pod("important", priority=10, **expected),
    )
    assert outcome(cluster) == ({"important": "n0"}, {"runs": "Preempted"})


def test_a_pod_with_anti_affinity_to_the_new_pod_is_evicted() -> None:
    term = {
        "labelSelector": {"matchLabels": {"app": "web"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    alone = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    web = {"metadata": {"labels": {"app": "web"}}}
    cluster = world(
        pod("runs", node="n0", affinity=alone, **web), pod("important", priority=10, **web)
    )
    assert outcome(cluster) == ({"important": "n0"}, {"runs": "Preempted"})


# Gangs


def member(name: str, gang: str, least: int, **facts: Any) -> pods.Pod:
    labels = {gangs.GANG_LABEL: gang, gangs.MIN_LABEL: str(least)}
    return pod(
        name, metadata={"labels": labels, "annotations": {gangs.MIN_LABEL: str(least)}}, **facts
    )


def test_a_gang_preempts_for_all_its_pods() -> None:
    cluster = world(pod("a", cpu="8", node="n0"), pod("b", cpu="8", node="n1", priority=3), nodes=2)
    build.put(cluster, *(member(f"g{number}", "g", 2, cpu="8", priority=10) for number in range(2)))
    nominated, evicted = outcome(cluster)
    assert evicted == {"a": "Preempted", "b": "Preempted"}
    assert sorted(nominated.values()) == ["n0", "n1"]


def test_a_gang_that_could_not_start_as_a_whole_evicts_no_pod() -> None:
    cluster = world(
        pod("a", cpu="8", node="n0"), pod("b", cpu="8", node="n1", priority=30), nodes=2
    )
    build.put(cluster, *(member(f"g{number}", "g", 2, cpu="8", priority=10) for number in range(2)))
    assert outcome(cluster) == ({}, {})


def test_a_gang_at_its_minimum_goes_as_a_whole_and_one_above_it_in_part() -> None:
    cluster = world(
        *(member(f"g{number}", "g", 2, cpu="8", node=f"n{number}") for number in range(2)), nodes=2
    )
    build.put(cluster, pod("important", cpu="8", priority=10))
    nominated, evicted = outcome(cluster)
    assert (len(nominated), evicted) == (1, {"g0": "Preempted", "g1": "Preempted"})
    build.put(
        cluster, *(member(f"g{number}", "g", 1, cpu="8", node=f"n{number}") for number in range(2))
    )
    assert len(outcome(cluster)[1]) == 1


# What is reported, and what it costs


def test_where_priority_could_not_help_it_is_not_tried() -> None:
    """A yes costs a decision about every pending pod."""
    cluster = world(pod("runs", cpu="2", node="n0"), pod("equal", cpu="4", node="n0", priority=10))
    asked = preemption_bound.PreemptionBound(cluster, policy.DEFAULT)
    assert not asked.might_help(pod("plain", cpu="6"))
    assert not asked.might_help(pod("polite", cpu="6", priority=10, preemptionPolicy="Never"))
    assert not asked.might_help(pod("too-big", cpu="7", priority=10))
    assert asked.might_help(pod("fits", cpu="6", priority=10))
    no_preemption = policy.Policy(steps=(policy.Step.ALLOCATE,))
    assert not preemption_bound.PreemptionBound(cluster, no_preemption).might_help(
        pod("fits", cpu="6", priority=10)
    )


def test_the_lowest_priority_that_runs_follows_every_change() -> None:
    cluster = world(
        pod("a", node="n0", priority=5, schedulerName="ours"), pod("b", node="n0", priority=-1)
    )
    assert (
        cluster.lowest_priority(()),
        cluster.lowest_priority(("ours",)),
        cluster.lowest_priority(("others",)),
    ) == (
        -1,
        5,
        None,
    )
    build.put(cluster, pod("b", node="n0", priority=7), pod("waits", priority=-9))
    assert cluster.lowest_priority(()) == 5
    cluster.apply(Deleted(cluster.pods["uid-of-a"]))
    assert cluster.lowest_priority(()) == 7


def test_a_decision_about_one_pod_speaks_of_no_other() -> None:
    cluster = world(
        pod("runs", node="n0"),
        pod("too-big", cpu="9999"),
        pod("important", cpu="5000", priority=1000),
        pod("fits", cpu="10", priority=1000),
    )
    done = stories.decided(cluster, among=["uid-of-important"])
    assert [refusal.pod.name for refusal in done.refusals] == ["important"]
    done = stories.decided(cluster, among=["uid-of-fits", "uid-of-important"])
    assert stories.nominated(done) == {"fits": "n0"}
    assert [refusal.pod.name for refusal in done.refusals] == ["important"]


def test_the_same_is_decided_without_anything_remembered() -> None:
    cluster = world(nodes=3)
    for number in range(9):
        build.put(
            cluster,
            pod(f"r{number}", cpu="3", node=f"n{number % 3}", priority=number, since=100 + number),
        )
    build.put(cluster, pod("one", cpu="6", priority=20), pod("two", cpu="6", priority=20))
    assert stories.decided(cluster) == stories.decided(cluster, policy=policy.Policy(memo=False))


# Beside queues


def test_where_queues_exist_pods_without_one_preempt_each_other_and_what_is_not_made_again_stays() -> (
    None
):
    queue = stories.queue("a", gpu=1)
    elsewhere = meta.LabelSelector(match_labels={"team": "a"})
    cluster = stories.world(
        build.node("n0", allocatable={"cpu": "10"}),
        build.replaced(queue, spec=build.replaced(queue.spec, namespace_selector=elsewhere)),
        pod("bare", cpu="5", node="n0"),
        pod("owned", cpu="5", node="n0", priority=5, metadata={"ownerReferences": [stories.OWNER]}),
        pod("important", cpu="5", priority=10),
    )
    assert outcome(cluster) == ({"important": "n0"}, {"owned": "Preempted"})
