"""Pending pods without an answer are noticed, and nothing else is mistaken for that."""

from __future__ import annotations

from dovetail.live.cycle import progress
from tests.live.live_scheduler import Stage, play


def test_waiting_pods_without_any_answer_are_a_stall_and_an_answer_ends_it() -> None:
    watched = progress.Progress()
    watched.look(100.0, is_work_ready=True)
    watched.look(150.0, is_work_ready=True)
    assert not watched.is_stalled(150.0)
    assert watched.is_stalled(161.0)
    watched.answered(161.0)
    assert watched.stalled_seconds(165.0) == 4.0


def test_a_quiet_cluster_is_no_stall() -> None:
    watched = progress.Progress()
    watched.look(100.0, is_work_ready=True)
    watched.look(101.0, is_work_ready=False)
    assert watched.stalled_seconds(10_000.0) == 0.0


def test_refused_pods_that_wait_for_room_are_no_stall() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=1)
        stage.template("two", count=2)
        stage.pod("large", templates=("two",))
        async with stage.scheduling() as scheduler:
            await stage.pass_time(600)
            assert scheduler.progress.stalled_seconds(stage.clock.monotonic()) == 0.0

    play(story)
