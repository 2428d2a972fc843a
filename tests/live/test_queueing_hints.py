"""Pods that could start are requeued: for every kind of event, a quiet cluster in which it frees a pending pod.

The periodic net is off: nothing but the news, or time, may start the pod.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from dovetail.kubetypes import meta, registry
from dovetail.live.queue import awaited_objects, queueing_hints
from dovetail.live.queue.queueing_hints import News
from dovetail.model import gangs, gpu_annotations, plan, workload_annotations
from dovetail.model.reasons import Change, Reason, ReasonCode
from dovetail.schedule.gang import jobs
from tests.live.live_scheduler import Stage, play
from tests.schedule import build

QUIET = 30.0
Act = Callable[[Stage], Awaitable[None] | None]


class Row(NamedTuple):
    """A cluster at rest, what happens, and the pod that it frees."""

    news: News
    cluster: Callable[[], Stage]
    act: Act
    freed: str = "waits"
    seconds: float = 5.0


def _quiet(*, nodes: int = 1, gpus: int = 2) -> Stage:
    stage = Stage(nodes=nodes, gpus=gpus)
    for count in (1, 2, 4):
        stage.template(f"gpus-{count}", count=count)
    return stage


def _edit(
    stage: Stage,
    name: str,
    change: Callable[[dict[str, Any]], None],
    kind: registry.Kind = registry.POD,
) -> None:
    namespace = "default" if kind.is_namespaced else ""
    tree = stage.api.tree(kind, name, namespace=namespace)
    change(tree)
    stage.api.shelf.put(kind, tree)


def _run(stage: Stage, name: str) -> None:
    now = stage.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    _edit(stage, name, lambda tree: tree["status"].update({"phase": "Running", "startTime": now}))


def _annotate(stage: Stage, name: str, **words: str) -> None:
    named = {f"dovetail.dev/{key.replace('_', '-')}": value for key, value in words.items()}
    _edit(stage, name, lambda tree: tree["metadata"].update({"annotations": named}))


def _delete(name: str) -> Act:
    return lambda stage: stage.delete(name, grace_seconds=0)


# A waiting pod asks for something else


def _misspelt_level() -> Stage:
    stage = _quiet()
    words = {"dovetail.dev/topology-required": "no-such-label"}
    stage.pod(
        "waits", templates=("gpus-1",), labels={"dovetail.dev/gang": "waits"}, annotations=words
    )
    return stage


def _corrected(stage: Stage) -> None:
    _annotate(stage, "waits")


def _gated() -> Stage:
    stage = _quiet()
    stage.pod("waits", schedulingGates=[{"name": "example.com/gate"}])
    return stage


def _ungated(stage: Stage) -> None:
    _edit(stage, "waits", lambda tree: tree["spec"].pop("schedulingGates"))


# A waiting pod goes


def _promised(*, small: int = 2) -> Stage:
    """A long pod on half the node, a large one that is promised the whole, a small one that would be in its way."""
    stage = _quiet(gpus=4)
    stage.pod(
        "long", templates=("gpus-2",), annotations={"dovetail.dev/max-runtime": "10h"}, priority=2
    )
    stage.pod(
        "head", templates=("gpus-4",), annotations={"dovetail.dev/max-runtime": "1h"}, priority=1
    )
    stage.pod("waits", templates=(f"gpus-{small}",))
    return stage


def _member_too_large() -> Stage:
    stage = _quiet()
    for name, template in (("waits", "gpus-1"), ("large", "gpus-4")):
        labels = {"dovetail.dev/gang": "g", "dovetail.dev/gang-group": name}
        stage.pod(name, templates=(template,), labels=labels)
    return stage


def _borrowing() -> Stage:
    """Queue b is due what queue a borrowed only once queue c does not want it any more."""
    stage = _quiet(gpus=4)
    for name in "abc":
        stage.queue(name, resources={"gpu": {"quota": "0", "limit": "4"}})
    for number in range(4):
        labels = {"dovetail.dev/queue": "a"}
        stage.pod(
            f"a-{number}", templates=("gpus-1",), labels=labels, job=f"a-{number}", priority=2
        )
    return stage


def _demand_comes(stage: Stage) -> None:
    stage.pod("b-0", templates=("gpus-2",), labels={"dovetail.dev/queue": "b"}, job="b-0")
    for number in range(4):
        labels = {"dovetail.dev/queue": "c"}
        stage.pod(
            f"c-{number}", templates=("gpus-1",), labels=labels, job="c", preemptionPolicy="Never"
        )


async def _demand_gone(stage: Stage) -> None:
    for number in range(4):
        await stage.delete(f"c-{number}", grace_seconds=0)


def _being_deleted(stage: Stage) -> None:
    def change(tree: dict[str, Any]) -> None:
        tree["metadata"] |= {
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["example.com/keeps-it"],
        }

    _edit(stage, "head", change)


def _failed(stage: Stage) -> None:
    _edit(stage, "head", lambda tree: tree["status"].update({"phase": "Failed"}))


def _nominated() -> Stage:
    """A pod of another scheduler is promised the node."""
    stage = _quiet()
    wants = {"requests": {"cpu": "1000"}}
    stage.pod("nominee", schedulerName="another", priority=5, resources=wants)
    _edit(
        stage,
        "nominee",
        lambda tree: tree.setdefault("status", {}).update({"nominatedNodeName": "n-0"}),
    )
    _edit(
        stage,
        "n-0",
        lambda tree: tree["status"]["allocatable"].update({"cpu": "1000"}),
        registry.NODE,
    )
    stage.pod("waits")
    return stage


# Pods on nodes


def _lonely() -> Stage:
    stage = _quiet(nodes=2)
    term = {
        "labelSelector": {"matchLabels": {"app": "friend"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    stage.pod(
        "waits",
        affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
    )
    return stage


def _friend_comes(stage: Stage) -> None:
    stage.pod("friend", labels={"app": "friend"}, nodeName="n-1", schedulerName="another")


def _protected() -> Stage:
    stage = _quiet()
    words = {"dovetail.dev/preemptible": "false"}
    stage.pod("runs", templates=("gpus-2",), job="made", annotations=words, priority=5)
    return stage


async def _outranked(stage: Stage) -> None:
    _run(stage, "runs")
    stage.pod("waits", templates=("gpus-2",), priority=10)
    await stage.pass_time(QUIET)


def _overtime() -> Stage:
    """A pod whose time counts from its start, and whose controller makes no other."""
    stage = _quiet()
    words = {"dovetail.dev/max-runtime": "60s", "dovetail.dev/when-evicted": "end"}
    stage.pod("runs", templates=("gpus-2",), annotations=words, priority=5)
    stage.pod("waits", templates=("gpus-2",))
    return stage


def _full() -> Stage:
    stage = _quiet()
    stage.pod("runs", templates=("gpus-2",), priority=5)
    stage.pod("waits", templates=("gpus-1",))
    return stage


# Claims


def _without_claim() -> Stage:
    stage = _quiet()
    stage.pod("waits", named=("shared",))
    return stage


def _rival_takes() -> Stage:
    """A promise that holds a GPU back, and a claim of another's that makes it worth nothing."""
    stage = _promised(small=1)
    stage.claim("rival")
    stage.pod("rival", named=("rival",), nodeName="n-0", schedulerName="another")
    return stage


