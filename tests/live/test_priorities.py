"""Priority without queues in the live loop, in memory: which pods are evicted, nominated and started."""

from __future__ import annotations

from typing import Any

from dovetail.kubetypes import registry
from dovetail.model import plan
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule import decide as cycle
from dovetail.schedule import refusal_summary
from dovetail.world.world import World
from tests.live.live_scheduler import Stage, play
from tests.live.test_disruption_limits import BudgetList, budget, made_ready


def cpu(amount: int) -> dict[str, Any]:
    return {"requests": {"cpu": str(amount)}}


def free_cpu(stage: Stage) -> int:
    """What the only node has to give."""
    (node,) = (item for item in stage.api.all(registry.NODE))
    return int(node.status.allocatable["cpu"].nanos // 10**9)


async def ended(stage: Stage) -> list[str]:
    """Those asked to end are gone; their names."""
    leaving = [
        pod.metadata.name for pod in stage.api.all(registry.POD) if pod.metadata.deletion_timestamp
    ]
    for name in leaving:
        await stage.delete(name, grace_seconds=0)
    await stage.pass_time(5)
    return leaving


def test_a_pod_that_fits_nowhere_next_to_a_pending_one_is_refused_and_the_loop_goes_on() -> None:
    async def story() -> None:
        stage = Stage(nodes=1)
        async with stage.scheduling(is_quarantining=False):
            stage.pod("runs")
            stage.pod("too-big", resources=cpu(9999))
            await stage.pass_time(5)
            stage.pod("important", resources=cpu(5000), priority=1000)
            await stage.pass_time(5)
            stage.pod("next")
            await stage.pass_time(5)
            refused = {tree.regarding.name for tree in stage.events("FailedScheduling")}
            assert {"too-big", "important"} <= refused
            assert stage.node_of("runs") == stage.node_of("next") == "n-0"
        assert stage.ended is None

    play(story)


def test_a_pod_of_higher_priority_gets_the_room_of_one_that_nothing_makes_again() -> None:
    async def story() -> None:
        stage = Stage(nodes=1)
        size = free_cpu(stage) * 2 // 3
        async with stage.scheduling(is_quarantining=False):
            stage.pod(
                "lesser", resources=cpu(size), priority=1000, terminationGracePeriodSeconds=20
            )
            await stage.pass_time(5)
            stage.pod("greater", resources=cpu(size), priority=2000)
            await stage.pass_time(5)
            assert stage.the_pod("lesser").metadata.deletion_timestamp is not None
            assert stage.the_pod("greater").status.nominated_node_name == "n-0"
            stage.pod("small", priority=500)  # fits beside it
            stage.pod("large", resources=cpu(size), priority=500)  # does not
            await stage.pass_time(5)
            assert await ended(stage) == ["lesser"]
            assert stage.node_of("greater") == stage.node_of("small") == "n-0"
            assert stage.node_of("large") == ""
            (messages,) = stage.events("Preempted")[:1]
            assert "priority 2000 comes before its 1000" in messages.note
        assert stage.ended is None

    play(story)


def test_no_pod_of_the_same_priority_gets_what_was_freed_for_another() -> None:
    """The pod that evicts no other is older, and would come first."""

    async def story() -> None:
        stage = Stage(nodes=1, gpus=1)
        stage.template("one")
        async with stage.scheduling(is_quarantining=False):
            stage.pod("runs", templates=("one",), priority=1)
            await stage.pass_time(5)
            stage.pod("polite", templates=("one",), priority=10, preemptionPolicy="Never")
            await stage.pass_time(5)
            stage.pod("urgent", templates=("one",), priority=10)
            await stage.pass_time(5)
            assert await ended(stage) == ["runs"]
            assert stage.node_of("urgent") == "n-0"
            assert not stage.node_of("polite")

    play(story)


def test_gpus_of_claims_go_to_the_higher_priority_and_only_one_pod_ends() -> None:
    async def story() -> None:
        stage = Stage(nodes=2, gpus=2)
        stage.template("one")
        async with stage.scheduling(is_quarantining=False):
            for number in range(4):
                stage.pod(f"runs-{number}", templates=("one",), priority=number)
            await stage.pass_time(5)
            stage.pod("waits", templates=("one",))
            stage.pod("urgent", templates=("one",), priority=1000)
            await stage.pass_time(5)
            assert await ended(stage) == ["runs-0"]
            assert stage.node_of("urgent")
            assert not stage.node_of("waits")
            assert len(set(stage.devices())) == 4
        assert stage.ended is None

    play(story)


def test_a_victim_a_budget_protects_stays_and_the_next_node_is_taken() -> None:
    """The first choice is refused before any pod is evicted."""

    async def story() -> None:
        stage = Stage(nodes=2, gpus=1)
        stage.template("one")
        async with stage.scheduling(
            is_quarantining=False, limits=BudgetList(budget("precious", 0, app="precious"))
        ):
            stage.pod("precious", templates=("one",), priority=1)
            await stage.pass_time(5)
            stage.pod("other", templates=("one",), priority=2)
            await stage.pass_time(5)
            await made_ready(stage, precious="precious", other="other")
            stage.pod("urgent", templates=("one",), priority=1000)
            await stage.pass_time(5)
            assert await ended(stage) == ["other"]
            assert stage.node_of("urgent") != stage.node_of("precious")

    play(story)


def test_what_is_kept_for_a_pod_stays_kept_while_it_has_no_turn() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=1)
        stage.template("one")
        cut_short: list[str] = []

        def decide(world: World, *given: Any, **more: Any) -> plan.Plan:
            """As ever; but once a node is kept for a pod, no turn is left for it."""
            decided = cycle.decide(world, *given, **more)
            kept = [pod for pod in world.pods.values() if pod.status.nominated_node_name]
            if not kept or not decided.nominations:
                return decided
            reason = Reason(code=ReasonCode.BUDGET, detail="no turn is left")
            cut_short.extend(pod.metadata.name for pod in kept)
            return plan.Plan(
                refusals=tuple(
                    refusal_summary.of_pod(pod, (reason,), is_undecided=True) for pod in kept
                )
            )

        async with stage.scheduling(is_quarantining=False, decide=decide):
            stage.pod("runs", templates=("one",), priority=1)
            await stage.pass_time(5)
            stage.pod("urgent", templates=("one",), priority=10)
            await stage.pass_time(20)
            assert "urgent" in cut_short
            assert stage.the_pod("urgent").status.nominated_node_name == "n-0"
            assert await ended(stage) == ["runs"]
            await stage.pass_time(20)
            assert stage.node_of("urgent") == "n-0"

    play(story)
