"""Times beyond the calendar: whatever numbers and times objects carry, every decision is made."""

from __future__ import annotations

import datetime
import random
from typing import Any

import msgspec
import pytest

from dovetail.answer import simulate, when
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.custom import queues
from dovetail.kubetypes.workloads import owners
from dovetail.model import gangs, policy, workload_annotations
from dovetail.model.workloads import owner_gangs
from dovetail.quantity import durations
from dovetail.schedule import decide
from dovetail.schedule.gang import staleness
from dovetail.world.events import Changed, Object
from dovetail.world.world import World
from tests.batch import random_clusters, simulated_cluster
from tests.schedule import build

LARGE = (2**31, 3 * 10**11, 2**62, 2**63 - 1)
SECONDS = (0, 1, 60, 86_400, durations.LONGEST_SECONDS, *LARGE)
MOMENTS = (
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+14:00",
    "1970-01-01T00:00:00Z",
    "2029-12-31T23:59:00Z",
    "2030-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59.999999-12:00",
    "2030-02-30T00:00:00Z",
)
NOWS = (simulated_cluster.EPOCH, simulated_cluster.EPOCH, durations.FIRST, durations.LAST)


def odd_pod(rng: random.Random, pod: pods.Pod) -> pods.Pod:
    """The pod with times that another client wrote."""

    def moment() -> str:
        return rng.choice(MOMENTS)

    annotations = dict(pod.metadata.annotations)
    if rng.random() < 0.3:
        annotations[workload_annotations.LAST_CHECKPOINT] = moment()
    if rng.random() < 0.3:
        annotations[
            rng.choice((workload_annotations.MAX_RUNTIME, workload_annotations.EXPECTED_RUNTIME))
        ] = f"{rng.choice(SECONDS)}s"
    metadata = msgspec.structs.replace(
        pod.metadata,
        creation_timestamp=rng.choice((pod.metadata.creation_timestamp, moment())),
        deletion_timestamp=moment() if rng.random() < 0.1 else None,
        deletion_grace_period_seconds=rng.choice((None, *SECONDS)),
        annotations=annotations,
    )
    spec = msgspec.structs.replace(
        pod.spec,
        active_deadline_seconds=rng.choice((None, *SECONDS)),
        termination_grace_period_seconds=rng.choice((None, *SECONDS)),
    )
    status = msgspec.structs.replace(pod.status, start_time=rng.choice((None, moment(), moment())))
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec, status=status)


def odd_gang(rng: random.Random, gang: gangs.Gang) -> gangs.Gang:
    """As Jobs and annotations tell it; seconds without a bound, as if they had not been read with one."""
    facts: dict[str, Any] = {
        "max_runtime": rng.choice((None, *SECONDS)),
        "expected_runtime": rng.choice((None, None, *SECONDS)),
        "stale_grace": rng.choice((None, *SECONDS)),
        "stale_since": rng.choice((None, *MOMENTS)),
        "may_evict_after": rng.choice(SECONDS),
        "last_checkpoint": rng.choice((None, *MOMENTS)),
    }
    chosen = {name: value for name, value in facts.items() if rng.random() < 0.5}
    return msgspec.structs.replace(gang, **chosen)


def odd_queue(rng: random.Random, queue: queues.Queue) -> queues.Queue:
    spec = msgspec.structs.replace(
        queue.spec,
        max_runtime_seconds=rng.choice((None, *SECONDS[1:])),
        min_runtime_seconds=rng.choice((None, *SECONDS)),
        preempt_min_runtime_seconds=rng.choice((None, *SECONDS)),
        reclaim_min_runtime_seconds=rng.choice((None, *SECONDS)),
    )
    status = msgspec.structs.replace(
        queue.status, usage_time=rng.choice(("", *MOMENTS)), usage={"gpu": "5"}
    )
    metadata = msgspec.structs.replace(queue.metadata, creation_timestamp=rng.choice(MOMENTS))
    return msgspec.structs.replace(queue, spec=spec, status=status, metadata=metadata)


def odd(rng: random.Random, result: Object) -> Object:
    match result:
        case pods.Pod():
            return odd_pod(rng, result)
        case gangs.Gang():
            return odd_gang(rng, result)
        case queues.Queue():
            return odd_queue(rng, result)
    return result


def facts_of(rng: random.Random, seed: int) -> list[Object]:
    cluster = random_clusters.seeded(seed, random_clusters.Size(nodes=3, works=8, ends=True))
    return [odd(rng, fact) for fact in cluster.facts()]


@pytest.mark.parametrize("seed", range(60))
def test_every_decision_is_made_whatever_times_objects_carry(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        simulate, "MOST_TURNS", 12
    )  # work that may run for no time at all begins over and over
    rng = random.Random(seed)
    facts = facts_of(rng, seed)
    now = rng.choice(NOWS)
    batch = policy.Batch(
        usage_weight=rng.choice((0.0, 1.0)), age_saturation_seconds=rng.choice((0, *SECONDS[:5]))
    )
    policy_ = policy.Policy(batch=batch)
    world = World()
    for fact in facts:
        world.apply(Changed(fact))
    staleness.note(world, now)
    for _ in range(2):
        done = decide.decide(world, policy_, now)
        world.set_promises(done.promises)
        waiting = {
            pod.metadata.uid for pod in world.pending() if pod.metadata.deletion_timestamp is None
        }
        spoken = {
            placement.pod.uid for placement in (*done.placements, *done.nominations, *done.refusals)
        }
        assert spoken == waiting
    assert isinstance(when.when(facts, policy_, now), tuple)


@pytest.mark.parametrize("seconds", LARGE)
def test_deadlines_are_read_with_a_bound(seconds: int) -> None:
    spec = {
        "activeDeadlineSeconds": seconds,
        "template": {"spec": {"activeDeadlineSeconds": seconds}},
    }
    job = msgspec.convert({"metadata": {"name": "a", "namespace": "b"}, "spec": spec}, owners.Job)
    gang = owner_gangs.gang_of(job)
    assert gang is not None
    assert gang.max_runtime == min(seconds, durations.LONGEST_SECONDS)
    implied = gangs.gang_of_pod(build.pod("a", activeDeadlineSeconds=seconds))
    assert implied.max_runtime == min(seconds, durations.LONGEST_SECONDS)


def test_moments_stop_where_the_calendar_does() -> None:
    assert durations.later(
        simulated_cluster.EPOCH, 60
    ) == simulated_cluster.EPOCH + datetime.timedelta(minutes=1)
    assert durations.earlier(
        simulated_cluster.EPOCH, 60
    ) == simulated_cluster.EPOCH - datetime.timedelta(minutes=1)
    for seconds in LARGE[1:]:
        assert durations.later(simulated_cluster.EPOCH, seconds) == durations.LAST
        assert durations.earlier(simulated_cluster.EPOCH, seconds) == durations.FIRST
        assert durations.later(simulated_cluster.EPOCH, -seconds) == durations.FIRST
