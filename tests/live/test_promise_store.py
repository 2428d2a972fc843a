"""A promise outlives the leader that made it: it is stored, read again, and moves only for a cause."""

from __future__ import annotations

import asyncio
import datetime
import itertools
import json
from typing import Any

import pytest

from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.custom import intents
from dovetail.live.intents import intent_store, promise_store
from dovetail.model import plan, workload_annotations
from dovetail.ports import failures
from dovetail.ports.api import Target
from tests.backfill.timed_cluster import TimedCluster, Work
from tests.live.live_scheduler import Stage, play

NOON = datetime.datetime(2026, 6, 1, 12, 0, tzinfo=datetime.UTC)
PROMISE = intents.Promise(
    start="2026-06-01T12:10:00.250000Z",
    moved_from="2026-06-01T12:05:00Z",
    cause="node n-7 is gone",
    seats=(
        intents.Member(pod="a-0", uid="u0", node="n-0"),
        intents.Member(pod="a-1", uid="u1", node="n-1"),
    ),
)


def noted(
    promise: intents.Promise = PROMISE, *, gang: str = "gang/a", attempt: int = 1
) -> intents.Intent:
    spec = intents.IntentSpec(gang=gang, attempt=attempt, promise=promise)
    return intent_store.intent_of("default", spec)


def waiting(stage: Stage) -> None:
    """One node of two GPUs; `long` has both for ten minutes, `head` waits for them."""
    stage.queue("everybody")
    stage.template("two", count=2)
    stage.pod(
        "long", templates=("two",), annotations={workload_annotations.EXPECTED_RUNTIME: "600"}
    )


async def promised(stage: Stage) -> intents.Intent:
    """The head's promise, once it is put down."""
    await stage.pass_time(3)
    start(stage, "long")
    stage.pod("head", templates=("two",), annotations={workload_annotations.EXPECTED_RUNTIME: "60"})
    await stage.pass_time(3)
    (result,) = stage.intents()
    return result


def start(stage: Stage, name: str) -> None:
    """A pod runs from now on."""
    tree = stage.api.tree(registry.POD, name, namespace="default")
    stamp = stage.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    tree["status"] = tree.get("status", {}) | {"phase": "Running", "startTime": stamp}
    stage.api.shelf.put(registry.POD, tree)


def words(stage: Stage, name: str) -> str:
    """Why a pod waits, as its owner reads it."""
    messages = [
        condition.message
        for condition in stage.the_pod(name).status.conditions
        if condition.type == "PodScheduled"
    ]
    return messages[0] if messages else ""


def test_a_promise_reads_as_it_was_written() -> None:
    read = promise_store.promise_of(noted())
    assert read is not None
    assert read.gang == plan.GangRef("default", "gang/a")
    assert read.start == NOON + datetime.timedelta(minutes=10, milliseconds=250)
    assert read.moved_from == NOON + datetime.timedelta(minutes=5)
    assert read.cause == "node n-7 is gone"
    assert [(seat.pod.uid, seat.node) for seat in read.seats] == [("u0", "n-0"), ("u1", "n-1")]


def test_a_lost_start_time_is_stored_with_its_cause() -> None:
    gang = plan.GangRef("default", "gang/a")
    lost = plan.Promise(
        gang=gang,
        cause="unbounded: 1 holder states no runtime",
        moved_from=NOON,
        lost_to="b is first",
    )
    note = promise_store.stored_promise(lost)
    assert note == intents.Promise(moved_from="2026-06-01T12:00:00Z", cause="b is first")
    read = promise_store.promise_of(noted(note))
    assert read == plan.Promise(gang=gang, cause="not known", moved_from=NOON, lost_to="b is first")


@pytest.mark.parametrize(
    "promise",
    [
        intents.Promise(),
        intents.Promise(start="soon", seats=PROMISE.seats),
        intents.Promise(start="2026-02-30T12:00:00Z", seats=PROMISE.seats),
        intents.Promise(start="2026-06-01T12:00:00", seats=PROMISE.seats),  # of no zone
        intents.Promise(start=PROMISE.start, moved_from="before", seats=PROMISE.seats),
        intents.Promise(start=PROMISE.start),
        intents.Promise(start=PROMISE.start, seats=(intents.Member(pod="a-0", uid="u0"),)),
    ],
)
def test_what_cannot_be_read_is_no_promise(promise: intents.Promise) -> None:
    assert promise_store.promise_of(noted(promise)) is None