def _taken_by_rival(stage: Stage) -> None:
    free = {("n-0", f"gpu-{number}") for number in range(4)} - set(stage.devices())
    stage.take("rival", min(free), same=True, uid=stage.the_pod("rival").metadata.uid)


def _held_by_rival() -> Stage:
    stage = _quiet()
    stage.claim("rival")
    stage.take("rival", ("n-0", "gpu-0"), same=True)
    stage.pod("waits", templates=("gpus-2",))
    return stage


def _given_back(stage: Stage) -> None:
    _edit(stage, "rival", lambda tree: tree.update({"status": {}}), registry.CLAIM)


# Everything else


def _cordoned() -> Stage:
    stage = _quiet()
    _edit(stage, "n-0", lambda tree: tree["spec"].update({"unschedulable": True}), registry.NODE)
    stage.pod("waits")
    return stage


def _uncordoned(stage: Stage) -> None:
    _edit(stage, "n-0", lambda tree: tree["spec"].pop("unschedulable"), registry.NODE)


def _group_too_large() -> Stage:
    stage = _quiet()
    stage.group("g", least=2)
    stage.pod("waits", schedulingGroup={"podGroupName": "g"})
    return stage


def _group_smaller(stage: Stage) -> None:
    _edit(
        stage,
        "g",
        lambda tree: tree["spec"]["schedulingPolicy"].update({"gang": {"minCount": 1}}),
        registry.POD_GROUP,
    )


