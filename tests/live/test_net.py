"""The net below the hints: when it requeues, what counts as caught, and random stories in which it catches nothing."""

from __future__ import annotations

import pytest

from dovetail.live.queue import requeue
from dovetail.model import plan
from tests.live import random_changes
from tests.live.live_scheduler import Stage, play

POD, OTHER = plan.PodRef("default", "pod", "1"), plan.PodRef("default", "other", "2")
STARTS = plan.Plan(placements=(plan.Placement(pod=POD, node="n-0"),))


def _cast(*ids: str) -> requeue.LeftoverFlush:
    flush = requeue.LeftoverFlush(300.0, 0.0)
    flush.start(ids, 300.0)
    return flush


def test_is_due_once_parked_pods_were_left_alone_for_long_enough() -> None:
    flush = requeue.LeftoverFlush(300.0, 0.0)
    assert not flush.is_due(299.0)
    assert flush.is_due(300.0)
    flush.postpone(299.0)
    assert not flush.is_due(300.0)


def test_is_never_due_where_it_is_turned_off() -> None:
    assert not requeue.LeftoverFlush(0.0, 0.0).is_due(1e9)


def test_a_pod_that_only_the_net_asked_about_is_caught_once() -> None:
    flush = _cast("1")
    assert flush.effect_of(STARTS, ["1"]).started == (POD,)
    assert flush.effect_of(STARTS, ["1"]).started == ()


@pytest.mark.parametrize("ids", [("1",), None])
def test_a_pod_that_news_asked_about_too_is_not_caught(ids: tuple[str, ...] | None) -> None:
    flush = _cast("1")
    flush.exclude(ids)
    assert flush.effect_of(STARTS, ["1"]) == requeue.FlushEffect()


def test_evictions_count_where_the_net_asked_about_all() -> None:
    gang = plan.GangRef("default", "pod/other")
    evicts = plan.Plan(evictions=(plan.Eviction(pod=OTHER, gang=gang, rule=plan.Rule.PREEMPTED),))
    assert _cast("1").effect_of(evicts, ["1"]).evicted == (OTHER,)
    assert _cast("1").effect_of(evicts, ["1", "3"]).evicted == ()


def test_the_loop_asks_about_parked_pods_and_counts_what_starts_by_it() -> None:
    """News that nothing can hear of: the World is changed behind the loop's back."""

    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        stage.meter = counts = random_changes.Counts()
        stage.template("two", count=2)
        async with stage.scheduling(net_seconds=60.0) as scheduler:
            stage.claim("rival", count=2)
            stage.take("rival", ("n-0", "gpu-0"), same=True)
            await stage.pass_time(2)
            stage.pod("waits", templates=("two",))
            await stage.pass_time(30)
            scheduler.world.free_claim(("default", "rival"))
            await stage.pass_time(25)
            assert not stage.node_of("waits")
            await stage.pass_time(60)
            assert stage.node_of("waits")
        assert counts.caught() == {(random_changes.CAUGHT, "started"): 1}

    play(story)


@pytest.mark.parametrize("seed", range(12))
def test_the_net_catches_nothing_in_random_stories(seed: int) -> None:
    caught, story = random_changes.lived(seed)
    assert not caught, "\n".join(story)
