"""The scheduler stays up: no plan and no fault of ours ends it or loses a pod."""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Any

import pytest

from dovetail.live.bind import binder
from dovetail.live.cycle import fault_isolation, scheduler_loop
from dovetail.live.evict import evictor, nominator, slot_reservations
from dovetail.live.intents import promise_store
from dovetail.live.queue import crash_backoff, event_handlers, requeue, scheduling_queue
from dovetail.live.report import recorder, scheduler_metrics
from dovetail.model import gangs, plan, reasons, workload_annotations
from dovetail.schedule import decide
from dovetail.schedule.gang import staleness
from dovetail.world.world import World
from tests.live.live_scheduler import Stage, play


def lost(scheduler: scheduler_loop.Scheduler) -> list[str]:
    """Pods that should wait and are nowhere: not in the queue, and not being written."""
    nowhere = []
    for pod in scheduler.world.pending():
        if pod.metadata.uid not in scheduler.queue and pod.metadata.deletion_timestamp is None:
            nowhere.append(pod.metadata.name)
    return nowhere


def test_a_pod_of_high_priority_that_fits_nowhere_ends_nothing() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        stage.pod("runs", priority=0)
        stage.pod("too-big", resources={"requests": {"cpu": "9999"}})
        async with stage.scheduling() as made:
            await stage.pass_time(3)
            assert stage.node_of("runs")
            stage.pod("important", priority=1000, resources={"requests": {"cpu": "5000"}})
            await stage.pass_time(3)
            for name in ("too-big", "important"):
                (messages,) = [
                    condition
                    for condition in stage.the_pod(name).status.conditions
                    if condition.type == "PodScheduled"
                ]
                assert messages.reason == "Unschedulable"
            stage.pod("later")
            await stage.pass_time(3)
            assert stage.node_of("later")
            assert lost(made) == []
        assert stage.ended is None

    play(story)


