"""What happened: from events, conditions and intents; each thing once, with an id that stays, newest first."""

from __future__ import annotations

import datetime
import random

import pytest

from dovetail import timestamps
from dovetail.live.evict import evictor
from dovetail.model import plan
from dovetail.tables.timeline import eviction_messages, timeline_entries
from dovetail.web import asked, problems
from dovetail.web.api import timeline_resource
from tests.web.api import clusters

Entry = timeline_entries.TimelineEntry


def entries(trees: list[clusters.Tree], name: str, **params: object) -> list[Entry]:
    question = clusters.asked_of(trees, name=name)
    return list(
        timeline_resource.answer(question, timeline_resource.TimelineParams(**params)).items
    )


def of_kind(kind: str, found: list[Entry]) -> list[Entry]:
    return [entry for entry in found if entry.kind == kind]


def minutes_ago(entry: Entry) -> float:
    return (clusters.NOW - entry.time).total_seconds() / 60


def scheduled(pod: str, minutes: float) -> clusters.Tree:
    note = f"Successfully assigned train/{pod} to h100-0"
    return clusters.event(
        f"{pod}.s", where="train", pod=pod, reason="Scheduled", note=note, minutes=minutes
    )


def test_a_start_that_event_and_pod_report_is_one_entry() -> None:
    trees = [clusters.pod("a", where="train", node="h100-0", minutes=10), scheduled("a", 11)]
    started = of_kind("started", entries(trees, "once"))
    assert [(entry.node, minutes_ago(entry)) for entry in started] == [("h100-0", 11)]


def test_a_start_outlives_its_event_and_its_pod() -> None:
    only_pod = [clusters.pod("a", where="train", node="h100-0", minutes=10)]
    assert len(of_kind("started", entries(only_pod, "only pod"))) == 1
    only_event = [scheduled("gone", 11)]
    (entry,) = of_kind("started", entries(only_event, "only event"))
    assert (entry.subject.name, entry.work) == ("gone", "pod/gone")


def test_pods_of_one_workload_that_start_together_are_one_entry() -> None:
    names = [f"w-{number}" for number in range(5)]
    trees = [
        clusters.pod(name, where="train", node=f"n-{number % 2}", job="w", minutes=10)
        for number, name in enumerate(names)
    ]
    trees += [clusters.pod("w-9", where="train", node="n-0", job="w", minutes=2)]
    late, early = of_kind("started", entries(trees, "together"))
    assert (early.pods, early.subject.kind, early.subject.name) == (5, "Job", "w")
    assert early.detail == "5 pods on 2 nodes"
    assert (late.pods, late.subject.name) == (1, "w-9")


@pytest.mark.parametrize("rule", list(plan.Rule))
@pytest.mark.parametrize("moves_to", ["", "h100-1"])
def test_evictions_are_read_as_the_scheduler_writes_them(rule: plan.Rule, moves_to: str) -> None:
    eviction = plan.Eviction(
        pod=plan.PodRef("train", "a"),
        gang=plan.GangRef("train", "pod/a"),
        rule=rule,
        beneficiary=plan.GangRef("train", "job/b"),
        detail="queue x has 4 of 8; it waits",
        moves_to=moves_to,
    )
    message = eviction_messages.read(evictor.eviction_message(eviction))
    assert message == (rule, "train/job/b", "queue x has 4 of 8; it waits", moves_to)


def test_an_eviction_has_its_rule_and_beneficiary() -> None:
    note = "yields to train/job/b (Reclaimed): 4 of 8"
    trees = [
        clusters.event(
            "e", where="train", pod="a", reason="Reclaimed", note=note, minutes=4, type="Warning"
        ),
        clusters.event(  # the event of the beneficiary is about the same eviction
            "f",
            where="train",
            pod="b-0",
            reason="Reclaimed",
            note="1 pod yields to train/job/b (train/a); 4 of 8",
            minutes=4,
        ),
    ]
    (entry,) = entries(trees, "evicted")
    assert (entry.kind, entry.rule, entry.beneficiary) == ("evicted", "Reclaimed", "train/job/b")
    assert entry.detail == "4 of 8"


def test_the_condition_of_a_victim_says_it_where_the_event_is_gone() -> None:
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "yields to train/job/b (Consolidated); node h100-1 is reserved for its replacement",
        "lastTransitionTime": clusters.at(6),
    }
    pod = clusters.pod("a", where="train", node="h100-0", status={"conditions": [condition]})
    (entry,) = of_kind("moved", entries([pod], "condition"))
    assert (entry.rule, entry.node, minutes_ago(entry)) == ("Consolidated", "h100-1", 6)


