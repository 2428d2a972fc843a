"""Every example under examples/live, applied with kubectl to a real API server, on both versions."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import cluster as planes
from tests.support import live
from tests.support.live import Live, devices_of

pytestmark = pytest.mark.slow

PODS = {  # how many pods of each example run in the end; those without pods or with a Job have stories of their own
    "gpu-per-pod.yaml": 2,
    "two-containers.yaml": 1,
    "shared-claim.yaml": 2,
    "two-claims.yaml": 1,
    "first-available.yaml": 1,
    "mig-partitions.yaml": 3,
    "memory-shares.yaml": 3,
    "extended-resource.yaml": 1,
    "admin-access.yaml": 1,
    "gang-job.yaml": 4,
}
OTHERS = {"batch-job.yaml", "device-taint-rule.yaml", "local-volume.yaml"}


def test_every_example_is_run() -> None:
    assert {path.name for path in live.EXAMPLES.glob("*")} == set(PODS) | OTHERS


@pytest.mark.parametrize("name", PODS)
def test_an_example_runs_and_leaves_nothing_behind(cluster: Live, name: str) -> None:
    namespace = namespace_of(live.EXAMPLES / name)
    cluster.apply_file(name)
    pods = cluster.wait_running(namespace, PODS[name])
    claims = cluster.claims(namespace)
    for pod in pods:
        for claim in claims_of(pod, claims):
            assert devices_of(claim), claim["metadata"]["name"]
            assert pod["metadata"]["uid"] in [
                user["uid"] for user in claim["status"]["reservedFor"]
            ]
    exclusive = [
        device
        for claim in claims
        for device, result in zip(
            devices_of(claim), claim["status"]["allocation"]["devices"]["results"], strict=True
        )
        if not result.get("adminAccess") and not result.get("shareID")
    ]
    assert max(collections.Counter(exclusive).values(), default=1) == 1
    CHECKS.get(name, lambda pods, claims: None)(pods, claims)
    cluster.delete_namespace(namespace)
    cluster.wait_for(
        f"the end of {namespace}",
        lambda: not cluster.claims(namespace) and not cluster.pods(namespace),
    )


def test_a_job_runs_to_its_end_three_at_a_time(cluster: Live) -> None:
    cluster.apply_file("batch-job.yaml")

    def is_complete() -> bool:
        job = cluster.rest.read("jobs", "sweep", "batch")
        return bool(job["status"].get("succeeded", 0) == 6)

    cluster.wait_for("six finished runs", is_complete)
    cluster.delete_namespace("batch")
    cluster.wait_for("the end of batch", lambda: not cluster.claims("batch"))


def test_a_pod_goes_where_its_volume_is_once_the_cluster_has_bound_it(cluster: Live) -> None:
    try:
        cluster.apply_file("local-volume.yaml")
        [pod] = cluster.wait_running("local-volume", 1)
        assert pod["spec"]["nodeName"] == "h100-1"
        [claim] = cluster.claims("local-volume")
        assert {pool for _, pool, _ in devices_of(claim)} == {"h100-1"}
        asked = planes.get(cluster.plane, "pvc", "dataset", "-n", "local-volume")
        assert (asked["status"]["phase"], asked["spec"]["volumeName"]) == ("Bound", "h100-1-nvme-0")
        volume = planes.get(cluster.plane, "pv", "h100-1-nvme-0")
        assert (volume["status"]["phase"], volume["spec"]["claimRef"]["uid"]) == (
            "Bound",
            asked["metadata"]["uid"],
        )
        bound_at = moment_of(pod, "PodScheduled")
        assert volume["status"]["lastPhaseTransitionTime"] <= bound_at, (
            "the volume first, then the pod"
        )
    finally:
        cluster.delete_namespace("local-volume")
        planes.kubectl(
            cluster.plane, "delete", "pv/h100-1-nvme-0", "sc/local-nvme", "--ignore-not-found"
        )
    cluster.wait_for("the end of local-volume", lambda: not cluster.claims("local-volume"))


def test_a_taint_rule_keeps_new_work_off_a_device(cluster: Live) -> None:
    version = rule_version(cluster)
    text = (live.EXAMPLES / "device-taint-rule.yaml").read_text(encoding="utf-8")
    text = text.replace("resource.k8s.io/v1\n", f"{version}\n").replace("    device: gpu-0\n", "")
    planes.kubectl(cluster.plane, "apply", "-f", "-", input=text)
    namespace = planes.fresh_namespace(cluster.plane)
    try:
        planes.apply(cluster.plane, eight_gpus_on("h100-1"), namespace=namespace)
        cluster.wait_for("a reason", lambda: "0 tolerated" in reason_of(cluster.pods(namespace)[0]))
        planes.kubectl(cluster.plane, "delete", "devicetaintrule", "replace-h100-1-gpu-0")
        cluster.wait_running(namespace, 1)
    finally:
        planes.kubectl(
            cluster.plane, "delete", "devicetaintrule", "replace-h100-1-gpu-0", "--ignore-not-found"
        )
        cluster.delete_namespace(namespace)


def check_one_node(pods: list[Any], claims: list[Any]) -> None:
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 1


def check_four_and_a_channel(pods: list[Any], claims: list[Any]) -> None:
    assert sorted(len(devices_of(claim)) for claim in claims) == [1, 4]
    assert pods[0]["spec"]["nodeName"].startswith("gb200")
    assert {pool for claim in claims for _, pool, _ in devices_of(claim)} == {
        pods[0]["spec"]["nodeName"]
    }


def check_second_choice(pods: list[Any], claims: list[Any]) -> None:
    result = claims[0]["status"]["allocation"]["devices"]["results"][0]
    assert result["request"] == "gpu/h100"


def check_shares(pods: list[Any], claims: list[Any]) -> None:
    results = [claim["status"]["allocation"]["devices"]["results"][0] for claim in claims]
    assert sorted(result["consumedCapacity"]["memory"] for result in results) == [
        "20Gi",
        "20Gi",
        "40Gi",
    ]
    assert len({result["shareID"] for result in results}) == 3


def check_extended(pods: list[Any], claims: list[Any]) -> None:
    claim_status = pods[0]["status"]["extendedResourceClaimStatus"]
    assert claim_status["resourceClaimName"] == claims[0]["metadata"]["name"]
    assert {mapping["containerName"] for mapping in claim_status["requestMappings"]} == {
        "main",
        "side",
    }
    assert len(devices_of(claims[0])) == 3
    assert (
        claims[0]["metadata"]["annotations"]["resource.kubernetes.io/extended-resource-claim"]
        == "true"
    )


def check_admin(pods: list[Any], claims: list[Any]) -> None:
    results = claims[0]["status"]["allocation"]["devices"]["results"]
    assert len(results) == 8
    assert all(result["adminAccess"] for result in results)


CHECKS = {
    "shared-claim.yaml": check_one_node,
    "memory-shares.yaml": check_shares,
    "two-claims.yaml": check_four_and_a_channel,
    "first-available.yaml": check_second_choice,
    "extended-resource.yaml": check_extended,
    "admin-access.yaml": check_admin,
}


def namespace_of(path: Path) -> str:
    documents = yaml.safe_load_all(path.read_text(encoding="utf-8"))
    return str(
        next(
            document["metadata"]["name"]
            for document in documents
            if document["kind"] == "Namespace"
        )
    )


def claims_of(pod: dict[str, Any], claims: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = {item.get("resourceClaimName") for item in pod["spec"].get("resourceClaims", ())}
    names |= {
        item.get("resourceClaimName") for item in pod["status"].get("resourceClaimStatuses", ())
    }
    return [claim for claim in claims if claim["metadata"]["name"] in names]


def reason_of(pod: dict[str, Any]) -> str:
    conditions = pod["status"].get("conditions", ())
    return next(
        (
            condition.get("message", "")
            for condition in conditions
            if condition["type"] == "PodScheduled"
        ),
        "",
    )


def moment_of(pod: dict[str, Any], condition: str) -> str:
    return str(
        next(
            item["lastTransitionTime"]
            for item in pod["status"]["conditions"]
            if item["type"] == condition
        )
    )


def rule_version(cluster: Live) -> str:
    """The API version under which this server keeps rules for device taints."""
    served = planes.kubectl(
        cluster.plane, "api-resources", "--api-group=resource.k8s.io", "--no-headers"
    )
    line = next(line for line in served.splitlines() if line.startswith("devicetaintrules"))
    return next(word for word in line.split() if word.startswith("resource.k8s.io/"))


def eight_gpus_on(node: str) -> list[dict[str, Any]]:
    expected = {"deviceClassName": "gpu.nvidia.com", "count": 8}
    spec = {"devices": {"requests": [{"name": "gpus", "exactly": expected}]}}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "all"},
        "spec": spec,
    }
    container = {"name": "main", "image": "x", "resources": {"claims": [{"name": "gpus"}]}}
    body = {
        "schedulerName": "dovetail",
        "nodeSelector": {"kubernetes.io/hostname": node},
        "containers": [container],
        "resourceClaims": [{"name": "gpus", "resourceClaimName": "all"}],
    }
    return [claim, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "all"}, "spec": body}]
