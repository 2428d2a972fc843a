"""Writes that the server always refuses: each ends, reports why, releases what it held, and delays no other pod."""

from __future__ import annotations

import collections
from collections.abc import Callable

import pytest

from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.core import pods
from dovetail.live.bind import write_retry
from dovetail.ports import failures
from dovetail.ports.api import Target
from dovetail.sim.server import object_store
from tests.live.live_scheduler import Stage, play

SPARE_BYTES = 10  # for versions that have more digits later
Write = Callable[[str, Target], bool]


def is_binding(verb: str, target: Target) -> bool:
    return target.subresource == "binding"


def is_claim_status(verb: str, target: Target) -> bool:
    return verb == "patch" and target.kind is registry.CLAIM and target.subresource == "status"


def is_intent(verb: str, target: Target) -> bool:
    return verb == "create" and target.kind is registry.INTENT


def refusing(
    stage: Stage, which: Write, failure: failures.ApiFailure, *, of: str = "big"
) -> collections.Counter[str]:
    """From now on the server answers like this to such writes of objects with such names; how often it did."""
    counts: collections.Counter[str] = collections.Counter()

    def before(verb: str, target: Target) -> None:
        is_meant = target.name.startswith(of) or (
            target.kind is registry.INTENT and not target.name
        )
        if is_meant and which(verb, target):
            counts[target.name] += 1
            raise failure

    stage.api.before = before
    return counts


def fill(stage: Stage, name: str) -> None:
    """The pod grows until the server stores it, and nothing more."""
    tree = stage.api.tree(registry.POD, name, namespace="default")
    tree["metadata"]["annotations"] = {"filler": ""}
    room = object_store.REQUEST_BYTES - len(codec.encode_tree(tree)) - SPARE_BYTES
    tree["metadata"]["annotations"] = {"filler": "x" * room}
    stage.api.shelf.put(registry.POD, tree)


def scheduled(pod: pods.Pod) -> list[str]:
    return [
        condition.message for condition in pod.status.conditions if condition.type == "PodScheduled"
    ]


@pytest.mark.parametrize("count", [64, 130])
def test_pods_that_cannot_take_another_byte_delay_no_other_pod_and_get_an_event(
    count: int,
) -> None:
    async def story() -> None:
        stage = Stage(nodes=count // 8 + 2, gpus=8)
        stage.template("one")
        answer = failures.Futile("etcdserver: request is too large", status=409)
        refusing(stage, lambda verb, target: target.kind is registry.POD and verb != "get", answer)
        for number in range(count):
            stage.pod(f"big-{number}", templates=("one",), priority=10)
        async with stage.scheduling():
            await stage.pass_time(5)
            stage.pod("honest", templates=("one",))
            await stage.pass_time(5)
            assert stage.node_of("honest")
            await stage.pass_time(1)
            assert len(stage.devices()) == 1  # what the others held was given back
            messages = {tree.regarding.name: tree.note for tree in stage.events("FailedScheduling")}
            assert len(messages) == count
            assert all("too large" in note for note in messages.values())
            assert stage.differences() == ()
        assert stage.ended is None

    play(story)


def test_a_pod_that_fills_the_store_ends_like_that_on_the_server_in_memory() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=1)
        stage.template("one")
        stage.claim("own")
        stage.pod("big", named=("own",))
        fill(stage, "big")
        async with stage.scheduling():
            await stage.pass_time(3)
            assert stage.node_of("big") == ""
            assert stage.devices() == []
            assert any("too large" in tree.note for tree in stage.events("FailedScheduling"))
            stage.pod("honest", templates=("one",))
            await stage.pass_time(2)
            assert stage.node_of("honest")

    play(story)


@pytest.mark.parametrize("which", [is_binding, is_claim_status])
@pytest.mark.parametrize(
    "failure",
    [
        failures.Unavailable("500: a webhook gives no reason", status=500),
        failures.Conflict("409: another writer is always first", status=409),
    ],
    ids=["500", "409"],
)
def test_the_same_answer_for_a_minute_is_a_refusal_while_others_are_served(
    which: Write, failure: failures.ApiFailure
) -> None:
    async def story() -> None:
        stage = Stage(nodes=20, gpus=8)
        stage.template("one")
        counts = refusing(stage, which, failure)
        for number in range(80):
            stage.pod(f"big-{number}", templates=("one",), priority=10)
        async with stage.scheduling():
            await stage.pass_time(5)
            for minute in range(3):
                stage.pod(f"honest-{minute}", templates=("one",))
                await stage.pass_time(5)
                assert stage.node_of(f"honest-{minute}"), minute  # who pauses leaves its place
                await stage.pass_time(35)
            assert len(stage.devices()) == 3
            for number in range(80):
                (message,) = scheduled(stage.the_pod(f"big-{number}"))
                assert str(failure) in message
            assert max(counts.values()) < 40
            assert stage.differences() == ()
        assert stage.ended is None

    play(story)


