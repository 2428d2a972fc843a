"""Idle work and past use with the real loops, in simulated time."""

from __future__ import annotations

import itertools
from collections.abc import Coroutine, Iterable
from typing import Any

import pytest

from dovetail.kubetypes import registry
from dovetail.live.cycle import scheduler_loop
from dovetail.live.report import idle_watch, queue_status_writer, queue_usage
from dovetail.model import policy, workload_annotations
from dovetail.model.idle import Device
from dovetail.sim import scripted_utilisation, timed_jobs, virtual_run
from dovetail.sim.fleet import fleet_spec

Tree = dict[str, Any]
HOUR = 3600.0
SMALL = fleet_spec.Fleet(
    name="small", pools=(fleet_spec.Pool(name="n", count=1, gpu="L4", gpus_per_node=2),)
)


def queue(name: str, **spec: Any) -> Tree:
    return {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"namespaceSelector": {}, **spec},
    }


def test_an_idle_notebook_is_warned_and_makes_room_only_for_a_pending_pod() -> None:
    patient = {"thresholdPercent": 5, "windowSeconds": 1800, "graceSeconds": 600}
    lab = queue("lab", resources={"gpu": {"quota": 2}}, idle=patient)
    warp: virtual_run.VirtualRun

    def more_loops(scheduler: scheduler_loop.Scheduler) -> Iterable[Coroutine[Any, Any, None]]:
        script = scripted_utilisation.Scripted(warp.clock, usual=90)
        for number in range(2):
            script.set(Device("gpu.nvidia.com", "n-0", f"gpu-{number}"), 0)
        followed = idle_watch.IdleWatch(
            scheduler.world,
            script,
            clock=warp.clock,
            record_event=scheduler.recorder.record_pod_event,
            changed=scheduler.retry_all,
        )
        yield followed.run()

    warp = virtual_run.VirtualRun(SMALL, objects=[lab], more_loops=more_loops)
    fixed = {workload_annotations.PREEMPTIBLE: "false"}
    done = warp.run(
        [
            timed_jobs.Work(
                name="notebook", gpus=2, seconds=100 * HOUR, queue="lab", annotations=fixed
            ),
            timed_jobs.Work(
                name="urgent", at=HOUR / 4, gpus=1, seconds=600, queue="lab", priority=10
            ),
        ],
        until=1.5 * HOUR,
    )
    moments = {(entry.work, entry.what): entry.at for entry in done.history}
    assert len(warp.evictions) == 1
    moment, eviction = warp.evictions[0]
    assert eviction.pod.name.startswith("notebook")
    assert 2400 <= moment < 2400 + 3 * idle_watch.EVERY_SECONDS  # window and grace, and not before
    assert "nearly unused for 40 min" in eviction.detail
    assert moments["urgent", "bound"] >= moment
    events = [
        event for event in warp.api.all(registry.EVENT) if event.regarding.name == eviction.pod.name
    ]
    reasons = [event.reason for event in sorted(events, key=lambda event: event.event_time or "")]
    assert reasons == ["IdleDevices", "IdleMayYield", "Preempted"]


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_who_had_the_cluster_all_day_is_due_less_in_the_evening(weight: float) -> None:
    half_life = 4 * HOUR
    batch = policy.Batch(usage_weight=weight, usage_half_life_seconds=int(half_life))
    fleet_ = fleet_spec.Fleet(
        name="f", pools=(fleet_spec.Pool(name="n", count=1, gpu="L4", gpus_per_node=8),)
    )
    shares = {"resources": {"gpu": {"quota": 0}}}
    warp: virtual_run.VirtualRun

    def more_loops(scheduler: scheduler_loop.Scheduler) -> Iterable[Coroutine[Any, Any, None]]:
        messages = queue_status_writer.QueueStatusWriter(
            scheduler.picture, warp.api, clock=warp.clock
        )
        kept = queue_usage.QueueUsage(
            scheduler.world.queues, messages.publish, clock=warp.clock, half_life_seconds=half_life
        )
        warp.numbers = kept.publish if weight else messages.publish
        yield messages.run()
        if weight:
            yield kept.run()

    warp = virtual_run.VirtualRun(
        fleet_,
        objects=[queue("day", **shares), queue("night", **shares)],
        policy_=policy.Policy(batch=batch),
        more_loops=more_loops,
    )
    day = timed_jobs.Work(name="day", gpus=1, pods=8, least=0, seconds=8 * HOUR, queue="day")
    again = timed_jobs.Work(
        name="again", at=9 * HOUR, gpus=1, pods=8, least=0, seconds=HOUR, queue="day"
    )
    night = timed_jobs.Work(
        name="night", at=9 * HOUR, gpus=1, pods=8, least=0, seconds=HOUR, queue="night"
    )
    done = warp.run([day, again, night], until=9.5 * HOUR)
    evening = [
        entry.work for entry in done.history if entry.what == "bound" and entry.at > 8 * HOUR
    ]
    assert len(evening) == 8
    shown = {item.metadata.name: item.status for item in warp.api.all(registry.QUEUE)}
    if not weight:
        assert (evening.count("night"), evening.count("again")) == (4, 4)
        assert all(not status.usage for status in shown.values())
        return
    assert evening.count("night") > evening.count("again") + 2
    assert float(shown["day"].usage["gpu"]) > float(shown["night"].usage["gpu"]) > 0
    assert shown["day"].usage_time


