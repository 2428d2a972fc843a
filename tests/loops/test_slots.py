"""The place of a pod that was moved is kept for what comes after it, and for nobody else, for a time."""

from __future__ import annotations

from dovetail.loops import slots
from dovetail.model import claims, gangs, kinds, meta, pods
from tests.loops.stage import Stage, play
from tests.loops.test_yielding import Script

MOVED = claims.AllocationResult(
    devices=claims.DeviceAllocationResult(
        results=(
            claims.DeviceRequestAllocationResult(request="gpu", driver="gpu.nvidia.com", pool="n-1", device="gpu-0"),
        )
    )
)
HOST = "kubernetes.io/hostname"


def moving() -> tuple[Stage, Script]:
    """Two nodes of one GPU; a pod on the first is to move to the second, so that another can start there."""
    stage = Stage(nodes=2, gpus=1)
    stage.queue("everybody")
    stage.template("one")
    stage.pod("old", templates=("one",), labels={gangs.GANG_LABEL: "g"}, nodeSelector={HOST: "n-0"})
    return stage, Script(stage, victims=("old",), moves_to="n-1", keeps=(MOVED,))


async def moved(stage: Stage) -> None:
    await stage.pass_time(3)
    stage.pod("new", templates=("one",), nodeSelector={HOST: "n-0"})
    await stage.pass_time(3)
    assert stage.the_pod("old").metadata.deletion_timestamp
    await stage.delete("old", grace_seconds=0)
    await stage.pass_time(3)
    assert stage.node_of("new") == "n-0"


def test_nobody_else_takes_the_place_and_the_next_of_the_gang_does() -> None:
    async def story() -> None:
        stage, script = moving()
        async with stage.scheduling(decide=script, is_quarantining=False):
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
        stage, script = moving()
        async with stage.scheduling(decide=script, is_quarantining=False, slot_seconds=30.0):
            await moved(stage)
            stage.pod("greedy", templates=("one",))
            await stage.pass_time(20)
            assert stage.node_of("greedy") == ""
            await stage.pass_time(20)
            assert stage.node_of("greedy") == "n-1"

    play(story)


def test_a_place_on_a_node_that_goes_is_given_up() -> None:
    async def story() -> None:
        stage, script = moving()
        async with stage.scheduling(decide=script, is_quarantining=False):
            await moved(stage)
            stage.api.shelf.delete(kinds.NODE, ("", "n-1"))
            await stage.pass_time(3)
            assert stage.scheduler is not None
            assert not [name for name in stage.scheduler.world.assumed if name.startswith("slot/")]

    play(story)


def test_pods_that_nothing_makes_anew_keep_no_place() -> None:
    owner = meta.OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="r", uid="u", controller=True)
    alone = pods.Pod(metadata=meta.ObjectMeta(namespace="default", name="p"))
    owned = pods.Pod(metadata=meta.ObjectMeta(namespace="default", name="p", owner_references=(owner,)))
    gang = ("default", "gang/g")
    assert slots.kin_of(alone, ("default", "pod/p")) is None
    kin = slots.kin_of(owned, ("default", "pod/p"))
    assert kin is not None
    elsewhere = pods.Pod(metadata=meta.ObjectMeta(namespace="other", name="p", owner_references=(owner,)))
    assert slots.kin_of(elsewhere, ("other", "pod/p")) not in (None, kin)  # the same uid, named in another namespace
    assert slots.kin_of(owned, gang) == gang
