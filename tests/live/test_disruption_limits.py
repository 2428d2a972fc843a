"""Victims under disruption budgets, in memory: which are tried, in which order, and which not once a budget refused."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from dovetail.kubetypes import meta, registry
from dovetail.kubetypes.core import disruption_budgets, pods
from dovetail.ports import failures
from dovetail.ports.api import Target
from tests.live.live_scheduler import Stage, play
from tests.live.test_evictor import Recorder, conditions, important, staged, writes

KEPT = {"app": "kept"}


def budget(name: str, allowed: int, **labels: str) -> disruption_budgets.PodDisruptionBudget:
    """A budget of the default namespace for pods with these labels."""
    return disruption_budgets.PodDisruptionBudget(
        metadata=meta.ObjectMeta(name=name, namespace="default"),
        spec=disruption_budgets.BudgetSpec(selector=meta.LabelSelector(match_labels=labels)),
        status=disruption_budgets.BudgetStatus(disruptions_allowed=allowed),
    )


class BudgetList:
    """The budgets there are; or none can be read."""

    def __init__(
        self, *kept: disruption_budgets.PodDisruptionBudget, is_closed: bool = False
    ) -> None:
        self.kept = kept
        self.is_closed = is_closed

    async def __call__(self, namespace: str) -> Sequence[disruption_budgets.PodDisruptionBudget]:
        if self.is_closed:
            raise failures.Refused('cannot list resource "poddisruptionbudgets"', status=403)
        return [item for item in self.kept if item.metadata.namespace == namespace]


async def made_ready(stage: Stage, **labels: str) -> None:
    """Pods run and are ready; of the app they are named with."""
    for name, app in labels.items():
        head = {"metadata": {"labels": {"app": app}}}
        await stage.api.patch(Target(registry.POD, "default", name), msgspec.json.encode(head))
        status = {
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        }
        await stage.api.patch(
            Target(registry.POD, "default", name, "status"), msgspec.json.encode(status), adds=True
        )


def asked(names: list[str]) -> list[str]:
    """Rehearsals and evictions in their order."""
    return [
        name.removesuffix("/eviction").replace("create", "evict")
        for name in names
        if "eviction" in name
    ]


def going(stage: Stage, *names: str) -> list[str]:
    return [name for name in names if stage.the_pod(name).metadata.deletion_timestamp]


def test_a_set_that_a_budget_does_not_allow_as_a_whole_is_left_alone() -> None:
    """Each of the two could go; both cannot."""

    async def story() -> None:
        stage = staged("a", "b")
        result, listen = writes(stage)
        recorder = Recorder()
        async with stage.scheduling(decide=recorder, limits=BudgetList(budget("kept", 1, **KEPT))):
            await stage.pass_time(3)
            await made_ready(stage, a="kept", b="kept")
            listen()
            important(stage, "new")
            await stage.pass_time(3)
            assert asked(result) == []
            assert going(stage, "a", "b") == []
            assert recorder.spared[-1] == {
                stage.the_pod("a").metadata.uid
            }  # the newest pod is the first victim
            assert "DisruptionTarget" not in conditions(stage, "a")

    play(story)


def test_victims_under_one_budget_are_asked_one_after_the_other_as_many_as_it_allows() -> None:
    async def story() -> None:
        stage = staged("a", "b", "c", gpus=3)
        result, listen = writes(stage)
        budgets_source = BudgetList(budget("other", 0, app="other"), budget("kept", 2, **KEPT))
        async with stage.scheduling(limits=budgets_source):
            await stage.pass_time(3)
            await made_ready(stage, a="kept", b="kept", c="kept")
            listen()
            for name in "xyz":
                important(stage, name, template="one")
            await stage.pass_time(3)
            assert asked(result) == ["rehearse c", "evict c", "rehearse b", "evict b"]
            assert going(stage, "a", "b", "c") == ["b", "c"]

    play(story)


@pytest.mark.parametrize("is_closed", [False, True])
def test_other_pods_do_not_wait_for_that_unless_their_budgets_cannot_be_distinguished(
    is_closed: bool,
) -> None:
    async def story() -> None:
        stage = staged("a", "b")
        result, listen = writes(stage)
        budgets_source = BudgetList(
            budget("kept", 1, **KEPT), budget("other", 1, app="other"), is_closed=is_closed
        )
        async with stage.scheduling(limits=budgets_source):
            await stage.pass_time(3)
            await made_ready(stage, a="kept", b="other")
            listen()
            important(stage, "x", template="one")
            important(stage, "y", template="one")
            await stage.pass_time(3)
            together = ["rehearse b", "rehearse a", "evict b", "evict a"]
            in_turn = ["rehearse b", "evict b", "rehearse a", "evict a"]
            assert asked(result) == (in_turn if is_closed else together)

    play(story)


def test_after_a_refused_eviction_the_victim_stays_and_no_other_of_the_set_is_tried() -> None:
    """Another client evicts under the same budget after we read it and before our second victim."""

    async def story() -> None:
        stage = staged("free", "a", "b", gpus=3)
        result, listen = writes(stage)

        def protect(verb: str, target: Target) -> None:
            if verb == "create" and target.subresource == "eviction" and target.name == "a":
                raise failures.Protected(
                    "Cannot evict pod as it would violate the pod's disruption budget."
                )

        stage.api.before = protect
        async with stage.scheduling(limits=BudgetList(budget("kept", 2, **KEPT))):
            await stage.pass_time(3)
            await made_ready(stage, a="kept", b="kept")
            listen()
            important(stage, "new")
            await stage.pass_time(3)
            assert asked(result)[3:] == ["evict b"]
            assert going(stage, "free", "a", "b") == ["b"]
            assert "DisruptionTarget" not in conditions(stage, "free")
            condition = conditions(stage, "a")["DisruptionTarget"]
            assert condition.status == "False"
            assert condition.message == "the eviction was refused; the pod stays"

    play(story)


def test_which_pods_a_budget_covers() -> None:
    pod = pods.Pod(metadata=meta.ObjectMeta(name="p", namespace="default", labels=KEPT))
    assert disruption_budgets.covers(budget("b", 1, **KEPT), pod)
    assert disruption_budgets.covers(budget("everybody", 1), pod)
    assert not disruption_budgets.covers(budget("b", 1, app="other"), pod)
    assert not disruption_budgets.covers(
        disruption_budgets.PodDisruptionBudget(metadata=meta.ObjectMeta(namespace="default")), pod
    )
    elsewhere = msgspec.structs.replace(
        pod, metadata=meta.ObjectMeta(name="p", namespace="b", labels=KEPT)
    )
    assert not disruption_budgets.covers(budget("b", 1, **KEPT), elsewhere)
    assert not disruption_budgets.is_counted(pod)