@pytest.mark.slow
def test_a_gpu_that_cannot_be_divided_changes_hands_now_and_then_only() -> None:
    """Two queues that always want all of three GPUs: over time each has half of them, with few evictions."""
    half_life = HOUR
    batch = policy.Batch(usage_weight=1.0, usage_half_life_seconds=int(half_life))
    fleet_ = fleet_spec.Fleet(
        name="f", pools=(fleet_spec.Pool(name="n", count=1, gpu="L4", gpus_per_node=3),)
    )
    shares = {"resources": {"gpu": {"quota": 1}}}
    held = {"a": 0.0, "b": 0.0}
    last: dict[str, Any] = {"at": 0.0, "held": {"a": 0.0, "b": 0.0}}
    warp: virtual_run.VirtualRun

    def more_loops(scheduler: scheduler_loop.Scheduler) -> Iterable[Coroutine[Any, Any, None]]:
        messages = queue_status_writer.QueueStatusWriter(
            scheduler.picture, warp.api, clock=warp.clock
        )
        kept = queue_usage.QueueUsage(
            scheduler.world.queues, messages.publish, clock=warp.clock, half_life_seconds=half_life
        )
        warp.numbers = kept.publish
        yield messages.run()
        yield kept.run()

    def decided(world: Any, made: Any, now: Any) -> None:
        for name, value in last["held"].items():
            held[name] += value * (warp.clock.monotonic() - last["at"])
        last["at"] = warp.clock.monotonic()
        last["held"] = {
            name: float(made.queues[name].resources["gpu"].charged) for name in ("a", "b")
        }

    warp = virtual_run.VirtualRun(
        fleet_,
        objects=[queue("a", **shares), queue("b", **shares)],
        policy_=policy.Policy(batch=batch),
        more_loops=more_loops,
        decided=decided,
    )
    endless = [
        timed_jobs.Work(name=name, gpus=1, pods=3, least=0, seconds=1000 * HOUR, queue=name, at=at)
        for name, at in (("a", 0.0), ("b", 60.0))
    ]
    warp.run(endless, until=8 * HOUR)
    moments = [at for at, _ in warp.evictions if at > 120]
    assert len(moments) > 10
    assert min(later - at for at, later in itertools.pairwise(moments)) > 0.05 * half_life
    assert held["a"] == pytest.approx(held["b"], rel=0.1)
