"""Evictions decided by the engine, in the live loop: gangs below their minimum, preemption, reclaim."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from dovetail.kubetypes import registry
from dovetail.ports import failures
from dovetail.ports.api import Target
from tests.live.live_scheduler import Stage, play

GRACE = "dovetail.dev/stale-grace"
QUEUE = "dovetail.dev/queue"
ENDS = {"dovetail.dev/when-evicted": "end"}


def test_what_is_left_of_a_gang_is_taken_back_after_its_grace() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=3)
        stage.template("one")
        names = stage.gang("train", 3, templates=("one",), annotations={GRACE: "20s"})
        async with stage.scheduling(is_quarantining=False):
            await stage.pass_time(3)
            assert all(stage.node_of(name) for name in names)
            await stage.delete("train-1", grace_seconds=0)
            await stage.pass_time(15)
            assert not stage.the_pod("train-0").metadata.deletion_timestamp
            await stage.pass_time(15)
            assert stage.the_pod("train-0").metadata.deletion_timestamp
            assert stage.the_pod("train-2").metadata.deletion_timestamp
            assert {tree.regarding.name for tree in stage.events("GangIncomplete")} == {
                "train-0",
                "train-2",
            }

    play(story)


def test_a_gang_that_gets_its_pod_back_in_time_stays() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=3)
        stage.template("one")
        labels: Any = {"templates": ("one",), "annotations": {GRACE: "20s"}}
        stage.gang("train", 3, **labels)
        async with stage.scheduling(is_quarantining=False):
            await stage.pass_time(3)
            await stage.delete("train-1", grace_seconds=0)
            await stage.pass_time(10)
            stage.gang("train", 3, only=1, **labels)
            await stage.pass_time(40)
            assert all(stage.node_of(f"train-{number}") for number in range(3))
            assert stage.events("GangIncomplete") == []

    play(story)


def test_without_queues_and_gangs_a_more_important_pod_preempts_a_lesser_one() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=1)
        stage.template("one")
        stage.pod(
            "lesser",
            templates=("one",),
            annotations={"dovetail.dev/when-evicted": "end"},
            priority=0,
        )
        async with stage.scheduling(is_quarantining=False):
            await stage.pass_time(3)
            assert stage.node_of("lesser")
            stage.pod("important", templates=("one",), priority=50)
            await stage.pass_time(5)
            assert stage.the_pod("lesser").metadata.deletion_timestamp
            assert stage.the_pod("important").status.nominated_node_name == "n-0"
            await stage.delete("lesser", grace_seconds=0)
            await stage.pass_time(3)
            assert stage.node_of("important") == "n-0"
            assert len(stage.events("Preempted")) == 2
            assert stage.differences() == ()

    play(story)


def reclaiming() -> Stage:
    """Queue `had` holds all four devices of two nodes; queue `due` is due half of them and wants two, together."""
    stage = Stage(nodes=2, gpus=2)
    for name in ("had", "due"):
        stage.queue(name, resources={"gpu": {"quota": "2"}})
    stage.template("one")
    for number in range(4):
        stage.pod(f"old-{number}", templates=("one",), labels={QUEUE: "had"}, annotations=ENDS)
    return stage


def going(stage: Stage) -> list[str]:
    names = [f"old-{number}" for number in range(4)]
    return [
        name
        for name in names
        if (pod := stage.the_pod(name)) is None or pod.metadata.deletion_timestamp
    ]


def want(stage: Stage) -> list[str]:
    labels = {QUEUE: "due", "dovetail.dev/gang": "new", "dovetail.dev/gang-min": "2"}
    for name in ("new-0", "new-1"):
        stage.pod(name, templates=("one",), labels=labels)
    return ["new-0", "new-1"]


def test_a_queue_gets_back_what_it_is_due_and_no_more() -> None:
    async def story() -> None:
        stage = reclaiming()
        async with stage.scheduling(is_quarantining=False):
            await stage.pass_time(3)
            assert len(stage.devices()) == 4
            names = want(stage)
            await stage.pass_time(10)
            gone = going(stage)
            assert len(gone) == 2
            for name in gone:
                await stage.delete(name, grace_seconds=0)
            await stage.pass_time(5)
            assert all(stage.node_of(name) for name in names)
            assert going(stage) == gone
            assert len({tree.regarding.name for tree in stage.events("Reclaimed")} & set(gone)) == 2
            assert stage.differences() == ()

    play(story)


@pytest.mark.parametrize("deadly", range(8))
@pytest.mark.parametrize("is_before", [True, False], ids=["before", "after"])
def test_killed_in_the_middle_of_a_reclaim_a_successor_takes_no_second_set(
    deadly: int, is_before: bool
) -> None:
    """The process dies around each of the writes by which two pods yield: nominations, conditions, evictions."""

    async def story() -> None:
        stage = reclaiming()
        count = itertools.count()
        died: list[str] = []

        def die(verb: str, target: Target) -> None:
            is_write = verb not in ("get", "rehearse") and target.kind is registry.POD
            if died or (is_write and target.subresource != "binding" and next(count) == deadly):
                died.append(f"{verb} {target}")
                raise failures.Fenced("dead")

        async with stage.scheduling(is_quarantining=False):
            await stage.pass_time(3)
            names = want(stage)
            stage.api.before, stage.api.after = (die, None) if is_before else (None, die)
            await stage.pass_time(3)
        assert died
        stage.api.before = stage.api.after = None
        async with stage.scheduling(is_quarantining=False):
            await stage.pass_time(10)
            gone = going(stage)
            assert len(gone) == 2, died
            for name in gone:
                if stage.the_pod(name) is not None:
                    await stage.delete(name, grace_seconds=0)
            await stage.pass_time(5)
            assert all(stage.node_of(name) for name in names), died
            assert going(stage) == gone, died

    play(story)
