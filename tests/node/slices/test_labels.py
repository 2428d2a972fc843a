"""Labels as GPU Feature Discovery writes them, and a writer that respects others."""

from __future__ import annotations

import msgspec
import pytest

from dovetail.boot import clocks
from dovetail.node import inventory
from dovetail.node.slices import feature_labels, label_writer
from dovetail.node.slices.feature_labels import LabelOptions, MigStrategy
from dovetail.ports import failures
from tests.node import build
from tests.node.slices import servers


def labels_of(node: inventory.Inventory, **choices: object) -> dict[str, str]:
    """Without their common prefix."""
    options = msgspec.convert(choices, LabelOptions)
    every = feature_labels.labels(node, options)
    return {name.removeprefix("nvidia.com/"): value for name, value in every.items()}


def test_a_node_of_whole_gpus() -> None:
    node = build.machine(gpus=8, pci_class=0x030200)
    assert labels_of(node, machine_type="DGX H100 (rev. 2)") == {
        "cuda.driver.major": "580",
        "cuda.driver.minor": "95",
        "cuda.driver.rev": "05",
        "cuda.runtime.major": "13",
        "cuda.runtime.minor": "0",
        "cuda.driver-version.major": "580",
        "cuda.driver-version.minor": "95",
        "cuda.driver-version.revision": "05",
        "cuda.driver-version.full": "580.95.05",
        "cuda.runtime-version.major": "13",
        "cuda.runtime-version.minor": "0",
        "cuda.runtime-version.full": "13.0",
        "gpu.machine": "DGX-H100-rev.-2",
        "gpu.mode": "compute",
        "mig.capable": "true",
        "mps.capable": "false",
        "vgpu.present": "false",
        "gpu.product": "NVIDIA-H100-80GB-HBM3",
        "gpu.count": "8",
        "gpu.replicas": "1",
        "gpu.sharing-strategy": "none",
        "gpu.memory": "81559",
        "gpu.family": "hopper",
        "gpu.compute.major": "9",
        "gpu.compute.minor": "0",
    }


def test_replicas_are_shared() -> None:
    labels = labels_of(build.machine(gpus=2), replicas=4, sharing_strategy="time-slicing")
    assert labels["gpu.product"] == "NVIDIA-H100-80GB-HBM3-SHARED"
    assert (labels["gpu.count"], labels["gpu.replicas"]) == ("2", "4")
    assert labels["gpu.sharing-strategy"] == "time-slicing"


@pytest.mark.parametrize(
    ("capability", "family"),
    [
        ("7.0", "volta"),
        ("7.5", "turing"),
        ("8.0", "ampere"),
        ("8.9", "ada-lovelace"),
        ("10.0", "blackwell"),
        ("12.0", "blackwell"),
        ("99.0", "undefined"),
    ],
)
def test_families_follow_the_compute_capability(capability: str, family: str) -> None:
    assert labels_of(build.machine(cuda_compute_capability=capability))["gpu.family"] == family


def test_mixed_mig_devices_are_counted_by_profile() -> None:
    gpu = build.with_mig_device(build.gpu(), "3g.40gb", 4, gi_id=1)
    gpu = build.with_mig_device(gpu, "1g.10gb+me", 0, gi_id=2)
    node = msgspec.structs.replace(build.machine(), gpus=(gpu,))
    labels = labels_of(node, mig_strategy=MigStrategy.MIXED)
    assert labels["mig.strategy"] == "mixed"
    assert labels["mig-3g.40gb.count"] == "1"
    assert labels["mig-3g.40gb.product"] == "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb"
    assert labels["mig-3g.40gb.memory"] == "40448"
    assert labels["mig-1g.10gb.me.count"] == "1"
    assert labels["mig-1g.10gb.me.engines.ofa"] == "1"
    assert labels["gpu.replicas"] == "0"


def test_a_single_kind_of_mig_device_takes_the_place_of_the_gpu() -> None:
    gpu = build.with_mig_device(build.gpu(), "3g.40gb", 0, gi_id=1)
    gpu = build.with_mig_device(gpu, "3g.40gb", 4, gi_id=2)
    node = msgspec.structs.replace(build.machine(), gpus=(gpu,))
    labels = labels_of(node, mig_strategy=MigStrategy.SINGLE)
    assert labels["gpu.product"] == "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb"
    assert (labels["gpu.count"], labels["gpu.slices.gi"]) == ("2", "3")


