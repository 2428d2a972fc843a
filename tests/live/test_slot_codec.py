"""The slot of a moved pod outlives the leader that reserved it, and ends at its deadline under any leader."""

from __future__ import annotations

import asyncio
import itertools
import json

import pytest

from dovetail.kubetypes import codec, meta, registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.custom import intents
from dovetail.kubetypes.resource import claims
from dovetail.live.evict import slot_codec
from dovetail.live.intents import intent_store
from dovetail.model import gangs, plan, pod_requests
from dovetail.ports import failures
from dovetail.ports.api import Target
from dovetail.world import events
from dovetail.world.world import World
from tests.live.live_scheduler import Stage, play
from tests.live.test_slot_reservations import HOST, moved, moving

ON_THE_OTHER_NODE = claims.AllocationResult(
    devices=claims.DeviceAllocationResult(
        results=(
            claims.DeviceRequestAllocationResult(
                request="gpu", driver="gpu.nvidia.com", pool="n-1", device="gpu-0"
            ),
        )
    )
)


def ghosts(stage: Stage) -> list[str]:
    assert stage.scheduler is not None
    return [name for name in stage.scheduler.world.assumed if name.startswith("slot/")]


def after(stage: Stage, name: str = "next") -> None:
    """What comes after the pod that moved."""
    stage.pod(name, templates=("one",), labels={gangs.GANG_LABEL: "g"})


def put(stage: Stage, spec: intents.IntentSpec) -> intents.Intent:
    """Stores an intent, as another writer would."""
    intent = intent_store.intent_of("default", spec)
    stage.api.put(json.loads(codec.encode_struct(intent)))
    return intent


def slot(node: str = "n-1") -> intents.Slot:
    device = intents.Device(driver="gpu.nvidia.com", pool="n-1", device="gpu-0")
    return intents.Slot(pod="gone", uid="gone", node=node, devices=(device,))


def later(stage: Stage, seconds: float) -> str:
    return intent_store.deadline_text(stage.clock.now(), seconds)


def test_a_place_is_put_down_before_its_pod_is_asked_to_end_and_goes_once_it_is_taken() -> None:
    async def story() -> None:
        stage = moving()
        order: list[str] = []

        def note(verb: str, target: Target) -> None:
            if target.kind is registry.INTENT or target.subresource == "eviction":
                order.append(f"{verb} {target.kind.plural}")

        stage.api.before = note
        async with stage.scheduling(is_quarantining=False):
            await moved(stage)
            assert order == ["rehearse pods", "create intents", "create pods"]
            (noted,) = stage.intents()
            assert noted.spec.slot is not None
            assert (noted.spec.gang, noted.spec.slot.pod, noted.spec.slot.node) == (
                "gang/g",
                "old",
                "n-1",
            )
            assert [device.device for device in noted.spec.slot.devices] == ["gpu-0"]
            assert noted.spec.deadline == later(stage, 300)[:14] + noted.spec.deadline[14:]
            after(stage)
            await stage.pass_time(5)
            assert stage.node_of("next") == "n-1"
            assert stage.intents() == []

    play(story)


def test_a_new_leader_keeps_the_place_for_what_comes_after_the_pod() -> None:
    async def story() -> None:
        stage = moving()
        async with stage.scheduling(is_quarantining=False):
            await moved(stage)
        async with stage.scheduling(is_quarantining=False) as second:
            stage.pod("greedy", templates=("one",))
            await stage.pass_time(10)
            assert stage.node_of("greedy") == ""
            assert stage.differences() == ()
            after(stage)
            await stage.pass_time(5)
            assert stage.node_of("next") == "n-1"
            assert stage.node_of("greedy") == ""
            assert not second.world.held
            assert stage.intents() == []

    play(story)


def test_the_time_of_a_place_runs_on_under_a_new_leader() -> None:
    async def story() -> None:
        stage = moving()
        async with stage.scheduling(is_quarantining=False, slot_seconds=30.0):
            await moved(stage)
        await stage.pass_time(10)
        async with stage.scheduling(is_quarantining=False, slot_seconds=30.0):
            stage.pod("greedy", templates=("one",))
            await stage.pass_time(10)
            assert stage.node_of("greedy") == ""
            await stage.pass_time(15)
            assert stage.node_of("greedy") == "n-1"
            assert stage.intents() == []

    play(story)


