"""A pod that trips the engine over a mistake of ours: it waits and says so, all others start."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.kubetypes import registry
from dovetail.kubetypes.workloads import owners
from dovetail.live.cycle import fault_isolation
from dovetail.quantity import durations
from dovetail.schedule.node import find_node
from tests.live.live_scheduler import Stage, play


@pytest.fixture
def _trips(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine makes a mistake about pods of this name, in the middle of a trial."""
    find = find_node.NodeSearch.find

    def found(self: Any, pod: Any, *given: Any, **more: Any) -> Any:
        if pod.metadata.name.startswith("poison"):
            raise IndexError("a mistake of ours")
        return find(self, pod, *given, **more)

    monkeypatch.setattr(find_node.NodeSearch, "find", found)


@pytest.mark.usefixtures("_trips")
@pytest.mark.parametrize("batch_pods", [0, 1, 50])
def test_a_pod_the_engine_fails_on_delays_no_other_pod(batch_pods: int) -> None:
    async def story() -> None:
        stage = Stage(nodes=2, gpus=4)
        stage.template("one")
        for number in range(6):
            stage.pod(f"a-{number}", templates=("one",))
        for number in range(2):
            stage.pod(f"poison-{number}", templates=("one",), priority=1000)
        async with stage.scheduling(batch_pods=batch_pods):
            await stage.pass_time(5)
            assert all(stage.node_of(f"a-{number}") for number in range(6))
            assert stage.node_of("poison-0") == stage.node_of("poison-1") == ""
            (messages,) = [
                condition
                for condition in stage.the_pod("poison-0").status.conditions
                if condition.type == "PodScheduled"
            ]
            assert (messages.reason, messages.message) == (
                "SchedulerError",
                fault_isolation.MESSAGE,
            )
            assert len(stage.events("FailedScheduling")) == 2, (
                "each gets one event, however often it is tried"
            )
            assert len(stage.devices()) == len(set(stage.devices())) == 6
            assert stage.differences() == ()
        assert stage.ended is None

    play(story)


BEYOND = 300_000_000_000  # seconds: no calendar holds the end of it


def job(stage: Stage, name: str, **spec: Any) -> None:
    """The scheduler hears of a Job; the stage makes its pods."""
    metadata = {"name": name, "namespace": "default", "uid": name}
    stage.book.changed(
        registry.JOB, msgspec.convert({"metadata": metadata, "spec": spec}, owners.Job)
    )


@pytest.mark.parametrize("has_queue", [False, True])
def test_pending_jobs_with_a_deadline_beyond_the_calendar_delay_no_other_job(
    has_queue: bool,
) -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        if has_queue:
            stage.queue("team", maxRuntimeSeconds=durations.LONGEST_SECONDS)
        for name in ("one", "two"):
            stage.pod(
                name,
                job=name,
                activeDeadlineSeconds=BEYOND,
                resources={"requests": {"cpu": "9999"}},
            )
        stage.gang("tie", 2)
        async with stage.scheduling():
            for name in ("one", "two"):
                job(stage, name, activeDeadlineSeconds=BEYOND)
            for number in range(4):
                stage.pod(f"honest-{number}")
            await stage.pass_time(5)
            assert all(stage.node_of(f"honest-{number}") for number in range(4))
            assert all(map(stage.node_of, ("tie-0", "tie-1")))
            assert not [
                tree
                for tree in stage.events("FailedScheduling")
                if tree.note == fault_isolation.MESSAGE
            ]
        assert stage.ended is None

    play(story)


def test_a_running_job_with_a_deadline_beyond_the_calendar_delays_no_other_job() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        stage.pod("runs", job="evil")
        stage.gang("tie", 2)
        async with stage.scheduling():
            await stage.pass_time(3)
            assert stage.node_of("runs")
            job(stage, "evil", activeDeadlineSeconds=BEYOND)
            await stage.pass_time(1)
            for number in range(4):
                stage.pod(f"honest-{number}")
            await stage.pass_time(5)
            assert all(stage.node_of(f"honest-{number}") for number in range(4))
            assert not [
                tree
                for tree in stage.events("FailedScheduling")
                if tree.note == fault_isolation.MESSAGE
            ]
        assert stage.ended is None

    play(story)
