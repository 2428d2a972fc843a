"""The slot of a moved pod is kept for its replacement, for no other pod, and for a limited time."""

from __future__ import annotations

from dovetail.kubetypes import meta, registry
from dovetail.kubetypes.core import pods
from dovetail.live.evict import slot_reservations
from dovetail.model import gangs
from tests.live.live_scheduler import Stage, play

HOST = "kubernetes.io/hostname"


def moving() -> Stage:
    """Two nodes of one GPU; the pod on the first moves to the second when another pod fits the first only."""
    stage = Stage(nodes=2, gpus=1)
    stage.queue("everybody")
    stage.template("one")
    stage.pod("old", templates=("one",), labels={gangs.GANG_LABEL: "g"}, job="g")
    return stage


async def moved(stage: Stage) -> None:
    await stage.pass_time(3)
    assert stage.node_of("old") == "n-0"
    stage.pod("new", templates=("one",), nodeSelector={HOST: "n-0"})
    await stage.pass_time(3)
    assert stage.the_pod("old").metadata.deletion_timestamp
    await stage.delete("old", grace_seconds=0)
    await stage.pass_time(3)
    assert stage.node_of("new") == "n-0"


def test_no_other_pod_takes_the_slot_and_the_replacement_does() -> None:
    async def story() -> None:
        stage = moving()
        async with stage.scheduling(is_quarantining=False):
            await moved(stage)
            stage.pod("greedy", templates=("one",))
            await stage.pass_time(10)
            assert stage.node_of("greedy") == ""
            assert stage.differences() == ()
            stage.pod("next", templates=("one",), labels={gangs.GANG_LABEL: "g"})
            await stage.pass_time(5)
            assert stage.node_of("next") == "n-1"
            assert stage.node_of("greedy") == ""
            assert stage.scheduler is not None
            assert not stage.scheduler.world.held
            assert stage.differences() == ()

    play(story)


def test_after_its_time_the_place_is_anybodys() -> None:
    async def story() -> None:
        stage = moving()
        async with stage.scheduling(is_quarantining=False, slot_seconds=30.0):
            await moved(stage)
            stage.pod("greedy", templates=("one",))
            await stage.pass_time(20)
            assert stage.node_of("greedy") == ""
            await stage.pass_time(20)
            assert stage.node_of("greedy") == "n-1"

    play(story)


def test_a_place_on_a_node_that_goes_is_given_up() -> None:
    async def story() -> None:
        stage = moving()
        async with stage.scheduling(is_quarantining=False):
            await moved(stage)
            stage.api.shelf.delete(registry.NODE, ("", "n-1"))
            await stage.pass_time(3)
            assert stage.scheduler is not None
            assert not [name for name in stage.scheduler.world.assumed if name.startswith("slot/")]

    play(story)


def test_bare_pods_keep_no_slot() -> None:
    owner = meta.OwnerReference(
        api_version="apps/v1", kind="ReplicaSet", name="r", uid="u", controller=True
    )
    alone = pods.Pod(metadata=meta.ObjectMeta(namespace="default", name="p"))
    owned = pods.Pod(
        metadata=meta.ObjectMeta(namespace="default", name="p", owner_references=(owner,))
    )
    gang = ("default", "gang/g")
    assert slot_reservations.replacement_key_of(alone, ("default", "pod/p")) is None
    kin = slot_reservations.replacement_key_of(owned, ("default", "pod/p"))
    assert kin is not None
    elsewhere = pods.Pod(
        metadata=meta.ObjectMeta(namespace="other", name="p", owner_references=(owner,))
    )
    assert slot_reservations.replacement_key_of(elsewhere, ("other", "pod/p")) not in (
        None,
        kin,
    )  # the same uid, named in another namespace
    assert slot_reservations.replacement_key_of(owned, gang) == gang