def _with_volume() -> Stage:
    stage = _quiet()
    stage.pod("waits", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
    return stage


def _volume_claim(stage: Stage, storage_class: str = "") -> None:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "volumeName": "disk",
    }
    head = {"apiVersion": "v1", "metadata": {"name": "data", "namespace": "default"}}
    notes = {"pv.kubernetes.io/bind-completed": "yes"}
    head["metadata"]["annotations"] = notes  # type: ignore[index]
    stage.api.put(
        head | {"kind": "PersistentVolumeClaim", "spec": spec, "status": {"phase": "Bound"}}
    )


def _volume(stage: Stage) -> None:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "hostPath": {"path": "/data"},
    }
    spec["claimRef"] = {"namespace": "default", "name": "data"}  # type: ignore[assignment]
    stage.api.put(
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"}, "spec": spec}
    )


def _with_lost_volume() -> Stage:
    stage = _with_volume()
    _volume_claim(stage)
    return stage


def _with_claim_to_come() -> Stage:
    stage = _with_volume()
    _volume(stage)
    return stage


def _at_limit() -> Stage:
    stage = _quiet()
    stage.queue("a", resources={"gpu": {"quota": "0", "limit": "0"}})
    stage.pod("waits", templates=("gpus-1",), labels={"dovetail.dev/queue": "a"})
    return stage


def _raised(stage: Stage) -> None:
    spec = {"resources": {"gpu": {"quota": "1", "limit": "1"}}}
    _edit(stage, "a", lambda tree: tree["spec"].update(spec), registry.QUEUE)


ROWS = {
    "annotation corrected": Row(News.POD_WAITS, _misspelt_level, _corrected),
    "gate removed": Row(News.POD_WAITS, _gated, _ungated),
    "promise of a deleted pod": Row(News.POD_WITHDRAWN, _promised, _delete("head")),
    "promise of a pod that is being deleted": Row(News.POD_WITHDRAWN, _promised, _being_deleted),
    "promise of a pod that failed": Row(News.POD_WITHDRAWN, _promised, _failed),
    "member that fits nowhere is deleted": Row(
        News.POD_WITHDRAWN, _member_too_large, _delete("large")
    ),
    "nominee deleted": Row(News.NOMINEE_MOVED, _nominated, _delete("nominee")),
    "neighbour comes": Row(News.POD_PLACED, _lonely, _friend_comes),
    "room freed": Row(News.POD_ENDED, _full, _delete("runs"), seconds=60.0),
    "claim made": Row(News.CLAIM_CHANGED, _without_claim, lambda stage: stage.claim("shared")),
    "promise made worthless": Row(News.CLAIM_TAKEN, _rival_takes, _taken_by_rival),
    "devices given back": Row(News.CLAIM_FREED, _held_by_rival, _given_back),
    "node uncordoned": Row(News.NODE_CHANGED, _cordoned, _uncordoned),
    "group needs fewer": Row(News.GANG_CHANGED, _group_too_large, _group_smaller),
    "volume claim made": Row(News.VOLUME_CLAIM_CHANGED, _with_claim_to_come, _volume_claim),
    "volume made": Row(News.STORAGE_CHANGED, _with_lost_volume, _volume),
    "limit raised": Row(News.RULES_CHANGED, _at_limit, _raised),
}


@pytest.mark.parametrize("name", ROWS)
def test_news_on_a_quiet_cluster_starts_the_pod_it_frees(name: str) -> None:
    row = ROWS[name]

    async def story() -> None:
        stage = row.cluster()
        async with stage.scheduling(net_seconds=0.0):
            await stage.pass_time(QUIET)
            assert not stage.node_of(row.freed)
            waiting = row.act(stage)
            if waiting is not None:
                await waiting
            await stage.pass_time(row.seconds)
            assert stage.node_of(row.freed)

    play(story)