def test_an_outage_is_no_refusal() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=1)
        stage.template("one")

        def down(verb: str, target: Target) -> None:
            raise failures.Unavailable("connection refused")

        stage.pod("waiting", templates=("one",))
        async with stage.scheduling():
            stage.api.before = down
            await stage.pass_time(write_retry.LONGEST_SECONDS * 3)
            stage.api.before = None
            await stage.pass_time(40)
            assert stage.node_of("waiting")
            assert scheduled(stage.the_pod("waiting")) == [""]

    play(story)


def test_no_answer_for_one_pod_while_others_are_served_ends_as_well() -> None:
    async def story() -> None:
        stage = Stage(nodes=2, gpus=4)
        stage.template("one")
        refusing(stage, is_binding, failures.Unavailable("timed out"))
        stage.pod("big", templates=("one",))
        async with stage.scheduling():
            for minute in range(6):
                stage.pod(f"honest-{minute}")
                await stage.pass_time(60)
                assert stage.node_of(f"honest-{minute}")
            assert "timed out" in scheduled(stage.the_pod("big"))[0]
            assert stage.devices() == []

    play(story)


def test_a_binding_that_happened_without_an_answer_is_no_refusal() -> None:
    """Giving up reads the pod once more, and finds it bound."""

    async def story() -> None:
        stage = Stage(nodes=2, gpus=1)
        stage.template("one")
        answers = 0

        def before(verb: str, target: Target) -> None:
            nonlocal answers
            if target.name == "big" and is_binding(verb, target):
                answers += 1
                raise failures.Unavailable("500: the same each time", status=500)

        stage.api.before = before
        stage.pod("big", templates=("one",))
        async with stage.scheduling():
            await stage.pass_time(30)
            stage.pod("honest", templates=("one",))
            await stage.pass_time(20)
            node = next(pool for pool, _ in stage.devices() if pool != stage.node_of("honest"))
            before_giving_up = answers
            tree = stage.api.tree(registry.POD, "big", namespace="default")
            tree["spec"]["nodeName"] = node  # one of the tries arrived after all
            stage.api.shelf.put(registry.POD, tree)
            await stage.pass_time(100)
            assert answers <= before_giving_up + 1
            assert len(stage.devices()) == 2  # what it runs with was not given back
            assert stage.events("FailedScheduling") == []

    play(story)


def test_a_gang_whose_intent_is_always_refused_is_reported_and_holds_nothing() -> None:
    async def story() -> None:
        stage = Stage(nodes=2, gpus=2)
        stage.template("one")
        refusing(stage, is_intent, failures.Unavailable("500: never", status=500))
        names = stage.gang("gang", 2, templates=("one",))
        async with stage.scheduling():
            await stage.pass_time(5)
            for number in range(20):  # other writes succeed all the while
                stage.pod(f"honest-{number}")
                await stage.pass_time(5)
            assert all("500: never" in scheduled(stage.the_pod(name))[0] for name in names)
            stage.pod("rest", templates=("one", "one"))
            await stage.pass_time(3)
            assert stage.node_of("rest")
            assert stage.differences() == ()

    play(story)


def test_a_release_that_is_always_refused_is_counted_and_reported_on_the_claim() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=1)
        stage.template("one")
        answer = failures.Futile("etcdserver: request is too large", status=500)
        is_allocated = False

        def before(verb: str, target: Target) -> None:
            nonlocal is_allocated
            if is_claim_status(verb, target):
                if is_allocated:
                    raise answer
                is_allocated = True
            if is_binding(verb, target):
                raise answer

        stage.api.before = before
        stage.pod("big", templates=("one",))
        async with stage.scheduling():
            await stage.pass_time(3)
            assert len(stage.devices()) == 1  # held for nothing, and counted as held
            (event,) = stage.events("NotReleased")
            assert event.regarding.kind == "ResourceClaim"
            assert "too large" in event.note
            assert stage.differences() == ()

    play(story)
