"""The live scheduler in simulated time: days in seconds, always the same way, and by the hours it asked for."""

from __future__ import annotations

import datetime
import hashlib
import os
import random
import subprocess
import sys

import pytest

from dovetail.model import plan
from dovetail.sim import timed_jobs, virtual_run
from dovetail.sim.fleet import fleet_spec
from dovetail.world.world import World

DAY = 86_400.0


def warp(*, nodes: int = 1, gpus: int = 4, **options: object) -> virtual_run.VirtualRun:
    pool = fleet_spec.Pool(name="n", count=nodes, gpu="H100-SXM5-80GB", gpus_per_node=gpus)
    return virtual_run.VirtualRun(fleet_spec.Fleet(name="warp", pools=(pool,)), **options)  # type: ignore[arg-type]


def times(done: timed_jobs.Works, what: str) -> dict[str, float]:
    """By work, the second at which this happened to it first."""
    found: dict[str, float] = {}
    for entry in done.history:
        if entry.what == what:
            found.setdefault(entry.work, entry.at)
    return found


def test_work_ends_after_its_true_time_and_what_waited_starts_then() -> None:
    made = warp()
    done = made.run(
        [
            timed_jobs.Work(name="first", seconds=7200, gpus=4),
            timed_jobs.Work(name="second", at=60, seconds=600, gpus=4),
            timed_jobs.Work(name="late", at=3 * DAY, seconds=60, gpus=1),
        ],
        until=7 * DAY,
    )
    assert done.is_done
    started, ended = times(done, timed_jobs.BOUND), times(done, timed_jobs.DONE)
    assert started["first"] < 5
    assert 7200 <= ended["first"] < 7205
    assert ended["first"] <= started["second"] < ended["first"] + 5
    assert 3 * DAY <= started["late"] < 3 * DAY + 5
    assert made.clock.monotonic() == 7 * DAY


def test_nothing_is_asked_of_an_idle_scheduler_in_a_quiet_week() -> None:
    made = warp()
    made.run(
        [
            timed_jobs.Work(name="only", seconds=60, gpus=1),
            timed_jobs.Work(name="last", at=7 * DAY, seconds=60, gpus=1),
        ]
    )
    assert made.works.is_done
    assert made.plans < 40


def test_an_evicted_gang_is_recreated_and_runs_in_the_end() -> None:
    made = warp(gpus=2)
    gang = timed_jobs.Work(name="gang", seconds=3600, pods=2, gpus=1)
    urgent = timed_jobs.Work(name="urgent", at=600, seconds=600, pods=2, gpus=1, priority=100)
    done = made.run([gang, urgent], until=DAY)
    assert done.is_done
    assert [entry.work for entry in done.history if entry.what == timed_jobs.LOST] == [
        "gang",
        "gang",
    ]
    assert {one.rule for _, one in made.evictions} == {plan.Rule.PREEMPTED}
    assert times(done, timed_jobs.DONE)["urgent"] < times(done, timed_jobs.DONE)["gang"]


def test_a_promise_is_kept_by_the_live_loop() -> None:
    """Work that is ended in time runs ahead of a head that waits for all GPUs; long work does not."""
    promised: list[tuple[str, datetime.datetime]] = []

    def note(world: World, decided: plan.Plan, now: datetime.datetime) -> None:
        promised.extend(
            (one.gang.name, one.start) for one in decided.promises if one.start is not None
        )

    made = warp(gpus=4, decided=note)
    done = made.run(
        [
            timed_jobs.Work(name="running", seconds=3600, expected=3600, gpus=2),
            timed_jobs.Work(name="head", at=10, seconds=600, expected=600, gpus=4),
            timed_jobs.Work(name="long", at=20, seconds=7200, expected=7200, gpus=2),
            timed_jobs.Work(name="short", at=30, seconds=1800, most=2000, gpus=2),
        ],
        until=DAY,
    )
    started = times(done, timed_jobs.BOUND)
    assert started["short"] < 60
    assert 3600 <= started["head"] < 3610
    assert started["long"] > started["head"]
    assert {name for name, _ in promised} == {"pod/head-0", "pod/long-0"}


def history_of(seed: int) -> str:
    """A day of random work, as one number."""
    rng = random.Random(seed)
    listed = [
        timed_jobs.Work(
            name=f"w{number}",
            at=round(rng.uniform(0, DAY / 2), 3),
            seconds=rng.randint(60, 7200),
            expected=7200 if rng.random() < 0.5 else None,
            pods=rng.choice((1, 1, 2, 3)),
            gpus=rng.choice((1, 2, 4)),
            priority=rng.choice((0, 0, 50)),
        )
        for number in range(12)
    ]
    made = warp(nodes=2)
    done = made.run(listed, until=DAY)
    assert done.is_done
    return hashlib.sha256(repr((done.history, made.evictions, made.plans)).encode()).hexdigest()


@pytest.mark.slow
def test_the_same_work_has_the_same_history_under_any_hash_seed() -> None:
    asked = "from tests.sim import test_timewarp; print(test_timewarp.history_of(5))"
    histories = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        ran = subprocess.run(
            [sys.executable, "-c", asked],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        histories.add(ran.stdout)
    assert len(histories) == 1