def test_a_place_whose_pod_was_never_asked_to_end_is_anybodys() -> None:
    """The leader died between the two writes."""

    async def story() -> None:
        stage = moving()

        def die(verb: str, target: Target) -> None:
            if target.subresource == "eviction" and stage.intents():
                raise failures.Fenced("no longer the leader")

        stage.api.before = die
        async with stage.scheduling(is_quarantining=False):
            await stage.pass_time(3)
            stage.pod("new", templates=("one",), nodeSelector={HOST: "n-0"})
            await stage.pass_time(3)
        stage.api.before = lambda verb, target: None
        assert isinstance(stage.ended, failures.Fenced)
        assert len(stage.intents()) == 1
        await stage.delete("new")  # so that no pod gains by moving the old one again
        async with stage.scheduling(is_quarantining=False):
            stage.pod("greedy", templates=("one",))
            await stage.pass_time(3)
            assert stage.node_of("old") == "n-0"
            assert stage.node_of("greedy") == "n-1"
            assert stage.intents() == []

    play(story)


@pytest.mark.parametrize("hook", ["before", "after"])
def test_whenever_a_leader_dies_no_other_pod_gets_the_slot_of_a_moved_pod(hook: str) -> None:
    """At every single write from the moment another pod gains by the move: not sent, or sent and not answered."""
    seen: set[str] = set()

    async def story(number: int) -> bool:
        stage = moving()
        left = number

        def die(verb: str, target: Target) -> None:
            nonlocal left
            if target.kind is registry.EVENT or verb == "rehearse":
                return
            seen.add(f"{verb} {target.kind.plural}/{target.subresource}")
            left -= 1
            if left < 0:
                raise failures.Fenced("no longer the leader")

        async with stage.scheduling(is_quarantining=False):
            await stage.pass_time(3)
            stage.pod("new", templates=("one",), nodeSelector={HOST: "n-0"})
            setattr(stage.api, hook, die)
            await stage.pass_time(3)
        setattr(stage.api, hook, None)
        async with stage.scheduling(is_quarantining=False) as second:
            await stage.pass_time(3)
            assert stage.the_pod("old").metadata.deletion_timestamp
            await stage.delete("old", grace_seconds=0)
            await stage.pass_time(3)
            assert stage.node_of("new") == "n-0"
            stage.pod("greedy", templates=("one",))
            await stage.pass_time(3)
            assert stage.node_of("greedy") == "", number
            after(stage)
            await stage.pass_time(5)
            assert stage.node_of("next") == "n-1", number
            assert not second.world.held
            assert stage.intents() == []
        return left < 0

    for number in itertools.count():
        if not asyncio.run(story(number)):
            break
    assert seen >= {"create intents/", "create pods/eviction", "patch pods/status"}


def test_a_place_that_was_taken_before_the_leader_died_is_kept_no_longer() -> None:
    async def story() -> None:
        stage = moving()
        async with stage.scheduling(is_quarantining=False):
            await moved(stage)
        stage.pod("next", templates=("one",), labels={gangs.GANG_LABEL: "g"}, nodeName="n-1")
        async with stage.scheduling(is_quarantining=False):
            await stage.pass_time(3)
            assert ghosts(stage) == []
            assert stage.intents() == []

    play(story)


def test_a_place_is_kept_again_where_what_was_given_it_cannot_be_bound() -> None:
    async def story() -> None:
        stage = moving()
        refused: list[str] = []

        def refuse(verb: str, target: Target) -> None:
            if target.subresource == "binding" and target.name == "next" and not refused:
                refused.append(target.name)
                raise failures.Refused("not now")

        async with stage.scheduling(is_quarantining=False):
            await moved(stage)
            stage.pod("greedy", templates=("one",))
            await stage.pass_time(2)
            stage.api.before = refuse
            after(stage)
            await stage.pass_time(30)
            assert refused
            assert stage.node_of("next") == "n-1"
            assert stage.node_of("greedy") == ""

    play(story)