def test_demand_that_goes_gives_others_their_share() -> None:
    async def story() -> None:
        stage = _borrowing()
        async with stage.scheduling(net_seconds=0.0):
            await stage.pass_time(5)
            _demand_comes(stage)
            await stage.pass_time(QUIET)
            assert not stage.events("Reclaimed")
            await _demand_gone(stage)
            await stage.pass_time(5)
            assert stage.events("Reclaimed")

    play(story)


def test_a_running_pod_that_becomes_preemptible_is_evicted() -> None:
    async def story() -> None:
        stage = _protected()
        async with stage.scheduling(net_seconds=0.0):
            await stage.pass_time(5)
            await _outranked(stage)
            assert not stage.events("Preempted")
            _annotate(stage, "runs")
            await stage.pass_time(5)
            assert stage.events("Preempted")

    play(story)


def test_the_time_of_a_pod_counts_from_when_it_is_known_to_have_started() -> None:
    async def story() -> None:
        stage = _overtime()
        async with stage.scheduling(net_seconds=0.0):
            await stage.pass_time(QUIET)
            _run(stage, "runs")
            await stage.pass_time(70)
            assert stage.events("MaxRuntimeExceeded")

    play(story)


def test_a_pod_may_evict_others_once_it_waited_long_enough() -> None:
    async def story() -> None:
        stage = _quiet()
        stage.pod("runs", templates=("gpus-2",), job="made")
        async with stage.scheduling(net_seconds=0.0):
            await stage.pass_time(5)
            _run(stage, "runs")
            words = {"dovetail.dev/may-evict-after": "60s"}
            stage.pod("waits", templates=("gpus-2",), priority=10, annotations=words)
            await stage.pass_time(50)
            assert not stage.events("Preempted")
            await stage.pass_time(15)
            assert stage.events("Preempted")

    play(story)


def test_a_later_decision_about_one_pod_keeps_the_wake_up_time_of_another() -> None:
    async def story() -> None:
        stage = _quiet()
        stage.pod("runs", templates=("gpus-2",), job="made")
        async with stage.scheduling(net_seconds=0.0, batch_pods=1):
            await stage.pass_time(5)
            _run(stage, "runs")
            words = {"dovetail.dev/may-evict-after": "60s"}
            stage.pod("waits", templates=("gpus-2",), priority=10, annotations=words)
            await stage.pass_time(20)
            stage.pod("humble", templates=("gpus-2",))
            await stage.pass_time(45)
            assert stage.events("Preempted")

    play(story)


def test_the_constraint_of_a_single_pod_holds_whichever_other_pods_are_decided() -> None:
    async def story() -> None:
        stage = _quiet(nodes=2)
        stage.pod("runs", job="made")
        stage.pod("picky", nodeSelector={"no": "such"}, priority=5)
        stage.pod("waits", annotations={"dovetail.dev/topology-required": "no-such-label"})
        async with stage.scheduling(batch_pods=1):
            await stage.pass_time(10)
            assert not stage.node_of("waits")
            stage.pod("other")
            await stage.pass_time(10)
            assert not stage.node_of("waits")

    play(story)


def test_pods_decided_about_alone_do_not_fail_over_pods_outside_the_decision() -> None:
    async def story() -> None:
        stage = _quiet()
        stage.pod("runs", templates=("gpus-2",), job="made")
        async with stage.scheduling():
            await stage.pass_time(3)
            stage.pod("parked", templates=("gpus-2",))
            await stage.pass_time(3)
            stage.pod("waits", templates=("gpus-2",), priority=10)
            await stage.pass_time(3)
            assert stage.the_pod("waits").status.nominated_node_name == "n-0"
        assert stage.ended is None

    play(story)


