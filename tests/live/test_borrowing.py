"""Borrowing beyond a quota in the live loop: only preemptible work may; other work gets the reason."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.kubetypes import registry
from dovetail.kubetypes.core import disruption_budgets
from tests.live.live_scheduler import Stage, play
from tests.live.test_promise_reasons import pending_message, runs
from tests.world.test_budget_protection import budget


class Kept:
    """The budgets of a cluster, as a server lists them."""

    def __init__(self, *budgets: disruption_budgets.PodDisruptionBudget) -> None:
        self.found = list(budgets)

    async def __call__(self, namespace: str) -> Sequence[disruption_budgets.PodDisruptionBudget]:
        return [item for item in self.found if namespace in ("", item.metadata.namespace)]


def staged() -> Stage:
    """Eight GPUs, two queues that are sure of four each."""
    stage = Stage(nodes=2, gpus=4)
    stage.template("one")
    for name in "ab":
        stage.queue(name, resources={"gpu": {"quota": "4", "limit": "8"}})
    return stage


def submit(
    stage: Stage, queue: str, count: int, *, is_made: bool = True, **labels: str
) -> list[str]:
    """Pods of a queue, each made by a Job of its own or by nothing."""
    names = [f"{queue}-{number}" for number in range(count)]
    for name in names:
        marks = {"dovetail.dev/queue": queue} | labels
        stage.pod(name, templates=("one",), labels=marks, job=f"job-{name}" if is_made else "")
    return names


def running(stage: Stage, names: Sequence[str]) -> list[str]:
    """Those that have a node and were not asked to end."""
    there = {pod.metadata.name: pod for pod in stage.api.all(registry.POD)}
    result = [there[name] for name in names if name in there]
    return [
        item.metadata.name
        for item in result
        if item.spec.node_name and item.metadata.deletion_timestamp is None
    ]


def test_bare_pods_start_within_their_quota_only_and_the_refusal_says_why() -> None:
    async def story() -> None:
        stage = staged()
        async with stage.scheduling():
            names = submit(stage, "a", 8, is_made=False)
            await stage.pass_time(3)
            assert len(running(stage, names)) == 4
            waits = next(name for name in names if not stage.node_of(name))
            assert "nothing makes its pod again" in pending_message(stage, waits)
            assert "quota" in pending_message(stage, waits)
            others = submit(stage, "b", 4)
            await stage.pass_time(60)
            assert len(running(stage, others)) == 4

    play(story)


def test_a_bare_pod_whose_owner_accepts_its_loss_may_borrow_and_gives_back() -> None:
    async def story() -> None:
        stage = staged()
        async with stage.scheduling():
            names = [f"a-{number}" for number in range(8)]
            for name in names:
                notes = {"dovetail.dev/when-evicted": "end"}
                stage.pod(
                    name, templates=("one",), labels={"dovetail.dev/queue": "a"}, annotations=notes
                )
            await stage.pass_time(3)
            assert len(running(stage, names)) == 8
            submit(stage, "b", 4)
            await stage.pass_time(10)
            assert len(running(stage, names)) == 4

    play(story)


def test_pods_that_a_budget_keeps_from_being_evicted_start_within_their_quota_only() -> None:
    """The tenant makes the budget first: what it covers cannot borrow."""

    async def story() -> None:
        stage = staged()
        async with stage.scheduling(limits=Kept(budget("never", desired=8, app="a"))):
            names = submit(stage, "a", 8, app="a")
            await stage.pass_time(3)
            assert len(running(stage, names)) == 4
            waits = next(name for name in names if not stage.node_of(name))
            assert "disruption budget default/never keeps it from being evicted" in pending_message(
                stage, waits
            )

    play(story)


def test_what_borrowed_before_its_budget_came_is_named_to_those_who_wait_below_their_quota() -> (
    None
):
    async def story() -> None:
        stage = staged()
        kept = Kept()
        async with stage.scheduling(limits=kept):
            names = submit(stage, "a", 8, app="a")
            await stage.pass_time(3)
            assert len(running(stage, names)) == 8
            for name in names:
                runs(stage, name)
            kept.found = [budget("never", desired=8, app="a")]
            await stage.pass_time(15)
            submit(stage, "b", 4)
            await stage.pass_time(60)
            assert len(running(stage, names)) == 8  # a budget is never broken
            message = pending_message(stage, "b-0")
            assert "queue b: has 0 of its quota of 4 gpu" in message
            assert "queue a holds 8 of its 4 gpu" in message
            assert "default/pod/a-0, default/pod/a-1, default/pod/a-2 and 5 more" in message
            assert "disruption budget default/never" in message
            kept.found = []
            await stage.pass_time(30)
            assert len(running(stage, names)) == 4

    play(story)