def test_a_single_kind_that_is_not_single_is_invalid() -> None:
    gpu = build.with_mig_device(build.gpu(), "3g.40gb", 0)
    node = msgspec.structs.replace(build.machine(), gpus=(gpu, build.gpu(minor=1)))
    labels = labels_of(node, mig_strategy=MigStrategy.SINGLE)
    assert labels["gpu.product"] == "NVIDIA-H100-80GB-HBM3-MIG-INVALID"
    assert labels["gpu.count"] == "0"


def test_a_clique_needs_agreement() -> None:
    fabric = inventory.Fabric(cluster_uuid="c0ffee", clique_id=7, is_completed=True)
    node = build.machine(gpus=2, fabric=fabric)
    assert labels_of(node)["gpu.clique"] == "c0ffee.7"
    other = msgspec.structs.replace(fabric, clique_id=8)
    odd = msgspec.structs.replace(node.gpus[1], fabric=other)
    torn = msgspec.structs.replace(node, gpus=(node.gpus[0], odd))
    assert "gpu.clique" not in labels_of(torn)


async def synced(writer: label_writer.LabelWriter) -> None:
    """Compares and writes; again where a controller has just changed the Node, as the agent's loop does."""
    while True:
        try:
            return await writer.sync()
        except failures.Conflict:
            continue


def test_a_node_without_gpus_has_no_labels() -> None:
    assert labels_of(build.machine(gpus=0)) == {}


def test_labels_of_others_stay_and_ours_come_and_go(place: servers.Place) -> None:
    async def story(node: servers.Node) -> None:
        await node.patch({"metadata": {"labels": {"nvidia.com/gpu.product": "theirs"}}})
        writer = label_writer.LabelWriter(node.api, node_name=node.name, clock=clocks.SystemClock())
        wanted = {"nvidia.com/gpu.product": "ours", "nvidia.com/gpu.count": "8"}
        writer.publish(wanted)
        await synced(writer)
        assert await gpu_labels(node) == {
            "nvidia.com/gpu.product": "theirs",
            "nvidia.com/gpu.count": "8",
        }
        seen = await node.read()
        assert (
            label_writer.change_of(
                seen["metadata"]["labels"], seen["metadata"]["annotations"], wanted
            )
            is None
        )  # so that the next comparison writes nothing

        # An agent that starts again knows what the last one wrote.
        again = label_writer.LabelWriter(node.api, node_name=node.name, clock=clocks.SystemClock())
        again.publish(wanted | {"nvidia.com/gpu.count": "7"})
        await synced(again)
        assert (await gpu_labels(node))["nvidia.com/gpu.count"] == "7"

        # Another writer takes a label over: it is theirs from then on.
        await node.patch({"metadata": {"labels": {"nvidia.com/gpu.count": "6"}}})
        await synced(again)
        assert (await gpu_labels(node))["nvidia.com/gpu.count"] == "6"
        again.publish({})
        await synced(again)
        assert (await gpu_labels(node))["nvidia.com/gpu.count"] == "6"

    servers.run(place, story)


def test_labels_that_are_no_longer_wanted_go(place: servers.Place) -> None:
    async def story(node: servers.Node) -> None:
        writer = label_writer.LabelWriter(node.api, node_name=node.name, clock=clocks.SystemClock())
        writer.publish(feature_labels.labels(build.machine(gpus=2), LabelOptions()))
        await synced(writer)
        assert (await gpu_labels(node))["nvidia.com/gpu.family"] == "hopper"
        writer.publish({})
        await synced(writer)
        assert await gpu_labels(node) == {}
        annotations = (await node.read())["metadata"].get("annotations") or {}
        assert label_writer.ANNOTATION not in annotations

    servers.run(place, story)


def test_an_annotation_made_unreadable_claims_nothing() -> None:
    annotations = {label_writer.ANNOTATION: "not json"}
    assert label_writer.change_of({"a": "1"}, annotations, {"a": "2"}) is None
    assert label_writer.change_of({"a": "1"}, annotations, {"a": "2", "b": "3"}) == {
        "labels": {"b": "3"},
        "annotations": {label_writer.ANNOTATION: '{"b":"3"}'},
    }


async def gpu_labels(node: servers.Node) -> dict[str, str]:
    """Of NVIDIA's domain."""
    labels = (await node.read())["metadata"].get("labels") or {}
    return {name: value for name, value in labels.items() if name.startswith("nvidia.com/")}