def test_a_pod_is_evicted_once_it_ran_for_the_minimum_of_its_queue() -> None:
    async def story() -> None:
        stage = _quiet()
        stage.queue("a", resources={"gpu": {"quota": "2"}}, minRuntimeSeconds=60)
        in_queue = {"dovetail.dev/queue": "a"}
        stage.pod("runs", templates=("gpus-2",), job="made", labels=in_queue)
        async with stage.scheduling(net_seconds=0.0):
            await stage.pass_time(5)
            _run(stage, "runs")
            stage.pod("waits", templates=("gpus-2",), priority=10, labels=in_queue)
            await stage.pass_time(50)
            assert not stage.events("Preempted")
            await stage.pass_time(15)
            assert stage.events("Preempted")

    play(story)


def test_every_kind_of_news_has_a_story() -> None:
    elsewhere = {
        News.POD_USES_CHANGED,
        News.POD_STARTED,
    }  # the two stories above in which no pod starts
    assert {row.news for row in ROWS.values()} | elsewhere == set(News) == set(queueing_hints.HINTS)


@pytest.mark.parametrize("code", ReasonCode)
def test_every_reason_names_the_changes_that_may_help(code: ReasonCode) -> None:
    assert code.helped_by, f"{code.name} names no change, so no event would wake its pods"


def test_every_change_but_time_is_brought_by_an_event() -> None:
    assert {*queueing_hints.HINTS.values()} == {*Change} - {Change.TIME}


def test_a_pod_is_parked_under_the_groups_that_its_reasons_name() -> None:
    pod = build.pod("waits")
    for code in ReasonCode:
        obstacle = plan.Obstacle(reason=Reason(code=code))
        refusal = plan.Refusal(pod=plan.pod_ref(pod), summary="", obstacles=(obstacle,))
        names = queueing_hints.parked_under(pod, refusal)
        waits_for_neighbours = awaited_objects.NEIGHBOURS in names
        assert waits_for_neighbours == (Change.NEIGHBOURS in code.helped_by), code.name


def _keys() -> list[str]:
    """Every annotation that is read off pods, by the constants of those who read them."""
    words = [
        value
        for name, value in vars(workload_annotations).items()
        if name.isupper() and isinstance(value, str)
    ]
    keys = [word for word in words if "/" in word and not word.endswith("/")]
    return sorted(
        {
            *keys,
            *gpu_annotations.KEYS,
            gangs.LWS_SIZE,
            gangs.KAI_GROUP_ANNOTATION,
            gangs.KUEUE_TOTAL,
            jobs.ORDER_ANNOTATION,
        }
    )


@pytest.mark.parametrize("key", _keys())
def test_every_annotation_that_is_read_counts_as_asking_for_something_else(key: str) -> None:
    before, after = meta.ObjectMeta(annotations={key: "1"}), meta.ObjectMeta(annotations={key: "2"})
    assert (
        gangs.scheduling_annotations(before)
        != gangs.scheduling_annotations(after)
        != gangs.scheduling_annotations(meta.ObjectMeta())
    )


def test_annotations_of_others_say_nothing_to_a_scheduler() -> None:
    noisy = meta.ObjectMeta(annotations={"kubectl.kubernetes.io/last-applied-configuration": "{}"})
    assert not gangs.scheduling_annotations(noisy)


def test_a_gang_starts_at_once_after_hours_without_gangs() -> None:
    """How long the machine has been up has nothing to do with how long a turn took."""

    async def story() -> None:
        stage = Stage(nodes=2, gpus=2)
        stage.template("gpus-1", count=1)
        stage.template("gpus-2", count=2)
        stage.pod(
            "runs",
            templates=("gpus-2",),
            job="made",
            nodeSelector={"kubernetes.io/hostname": "n-0"},
        )
        async with stage.scheduling(net_seconds=0.0):
            await stage.pass_time(10_000)
            _run(stage, "runs")
            words = {"dovetail.dev/may-evict-after": "60s"}
            where = {"kubernetes.io/hostname": "n-0"}
            stage.pod(
                "waits", templates=("gpus-2",), priority=10, annotations=words, nodeSelector=where
            )
            await stage.pass_time(90)  # its hour came, and it was asked about again
            assert stage.events("Preempted")
            for name in ("a", "b"):
                labels = {"dovetail.dev/gang": "g", "dovetail.dev/gang-min": "2"}
                stage.pod(name, templates=("gpus-1",), labels=labels)
            await stage.pass_time(10)
            assert stage.node_of("a")
            assert stage.node_of("b")

    play(story)
