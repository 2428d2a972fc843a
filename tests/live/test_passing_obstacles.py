"""Obstacles that usually pass within seconds are reported only if they last, and then by name."""

from __future__ import annotations

from dovetail.live.report import recorder
from tests.live.live_scheduler import Stage, play

FAILED = "FailedScheduling"


def notes(stage: Stage) -> list[str]:
    return [event.note for event in stage.events(FAILED)]


def message(stage: Stage, name: str) -> str:
    conditions = stage.the_pod(name).status.conditions
    return next((one.message for one in conditions if one.type == "PodScheduled"), "")


def test_a_gang_whose_members_come_within_seconds_leaves_no_warning() -> None:
    async def story() -> None:
        stage = Stage(nodes=2, gpus=2)
        stage.template("one")
        async with stage.scheduling():
            for member in range(4):
                stage.gang("train", 4, only=member, templates=("one",))
                await stage.pass_time(1)
            await stage.pass_time(2)
            assert len(stage.events("Scheduled")) == 4
            await stage.pass_time(10)
        assert notes(stage) == []

    play(story)


def test_a_gang_whose_members_do_not_come_says_how_many_are_missing() -> None:
    async def story() -> None:
        stage = Stage(nodes=2, gpus=2)
        stage.template("one")
        async with stage.scheduling():
            stage.gang("train", 4, only=0, templates=("one",))
            stage.gang("train", 4, only=1, templates=("one",))
            await stage.pass_time(recorder.TRANSIENT_SECONDS - 1)
            assert (notes(stage), message(stage, "train-0")) == ([], "")
            await stage.pass_time(3)
        expected = "2 of its pods are there and free to start; its minimum is 4: 2 more are needed"
        assert message(stage, "train-0") == expected
        assert notes(stage) == [expected] * 2

    play(story)


def test_a_cluster_whose_controllers_are_quick_may_report_sooner() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=1)
        stage.pod("p", templates=("onne",))
        async with stage.scheduling(transient_seconds=1.0):
            await stage.pass_time(recorder.TRANSIENT_SECONDS - 2)
            assert message(stage, "p").startswith("resourceClaims t0: template onne does not exist")

    play(story)


def test_a_misspelt_template_is_named_and_the_pod_starts_once_it_exists() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=1)
        stage.pod("p", templates=("onne",))
        async with stage.scheduling():
            await stage.pass_time(recorder.TRANSIENT_SECONDS + 2)
            expected = (
                "resourceClaims t0: template onne does not exist in namespace default; "
                "create it, or correct its name"
            )
            assert message(stage, "p") == expected
            assert notes(stage) == [expected]
            stage.template("onne")
            await stage.pass_time(5)
            assert stage.node_of("p") == "n-0"
            assert stage.differences() == ()

    play(story)


def test_a_template_that_comes_after_its_pod_leaves_no_warning() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=1)
        async with stage.scheduling():
            stage.pod("p", templates=("one",))
            await stage.pass_time(1)
            stage.template("one")
            await stage.pass_time(10)
            assert stage.node_of("p") == "n-0"
        assert notes(stage) == []

    play(story)