def test_what_was_put_down_about_a_pod_that_stays_is_removed() -> None:
    async def story() -> None:
        stage = moving()

        def protect(verb: str, target: Target) -> None:
            if target.subresource == "eviction" and stage.intents():
                raise failures.Protected(
                    "Cannot evict pod as it would violate the pod's disruption budget."
                )

        stage.api.before = protect
        async with stage.scheduling(is_quarantining=False):
            await stage.pass_time(3)
            stage.pod("new", templates=("one",), nodeSelector={HOST: "n-0"})
            await stage.pass_time(2)
            assert len(stage.intents()) == 1
            assert ghosts(stage) == []
            stage.api.before = lambda verb, target: None
            await stage.delete("new", grace_seconds=0)
            await stage.pass_time(45)
            assert stage.intents() == []
            assert stage.node_of("old") == "n-0"

    play(story)


def test_what_is_stale_or_wrong_holds_nothing_and_is_said(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        stage = Stage(nodes=2, gpus=1)
        stage.queue("everybody")
        stage.template("one")
        wrong = [
            intents.IntentSpec(gang="gang/g", slot=slot()),
            intents.IntentSpec(gang="gang/g", deadline="tomorrow", slot=slot()),
            intents.IntentSpec(gang="gang/g", deadline="2020-01-01T00:00:00Z", slot=slot()),
            intents.IntentSpec(gang="gang/g", deadline=later(stage, 60), slot=slot("n-9")),
            intents.IntentSpec(gang="pod/alone", deadline=later(stage, 60), slot=slot()),
        ]
        for item in wrong:
            put(stage, item)
        async with stage.scheduling(is_quarantining=False):
            stage.pod("a", templates=("one",))
            stage.pod("b", templates=("one",))
            await stage.pass_time(3)
            assert {stage.node_of("a"), stage.node_of("b")} == {"n-0", "n-1"}
            assert stage.intents() == []

    play(story)
    assert caplog.text.count("slot.dropped") >= 3  # as errors: the other two are valid


def test_no_slot_is_kept_for_longer_than_the_maximum() -> None:
    async def story() -> None:
        stage = Stage(nodes=2, gpus=1)
        stage.queue("everybody")
        stage.template("one")
        put(stage, intents.IntentSpec(gang="gang/g", deadline="2099-01-01T00:00:00Z", slot=slot()))
        async with stage.scheduling(is_quarantining=False, slot_seconds=30.0):
            stage.pod("greedy", templates=("one",), nodeSelector={HOST: "n-1"})
            await stage.pass_time(20)
            assert stage.node_of("greedy") == ""
            await stage.pass_time(15)
            assert stage.node_of("greedy") == "n-1"
            assert stage.intents() == []

    play(story)


def test_a_place_takes_as_much_of_a_node_as_its_pod_did() -> None:
    asks = {
        "requests": {"cpu": "1500m", "memory": "2Gi", "example.com/gpu": "3"},
        "limits": {"example.com/gpu": "3"},
    }
    tree = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u", "labels": {"a": "b"}},
        "spec": {
            "containers": [{"name": "one", "resources": asks}, {"name": "two", "resources": asks}]
        },
    }
    pod = codec.decode_struct(pods.Pod, json.dumps(tree).encode())
    gone = plan.Eviction(
        pod=plan.pod_ref(pod),
        gang=plan.GangRef("default", "gang/g"),
        rule=plan.Rule.CONSOLIDATED,
        moves_to="n-1",
        keeps=(ON_THE_OTHER_NODE,),
    )
    stage = Stage(nodes=2)
    intent = slot_codec.intent_for(gone, pod, now=stage.clock.now(), seconds=60)
    assert intent is not None
    world = World()
    for node in stage.api.all(registry.NODE):
        world.apply(events.Changed(node))
    stamped = intents.Intent(metadata=meta.ObjectMeta(namespace="default"), spec=intent.spec)
    read = slot_codec.SlotReader(world, stage.clock.now(), longest_seconds=300).read(stamped)
    assert isinstance(read, slot_codec.StoredSlot)
    assert pod_requests.pod_request(read.placeholder) == pod_requests.pod_request(pod)
    assert read.replacement_key == ("default", "gang/g")
    assert [item.device for result in read.devices for item in result.devices.results] == ["gpu-0"]
    assert not read.placeholder.metadata.labels
