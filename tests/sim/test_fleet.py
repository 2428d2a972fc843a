"""A fleet becomes the objects the NVIDIA DRA driver and its discovery would show, the same ones every time."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import msgspec
import pytest

from dovetail import errors, gpus
from dovetail.admission import admit
from dovetail.kubetypes import codec, field_errors
from dovetail.sim.fleet import device_publisher, fleet_objects, fleet_spec
from tests.support import oracle

PCI = "resource.kubernetes.io/pciBusID"
MIG_NAME = re.compile(r"gpu-(\d+)-mig-(.+)-(\d+)-(\d+)")  # how the driver reads its own names back

SMALL = """
name: small
pools:
  - {name: h, count: 1, gpu: H100-SXM5-80GB, gpusPerNode: 2, mig: true}
  - {name: a, count: 1, gpu: NVIDIA A30, gpusPerNode: 10, mig: true}
  - {name: l, count: 2, gpu: l40s, gpusPerNode: 16, labels: {tier: cheap}}
  - {name: s, count: 1, gpu: L4, gpusPerNode: 1, shares: memory}
  - {name: g, count: 4, gpu: GH200-96GB, gpusPerNode: 1, rack: row, nodesPerRack: 2, clique: auto}
"""


def made(text: str = SMALL) -> list[dict[str, Any]]:
    return fleet_objects.objects_of(fleet_spec.read(text, file="fleet.yaml"))


def of_kind(trees: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [tree for tree in trees if tree["kind"] == kind]


def slices_of(trees: list[dict[str, Any]], node: str) -> list[dict[str, Any]]:
    return [
        tree["spec"] for tree in of_kind(trees, "ResourceSlice") if tree["spec"]["nodeName"] == node
    ]


def devices_of(trees: list[dict[str, Any]], node: str) -> list[dict[str, Any]]:
    return [device for spec in slices_of(trees, node) for device in spec.get("devices", [])]


def amount(tree: dict[str, Any]) -> str:
    return str(tree["value"])


def test_the_sample_has_dgx_a100_with_mig_and_one_nvl72_rack() -> None:
    trees = fleet_objects.objects_of(fleet_spec.sample())
    labels = [node["metadata"]["labels"] for node in of_kind(trees, "Node")]
    assert Counter(label["nvidia.com/gpu.product"] for label in labels) == {
        "NVIDIA-H100-80GB-HBM3": 4,
        "NVIDIA-A100-SXM4-80GB": 4,
        "NVIDIA-GB200": 18,
    }
    cliques = Counter(label.get("nvidia.com/gpu.clique") for label in labels)
    assert sorted(cliques.values()) == [8, 18]
    assert len(devices_of(trees, "h100-0")) == 8
    assert {device["attributes"]["type"]["string"] for device in devices_of(trees, "a100-0")} == {
        "mig"
    }
    assert [d["name"] for d in devices_of(trees, "gb200-07")][:4] == [
        "gpu-0",
        "gpu-1",
        "gpu-2",
        "gpu-3",
    ]


SHARED = "{name: s, count: 1, gpu: L40S, gpusPerNode: 2, shares: memory}"


def test_gpus_that_offer_shares_are_published_as_the_driver_does() -> None:
    trees = made(f"name: shared\npools: [{SHARED}]")
    devices = devices_of(trees, "s-0")
    assert [device["allowMultipleAllocations"] for device in devices] == [True, True]
    memory = {
        "value": "46068Mi",
        "requestPolicy": {"default": "46068Mi", "validRange": {"min": "1Mi", "step": "1Mi"}},
    }
    assert [device["capacity"] for device in devices] == [{"memory": memory}] * 2


@pytest.mark.parametrize(
    ("pool", "words"),
    [
        (SHARED.replace("memory}", "unlimited}"), 'shares: expected "memory", got "unlimited"'),
        (SHARED.replace("L40S", "H100-SXM5-80GB, mig: true"), "pools[0].shares: GPUs are either"),
    ],
)
def test_gpus_are_shared_by_memory_and_not_with_mig(pool: str, words: str) -> None:
    with pytest.raises(errors.InputError, match=re.escape(words)):
        made(f"name: shared\npools: [{pool}]")


@pytest.mark.parametrize("text", [SMALL, ""])
def test_two_runs_make_the_same_objects_and_another_fleet_other_ids(text: str) -> None:
    described = fleet_spec.read(text, file="f") if text else fleet_spec.sample()
    assert fleet_objects.objects_of(described) == fleet_objects.objects_of(described)
    renamed = msgspec.structs.replace(described, name="another")
    ours, theirs = (
        {
            device["attributes"]["uuid"]["string"]
            for tree in of_kind(fleet_objects.objects_of(one), "ResourceSlice")
            for device in tree["spec"].get("devices", [])
            if "uuid" in device["attributes"]
        }
        for one in (described, renamed)
    )
    assert ours
    assert not ours & theirs


@pytest.mark.parametrize("text", [SMALL, ""])
def test_every_gpu_has_its_own_uuid_and_address(text: str) -> None:
    trees = made(text) if text else fleet_objects.objects_of(fleet_spec.sample())
    uuids: Counter[str] = Counter()
    for node in of_kind(trees, "Node"):
        name = node["metadata"]["name"]
        parents: dict[str, set[str]] = {}
        for device in devices_of(trees, name):
            attributes = device["attributes"]
            if PCI not in attributes:
                continue
            identity = attributes.get("parentUUID", attributes.get("uuid"))["string"]
            parents.setdefault(identity, set()).add(attributes[PCI]["string"])
        uuids.update(parents.keys())
        assert all(len(addresses) == 1 for addresses in parents.values())
        assert len({next(iter(addresses)) for addresses in parents.values()}) == len(parents)
        assert len(parents) == int(node["metadata"]["labels"]["nvidia.com/gpu.count"])
    assert set(uuids.values()) == {1}


def test_counters_come_first_and_each_gpu_has_its_own_candidates() -> None:
    specs = slices_of(made(), "h-0")
    assert [len(spec.get("sharedCounters", [])) for spec in specs] == [2, 0, 0]
    assert [len(spec.get("devices", [])) for spec in specs] == [0, 26, 26]
    assert {spec["pool"]["resourceSliceCount"] for spec in specs} == {3}
    assert {spec["pool"]["name"] for spec in specs} == {"h-0"}
    for spec in specs[1:]:
        names = [device["name"] for device in spec["devices"]]
        assert names == sorted(names)


def test_the_counters_of_an_h100_are_those_the_driver_publishes() -> None:
    shared = slices_of(made(), "h-0")[0]["sharedCounters"][0]
    assert shared["name"] == "gpu-0-counter-set"
    assert {name: amount(counter) for name, counter in shared["counters"].items()} == {
        "multiprocessors": "132",
        "copy-engines": "8",
        "decoders": "7",
        "encoders": "0",
        "jpeg-engines": "7",
        "ofa-engines": "1",
        "memory": "81152Mi",
        **{f"memory-slice-{index}": "1" for index in range(8)},
    }
    device = next(one for one in devices_of(made(), "h-0") if one["name"] == "gpu-0-mig-3g40gb-9-4")
    consumed = device["consumesCounters"][0]
    assert consumed["counterSet"] == "gpu-0-counter-set"
    assert {name: amount(counter) for name, counter in consumed["counters"].items()} == {
        "multiprocessors": "60",
        "copy-engines": "3",
        "decoders": "3",
        "encoders": "0",
        "jpeg-engines": "3",
        "ofa-engines": "0",
        "memory": "40448Mi",
        **{f"memory-slice-{index}": "1" for index in (4, 5, 6, 7)},
    }


def test_a_whole_gpu_beside_partitions_uses_up_all_counters() -> None:
    shared = slices_of(made(), "h-0")[0]["sharedCounters"][0]
    whole = next(device for device in devices_of(made(), "h-0") if device["name"] == "gpu-0")
    assert whole["consumesCounters"][0]["counters"] == shared["counters"]
    # The driver publishes the largest profile's memory here, not NVML's total of 81559Mi.
    assert amount(whole["capacity"]["memory"]) == "81152Mi"
    assert amount(whole["capacity"]["multiprocessors"]) == "132"
    assert whole["attributes"]["uuid"]["string"].startswith("GPU-")


def test_slices_of_a_pool_sort_by_name_in_the_order_in_which_they_are_published() -> None:
    slices = [
        tree["metadata"]
        for tree in of_kind(made(), "ResourceSlice")
        if tree["spec"]["nodeName"] == "a-0"
    ]
    names = [metadata["name"] for metadata in slices]
    assert names == sorted(names)
    assert slices[10]["generateName"] == "0000a-gpu.nvidia.com-a-0-"
    assert names[10].startswith(slices[10]["generateName"])


def test_ampere_offers_partitions_only_and_more_than_eight_gpus_need_two_counter_slices() -> None:
    specs = slices_of(made(), "a-0")
    assert [len(spec.get("sharedCounters", [])) for spec in specs][:3] == [8, 2, 0]
    assert len(specs) == 12
    assert {device["attributes"]["type"]["string"] for device in devices_of(made(), "a-0")} == {
        "mig"
    }
    assert len(specs[2]["devices"]) == 13


def test_partitions_carry_parent_and_profile_but_no_uuid_and_names_parse_back() -> None:
    board = gpus.by_name("H100-SXM5-80GB")
    assert board is not None
    places = {
        (profile.name.value, profile.gi_profile_id.value, place.start)
        for profile, place in gpus.placements(board)
        if profile.gi_profile_id
    }
    seen = set()
    for device in devices_of(made(), "h-0"):
        if device["attributes"]["type"]["string"] != "mig" or not device["name"].startswith(
            "gpu-1-"
        ):
            continue
        assert "uuid" not in device["attributes"]
        parts = MIG_NAME.fullmatch(device["name"])
        assert parts
        profile = device["attributes"]["profile"]["string"]
        assert parts[2] == profile.replace(".", "").replace("+", "-")
        seen.add((profile, int(parts[3]), int(parts[4])))
    assert seen == places


def test_superchips_are_arm_have_address_translation_and_a_clique_per_rack() -> None:
    trees = made()
    nodes = {
        node["metadata"]["name"]: node["metadata"]["labels"] for node in of_kind(trees, "Node")
    }
    grace = [nodes[f"g-{index}"] for index in range(4)]
    assert {labels["kubernetes.io/arch"] for labels in grace} == {"arm64"}
    assert [labels["dovetail.dev/rack"] for labels in grace] == ["row-0", "row-0", "row-1", "row-1"]
    cliques = [labels["nvidia.com/gpu.clique"] for labels in grace]
    assert cliques[0] == cliques[1] != cliques[2] == cliques[3]
    assert devices_of(trees, "g-0")[0]["attributes"]["addressingMode"]["string"] == "ATS"
    drivers = {spec["driver"] for spec in slices_of(trees, "g-0")}
    assert drivers == {"gpu.nvidia.com", "compute-domain.nvidia.com"}
    assert {spec["driver"] for spec in slices_of(trees, "l-0")} == {"gpu.nvidia.com"}
    assert nodes["l-0"]["tier"] == "cheap"


def test_a_driver_version_loses_leading_zeros_as_a_semantic_version() -> None:
    trees = made(SMALL + "driverVersion: 580.95.05\ncudaVersion: '12.8'\n")
    attributes = devices_of(trees, "l-0")[0]["attributes"]
    assert attributes["driverVersion"] == {"version": "580.95.5"}
    assert attributes["cudaDriverVersion"] == {"version": "12.8.0"}
    labels = next(n for n in of_kind(trees, "Node") if n["metadata"]["name"] == "l-0")["metadata"][
        "labels"
    ]
    assert labels["nvidia.com/cuda.driver-version.full"] == "580.95.05"
    assert labels["nvidia.com/cuda.runtime-version.minor"] == "8"


@pytest.mark.parametrize("text", [SMALL, ""])
def test_every_object_passes_our_own_rules(text: str) -> None:
    terms = field_errors.Terms(check_selector=lambda expression: None, now="2026-01-02T03:04:05Z")
    trees = made(text) if text else fleet_objects.objects_of(fleet_spec.sample())
    for tree in trees:
        verdict = admit.create(codec.decode(tree).struct, terms)
        assert (tree["metadata"]["name"], verdict.problems) == (tree["metadata"]["name"], ())


@pytest.mark.slow
def test_every_published_object_passes_upstream_validation() -> None:
    trees = [
        tree
        for tree in [*made(), *fleet_objects.objects_of(fleet_spec.sample())]
        if tree["kind"] in ("ResourceSlice", "DeviceClass")
    ]
    answers = oracle.session().ask_many({"op": "validate", "object": tree} for tree in trees)
    refused = [
        (tree["metadata"]["name"], answer)
        for tree, answer in zip(trees, answers, strict=True)
        if not answer.get("valid") or answer.get("strictDecodeError")
    ]
    assert refused == []


def test_device_classes_are_those_of_the_chart() -> None:
    classes = {tree["metadata"]["name"]: tree["spec"] for tree in device_publisher.device_classes()}
    assert set(classes) == {
        "gpu.nvidia.com",
        "mig.nvidia.com",
        "vfio.gpu.nvidia.com",
        "compute-domain-daemon.nvidia.com",
        "compute-domain-default-channel.nvidia.com",
    }
    assert [name for name, spec in classes.items() if "extendedResourceName" in spec] == [
        "gpu.nvidia.com"
    ]


# Refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: x\npools: [{name: a, count: 0, gpu: L4}]", "pools[0].count"),
        ("name: x\npools: [{name: a, count: 1, gpu: L4, gpusPerNode: 17}]", "pools[0].gpusPerNode"),
        (
            "name: x\npools: [{name: a, count: 1, gpu: L4, gpuCount: 2}]",
            "pools[0]: it contains unknown field gpuCount",
        ),
        (
            "name: x\npools: [{name: a, count: 1, gpu: H1000}]",
            'pools[0].gpu: unknown board "H1000"; known: T4',
        ),
        (
            "name: x\npools: [{name: a, count: 1, gpu: L4, mig: true}]",
            "pools[0].mig: L4 has no MIG",
        ),
        (
            "name: x\npools: [{name: a, count: 1, gpu: GB200, mig: true}]",
            "pools[0].mig: the memory and engines",
        ),
        (
            "name: x\npools: [{name: a, count: 1, gpu: H200-NVL-141GB}]",
            "pools[0].gpu: H200-NVL-141GB: the memory",
        ),
        (
            "name: x\ndriverVersion: 520.61.05\npools: [{name: a, count: 1, gpu: H100-SXM5-80GB, mig: true}]",
            "needs driver 525.85.12 or later",
        ),
        ("name: x\npools: [{name: A_b, count: 1, gpu: L4}]", "pools[0].name"),
        (
            "name: x\npools: [{name: a, count: 1, gpu: L4}, {name: a, count: 1, gpu: L4}]",
            "pools[1].name",
        ),
        ("name: x\npools: [{name: a, count: 1, gpu: L4, memory: lots}]", "pools[0].memory"),
        ("name: x\npools: [{name: a, count: 1, gpu: L4, cpu: '0'}]", "pools[0].cpu"),
        ("name: x\npools: [{name: a, count: 1, gpu: L4, clique: rack1}]", "pools[0].clique"),
        ("name: x\npools: [{name: a, count: 1, gpu: L4, machine: ' '}]", "pools[0].machine"),
        ("name: x\npools: [{name: a, count: 1, gpu: L4, labels: {a: b c}}]", "pools[0].labels[a]"),
        (
            "name: x\npools: [{name: a, count: 1, gpu: L4, labels: {a b: c}}]",
            "pools[0].labels[a b]",
        ),
        ("name: x\npools: []", "pools: expected at least one pool"),
        ("name: x\ndriverVersion: latest\npools: [{name: a, count: 1, gpu: L4}]", "driverVersion"),
        ("name: x", "missing required field pools"),
        ("pools: [", "not YAML"),
        ("", "expected"),
        ("just text", "expected"),
        ("name: !!python/object/apply:os.system ['true']\npools: []", "is not allowed"),
    ],
)
def test_a_wrong_fleet_is_refused_with_its_field(text: str, expected: str) -> None:
    with pytest.raises(errors.InputError) as refused:
        fleet_spec.read(text, file="my/fleet.yaml")
    assert str(refused.value).startswith("my/fleet.yaml: ")
    assert expected in str(refused.value)
