"""What `stack parts` finds missing: one story per gap, and none where all is well."""

from __future__ import annotations

import itertools

import msgspec

from dovetail.answer.stack_parts.part_answer import State
from tests.answer.stack import fleets
from tests.answer.stack_parts import parts

NVIDIA_PLUGIN = {"app": "nvidia-device-plugin-daemonset"}
NVIDIA_DRA = {"app.kubernetes.io/name": "dra-driver-nvidia-gpu"}
NVIDIA_DRIVER = {"app": "nvidia-driver-daemonset"}
HEALTHY = (
    fleets.node("gpu-0", containerd="2.1.4"),
    parts.agents(),
    parts.agent("gpu-0"),
    parts.gpu_slice("gpu-0"),
    parts.device_class(),
)


def test_a_node_with_driver_agent_and_slice_lacks_nothing() -> None:
    report = parts.report(*HEALTHY, fleets.node("cpu-0", None))
    assert report.is_complete
    assert report.other_nodes == 1
    (node,) = report.nodes
    assert node.served_by == "dovetail"
    assert node.part("agent").seen == "dra"
    assert node.part("devices").seen == "8 GPUs"
    assert node.part("mps").seen == "by claim"


def test_a_node_that_nvidias_parts_serve_lacks_nothing() -> None:
    node = parts.counting(fleets.node("gpu-0"), gpu=8)
    plugin = parts.part_pod("gpu-0", NVIDIA_PLUGIN)
    assert parts.report(node, plugin).is_complete
    assert parts.only_node(node, plugin).served_by == "NVIDIA's device plugin"


def test_hardware_without_a_driver_is_one_gap_and_says_what_to_install() -> None:
    trees = (parts.unlabelled("gpu-0"), parts.agents(), parts.agent("gpu-0"), parts.device_class())
    (gap,) = parts.report(*trees).gaps
    assert gap.code == "no-driver"
    assert "install NVIDIA's driver" in gap.next
    assert parts.only_node(*trees).part("driver").state is State.MISSING


def test_a_driver_container_that_fails_is_quoted() -> None:
    driver = parts.part_pod("gpu-0", NVIDIA_DRIVER, problem="no headers for this kernel")
    (gap,) = parts.report(
        parts.unlabelled("gpu-0"),
        parts.agents(),
        parts.agent("gpu-0"),
        parts.device_class(),
        driver,
    ).gaps
    assert gap.code == "driver-not-ready"
    assert "no headers for this kernel" in gap.what


def test_the_operator_installs_nothing_without_feature_labels() -> None:
    node = fleets.node("gpu-0", driver="", cuda="")
    trees = (node, fleets.policy("26.7.0", "595.91.07"), *HEALTHY[1:3], parts.device_class())
    assert parts.codes(*trees) == ["no-feature-labels"]


def test_an_agent_that_crashes_is_named_with_its_last_words() -> None:
    trees = (*HEALTHY[:2], parts.agent("gpu-0", problem="no kubelet socket"), *HEALTHY[3:])
    (gap,) = parts.report(*trees).gaps
    assert gap.code == "agent-not-ready"
    assert "no kubelet socket" in gap.what
    assert gap.next == "kubectl -n dovetail-system logs agent-gpu-0"


def test_an_agent_that_a_taint_keeps_off_names_the_taint() -> None:
    node = parts.tainted(fleets.node("gpu-0"), "team")
    (gap,) = parts.report(node, parts.agents(tolerations=()), parts.device_class()).gaps
    assert gap.code == "agent-absent"
    assert "team" in gap.what
    assert gap.next == "add it to nodeAgent.tolerations"


def test_an_agent_without_a_slice_and_one_without_a_count() -> None:
    by_claims = (fleets.node("gpu-0"), parts.agents(), parts.agent("gpu-0"), parts.device_class())
    assert parts.codes(*by_claims) == ["no-slice"]
    by_counts = (fleets.node("gpu-0"), parts.agents(mode="device-plugin"), parts.agent("gpu-0"))
    assert parts.codes(*by_counts) == ["no-count"]


def test_slices_that_are_missing_or_show_too_few_gpus() -> None:
    incomplete = (*HEALTHY[:3], parts.gpu_slice("gpu-0", of=3), parts.device_class())
    assert parts.codes(*incomplete) == ["slice-incomplete"]
    fewer = (*HEALTHY[:3], parts.gpu_slice("gpu-0", gpus=7), parts.device_class())
    (gap,) = parts.report(*fewer).gaps
    assert gap.what == "8 GPUs by its labels, 7 in its slices"


def test_two_publishers_of_the_same_gpus_are_found() -> None:
    assert parts.codes(*HEALTHY, parts.part_pod("gpu-0", NVIDIA_DRA)) == ["two-drivers"]
    plugin = parts.part_pod("gpu-0", NVIDIA_PLUGIN)
    (gap,) = parts.report(*HEALTHY, plugin).gaps
    assert gap.code == "claims-and-counts"
    assert gap.next == (
        "kubectl label node gpu-0 nvidia.com/gpu.deploy.device-plugin=false --overwrite"
    )
    counted = parts.counting(fleets.node("gpu-0"), gpu=8)
    assert parts.codes(counted, *HEALTHY[1:]) == ["claims-and-counts"]


def test_two_daemon_sets_for_one_node() -> None:
    assert parts.codes(*HEALTHY, parts.agents("others", mode="device-plugin")) == ["two-agents"]


def test_a_node_that_no_part_serves() -> None:
    assert parts.codes(fleets.node("gpu-0")) == ["not-served"]
    elsewhere = parts.agents(pool="other")
    assert parts.codes(fleets.node("gpu-0"), elsewhere, parts.device_class()) == ["not-served"]


def test_a_node_that_is_too_old_for_claims() -> None:
    old_kubelet = fleets.node("gpu-0", kubelet="v1.33.4")
    assert parts.codes(old_kubelet, *HEALTHY[1:]) == ["kubelet-too-old"]
    old_runtime = fleets.node("gpu-0", containerd="1.6.36")
    assert parts.codes(old_runtime, *HEALTHY[1:]) == ["runtime-without-cdi"]


def test_claims_without_a_class_are_a_gap_of_the_cluster() -> None:
    (gap,) = parts.report(*HEALTHY[:-1]).gaps
    assert (gap.code, gap.nodes) == ("no-device-class", ())


def test_gaps_that_nodes_have_in_common_are_one() -> None:
    nodes = [fleets.node(f"gpu-{index}") for index in range(5)]
    agents = [parts.agent(f"gpu-{index}") for index in range(5)]
    (gap,) = parts.report(*nodes, *agents, parts.agents(), parts.device_class()).gaps
    assert gap.code == "no-slice"
    assert len(gap.nodes) == 5


def test_the_order_of_the_objects_does_not_matter() -> None:
    trees = (*HEALTHY[:4], fleets.node("gpu-1"), parts.agent("gpu-1", problem="x"))
    documents = {
        msgspec.json.encode(parts.report(*ordered)) for ordered in itertools.permutations(trees)
    }
    assert len(documents) == 1
