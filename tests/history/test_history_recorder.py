"""The recorder as a story: events in, records out. Times are small numbers; the World is real."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.history import history_recorder, intervals
from dovetail.history.history_recorder import Recorder, Times
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.model.accounting.records import (
    MICRO_GPU,
    Allocation,
    Asset,
    Form,
    Gap,
    GapSource,
    Records,
    Waiting,
)
from dovetail.world.events import Changed, Deleted
from dovetail.world.world import World
from tests.world import build

CLAIM_OF_POD = ({"name": "gpu", "resourceClaimName": "c"},)


class Story:
    """A World, its recorder, and everything recorded so far, by key as a store keeps it."""

    def __init__(self, *objects: Any, now: int = 100, opened: Records | None = None) -> None:
        self.world = World()
        self.recorder = Recorder(self.world)
        self.kept: dict[tuple[object, ...], Any] = {}
        self.others: list[Any] = []
        for each in objects:
            self.world.apply(Changed(each))
            self.recorder.prime(Changed(each))
        if opened is None:
            self.keep(self.recorder.resume(Records(), watched_until=None, now=now))

    def resume(self, opened: Records, *, watched_until: int, now: int) -> Story:
        for each in intervals.all_of(opened):
            self.kept[key_of(each)] = each
        self.keep(self.recorder.resume(opened, watched_until=watched_until, now=now))
        return self

    def put(self, object_: Any, at: int) -> Records:
        self.world.apply(Changed(object_))
        records = self.recorder.observe(Changed(object_), times=Times(at, at))
        self.keep(records)
        return records

    def drop(self, object_: Any, at: int) -> Records:
        self.world.apply(Deleted(object_))
        records = self.recorder.observe(Deleted(object_), times=Times(at, at))
        self.keep(records)
        return records

    def keep(self, records: Records) -> None:
        for each in intervals.all_of(records):
            before = self.kept.get(key_of(each))
            assert before is None or before.end is None, f"{each} ends twice: {before}"
            assert before is not None or each.end is None, f"{each} ends and never began"
            self.kept[key_of(each)] = each
        self.others += [*records.decisions, *records.gaps]

    def of(self, kind: type) -> list[Any]:
        return [each for each in self.kept.values() if isinstance(each, kind)]

    @property
    def allocations(self) -> list[Allocation]:
        return self.of(Allocation)

    def spans(self, kind: type = Allocation) -> list[tuple[int, int | None]]:
        return [(each.start, each.end) for each in self.of(kind)]


def key_of(record: Any) -> tuple[object, ...]:
    return type(record), intervals.id_of(record), record.start


def reserved(claim: claims.ResourceClaim, *names: str) -> claims.ResourceClaim:
    users = tuple(
        claims.ResourceClaimConsumerReference(resource="pods", name=name, uid=f"pod-{name}")
        for name in names
    )
    return build.replaced(claim, status=build.replaced(claim.status, reserved_for=users))


def held(*names: str, devices: tuple[tuple[str, str], ...] = (("n", "gpu-0"),)) -> Any:
    return reserved(build.claim("c", devices=devices), *names)


def running(name: str = "p", **more: Any) -> pods.Pod:
    return build.pod(name, **{"node_name": "n", "phase": "Running", "claims": CLAIM_OF_POD, **more})


def test_gpus_of_a_node_are_assets_while_they_are_published() -> None:
    story = Story(build.node("n"), build.gpu_slice("n", gpus=2))
    assets = story.of(Asset)
    assert [(asset.asset, asset.node, asset.start) for asset in assets] == [
        ("GPU-n-0", "n", 100),
        ("GPU-n-1", "n", 100),
    ]
    assert {asset.memory_bytes for asset in assets} == {80 << 30}
    story.drop(build.gpu_slice("n", gpus=2), 300)
    assert story.spans(Asset) == [(100, 300), (100, 300)]


def test_a_pool_that_is_being_written_changes_nothing() -> None:
    story = Story(build.node("n"), build.gpu_slice("n", gpus=2))
    half = build.gpu_slice("n", gpus=1, generation=2)
    pool = build.replaced(half.spec.pool, resource_slice_count=2)
    assert (
        story.put(build.replaced(half, spec=build.replaced(half.spec, pool=pool)), 200) == Records()
    )
    assert story.spans(Asset) == [(100, None), (100, None)]


def test_a_pod_holds_a_gpu_from_its_claim_to_its_end() -> None:
    story = Story(build.node("n"), build.gpu_slice("n"))
    story.put(build.claim("c"), 150)
    story.put(build.pod("p", claims=CLAIM_OF_POD), 160)
    story.put(held("p"), 200)
    story.put(running(), 210)
    story.put(running(phase="Succeeded"), 500)
    mine = [each for each in story.allocations if each.owner.pod == "p"]
    [allocation] = mine
    assert (allocation.asset, allocation.micro_gpu, allocation.form) == (
        "GPU-n-0",
        MICRO_GPU,
        Form.WHOLE,
    )
    assert (allocation.start, allocation.end) == (200, 500)
    # After it the claim itself holds the GPU, until it is deallocated.
    story.put(build.claim("c"), 600)
    assert sorted(story.spans()) == [(200, 500), (500, 600)]


def test_a_shared_claim_is_split_and_adds_up_at_every_time() -> None:
    story = Story(build.node("n"), build.gpu_slice("n"), held("a", "b"), running("a"))
    assert [each.micro_gpu for each in story.allocations] == [MICRO_GPU]
    story.put(running("b"), 200)
    story.put(running("a", phase="Failed"), 300)
    for at, parts in ((150, [MICRO_GPU]), (250, [MICRO_GPU // 2] * 2), (350, [MICRO_GPU])):
        assert [each.micro_gpu for each in story.allocations if is_at(each, at)] == parts


def is_at(record: Any, at: int) -> bool:
    return bool(record.start <= at and (record.end is None or at < record.end))


def test_administrative_access_holds_nothing() -> None:
    claim = held("p")
    [result] = claim.status.allocation.devices.results
    devices = build.replaced(
        claim.status.allocation.devices, results=(build.replaced(result, admin_access=True),)
    )
    allocation = build.replaced(claim.status.allocation, devices=devices)
    claim = build.replaced(claim, status=build.replaced(claim.status, allocation=allocation))
    story = Story(build.node("n"), build.gpu_slice("n"), claim, running())
    assert story.allocations == []


def mig_slices() -> list[Any]:
    """One GPU with a whole device and two halves that draw on the same counters."""
    counters = [{"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}]
    devices = [
        {
            "name": "gpu-0",
            "attributes": {"uuid": {"string": "GPU-n-0"}, "productName": {"string": "NVIDIA H100"}},
            "capacity": {"memory": {"value": "80Gi"}},
            "consumesCounters": [
                {"counterSet": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}
            ],
        },
        *(
            {
                "name": f"half-{place}",
                "attributes": {
                    "parentUUID": {"string": "GPU-n-0"},
                    "profile": {"string": "3g.40gb"},
                },
                "capacity": {"memory": {"value": "40Gi"}},
                "consumesCounters": [
                    {"counterSet": "gpu-0", "counters": {"memory": {"value": "40Gi"}}}
                ],
            }
            for place in range(2)
        ),
    ]
    return build.slices_of("n", {"sharedCounters": counters}, {"devices": devices})


def test_a_mig_slice_is_a_part_of_its_gpu() -> None:
    story = Story(build.node("n"), *mig_slices(), held("p", devices=(("n", "half-1"),)), running())
    [asset] = story.of(Asset)
    assert (asset.asset, asset.product, asset.memory_bytes) == ("GPU-n-0", "NVIDIA H100", 80 << 30)
    [allocation] = story.allocations
    assert (allocation.asset, allocation.micro_gpu, allocation.form, allocation.profile) == (
        "GPU-n-0",
        MICRO_GPU // 2,
        Form.MIG,
        "3g.40gb",
    )


@pytest.mark.parametrize(
    ("resource", "labels", "micro_gpu", "form", "assets"),
    [
        ("nvidia.com/gpu", {}, 2 * MICRO_GPU, Form.COUNTED, 8),
        ("nvidia.com/gpu", {"nvidia.com/gpu.replicas": "4"}, MICRO_GPU // 2, Form.REPLICA, 2),
        (
            "nvidia.com/gpu.shared",
            {"nvidia.com/gpu.replicas": "4"},
            MICRO_GPU // 2,
            Form.REPLICA,
            2,
        ),
        ("nvidia.com/mig-3g.40gb", {"nvidia.com/gpu.memory": "81920"}, MICRO_GPU, Form.MIG, 4),
    ],
)
def test_counted_gpus_are_held_by_the_pods_that_request_them(
    resource: str, labels: dict[str, str], micro_gpu: int, form: Form, assets: int
) -> None:
    node = build.node("n", labels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", **labels})
    amounts = {**node.status.allocatable, **quantities({resource: "8"})}
    node = build.replaced(
        node, status=build.replaced(node.status, allocatable=amounts, capacity=amounts)
    )
    pod = running(claims=(), resources={resource: "2"})
    story = Story(node, pod)
    [asset] = story.of(Asset)
    assert (asset.asset, asset.count) == (f"n/{resource}", assets)
    assert asset.product == "NVIDIA-H100-80GB-HBM3"
    [allocation] = story.allocations
    assert (allocation.asset, allocation.micro_gpu, allocation.form) == (
        f"n/{resource}",
        micro_gpu,
        form,
    )
    story.drop(pod, 400)
    assert story.spans() == [(100, 400)]


def quantities(amounts: dict[str, str]) -> dict[str, Any]:
    tree = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "x"},
        "status": {"allocatable": amounts},
    }
    return dict(build.struct(tree).status.allocatable)


def test_a_pod_waits_until_it_is_bound_and_the_start_is_a_decision() -> None:
    node = build.node("n")
    amounts = {**node.status.allocatable, **quantities({"nvidia.com/gpu": "8"})}
    node = build.replaced(node, status=build.replaced(node.status, allocatable=amounts))
    story = Story(node)
    story.put(build.pod("p", resources={"nvidia.com/gpu": "2"}), 200)
    story.put(build.pod("p", resources={"nvidia.com/gpu": "2"}, node_name="n"), 300)
    [waiting] = story.of(Waiting)
    assert (waiting.micro_gpu, waiting.start, waiting.end) == (2 * MICRO_GPU, 200, 300)
    [decision] = story.others
    assert (decision.kind, decision.at, decision.node) == ("started", 300, "n")


def test_pods_without_gpus_leave_no_trace() -> None:
    story = Story(build.node("n"))
    story.put(build.pod("p"), 200)
    story.put(build.pod("p", node_name="n", phase="Running"), 300)
    assert (story.kept, story.others) == ({}, [])


def test_a_price_survives_the_restart_of_its_driver() -> None:
    story = Story(build.node("n"), *mig_slices(), held("p", devices=(("n", "half-1"),)), running())
    for slice_ in mig_slices():
        story.drop(slice_, 200)
    story.put(running(), 250)
    for slice_ in mig_slices():
        story.put(slice_, 300)
    [allocation] = story.allocations
    assert (allocation.micro_gpu, allocation.end) == (MICRO_GPU // 2, None)


def test_a_guess_is_corrected_when_the_device_is_published() -> None:
    story = Story(build.node("n"), held("p", devices=(("n", "half-1"),)), running())
    assert [each.micro_gpu for each in story.allocations] == [MICRO_GPU]
    for slice_ in mig_slices():
        story.put(slice_, 200)
    assert [(each.micro_gpu, each.start, each.end) for each in story.allocations] == [
        (MICRO_GPU, 100, 200),
        (MICRO_GPU // 2, 200, None),
    ]


# After a restart

NODE = build.node("n")
SLICE = build.gpu_slice("n", gpus=1)


def opened_at_100() -> Records:
    story = Story(NODE, SLICE, held("p"), running())
    return Records(assets=tuple(story.of(Asset)), allocations=tuple(story.allocations))


def test_what_is_still_there_goes_on_and_the_time_between_is_a_gap() -> None:
    story = Story(NODE, SLICE, held("p"), running(), opened=Records())
    story.resume(opened_at_100(), watched_until=150, now=400)
    assert (story.spans(), story.spans(Asset)) == ([(100, None)], [(100, None)])
    assert story.others == [Gap(GapSource.API, 150, 400, history_recorder.AWAY)]


def test_what_ended_unseen_ends_at_the_last_time_it_was_known() -> None:
    story = Story(NODE, SLICE, build.claim("c"), opened=Records())
    story.resume(opened_at_100(), watched_until=150, now=400)
    assert story.spans() == [(100, 150)]


def test_what_began_unseen_begins_when_its_objects_say_within_the_gap() -> None:
    opened = msgspec.structs.replace(opened_at_100(), allocations=())
    for stated, start in (
        ("1970-01-01T00:00:00.300Z", 300),
        ("1970-01-01T00:00:09Z", 400),
        (None, 400),
    ):
        claim = held("p")
        allocation = build.replaced(claim.status.allocation, allocation_timestamp=stated)
        claim = build.replaced(claim, status=build.replaced(claim.status, allocation=allocation))
        story = Story(NODE, SLICE, claim, running(), opened=Records())
        story.resume(opened, watched_until=150, now=400)
        assert story.spans() == [(start, None)]
        assert [each.kind for each in story.others if not isinstance(each, Gap)] == ["started"]


def test_a_restart_without_a_pause_changes_nothing() -> None:
    story = Story(NODE, SLICE, held("p"), running(), opened=Records())
    assert story.recorder.resume(opened_at_100(), watched_until=400, now=400) == Records()