def test_evicted_pods_that_are_gone_still_belong_to_their_job() -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"namespace": "train", "name": "fill", "uid": "fill"},
        "spec": {"template": {"spec": {"containers": []}}},
    }
    events = [
        clusters.event(
            f"e-{pod}",
            where="train",
            pod=pod,
            reason="Reclaimed",
            note="yields to train/job/b (Reclaimed): 4 of 8",
            minutes=4,
            type="Warning",
        )
        for pod in ("fill-8nqhd", "fill-0-ntp56", "other-t4cb8")
    ]
    found = entries([job, *events], "gone")
    assert {(entry.work, entry.pods) for entry in found} == {
        ("job/fill", 2),
        ("pod/other-t4cb8", 1),
    }


def intent(**promise: object) -> clusters.Tree:
    return {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "Intent",
        "metadata": {"namespace": "train", "name": "i", "creationTimestamp": clusters.at(3)},
        "spec": {"gang": "job/b", "promise": promise},
    }


def test_promises_are_made_and_move() -> None:
    made = entries([intent(start=clusters.at(-60))], "promised")
    assert [(entry.kind, entry.work) for entry in made] == [("promised", "job/b")]
    assert (made[0].subject.kind, made[0].subject.name) == ("Job", "b")
    moved = entries(
        [intent(start=clusters.at(-90), movedFrom=clusters.at(-60), cause="x runs on")], "moved"
    )
    assert [entry.kind for entry in moved] == ["promiseMoved"]
    assert moved[0].detail.endswith("x runs on")


@pytest.mark.parametrize(("phase", "kind"), [("Succeeded", "ended"), ("Failed", "failed")])
def test_pods_end(phase: str, kind: str) -> None:
    conditions = [{"type": "Ready", "status": "False", "lastTransitionTime": clusters.at(1)}]
    status = {"phase": phase, "conditions": conditions}
    pod = clusters.pod("a", where="train", node="h100-0", job="j", status=status)
    (entry,) = of_kind(kind, entries([pod], f"ends {phase}"))
    assert (entry.work, minutes_ago(entry)) == ("job/j", 1)


def test_nodes_and_queues_have_a_past() -> None:
    node = clusters.ready(clusters.plugin_node("n", 1), "False", 7)
    tainted = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    node["spec"] = {"taints": [tainted | {"timeAdded": clusters.at(8)}]}
    found = entries([node, clusters.queue("q")], "past")
    details = [(entry.kind, entry.detail.partition(":")[0]) for entry in found]
    assert ("node", "is not ready") in details
    assert ("node", "was cordoned") in details
    assert ("queue", "was created") in details


def everything() -> list[clusters.Tree]:
    trees = clusters.typical()
    trees += [scheduled("llama-0", 29), intent(start=clusters.at(-60))]
    trees += [
        clusters.event(
            "w",
            where="train",
            pod="wide-0",
            reason="FailedScheduling",
            note="5 nodes: 5 lack room",
            minutes=100,
        )
    ]
    return trees


def test_ids_are_unique_and_stay_whatever_the_order_of_objects() -> None:
    trees = everything()
    first = [entry.id for entry in entries(trees, "ids")]
    assert len(set(first)) == len(first)
    random.Random(7).shuffle(trees)
    assert [entry.id for entry in entries(trees, "ids again")] == first


def test_newest_comes_first() -> None:
    times = [entry.time for entry in entries(everything(), "order")]
    assert times == sorted(times, reverse=True)


def test_filters() -> None:
    trees = everything()
    hour = entries(trees, "since", since="1h")
    assert hour
    assert all(clusters.NOW - entry.time <= datetime.timedelta(hours=1) for entry in hour)
    exact = timestamps.to_text(clusters.NOW - datetime.timedelta(hours=1))
    assert entries(trees, "since exact", since=exact) == hour
    assert {entry.kind for entry in entries(trees, "kind", kind=("waiting",))} == {"waiting"}
    assert {entry.work for entry in entries(trees, "work", work="llama")} == {"job/llama"}
    assert all("room" in entry.detail for entry in entries(trees, "text", text="LACK room"))


def test_a_time_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(problems.Refusal) as refusal:
        entries(everything(), "bad", since="yesterday")
    assert refusal.value.problem.field == "since"


def test_a_user_without_rights_sees_nothing() -> None:
    question = clusters.asked_of(everything(), name="stranger", may=asked.Visibility())
    assert timeline_resource.visible(question) == []
