"""What an inventory knows of nodes and work, from where, and what it says of the rest."""

from __future__ import annotations

from typing import Any

from dovetail.answer.stack.node_stack import NodeStack
from tests.answer.stack import fleets

SLICE: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "h100-0-slice"},
    "spec": {
        "driver": "gpu.nvidia.com",
        "nodeName": "h100-0",
        "pool": {"name": "h100-0", "generation": 1, "resourceSliceCount": 1},
        "devices": [
            {
                "name": "gpu-0",
                "attributes": {
                    "type": {"string": "gpu"},
                    "productName": {"string": "NVIDIA H100 80GB HBM3"},
                    "architecture": {"string": "Hopper"},
                    "brand": {"string": "Nvidia"},
                    "driverVersion": {"version": "580.95.5"},
                    "cudaDriverVersion": {"version": "13.0.0"},
                },
            }
        ],
    },
}


def _node(*trees: dict[str, Any]) -> NodeStack:
    return fleets.inventory(*trees).nodes[0]


def test_three_drivers_are_kept_apart() -> None:
    stack = _node(
        fleets.node("h100-0", driver="570.211.01"),
        fleets.policy("25.10.1", "580.95.05"),
        fleets.daemon_set("nvidia-driver-daemonset", "test/driver:575.57.08-ubuntu24.04"),
    )
    drivers = (stack.driver_loaded, stack.driver_desired, stack.driver_template)
    assert [str(each) for each in drivers] == ["570.211.01", "580.95.05", "575.57.08"]
    assert stack.driver_template.source == (
        "template of DaemonSet gpu-operator/nvidia-driver-daemonset"
    )


def test_a_label_spells_the_zeros_that_a_slice_cannot() -> None:
    stack = _node(fleets.node("h100-0", driver="580.95.05"), SLICE)
    assert (stack.driver_loaded.value, stack.driver_loaded.differs) == ("580.95.05", "")
    assert (stack.cuda.value, stack.brand.value, stack.gpus) == ("13.0", "nvidia", 1)


def test_a_stale_label_is_reported_and_the_slice_counts() -> None:
    stack = _node(fleets.node("h100-0", driver="570.211.01"), SLICE)
    assert stack.driver_loaded.value == "580.95.5"
    assert "says 570.211.01: it is stale" in stack.driver_loaded.differs


def test_every_unknown_is_named_and_nothing_is_blank() -> None:
    inventory = fleets.inventory(
        fleets.node("h100-0", driver="", cuda=""), fleets.pod("a", "test/own:latest", "h100-0")
    )
    facts = inventory.nodes[0].facts()
    assert [name for name, fact in facts.items() if bool(fact.value) == bool(fact.unknown)] == []
    named = {(each.fact, each.of) for each in inventory.unknown}
    assert {("driver loaded", "nodes"), ("cuda", "nodes"), ("toolkit", "nodes")} <= named
    assert ("cuda", "workloads") in named
    assert all(each.why for each in inventory.unknown)


def test_a_node_without_gpus_has_none_rather_than_unknown_ones() -> None:
    stack = _node(fleets.node("cpu-0", None))
    assert (stack.gpu.value, stack.driver_loaded.value, stack.has_gpu) == ("none", "none", False)
    assert stack.runtime.value == "containerd://1.7.28"


def test_a_driver_object_counts_for_the_nodes_it_selects() -> None:
    objects = [
        {
            "apiVersion": "nvidia.com/v1alpha1",
            "kind": "NVIDIADriver",
            "metadata": {"name": name},
            "spec": {"version": version, "nodeSelector": {"dovetail.dev/pool": name}},
        }
        for name, version in (("h100", "595.91.07"), ("v100", "580.178.04"))
    ]
    nodes = fleets.inventory(
        fleets.node("h100-0"), fleets.node("v100-0", fleets.V100), *objects
    ).nodes
    assert [str(each.driver_desired) for each in nodes] == ["595.91.07", "580.178.04"]
    assert nodes[1].driver_desired.source == "NVIDIADriver v100"


def test_a_pre_installed_driver_is_not_desired_by_anyone() -> None:
    labels = {"nvidia.com/gpu.deploy.driver": "pre-installed"}
    stack = _node(fleets.node("h100-0", **labels), fleets.policy("25.10.1", "580.95.05"))
    assert (str(stack.driver_desired), str(stack.driver_template)) == ("none", "none")


def test_the_cuda_of_an_image_and_how_it_is_known() -> None:
    require = {"NVIDIA_REQUIRE_CUDA": "cuda>=13.2 brand=tesla,driver>=570,driver<571"}
    work = fleets.inventory(
        fleets.node("h100-0"),
        fleets.pod("a", "test/x:1", "h100-0", annotations={"dovetail.dev/cuda": "12.4"}),
        fleets.pod("b", "test/x:1", "h100-0", env={"CUDA_VERSION": "12.6.3"}),
        fleets.pod("c", "test/x:1", "h100-0", env=require),
        fleets.pod("d", "test/vllm:v0.29.0-cu129", "h100-0"),
        fleets.pod("e", "test/nvidia/pytorch:25.12-py3", "h100-0"),
        fleets.pod("f", "test/nvidia/trtllm:25.12", "h100-0"),
    ).workloads
    known = {each.name: (str(each.need.cuda), each.need.cuda.source) for each in work}
    assert known == {
        "a": ("12.4", "annotation dovetail.dev/cuda"),
        "b": ("12.6.3", "environment CUDA_VERSION"),
        "c": ("13.2", "environment NVIDIA_REQUIRE_CUDA"),
        "d": ("12.9", "tag of the image"),
        "e": ("13.1.0", "row `image nvidia/pytorch 25.12 contains cuda 13.1.0`"),
        "f": ("unknown", ""),
    }


def test_pods_of_one_owner_are_one_workload() -> None:
    pods = [
        fleets.pod(f"train-{index}", "test/x:cu128", f"h100-{index}", owner=("Job", "train"))
        for index in range(2)
    ]
    work = fleets.inventory(fleets.node("h100-0"), fleets.node("h100-1"), *pods).workloads
    assert [(each.id, each.pods, each.nodes) for each in work] == [
        ("job/train", 2, {"h100-0": 1, "h100-1": 1})
    ]


def test_work_without_gpus_is_left_out_and_claims_count() -> None:
    claim: dict[str, Any] = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "gpu", "namespace": "team"},
        "spec": {
            "devices": {
                "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]
            }
        },
    }
    claiming = fleets.pod("claiming", "test/x:cu128", "h100-0")
    claiming["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimName": "gpu"}]
    claiming["spec"]["containers"][0]["resources"] = {"claims": [{"name": "g"}]}
    plain = fleets.pod("plain", "test/x:cu128", "h100-0")
    plain["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1"}}
    work = fleets.inventory(fleets.node("h100-0"), claim, claiming, plain).workloads
    assert [each.name for each in work] == ["claiming"]


def test_an_object_that_cannot_be_read_is_named_and_the_rest_counts() -> None:
    broken = fleets.policy("25.10.1", "580.95.05")
    broken["spec"]["driver"]["enabled"] = "perhaps"
    inventory = fleets.inventory(fleets.node("h100-0"), broken)
    assert len(inventory.nodes) == 1
    assert inventory.problems[0].startswith("ClusterPolicy policy:")
