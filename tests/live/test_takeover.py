"""Whatever intents a new leader reads, it goes on, no device is allocated twice, and honest pods start."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest

from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.custom import intents
from dovetail.live.intents import intent_store
from dovetail.quantity import quantity
from tests.generators import hostile_intents
from tests.live.live_scheduler import Stage, play

SEEDS = range(30, 60)


def put(stage: Stage, spec: intents.IntentSpec) -> None:
    intent = intent_store.intent_of("default", spec)
    stage.api.put(json.loads(codec.encode_struct(intent)))


def slot(uid: str = "gone", *, node: str = "n-0", cpu: str = "1") -> intents.Slot:
    return intents.Slot(
        pod="moved", uid=uid, owner="controller", node=node, requests={"cpu": quantity.parse(cpu)}
    )


def test_two_notes_about_the_place_of_one_pod_keep_one_place() -> None:
    async def story() -> None:
        stage = Stage(nodes=2, gpus=1)
        for seconds in (250, 260):
            deadline = intent_store.deadline_text(stage.clock.now(), seconds)
            put(stage, intents.IntentSpec(gang="pod/moved", deadline=deadline, slot=slot()))
        async with stage.scheduling() as scheduler:
            await stage.pass_time(5)
            assert [name for name in scheduler.world.assumed if name.startswith("slot/")] == [
                "slot/gone"
            ]
            assert len(stage.intents()) == 1
            await stage.pass_time(300)
            assert stage.intents() == []
            assert not scheduler.world.assumed
        assert stage.ended is None

    play(story)


def test_a_place_that_would_make_room_is_not_kept() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=1)
        deadline = intent_store.deadline_text(stage.clock.now(), 250)
        put(stage, intents.IntentSpec(gang="pod/moved", deadline=deadline, slot=slot(cpu="-1000")))
        stage.pod("large", resources={"requests": {"cpu": "500"}})
        async with stage.scheduling():
            await stage.pass_time(5)
            assert stage.node_of("large") == ""
            assert stage.intents() == []

    play(story)


def test_two_intents_about_the_same_pods_start_them_once() -> None:
    async def story() -> None:
        stage = Stage(nodes=2, gpus=2)
        names = stage.gang("gang", 3)
        tree = stage.api.tree(registry.POD, names[0], namespace="default")
        tree["spec"]["nodeName"] = "n-0"
        stage.api.shelf.put(registry.POD, tree)
        deadline = intent_store.deadline_text(stage.clock.now(), 100)
        for attempt in (1, 2):
            members = [
                intents.Member(pod=name, uid=stage.the_pod(name).metadata.uid, node="n-1")
                for name in (*names, *names)
            ]
            put(
                stage,
                intents.IntentSpec(
                    gang="gang/gang", attempt=attempt, deadline=deadline, members=tuple(members)
                ),
            )
        async with stage.scheduling():
            await stage.pass_time(5)
            assert all(stage.node_of(name) for name in names)
            assert stage.intents() == []
            assert stage.differences() == ()
        assert stage.ended is None

    play(story)


def test_an_unusable_intent_is_reported_and_removed_after_its_deadline() -> None:
    """No known intent is unusable; the one here stands for a case that the code does not foresee."""

    async def story() -> None:
        stage = Stage(nodes=1, gpus=1)
        deadline = intent_store.deadline_text(stage.clock.now(), 60)
        put(stage, intents.IntentSpec(gang="pod/moved", deadline=deadline, slot=slot()))
        stage.pod("honest")
        bad = stage.intents()[0]

        class Raising(intents.Slot, frozen=True):
            """A slot that cannot even be looked at."""

            def __getattribute__(self, name: str) -> Any:
                if name == "uid":
                    raise ArithmeticError("unforeseen")
                return super().__getattribute__(name)

        spec = msgspec.structs.replace(bad.spec, slot=Raising(node="n-0", owner="x"))
        result = [msgspec.structs.replace(bad, spec=spec)]

        async def begun() -> list[intents.Intent]:
            return result

        stage._begun = begun  # type: ignore[method-assign]
        async with stage.scheduling():
            await stage.pass_time(5)
            assert stage.node_of("honest")
            (event,) = stage.events("Unusable")
            assert (event.regarding.kind, "unforeseen" in event.note) == ("Intent", True)
            assert len(stage.intents()) == 1
            await stage.pass_time(60)
            assert stage.intents() == []
        assert stage.ended is None

    play(story)


@pytest.mark.parametrize("seed", SEEDS)
def test_hostile_intents_end_no_term_and_harm_no_pod(seed: int) -> None:
    async def story() -> None:
        rng = random.Random(seed)
        stage = Stage(nodes=3, gpus=2)
        stage.template("one")
        if rng.random() < 0.5:
            stage.queue("team", resources={"gpu": {"quota": "6"}})
        stage.gang("gang", 2, templates=("one",))
        stage.pod("running", templates=("one",))
        async with stage.scheduling():
            await stage.pass_time(2 if rng.random() < 0.5 else 0)
        stage.gang("late", 2, templates=("one",))
        scene = hostile_intents.Scene(
            uids=[pod.metadata.uid for pod in stage.api.all(registry.POD)],
            nodes=[node.metadata.name for node in stage.api.all(registry.NODE)],
            now=stage.clock.now(),
        )
        for tree in hostile_intents.some(scene, rng):
            stage.api.put(tree)
        stage.ended = None
        async with stage.scheduling():
            await stage.pass_time(5)
            stage.pod("honest", resources={"requests": {"cpu": "100m"}})
            await stage.pass_time(30)
            assert len(stage.devices()) == len(set(stage.devices()))
            assert stage.differences() == ()
            for _ in range(130):
                await stage.clock.advance(10)
            assert stage.node_of("honest"), (
                "the honest pod waits"
            )  # room may have been kept, but not for so long
            left = [intent for intent in stage.intents() if intent.spec.promise is None]
            assert left == [], "an intent outlives its time"
        assert stage.ended is None, stage.ended

    play(story)
