"""No node offers the GPUs a pod asks for: the first broken link, MIG, and names that differ."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.answer.why.cause_codes import CauseClass, CauseCode
from dovetail.answer.why.evidence.gpu_platform import mig_offers
from tests.answer.evidence import objects
from tests.answer.evidence.objects import GPU, GPU_NODE, Tree

POD = objects.pod(resources={GPU: "1"})
HEALTHY = (objects.component(objects.DRIVER), objects.component(objects.TOOLKIT))


def gpu_node(name: str = "gpu-1", **fields: Any) -> Tree:
    labels = GPU_NODE | fields.pop("labels", {})
    return objects.node(name, labels=labels, **fields)


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ((objects.node("cpu-1"),), "no node is labelled by node-feature-discovery"),
        (
            (
                objects.node("cpu-1"),
                objects.component(
                    {"app.kubernetes.io/name": "node-feature-discovery"}, problem="CrashLoopBackOff"
                ),
            ),
            "node-feature-discovery does not work (CrashLoopBackOff, 12 restarts",
        ),
        (
            (objects.node("cpu-1", labels={"feature.node.kubernetes.io/cpu-model.id": "1"}),),
            "node-feature-discovery sees no NVIDIA GPU on any node",
        ),
        (
            (
                gpu_node(),
                objects.component(
                    objects.DRIVER, problem="CrashLoopBackOff", message="driver is in use"
                ),
                objects.component(objects.PLUGIN, problem="Init:0/1"),
            ),
            "the driver does not run (CrashLoopBackOff, 12 restarts: driver is in use) on node gpu-1",
        ),
        (
            (gpu_node(labels={"nvidia.com/gpu.deploy.driver": "true"}),),
            "no pod of the driver is seen on node gpu-1",
        ),
        (
            (gpu_node(labels={"nvidia.com/gpu-driver-upgrade-state": "upgrade-failed"}),),
            "the driver upgrade is at upgrade-failed on node gpu-1",
        ),
        (
            (
                gpu_node(),
                objects.component(objects.DRIVER),
                objects.component(objects.TOOLKIT, problem="ImagePullBackOff"),
            ),
            "the container toolkit does not run (ImagePullBackOff",
        ),
        ((gpu_node(), *HEALTHY), "no pod of the device plugin runs on node gpu-1"),
        (
            (
                gpu_node(
                    labels={"nvidia.com/gpu.deploy.device-plugin": "paused-for-driver-upgrade"}
                ),
                *HEALTHY,
            ),
            "the device plugin is paused-for-driver-upgrade on node gpu-1",
        ),
        (
            (gpu_node(), *HEALTHY, objects.component(objects.PLUGIN, problem="CrashLoopBackOff")),
            "the device plugin does not run (CrashLoopBackOff",
        ),
        (
            (gpu_node(), *HEALTHY, objects.component(objects.PLUGIN)),
            "the device plugin runs and registers no GPU on node gpu-1",
        ),
        (
            (
                gpu_node(offers={GPU: "0"}, capacity={GPU: "8"}),
                *HEALTHY,
                objects.component(objects.PLUGIN),
            ),
            "all 8 GPUs are unhealthy by the device plugin on node gpu-1",
        ),
        (
            (
                gpu_node(
                    offers={GPU: "0"},
                    capacity={GPU: "8"},
                    conditions=[objects.condition("GpusHealthy", "False", "Xid", "gpu-0: XID 79")],
                ),
                *HEALTHY,
                objects.component(objects.PLUGIN),
            ),
            "GPUs are unhealthy (GpusHealthy) on node gpu-1",
        ),
        (
            (
                gpu_node(
                    conditions=[objects.condition("XidError", "True", "Xid79", "fell off the bus")]
                ),
                *HEALTHY,
                objects.component(objects.PLUGIN),
            ),
            "GPUs are unhealthy (XidError) on node gpu-1",
        ),
    ],
)
def test_the_first_broken_link_is_named(others: tuple[Tree, ...], words: str) -> None:
    answer = objects.seen(POD, *others)
    assert answer.cause.code is CauseCode.NOT_ADVERTISED
    assert answer.cause.class_ is CauseClass.PLATFORM
    assert words in answer.cause.sentence
    assert answer.overrides


def test_nodes_that_share_a_broken_link_are_counted() -> None:
    nodes = [gpu_node(f"gpu-{number}") for number in range(1, 6)]
    broken = [
        objects.component(objects.DRIVER, on=f"gpu-{number}", problem="CrashLoopBackOff")
        for number in range(1, 6)
    ]
    answer = objects.seen(POD, *nodes, *broken)
    assert "on nodes gpu-1, gpu-2, gpu-3 and 2 more" in answer.cause.sentence
    assert len(answer.evidence) == 3


def test_where_some_node_offers_gpus_the_engine_decides_and_broken_nodes_complement() -> None:
    good = gpu_node("gpu-2", offers={GPU: "8"})
    answer = objects.seen(POD, good, gpu_node(), *HEALTHY)
    assert answer.cause.code is CauseCode.NOT_ADVERTISED
    assert not answer.overrides
    assert "1 GPU node without nvidia.com/gpu" in answer.cause.sentence
    assert objects.observe(POD, good) is None


def test_a_name_that_the_device_plugin_never_uses_is_left_to_the_engine() -> None:
    assert objects.observe(objects.pod(resources={"nvidia.com/gpus": "1"}), gpu_node()) is None
    assert objects.observe(objects.pod(resources={"amd.com/gpu": "1"}), gpu_node()) is None
    assert objects.observe(objects.pod(), gpu_node()) is None


def test_shares_are_offered_under_another_name() -> None:
    pod = objects.pod(resources={"nvidia.com/gpu.shared": "1"})
    answer = objects.seen(pod, gpu_node(offers={GPU: "32"}))
    assert answer.cause.code is CauseCode.RESOURCE_UNKNOWN
    assert answer.cause.class_ is CauseClass.CONFIG
    assert "ask for nvidia.com/gpu" in answer.cause.sentence


# Claims


def device_class(**spec: Any) -> Tree:
    expression = (
        'device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "gpu"'
    )
    body = {"selectors": [{"cel": {"expression": expression}}], **spec}
    return objects.named(
        "resource.k8s.io/v1", "DeviceClass", "gpu.nvidia.com", namespace="", spec=body
    )


def slice_of(node: str, driver: str = "gpu.nvidia.com") -> Tree:
    return objects.named(
        "resource.k8s.io/v1",
        "ResourceSlice",
        f"{node}-slice",
        namespace="",
        spec={
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}],
        },
    )


CLAIM = objects.named(
    "resource.k8s.io/v1",
    "ResourceClaim",
    "one",
    spec={
        "devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}
    },
)
CLAIMING = objects.pod(resourceClaims=[{"name": "gpu", "resourceClaimName": "one"}])


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ((gpu_node(), *HEALTHY), "no pod of the DRA driver runs on node gpu-1"),
        (
            (gpu_node(), *HEALTHY, objects.component(objects.DRA, problem="CrashLoopBackOff")),
            "the DRA driver does not run (CrashLoopBackOff",
        ),
        (
            (gpu_node(), objects.component(objects.DRIVER, problem="CrashLoopBackOff")),
            "the driver does not run (CrashLoopBackOff",
        ),
        ((objects.node("cpu-1"),), "no node has an NVIDIA GPU by its labels"),
        (
            (gpu_node(offers={GPU: "8"}), *HEALTHY),
            "offer nvidia.com/gpu by a device plugin instead",
        ),
    ],
)
def test_no_driver_publishes_the_devices_of_a_claim(others: tuple[Tree, ...], words: str) -> None:
    answer = objects.seen(CLAIMING, CLAIM, device_class(), *others)
    assert answer.cause.code is CauseCode.NO_DEVICES
    assert words in answer.cause.sentence
    assert answer.overrides


def test_published_devices_are_the_engines_to_judge() -> None:
    assert objects.observe(CLAIMING, CLAIM, device_class(), gpu_node(), slice_of("gpu-1")) is None


def test_a_resource_that_a_device_class_stands_behind() -> None:
    backed = device_class(extendedResourceName=GPU)
    assert objects.observe(POD, backed, gpu_node(), slice_of("gpu-1")) is None
    answer = objects.seen(POD, backed, gpu_node(), *HEALTHY)
    assert answer.cause.code is CauseCode.NO_DEVICES
    assert "no pod of the DRA driver runs" in answer.cause.sentence


def test_gpus_that_are_offered_through_claims_only() -> None:
    agent = objects.component(objects.DRA)
    answer = objects.seen(POD, device_class(), gpu_node(), slice_of("gpu-1"), *HEALTHY, agent)
    assert answer.cause.code is CauseCode.NOT_ADVERTISED
    assert "through claims only" in answer.cause.sentence
    profile = objects.pod(resources={"nvidia.com/mig-1g.10gb": "1"})
    board = gpu_node(labels={"nvidia.com/gpu.product": H100})
    answer = objects.seen(profile, device_class(), board, slice_of("gpu-1"), agent)
    assert "through claims only" in answer.cause.sentence


def test_a_label_that_no_program_writes() -> None:
    pod = objects.pod(nodeSelector={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"})
    answer = objects.seen(pod, gpu_node(offers={GPU: "8"}))
    assert answer.cause.code is CauseCode.NODE_LABELS
    assert answer.cause.class_ is CauseClass.PLATFORM
    assert not answer.overrides
    running = objects.component({"app": "gpu-feature-discovery"})
    assert objects.observe(pod, gpu_node(offers={GPU: "8"}), running) is None


# MIG

H100 = "NVIDIA-H100-80GB-HBM3"


def mig_node(name: str = "gpu-1", **fields: Any) -> Tree:
    labels = {"nvidia.com/gpu.product": H100, "nvidia.com/mig.strategy": "mixed"}
    return gpu_node(name, labels=labels | fields.pop("labels", {}), **fields)


def mig_pod(profile: str) -> Tree:
    return objects.pod(resources={f"nvidia.com/mig-{profile}": "1"})


@pytest.mark.parametrize("state", ["failed", "pending", "rebooting"])
def test_a_mig_configuration_that_is_not_in_force(state: str) -> None:
    labels = {"nvidia.com/mig.config": "all-1g.10gb", "nvidia.com/mig.config.state": state}
    answer = objects.seen(mig_pod("1g.10gb"), mig_node(labels=labels))
    assert answer.cause.code is CauseCode.MIG_STATE
    assert f"MIG configuration all-1g.10gb is {state} on node gpu-1" in answer.cause.sentence
    assert answer.overrides

    labels["nvidia.com/mig.config.state"] = "success"
    done = mig_node(labels=labels, offers={"nvidia.com/mig-1g.10gb": "7"})
    assert objects.observe(mig_pod("1g.10gb"), done) is None


def test_a_failed_configuration_beside_a_node_that_offers_the_profile_complements() -> None:
    labels = {"nvidia.com/mig.config": "all-1g.10gb", "nvidia.com/mig.config.state": "failed"}
    good = mig_node("gpu-2", offers={"nvidia.com/mig-1g.10gb": "7"})
    answer = objects.seen(mig_pod("1g.10gb"), mig_node(labels=labels), good)
    assert answer.cause.code is CauseCode.MIG_STATE
    assert not answer.overrides


def test_the_single_strategy_calls_a_profile_a_gpu() -> None:
    labels = {"nvidia.com/gpu.product": f"{H100}-MIG-1g.10gb", "nvidia.com/mig.strategy": "single"}
    answer = objects.seen(mig_pod("1g.10gb"), mig_node(labels=labels, offers={GPU: "7"}))
    assert answer.cause.code is CauseCode.MIG_PROFILE
    assert "ask for nvidia.com/gpu with node label" in answer.cause.sentence


def test_a_profile_that_is_legal_and_not_configured() -> None:
    answer = objects.seen(mig_pod("3g.40gb"), mig_node(offers={"nvidia.com/mig-1g.10gb": "7"}))
    assert answer.cause.code is CauseCode.MIG_PROFILE
    assert "can be cut that way" in answer.cause.sentence
    assert "they offer 1g.10gb" in answer.cause.sentence


def test_a_profile_that_no_board_here_has_and_the_nearest() -> None:
    offers = {"nvidia.com/mig-1g.10gb": "4", "nvidia.com/mig-3g.40gb": "1"}
    answer = objects.seen(mig_pod("1g.5gb"), mig_node(offers=offers))
    assert answer.cause.code is CauseCode.MIG_PROFILE
    assert "the nearest that is offered: 1g.10gb" in answer.cause.sentence


def test_whole_gpus_where_every_gpu_is_partitioned() -> None:
    offers = {GPU: "0", "nvidia.com/mig-1g.10gb": "7"}
    answer = objects.seen(POD, mig_node(offers=offers))
    assert answer.cause.code is CauseCode.MIG_PROFILE
    assert "partitioned by MIG" in answer.cause.sentence
    whole = gpu_node("gpu-2", offers={GPU: "8"})
    assert objects.observe(POD, mig_node(offers=offers), whole) is None


@pytest.mark.parametrize(
    ("wanted", "offered", "nearest"),
    [
        ("1g.5gb", ["1g.10gb", "3g.40gb"], "1g.10gb"),
        ("2g.10gb", ["1g.10gb", "2g.20gb", "7g.80gb"], "2g.20gb"),
        ("7g.80gb", ["1g.10gb", "3g.40gb"], "3g.40gb"),
        ("nonsense", ["3g.40gb", "1g.10gb"], "1g.10gb"),
        ("1g.5gb", ["nonsense"], None),
    ],
)
def test_the_nearest_profile(wanted: str, offered: list[str], nearest: str | None) -> None:
    assert mig_offers.nearest_profile(wanted, offered) == nearest