class Babble:
    """Says whatever comes to mind: about pods there are, were, and never were."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.is_sane = False
        self.past: list[plan.PodRef] = [plan.PodRef("default", "no-such-pod", "no-such-uid")]

    def __call__(
        self, world: World, policy_: Any, now: Any, budget: Any, **options: Any
    ) -> plan.Plan:
        sober = decide.decide(world, policy_, now, budget, **options)
        if self.is_sane:
            return sober
        self.past += [plan.pod_ref(pod) for pod in world.pods.values()]
        rng, refs = self.rng, self._refs
        nodes = (*world.nodes, "no-such-node")
        gang = plan.GangRef("default", rng.choice(("gang/a", "gang/no-such-gang")))
        placed = [
            plan.Placement(pod=ref, node=rng.choice(nodes), gang=rng.choice((None, None, gang)))
            for ref in refs()
        ]
        odd = plan.Obstacle(
            reason=reasons.Reason(code=reasons.ReasonCode.GANG_WAITS, detail="so it seems")
        )
        refused = [
            plan.Refusal(pod=ref, summary="no", obstacles=(odd,), is_undecided=rng.random() < 0.3)
            for ref in refs()
        ]
        evicted = [
            plan.Eviction(
                pod=ref,
                gang=gang,
                rule=rng.choice([*plan.Rule]),
                beneficiary=rng.choice((None, gang)),
                moves_to=rng.choice(("", *nodes)),
            )
            for ref in (refs() if rng.random() < 0.3 else ())
        ]
        nominated = [plan.Nomination(pod=ref, node=rng.choice(nodes), gang=gang) for ref in refs()]
        return plan.Plan(
            placements=tuple(rng.sample([*sober.placements, *placed], k=len(placed))),
            refusals=tuple(refused),
            evictions=tuple(evicted),
            nominations=tuple(nominated),
            promises=sober.promises,
            queues=sober.queues,
            wake_at=rng.choice((None, now)),
        )

    def _refs(self) -> list[plan.PodRef]:
        return self.rng.choices(self.past, k=self.rng.randint(0, 6))


@pytest.mark.parametrize("has_queue", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_no_plan_ends_the_scheduler_or_loses_a_pod(seed: int, has_queue: bool) -> None:
    async def story() -> None:
        stage = Stage(nodes=2, gpus=2)
        stage.template("one")
        babble = Babble(seed)
        if has_queue:
            stage.queue("team")
        async with stage.scheduling(decide=babble) as made:
            for number in range(4):
                stage.pod(f"p{number}", templates=("one",), job="work", priority=number)
                stage.pod(f"q{number}", job="work")
                if number == 2 and seed % 2:
                    stage.gang("a", 3, templates=("one",))
                await stage.pass_time(1)
                assert lost(made) == []
            await stage.delete("q0", grace_seconds=0)
            await stage.pass_time(2)
            babble.is_sane = True
            stage.pod("later")
            await stage.pass_time(60)
            assert stage.node_of("later")
            assert lost(made) == []
            assert len(stage.devices()) == len(set(stage.devices()))
            assert stage.differences() == ()
        assert stage.ended is None

    play(story)


PLACES: list[tuple[Any, str]] = [
    (slot_reservations.SlotReservations, "recheck"),
    (staleness, "note"),
    (nominator.Nominator, "changes"),
    (promise_store.PromiseStore, "replace"),
    (promise_store.PromiseStore, "drop_finished"),
    (scheduler_metrics.SchedulerMetrics, "decided"),
    (scheduler_metrics.SchedulerMetrics, "queued"),
    (scheduler_metrics.SchedulerMetrics, "counts"),
    (recorder.Recorder, "refused"),
    (recorder.Recorder, "_send"),
    (event_handlers.EventHandlers, "consider"),
    (requeue.Requeuer, "requeue_if_due"),
    (event_handlers.EventHandlers, "end_quarantines"),
    (scheduling_queue.SchedulingQueue, "park"),
    (scheduling_queue.SchedulingQueue, "end_backoffs"),
    (scheduling_queue.SchedulingQueue, "take_all"),
    (World, "assume"),
]


@pytest.mark.parametrize("has_queue", [False, True])
@pytest.mark.parametrize(("place", "name"), PLACES, ids=[f"{name}" for _, name in PLACES])
def test_a_fault_in_any_part_of_a_turn_ends_nothing_and_loses_no_pod(
    place: Any, name: str, has_queue: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = getattr(place, name)
    faults = iter(range(3))  # the first calls fail

    def failing(*given: Any, **more: Any) -> Any:
        if next(faults, None) is not None:
            raise ZeroDivisionError(name)
        return honest(*given, **more)

    async def story() -> None:
        stage = Stage(nodes=2, gpus=2)
        stage.template("one")
        if has_queue:
            stage.queue("team")
        async with stage.scheduling() as made:
            await stage.pass_time(1)
            monkeypatch.setattr(place, name, failing)
            stage.pod("small", templates=("one",))
            stage.pod("large", resources={"requests": {"cpu": "9999"}})
            stage.gang("tie", 2, templates=("one",))
            await stage.pass_time(30)
            assert stage.node_of("small")
            assert all(map(stage.node_of, ("tie-0", "tie-1")))
            assert lost(made) == []
            assert stage.differences() == ()
        assert stage.ended is None

    play(story)


class Tripping:
    """The engine, tripping over every job whose name begins with one of these words, waiting or running."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def __call__(
        self, world: World, *given: Any, aside: Collection[gangs.GangKey], **options: Any
    ) -> plan.Plan:
        for pod in world.pods.values():
            key = world.gangs.of(pod.metadata.uid)
            is_aside = key is not None and key.gang in aside
            is_asked = (
                pod.spec.node_name
                or options["among"] is None
                or pod.metadata.uid in options["among"]
            )
            if pod.metadata.name.startswith(self.words) and not is_aside and is_asked:
                raise OverflowError(pod.metadata.name)
        return decide.decide(world, *given, aside=aside, **options)