def test_a_line_goes_on_the_same_way_under_a_new_leader_at_every_decision() -> None:
    """The next leader knows only what was stored."""

    class Relay(TimedCluster):
        def _decided(self, decided: plan.Plan, now: datetime.datetime) -> None:
            super()._decided(decided, now)
            promises = [promise for promise in decided.promises if promise.start is not None]
            read = [
                promise_store.promise_of(
                    noted(promise_store.stored_promise(promise), gang=promise.gang.name)
                )
                for promise in promises
            ]
            self.course.world.set_promises([item for item in read if item is not None])

    works = [
        Work(f"w{n}", 1 + n % 2, 1 + n % 4, 60 * (5 + n), 60 * (6 + n), at=n) for n in range(10)
    ]
    item, other = (
        TimedCluster(nodes=2).arrive(*works).go_on(),
        Relay(nodes=2).arrive(*works).go_on(),
    )
    assert {name: item.starts(name) for name in item.promised} == {
        name: other.starts(name) for name in other.promised
    }
    assert item.promised.keys() >= {"w5", "w9"}
    assert item.course.started == other.course.started


def test_a_promise_is_stored_once_before_it_is_reported_and_removed_when_its_gang_starts() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        waiting(stage)
        order: list[str] = []
        failed: list[str] = []

        def delay(verb: str, target: Target) -> None:
            if target.kind is registry.INTENT and len(failed) < 3:
                failed.append(verb)
                raise failures.Unavailable("later")

        def note(verb: str, target: Target) -> None:
            is_head = (target.kind, target.name, target.subresource) == (
                registry.POD,
                "head",
                "status",
            )
            if target.kind is registry.INTENT or is_head:
                order.append(f"{verb} {target.kind.plural}")

        stage.api.before, stage.api.after = delay, note
        async with stage.scheduling(is_quarantining=False):
            intent = await promised(stage)
            assert intent.spec.promise is not None
            assert [seat.pod for seat in intent.spec.promise.seats] == ["head"]
            assert intent.spec.gang == "pod/head"
            stage.pod("behind", templates=("two",))
            await stage.pass_time(60)
            assert [item for item in stage.intents() if item.spec.gang == "pod/head"] == [intent]
            assert order[:2] == ["create intents", "patch pods"]
            assert "starts by" in words(stage, "head")
            await stage.delete("long", grace_seconds=0)
            await stage.delete("behind", grace_seconds=0)
            await stage.pass_time(3)
            assert stage.node_of("head") == "n-0"
            assert stage.intents() == []

    play(story)


def test_a_new_leader_keeps_the_promise_and_says_why_where_it_cannot() -> None:
    """`long` says it takes ten minutes; when these are over, it still runs."""

    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        waiting(stage)
        async with stage.scheduling():
            intent = await promised(stage)
        assert intent.spec.promise is not None
        async with stage.scheduling() as second:
            await stage.pass_time(10)
            (kept,) = second.world.promises.values()
            assert kept.start is not None
            assert promise_store.stored_promise(kept) == intent.spec.promise
            assert stage.intents() == [intent]
        await stage.pass_time(620)
        async with stage.scheduling():
            await stage.pass_time(5)
            (moved,) = stage.intents()
            assert moved.spec.promise is not None
            assert moved.spec.promise.moved_from == intent.spec.promise.start
            assert moved.spec.promise.cause == "default/pod/long runs longer than it stated"
            assert moved.spec.attempt == 2
            assert "instead of" in words(stage, "head")
            await stage.pass_time(15)
            assert stage.intents() == [moved]  # one guess holds until it is over

    play(story)


