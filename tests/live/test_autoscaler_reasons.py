"""The reason of a waiting pod's condition: `Unschedulable` only where one more node could start the pod."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from dovetail.kubetypes import registry
from dovetail.model import condition_reasons
from dovetail.model.reasons import ReasonCode
from tests.live.live_scheduler import Stage, play


class Case(NamedTuple):
    """Pods of a cluster with one node of two GPUs, and the reason one of them waits for."""

    reason: str
    cluster: Callable[[Stage], None]
    pod: str = "waits"
    scales_from_zero: bool = True


def _full(stage: Stage) -> None:
    stage.pod("runs", templates=("gpus-2",), priority=5)
    stage.pod("waits", templates=("gpus-1",))


def _too_large(stage: Stage) -> None:
    stage.pod("waits", templates=("gpus-4",))


def _elsewhere(stage: Stage) -> None:
    """Its claim has devices on a node that another pod fills."""
    stage.claim("shared")
    stage.pod("waits", named=("shared",), resources={"requests": {"cpu": "100"}})
    stage.take("shared", ("n-0", "gpu-0"), same=True)
    node = stage.api.tree(registry.NODE, "n-0")
    node["status"]["allocatable"]["cpu"] = "100"
    stage.api.shelf.put(registry.NODE, node)
    stage.pod("runs", nodeName="n-0", schedulerName="another")


def _over_limit(stage: Stage) -> None:
    stage.queue("a", resources={"gpu": {"quota": "0", "limit": "0"}})
    stage.pod("waits", templates=("gpus-1",), labels={"dovetail.dev/queue": "a"})


def _over_quota(stage: Stage) -> None:
    stage.queue("a", resources={"gpu": {"quota": "0", "limit": "2"}})
    fixed = {"dovetail.dev/preemptible": "false"}
    stage.pod("waits", templates=("gpus-1",), labels={"dovetail.dev/queue": "a"}, annotations=fixed)


def _no_queue(stage: Stage) -> None:
    stage.queue("a")
    stage.pod("waits", labels={"dovetail.dev/queue": "none"})


def _incomplete(stage: Stage) -> None:
    stage.gang("waits", 2, only=0)


def _gang_without_room(stage: Stage) -> None:
    stage.gang("waits", 3, templates=("gpus-2",))


def _gang_never(stage: Stage) -> None:
    stage.gang("waits", 2, templates=("gpus-4",))


def _behind_promise(stage: Stage) -> None:
    stage.pod(
        "long", templates=("gpus-1",), annotations={"dovetail.dev/max-runtime": "10h"}, priority=2
    )
    stage.pod(
        "head", templates=("gpus-2",), annotations={"dovetail.dev/max-runtime": "1h"}, priority=1
    )
    stage.pod("waits", templates=("gpus-1",))


def _gated(stage: Stage) -> None:
    stage.pod("waits", schedulingGates=[{"name": "example.com/gate"}])


def _gated_in_gang(stage: Stage) -> None:
    stage.gang("waits", 2, schedulingGates=[{"name": "example.com/gate"}])


def _claim_missing(stage: Stage) -> None:
    stage.pod("waits", named=("none",))


CASES = {
    "all devices taken": Case("Unschedulable", _full),
    "larger than any node, which may come": Case("Unschedulable", _too_large),
    "larger than any node there will be": Case("NoNodeFits", _too_large, scales_from_zero=False),
    "its devices are elsewhere": Case("NoNodeFits", _elsewhere),
    "queue at its limit": Case("QuotaExceeded", _over_limit),
    "beyond the quota of what cannot yield": Case("QuotaExceeded", _over_quota),
    "no such queue": Case("QueueUnusable", _no_queue),
    "gang below its minimum": Case("GangIncomplete", _incomplete, pod="waits-0"),
    "gang that needs three more nodes": Case("Unschedulable", _gang_without_room, pod="waits-2"),
    "gang that fits no node there will be": Case(
        "NoNodeFits", _gang_never, pod="waits-1", scales_from_zero=False
    ),
    "behind a promise": Case("Unschedulable", _behind_promise),
    "promised": Case("Unschedulable", _behind_promise, pod="head"),
    "gated": Case("SchedulingGated", _gated),
    "gated in a gang": Case("SchedulingGated", _gated_in_gang, pod="waits-0"),
    "claim not there": Case("ClaimNotReady", _claim_missing),
}


def _reason_of(stage: Stage, name: str) -> str:
    conditions = stage.the_pod(name).status.conditions
    return next(condition.reason for condition in conditions if condition.type == "PodScheduled")


@pytest.mark.parametrize("name", CASES)
def test_the_condition_says_whether_a_node_would_help(name: str) -> None:
    case = CASES[name]

    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        for count in (1, 2, 4):
            stage.template(f"gpus-{count}", count=count)
        case.cluster(stage)
        async with stage.scheduling(scales_from_zero=case.scales_from_zero):
            await stage.pass_time(10)
            assert not stage.node_of(case.pod)
            assert _reason_of(stage, case.pod) == case.reason

    play(story)


def test_a_reason_that_changes_right_after_a_report_is_updated() -> None:
    async def story() -> None:
        stage = Stage(nodes=2, gpus=2)
        large = {"requests": {"cpu": "100"}}
        for name, cpu in (("n-0", "100"), ("n-1", "10")):
            node = stage.api.tree(registry.NODE, name)
            node["status"]["allocatable"]["cpu"] = cpu
            stage.api.shelf.put(registry.NODE, node)
        stage.pod("runs", nodeName="n-0", schedulerName="another")
        stage.pod("waits", resources=large)
        async with stage.scheduling(scales_from_zero=False, net_seconds=0.0):
            await stage.pass_time(5)
            assert _reason_of(stage, "waits") == "Unschedulable"
            stage.api.shelf.delete(registry.NODE, ("", "n-0"), grace_seconds=0)
            await stage.pass_time(40)
            assert _reason_of(stage, "waits") == "NoNodeFits"

    play(story)


def test_a_pod_that_waits_for_others_to_leave_is_unschedulable_and_nominated() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        stage.template("gpus-2", count=2)
        stage.pod("runs", templates=("gpus-2",), job="made", terminationGracePeriodSeconds=60)
        async with stage.scheduling():
            await stage.pass_time(5)
            stage.pod("waits", templates=("gpus-2",), priority=10)
            await stage.pass_time(5)
            assert stage.the_pod("waits").status.nominated_node_name == "n-0"
            assert _reason_of(stage, "waits") == "Unschedulable"

    play(story)


def test_many_kinds_of_pods_all_get_a_report_in_the_end() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        for number in range(40):
            stage.pod(f"large-{number}", resources={"requests": {"cpu": str(1000 + number)}})
        async with stage.scheduling(scales_from_zero=False):
            await stage.pass_time(15)
            assert {_reason_of(stage, f"large-{number}") for number in range(40)} == {"NoNodeFits"}

    play(story)


def test_reasons_of_conditions_are_words_of_their_own() -> None:
    words = {
        value
        for name, value in vars(condition_reasons).items()
        if name.isupper() and isinstance(value, str)
    }
    assert len(words) == 10
    assert all(word.isalpha() and word[0].isupper() for word in words)
    assert set(condition_reasons._NO_NODE_HELPS) <= set(ReasonCode)