@pytest.mark.parametrize("has_queue", [False, True])
def test_faults_about_any_number_of_waiting_and_running_jobs_keep_no_honest_pod_waiting(
    has_queue: bool,
) -> None:
    async def story() -> None:
        stage = Stage(nodes=2, gpus=4)
        stage.template("one")
        if has_queue:
            stage.queue("team")
        for number in range(3):
            stage.pod(f"patched-{number}", job=f"evil-{number}")
        trips = Tripping("evil")
        async with stage.scheduling(decide=trips) as made:
            await stage.pass_time(3)
            assert all(stage.node_of(f"patched-{number}") for number in range(3))
            trips.words = ("evil", "patched")
            for number in range(3):
                stage.pod(f"evil-{number}", templates=("one",), priority=number)
                stage.pod(f"good-{number}", templates=("one",), priority=number)
            names = stage.gang("tie", 2, templates=("one",))
            await stage.pass_time(5)
            assert all(stage.node_of(f"good-{number}") for number in range(3))
            assert all(map(stage.node_of, names))
            assert not any(stage.node_of(f"evil-{number}") for number in range(3))
            blamed = [
                tree.regarding.name
                for tree in stage.events("FailedScheduling")
                if tree.note == fault_isolation.MESSAGE
            ]
            assert sorted(blamed) == ["evil-0", "evil-1", "evil-2"], (
                "each culprit gets one event, and no other pod is blamed"
            )
            trips.words = ("no-such-pod",)
            await stage.pass_time(60)
            assert all(stage.node_of(f"evil-{number}") for number in range(3)), "mended, they start"
            assert lost(made) == []
            assert stage.differences() == ()
        assert stage.ended is None

    play(story)


@pytest.mark.parametrize("is_gang", [False, True])
def test_a_pod_whose_writing_ends_a_tenure_is_tried_later_and_the_others_start_before(
    is_gang: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim_all = binder.Binder._claim_all

    async def failing(self: binder.Binder, load: binder.PodBinding) -> Any:
        if load.placement.pod.name.startswith("poison"):
            raise ZeroDivisionError
        return await claim_all(self, load)

    async def story() -> None:
        monkeypatch.setattr(binder.Binder, "_claim_all", failing)
        stage = Stage(nodes=2, gpus=4)
        stage.template("one")
        memory = crash_backoff.CrashBackoff()
        if is_gang:
            stage.gang("poison", 2, templates=("one",), priority=1000)
        else:
            stage.pod("poison-0", templates=("one",), priority=1000)
        async with stage.scheduling(relapses_=memory):
            await stage.pass_time(2)
        assert isinstance(stage.ended, ZeroDivisionError)
        stage.ended = None
        for number in range(3):
            stage.pod(f"honest-{number}", templates=("one",))
        async with stage.scheduling(relapses_=memory) as made:
            await stage.pass_time(10)
            assert all(stage.node_of(f"honest-{number}") for number in range(3))
            assert lost(made) == []
            assert crash_backoff.MESSAGE in {
                condition.message for condition in stage.the_pod("poison-0").status.conditions
            }
        assert stage.ended is None
        monkeypatch.undo()
        async with stage.scheduling(relapses_=memory):
            await stage.pass_time(70)
            assert stage.node_of("poison-0"), "mended, it starts once its time has come"
            assert stage.differences() == ()

    play(story)


def test_a_victim_whose_eviction_fails_does_not_stop_other_evictions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    evict = evictor.Evictor._evict

    async def failing(self: Any, eviction: plan.Eviction) -> bool:
        if eviction.pod.name == "poison":
            raise ZeroDivisionError
        return await evict(self, eviction)

    async def story() -> None:
        monkeypatch.setattr(evictor.Evictor, "_evict", failing)
        stage = Stage(nodes=2, gpus=1)
        stage.template("one")
        stage.queue("team")
        labels = {workload_annotations.QUEUE: "team"}
        for name in ("poison", "victim"):
            stage.pod(name, templates=("one",), job=name, labels=labels)
        async with stage.scheduling(is_quarantining=False):
            await stage.pass_time(3)
            assert all(map(stage.node_of, ("poison", "victim")))
            for number in range(2):
                stage.pod(
                    f"high-{number}",
                    templates=("one",),
                    job=f"high-{number}",
                    labels=labels,
                    priority=50,
                )
            await stage.pass_time(5)
            await stage.delete("victim", grace_seconds=0)  # as its node does once it has ended
            await stage.pass_time(10)
            assert sum(bool(stage.node_of(f"high-{number}")) for number in range(2)) == 1
            assert stage.the_pod("poison").metadata.deletion_timestamp is None
            assert stage.node_of("poison")
        assert stage.ended is None

    play(story)