@pytest.mark.parametrize("hook", ["before", "after"])
def test_whenever_a_leader_dies_no_reported_start_time_is_lost(hook: str) -> None:
    """At every single write about a promise that is made and then moves: not sent, or sent and not answered."""

    async def story(number: int) -> bool:
        stage = Stage(nodes=1, gpus=2)
        waiting(stage)
        left = number

        def die(verb: str, target: Target) -> None:
            nonlocal left
            if target.kind is not registry.EVENT:
                left -= 1
                if left < 0:
                    raise failures.Fenced("no longer the leader")

        async with stage.scheduling():
            await stage.pass_time(3)
            start(stage, "long")
            setattr(stage.api, hook, die)
            stage.pod(
                "head",
                templates=("two",),
                annotations={workload_annotations.EXPECTED_RUNTIME: "60"},
            )
            await stage.pass_time(640)
        setattr(stage.api, hook, None)
        messages = words(stage, "head").partition("starts by ")[2][:20]
        async with stage.scheduling():
            await stage.pass_time(5)
            (result,) = stage.intents()
            assert result.spec.promise is not None
            promise = result.spec.promise
            is_known = messages in ("", promise.start, promise.moved_from)
            assert is_known, (number, messages, promise)
            assert bool(promise.moved_from) == bool(promise.cause)
        return left < 0

    for number in itertools.count():
        if not asyncio.run(story(number)):
            break
    assert number > 3  # a promise, its words, the next one, the end of the first


def test_a_gang_that_starts_and_cannot_be_bound_still_has_its_promise() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        waiting(stage)
        refused: list[str] = []

        def refuse(verb: str, target: Target) -> None:
            if target.subresource == "binding" and target.name == "head" and not refused:
                refused.append(target.name)
                raise failures.Refused("not now")

        async with stage.scheduling(is_quarantining=False) as made:
            first = await promised(stage)
            stage.api.before = refuse
            await stage.delete("long", grace_seconds=0)
            for _ in range(8):
                await stage.pass_time(0.1)
                assert stage.node_of("head") or made.world.promises
            assert refused
            await stage.pass_time(5)
            assert stage.node_of("head") == "n-0"
            assert stage.intents() == []
        assert first.spec.promise is not None

    play(story)


def test_what_is_stale_or_wrong_is_said_and_removed(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        waiting(stage)
        for item in (
            noted(),
            noted(intents.Promise(start="soon", seats=PROMISE.seats), gang="pod/long"),
        ):
            put(stage, item)
        async with stage.scheduling() as made:
            await stage.pass_time(5)
            assert stage.node_of("long") == "n-0"
            assert stage.intents() == []
            assert made.world.promises == {}

    play(story)
    assert "promise.unreadable" in caplog.text


def test_of_two_promises_to_one_gang_the_last_counts() -> None:
    """A leader that died between the new one and the end of the old one."""

    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        waiting(stage)
        async with stage.scheduling():
            intent = await promised(stage)
        assert intent.spec.promise is not None
        uid = stage.the_pod("head").metadata.uid
        seats = (intents.Member(pod="head", uid=uid, node="n-0"),)
        old = intents.Promise(start="2020-01-01T00:00:00Z", seats=seats)
        put(
            stage,
            intent_store.intent_of(
                "default", intents.IntentSpec(gang="pod/head", attempt=0, promise=old)
            ),
        )
        async with stage.scheduling():
            await stage.pass_time(5)
            assert stage.intents() == [intent]

    play(story)


def test_without_intents_promises_are_kept_in_memory_only() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        waiting(stage)
        asked: list[str] = []

        def refuse(verb: str, target: Target) -> None:
            if target.kind is registry.INTENT:
                asked.append(verb)
                raise failures.Refused("not here")

        stage.api.before = refuse
        async with stage.scheduling() as made:
            await stage.pass_time(3)
            start(stage, "long")
            stage.pod(
                "head",
                templates=("two",),
                annotations={workload_annotations.EXPECTED_RUNTIME: "60"},
            )
            await stage.pass_time(60)
            assert asked == ["create"]  # the same is not tried again and again
            assert len(made.world.promises) == 1
            assert "starts by" in words(stage, "head")

    play(story)


def put(stage: Stage, intent: intents.Intent) -> None:
    """Stores an intent, as another writer would."""
    tree: dict[str, Any] = json.loads(codec.encode_struct(intent))
    stage.api.put(tree)
