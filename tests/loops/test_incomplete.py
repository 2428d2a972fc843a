"""Gangs that fell below their minimum, and preemption where there are neither queues nor gangs."""

from __future__ import annotations

from typing import Any

from tests.loops.stage import Stage, play

GRACE = "dovetail.dev/stale-grace"


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
            assert {one.regarding.name for one in stage.events("GangIncomplete")} == {"train-0", "train-2"}

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


def test_without_queues_and_gangs_a_more_important_pod_makes_a_lesser_one_yield() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=1)
        stage.template("one")
        stage.pod("lesser", templates=("one",), annotations={"dovetail.dev/when-evicted": "end"}, priority=0)
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
