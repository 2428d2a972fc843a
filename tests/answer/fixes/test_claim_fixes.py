"""Fixes of what claims ask of devices: the claim or its template changes, the pods that use it come again."""

from __future__ import annotations

from typing import Any

from dovetail.answer.why.why_answer import Fix, Who
from tests.answer.fixes import trial_cluster as build
from tests.answer.fixes.test_pod_fixes import fixed_by, titles
from tests.answer.fixes.trial_cluster import Cluster

ATTRIBUTES = f'device.attributes["{build.DRIVER}"]'
CAPACITY = f'device.capacity["{build.DRIVER}"]'


def cluster_of(*trees: dict[str, Any], gpus: int = 4, **attributes: Any) -> Cluster:
    """One node with GPUs, and more objects."""
    return Cluster(
        build.node("a", gpus=0),
        build.gpu_slice("a", count=gpus, **attributes),
        build.device_class(),
        *trees,
    )


def asked(**wanted: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A template, and a pod that uses it."""
    return build.template(**wanted), build.pod(**build.uses())


def kinds(fix: Fix) -> list[tuple[str, str]]:
    def verb(patch: Any) -> str:
        return "delete" if patch.delete else "create" if patch.create else "merge"

    return [(verb(patch), patch.object.kind) for patch in fix.patch]


def test_a_misspelt_value_in_a_selector_is_corrected_in_the_template() -> None:
    cluster = cluster_of(*asked(when=f'{ATTRIBUTES}.architecture == "hopper"'))
    title = 'request gpus: architecture == "hopper" -> "Hopper"'
    assert titles(cluster.fixes("p")) == [title]
    fix = fixed_by(cluster, title)
    assert kinds(fix) == [
        ("delete", "ResourceClaimTemplate"),
        ("create", "ResourceClaimTemplate"),
        ("delete", "Pod"),
        ("create", "Pod"),
    ]
    assert "with gpu-0" in fix.effect


def test_a_claim_that_pods_name_is_created_again_and_the_pod_is_not() -> None:
    entry = {"resourceClaims": [{"name": "gpus", "resourceClaimName": "c"}]}
    cluster = cluster_of(
        build.claim(when=f'{ATTRIBUTES}.architecture == "hopper"'), build.pod(**entry)
    )
    fix = fixed_by(cluster, 'request gpus: architecture == "hopper" -> "Hopper"')
    assert kinds(fix) == [("delete", "ResourceClaim"), ("create", "ResourceClaim")]


def test_an_amount_in_a_selector_is_lowered_to_what_devices_have() -> None:
    condition = f'{CAPACITY}.memory.compareTo(quantity("80Gi")) >= 0'
    cluster = cluster_of(*asked(when=condition), memory="40Gi")
    fixed_by(cluster, 'request gpus: memory.compareTo(quantity("80Gi")) >= 0 -> "40Gi"')


def test_one_of_several_conditions_is_dropped() -> None:
    good, bad = f'{ATTRIBUTES}.model == "H100"', f"has({ATTRIBUTES}.nvlink)"
    cluster = cluster_of(*asked(when=f"{good} && {bad}"))
    fixed_by(cluster, "request gpus: drop has(nvlink)")
    spec = cluster.tree("ResourceClaimTemplate", "t")["spec"]["spec"]
    selectors = spec["devices"]["requests"][0]["exactly"]["selectors"]
    assert selectors == [{"cel": {"expression": good}}]


def test_the_only_condition_goes_with_its_selector() -> None:
    bad = f"has({ATTRIBUTES}.nvlink)"
    cluster = cluster_of(*asked(when=bad))
    fixed_by(cluster, "request gpus: drop has(nvlink)")
    spec = cluster.tree("ResourceClaimTemplate", "t")["spec"]["spec"]
    assert "selectors" not in spec["devices"]["requests"][0]["exactly"]


def test_a_misspelt_attribute_is_corrected() -> None:
    cluster = cluster_of(*asked(when=f'{ATTRIBUTES}.modle == "H100"'))
    fixed_by(cluster, 'request gpus: modle == "H100": modle -> model')


def test_a_misspelt_domain_is_corrected() -> None:
    cluster = cluster_of(*asked(when='device.attributes["gpu.exmaple.com"].model == "H100"'))
    fixed_by(cluster, 'request gpus: model == "H100": gpu.exmaple.com -> gpu.example.com')


def test_a_count_is_lowered_no_further_than_needed() -> None:
    cluster = cluster_of(*asked(count=8), gpus=5)
    assert "request gpus: count 8 -> 5" in titles(cluster.fixes("p"))
    fixed_by(cluster, "request gpus: count 8 -> 5")


def test_a_class_that_does_not_exist_becomes_the_nearest() -> None:
    cluster = cluster_of(*asked(class_name="gpus"))
    fixed_by(cluster, "request gpus: device class gpus -> gpu")


def test_a_class_that_matches_nothing_becomes_another() -> None:
    cluster = cluster_of(
        build.device_class("fpga", when='device.driver == "fpga.example.com"'),
        *asked(class_name="fpga"),
    )
    fixed_by(cluster, "request gpus: device class fpga -> gpu")


def test_a_class_with_a_misspelt_driver_is_corrected_by_its_administrator() -> None:
    cluster = Cluster(
        build.node("a", gpus=0),
        build.gpu_slice("a"),
        build.device_class(when='device.driver == "gpu.exmaple.com"'),
        *asked(),
    )
    title = 'device class gpu: device.driver == "gpu.exmaple.com" -> "gpu.example.com"'
    fix = fixed_by(cluster, title, who=Who.CLUSTER_ADMIN)
    assert kinds(fix) == [("merge", "DeviceClass")]


def test_a_constraint_that_no_devices_satisfy_is_dropped() -> None:
    constraint = {"requests": ["gpus"], "matchAttribute": f"{build.DRIVER}/root"}
    cluster = cluster_of(*asked(count=4, constraints=[constraint]))
    title = f"drop constraint matchAttribute {build.DRIVER}/root"
    fixes = titles(cluster.fixes("p"))
    assert "request gpus: count 4 -> 2" in fixes
    fixed_by(cluster, title)


def test_a_device_taint_is_tolerated_or_its_rule_deleted() -> None:
    rule = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "maintenance"},
        "spec": {
            "deviceSelector": {"driver": build.DRIVER},
            "taint": {"key": "example.com/maintenance", "effect": "NoSchedule"},
        },
    }
    tolerate = "request gpus: tolerate device taint example.com/maintenance:NoSchedule"
    cluster = cluster_of(rule, *asked())
    fixed_by(cluster, tolerate)
    cluster = cluster_of(rule, *asked())
    fixed_by(cluster, "delete DeviceTaintRule maintenance", who=Who.CLUSTER_ADMIN)


def test_the_name_of_a_template_is_corrected() -> None:
    cluster = cluster_of(build.template("single-gpu"), build.pod(**build.uses("singel-gpu")))
    fixed_by(cluster, "resourceClaims gpus: claim template singel-gpu -> single-gpu")


def test_the_name_of_a_claim_is_corrected() -> None:
    entry = {"resourceClaims": [{"name": "gpus", "resourceClaimName": "shared-gpus"}]}
    cluster = cluster_of(build.claim("shared-gpu"), build.pod(**entry))
    fixed_by(cluster, "resourceClaims gpus: claim shared-gpus -> shared-gpu")


def test_a_claim_made_for_another_pod_is_no_candidate() -> None:
    """The claims that templates make are named after their pods, and useless to others."""
    cluster = cluster_of(*asked())
    made = [name for name in cluster.replica().world.claims if name[0] == build.NAMESPACE]
    assert len(made) == 1
    entry = {"resourceClaims": [{"name": "gpus", "resourceClaimName": f"{made[0][1]}x"}]}
    cluster.put(build.pod("other", **entry))
    assert cluster.fixes("other") == ()


def test_a_mig_profile_in_a_selector_becomes_the_nearest_that_is_offered() -> None:
    condition = f'{ATTRIBUTES}.profile == "3g.40gb"'
    cluster = cluster_of(*asked(when=condition), profile="2g.20gb")
    fixed_by(cluster, 'request gpus: profile == "3g.40gb" -> "2g.20gb"')


def test_a_volume_claim_name_is_corrected() -> None:
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "dataset", "namespace": build.NAMESPACE},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "late",
        },
    }
    late = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "late"},
        "provisioner": "disk.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    uses = [{"name": "data", "persistentVolumeClaim": {"claimName": "datasets"}}]
    cluster = Cluster(build.node("a"), late, volume, build.pod(gpus=1, volumes=uses))
    fixed_by(cluster, "volume data: claim datasets -> dataset")


def test_a_storage_class_that_does_not_exist_becomes_the_nearest() -> None:
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "dataset", "namespace": build.NAMESPACE},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "fast-sdd",
        },
    }
    late = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "fast-ssd"},
        "provisioner": "disk.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    uses = [{"name": "data", "persistentVolumeClaim": {"claimName": "dataset"}}]
    cluster = Cluster(build.node("a"), late, volume, build.pod(gpus=1, volumes=uses))
    fixed_by(cluster, "volume claim dataset: storage class fast-sdd -> fast-ssd")


def test_a_capacity_is_lowered_to_what_devices_offer() -> None:
    slice_ = build.gpu_slice("a", count=1)
    slice_["spec"]["devices"][0]["allowMultipleAllocations"] = True
    exactly = {"capacity": {"requests": {"memory": "100Gi"}}}
    cluster = Cluster(
        build.node("a", gpus=0), slice_, build.device_class(), *asked(exactly=exactly)
    )
    fixed_by(cluster, "request gpus: memory 100Gi -> 80Gi")
