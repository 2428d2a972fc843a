"""Hollow nodes and their pods: taken through stages, devices checked before the start, deleted at the end."""

from __future__ import annotations

import json

import pytest

from dovetail.hollow import hollow_kubelets, pod_stages
from dovetail.kubetypes import registry
from dovetail.ports.api import Target
from tests.live.hollow_cluster import HollowCluster, run_story

# Pods


def test_a_bound_pod_runs_with_the_status_a_kubelet_would_write() -> None:
    async def story(hollow: HollowCluster) -> None:
        hollow.node()
        containers = [{"name": "main", "image": "none"}, {"name": "log", "image": "none"}]
        inits = [
            {"name": "fetch", "image": "none"},
            {"name": "side", "image": "none", "restartPolicy": "Always"},
        ]
        hollow.pod(spec={"containers": containers, "initContainers": inits})
        assert hollow.phase() == "Pending"
        await hollow.bind()
        status = hollow.tree()["status"]
        assert status["phase"] == "Running"
        assert hollow.conditions() == dict.fromkeys(
            (
                "PodScheduled",
                "PodReadyToStartContainers",
                "Initialized",
                "ContainersReady",
                "Ready",
            ),
            "True",
        )
        assert [
            (item["name"], item["ready"], list(item["state"]))
            for item in status["containerStatuses"]
        ] == [
            ("main", True, ["running"]),
            ("log", True, ["running"]),
        ]
        assert [
            (item["name"], list(item["state"])) for item in status["initContainerStatuses"]
        ] == [
            ("fetch", ["terminated"]),
            ("side", ["running"]),
        ]
        assert status["podIP"].startswith("10.")
        assert status["startTime"] == "2026-01-01T00:00:00Z"
        assert hollow.violations == []

    run_story(HollowCluster(), story)


def test_a_pod_on_a_node_with_a_kubelet_is_not_touched() -> None:
    async def story(hollow: HollowCluster) -> None:
        hollow.node("real", hollow=False)
        hollow.pod()
        await hollow.bind(node="real")
        await hollow.passes(60)
        assert hollow.phase() == "Pending"
        assert hollow.renewed("real") is None

    run_story(HollowCluster(), story)


def test_a_pod_ends_when_it_says() -> None:
    async def story(hollow: HollowCluster) -> None:
        hollow.node()
        hollow.pod("good", annotations={pod_stages.RUN_SECONDS: "30"})
        hollow.pod("bad", annotations={pod_stages.RUN_SECONDS: "10.5", pod_stages.EXIT_CODE: "2"})
        for name in ("good", "bad"):
            await hollow.bind(name)
        await hollow.passes(10)
        assert (hollow.phase("good"), hollow.phase("bad")) == ("Running", "Running")
        await hollow.passes(1)
        assert hollow.phase("bad") == "Failed"
        [ended] = hollow.tree("bad")["status"]["containerStatuses"]
        assert ended["state"]["terminated"]["exitCode"] == 2
        assert hollow.conditions("bad")["Ready"] == "False"
        await hollow.passes(18.5)
        assert hollow.phase("good") == "Running"
        await hollow.passes(1)
        assert hollow.phase("good") == "Succeeded"
        [ended] = hollow.tree("good")["status"]["containerStatuses"]
        assert (
            ended["state"]["terminated"]["exitCode"],
            ended["state"]["terminated"]["reason"],
        ) == (0, "Completed")
        assert hollow.conditions("good")["PodScheduled"] == "True"

    run_story(HollowCluster(), story)


def test_rules_give_containers_ends_of_their_own() -> None:
    async def story(hollow: HollowCluster) -> None:
        hollow.node()
        hollow.pod(
            spec={
                "containers": [{"name": "main", "image": "none"}, {"name": "side", "image": "none"}]
            }
        )
        await hollow.bind()
        assert hollow.phase() == "Pending"
        await hollow.passes(5)
        assert hollow.phase() == "Running"
        await hollow.passes(5)
        codes = {
            item["name"]: item["state"]["terminated"]["exitCode"]
            for item in hollow.tree()["status"]["containerStatuses"]
        }
        assert (hollow.phase(), codes) == ("Failed", {"main": 137, "side": 0})
        assert hollow.tree()["status"]["reason"] == "OOMKilled"

    ends = pod_stages.Stage(
        phase="Failed",
        after=5,
        exit_code=137,
        reason="OOMKilled",
        containers=(pod_stages.ContainerEnd(name="side", exit_code=0),),
    )
    run_story(
        HollowCluster(
            pod_stages.Stages(
                rules=(pod_stages.Rule(steps=(pod_stages.Stage(phase="Running", after=5), ends)),)
            )
        ),
        story,
    )


def test_a_terminating_pod_ends_and_is_let_go() -> None:
    async def story(hollow: HollowCluster) -> None:
        hollow.node()
        hollow.pod()
        await hollow.bind()
        await hollow.delete_pod()
        await hollow.passes(4)
        assert hollow.phase() == "Running"
        await hollow.passes(2)
        assert hollow.phase() == "gone"

    run_story(HollowCluster(pod_stages.Stages(terminate_seconds=5)), story)


def test_a_pod_held_by_a_finalizer_is_let_go_once_and_shows_how_it_ended() -> None:
    async def story(hollow: HollowCluster) -> None:
        hollow.node()
        hollow.pod(finalizers=["batch.kubernetes.io/job-tracking"])
        await hollow.bind()
        await hollow.delete_pod()
        await hollow.passes(60)
        assert hollow.phase() == "Failed"
        [ended] = hollow.tree()["status"]["containerStatuses"]
        assert ended["state"]["terminated"]["exitCode"] == 143
        assert hollow.tree()["metadata"]["deletionGracePeriodSeconds"] == 0
        assert (
            len([write for write in hollow.writes if write.startswith("delete pods")]) == 2
        )  # ours and the node's

    run_story(HollowCluster(), story)


def test_what_others_write_of_a_pod_stays() -> None:
    async def story(hollow: HollowCluster) -> None:
        hollow.node()
        hollow.pod(annotations={pod_stages.RUN_SECONDS: "10"})
        await hollow.bind()
        conditions = [
            *hollow.tree()["status"]["conditions"],
            {"type": "DisruptionTarget", "status": "True"},
        ]
        target = Target(registry.POD, "default", "p", "status")
        await hollow.api.patch(target, json.dumps({"status": {"conditions": conditions}}).encode())
        await hollow.passes(11)
        assert hollow.phase() == "Succeeded"
        assert hollow.conditions()["DisruptionTarget"] == "True"

    run_story(HollowCluster(), story)


def test_kubelets_that_are_behind_overwrite_nothing_and_catch_up() -> None:
    async def story(hollow: HollowCluster) -> None:
        hollow.node()
        hollow.pod(annotations={pod_stages.RUN_SECONDS: "10"})
        await hollow.bind()
        hollow.feeds["Pod"].hold()
        target = Target(registry.POD, "default", "p")
        await hollow.api.patch(target, b'{"metadata": {"labels": {"x": "y"}}}')
        await hollow.passes(15)
        assert hollow.phase() == "Running"  # what the kubelets know is out of date: a conflict
        hollow.feeds["Pod"].release()
        await hollow.passes(15)
        assert (hollow.phase(), hollow.tree()["metadata"]["labels"]) == ("Succeeded", {"x": "y"})

    run_story(HollowCluster(), story)


def test_new_kubelets_go_on_where_the_last_ones_stopped() -> None:
    first = HollowCluster()

    async def begins(hollow: HollowCluster) -> None:
        hollow.node()
        hollow.pod(annotations={pod_stages.RUN_SECONDS: "30"})
        await hollow.bind()
        await hollow.passes(20)

    async def goes_on(hollow: HollowCluster) -> None:
        assert hollow.phase() == "Running"
        await hollow.passes(9)
        assert hollow.phase() == "Running"
        await hollow.passes(2)
        assert hollow.phase() == "Succeeded"

    run_story(first, begins)
    second = HollowCluster()
    second.api, second.clock = first.api, first.clock
    second.kubelets = hollow_kubelets.HollowKubelets(first.api, first.clock, let_go=second._let_go)
    run_story(second, goes_on)


# Claims


def test_a_pod_starts_with_its_claims_allocated_and_reserved() -> None:
    async def story(hollow: HollowCluster) -> None:
        hollow.node()
        hollow.claim("a")
        hollow.claim("b")
        hollow.pod(spec=hollow.wants("a", "b"))
        await hollow.allocate("a", "p", device="gpu-0")
        await hollow.allocate("b", "p", device="gpu-1")
        await hollow.bind()
        assert (hollow.phase(), hollow.violations) == ("Running", [])

    run_story(HollowCluster(), story)


@pytest.mark.parametrize(
    ("code", "device_of", "users"),
    [
        ("ClaimMissing", None, ()),
        ("NotAllocated", "", ()),
        ("NotReserved", "n1", ()),
        ("WrongNode", "n2", ("p",)),
    ],
)
def test_a_pod_bound_without_its_devices_waits_and_is_a_violation(
    code: str, device_of: str | None, users: tuple[str, ...]
) -> None:
    async def story(hollow: HollowCluster) -> None:
        hollow.node()
        hollow.pod(spec=hollow.wants("a"))
        if device_of is not None:
            hollow.claim("a")
        if device_of:
            await hollow.allocate("a", *users, node=device_of)
        await hollow.bind()
        await hollow.passes(30)
        assert (hollow.phase(), hollow.violations) == ("Pending", [("p", code)])
        [event] = hollow.api.all(registry.EVENT)
        assert (event.reason, event.type, event.regarding.name) == (
            "FailedPrepareDynamicResources",
            "Warning",
            "p",
        )
        assert event.note.startswith(f"{code}: ")

    run_story(HollowCluster(), story)


def test_a_pod_starts_as_soon_as_its_claim_is_put_right() -> None:
    async def story(hollow: HollowCluster) -> None:
        hollow.node()
        hollow.claim("a")
        hollow.pod(spec=hollow.wants("a"))
        await hollow.bind()
        assert hollow.violations == [("p", "NotAllocated")]
        await hollow.allocate("a", "p")
        assert hollow.phase() == "Running"
        assert hollow.violations == [("p", "NotAllocated")]

    run_story(HollowCluster(), story)


def test_a_claim_the_kubelets_do_not_know_yet_is_read_first() -> None:
    async def story(hollow: HollowCluster) -> None:
        hollow.node()
        hollow.feeds["ResourceClaim"].hold()
        hollow.claim("a")
        hollow.pod(spec=hollow.wants("a"))
        await hollow.allocate("a", "p")
        await hollow.bind()
        assert (hollow.phase(), hollow.violations) == ("Running", [])
        assert "get resourceclaims default/a" in hollow.writes

    run_story(HollowCluster(), story)


def test_a_claim_made_for_another_pod_does_not_do() -> None:
    async def story(hollow: HollowCluster) -> None:
        hollow.node()
        hollow.claim("a")
        hollow.pod(spec={"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]})
        await hollow.bind()
        assert hollow.violations == [("p", "ClaimNotMade")]
        await hollow.allocate("a", "p")
        statuses = [{"name": "gpu", "resourceClaimName": "a"}]
        target = Target(registry.POD, "default", "p", "status")
        await hollow.api.patch(
            target, json.dumps({"status": {"resourceClaimStatuses": statuses}}).encode()
        )
        await hollow.passes(1)
        assert hollow.violations == [("p", "ClaimNotMade"), ("p", "ClaimNotOwned")]

    run_story(HollowCluster(), story)


def test_a_device_cannot_serve_two_claims_at_once() -> None:
    async def story(hollow: HollowCluster) -> None:
        hollow.node()
        for name in ("a", "b"):
            hollow.claim(name)
            hollow.pod(f"pod-{name}", spec=hollow.wants(name))
            await hollow.allocate(name, f"pod-{name}", device="gpu-0")
            await hollow.bind(f"pod-{name}")
        assert (hollow.phase("pod-a"), hollow.phase("pod-b")) == ("Running", "Pending")
        assert hollow.violations == [("pod-b", "DeviceInUse")]
        await hollow.delete_pod("pod-a")
        await hollow.passes(10)
        assert (hollow.phase("pod-a"), hollow.phase("pod-b")) == ("gone", "Running")

    run_story(HollowCluster(), story)


def test_a_device_is_free_when_the_last_user_of_its_claim_is_gone_however_that_came() -> None:
    async def story(hollow: HollowCluster) -> None:
        hollow.node()
        for name in ("a", "b"):
            hollow.claim(name)
        for name in ("p", "q"):
            hollow.pod(name, spec=hollow.wants("a"))
        hollow.pod("later", spec=hollow.wants("b"))
        await hollow.allocate("a", "p", "q")
        await hollow.allocate("b", "later")
        for name in ("p", "q", "later"):
            await hollow.bind(name)
        assert hollow.violations == [("later", "DeviceInUse")]
        for name, then in (("p", "Pending"), ("q", "Running")):
            await hollow.api.delete(
                Target(registry.POD, "default", name), grace_seconds=0
            )  # by force
            await hollow.passes(hollow_kubelets.RETRY_SECONDS + 1)
            assert hollow.phase("later") == then

    run_story(HollowCluster(), story)


def test_a_shared_device_and_an_admins_look_are_no_violation() -> None:
    async def story(hollow: HollowCluster) -> None:
        hollow.node()
        shares = ("7f0de2f5-3a34-4a0c-9d8e-0d3f0f3b6c01", "7f0de2f5-3a34-4a0c-9d8e-0d3f0f3b6c02")
        for name, share in zip("ab", shares, strict=True):
            hollow.claim(name)
            hollow.pod(f"pod-{name}", spec=hollow.wants(name))
            await hollow.allocate(name, f"pod-{name}", device="gpu-0", shareID=share)
            await hollow.bind(f"pod-{name}")
        assert (hollow.phase("pod-a"), hollow.phase("pod-b"), hollow.violations) == (
            "Running",
            "Running",
            [],
        )

    run_story(HollowCluster(), story)


def test_two_pods_may_share_a_claim() -> None:
    async def story(hollow: HollowCluster) -> None:
        hollow.node()
        hollow.claim("a")
        for name in ("p", "q"):
            hollow.pod(name, spec=hollow.wants("a"))
        await hollow.allocate("a", "p", "q")
        for name in ("p", "q"):
            await hollow.bind(name)
        assert (hollow.phase("p"), hollow.phase("q"), hollow.violations) == (
            "Running",
            "Running",
            [],
        )

    run_story(HollowCluster(), story)


# Room


def asking(**amounts: str) -> dict[str, object]:
    named = {name.replace("gpu", "nvidia.com/gpu"): amount for name, amount in amounts.items()}
    resources = {"requests": named, "limits": named}
    return {"containers": [{"name": "main", "image": "none", "resources": resources}]}


@pytest.mark.parametrize(
    ("wants", "resource"),
    [({"cpu": "3"}, "cpu"), ({"memory": "5Gi"}, "memory"), ({"gpu": "2"}, "nvidia.com/gpu")],
)
def test_a_node_gives_no_more_than_it_has(wants: dict[str, str], resource: str) -> None:
    async def story(hollow: HollowCluster) -> None:
        hollow.node(has={"cpu": "4", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "3"})
        for name in ("first", "second"):
            hollow.pod(name, spec=asking(**wants))
            await hollow.bind(name)
        assert (hollow.phase("first"), hollow.phase("second")) == ("Running", "Pending")
        assert hollow.violations == [("second", "OutOfResources")]
        assert resource in hollow.kubelets.violations[0].message
        await hollow.delete_pod("first")
        await hollow.passes(10)
        assert hollow.phase("second") == "Running"

    run_story(HollowCluster(), story)


def test_a_node_has_so_many_places_for_pods() -> None:
    async def story(hollow: HollowCluster) -> None:
        hollow.node(has={"pods": "2"})
        for name in ("a", "b", "c"):
            hollow.pod(name)
            await hollow.bind(name)
        assert [hollow.phase(name) for name in ("a", "b", "c")] == ["Running", "Running", "Pending"]
        assert hollow.violations == [("c", "OutOfResources")]

    run_story(HollowCluster(), story)


def test_an_extended_resource_the_node_does_not_count_needs_a_claim_that_serves_it() -> None:
    async def story(hollow: HollowCluster) -> None:
        hollow.node(has={"cpu": "4", "pods": "10"})
        hollow.pod("bare", spec=asking(gpu="1"))
        await hollow.bind("bare")
        assert hollow.violations == [("bare", "OutOfResources")]
        hollow.pod("served", spec=asking(gpu="1"))
        hollow.claim("c", owner="served")
        await hollow.allocate("c", "served")
        mapped = {"containerName": "main", "resourceName": "nvidia.com/gpu", "requestName": "gpu"}
        served = {"resourceClaimName": "c", "requestMappings": [mapped]}
        target = Target(registry.POD, "default", "served", "status")
        await hollow.api.patch(
            target, json.dumps({"status": {"extendedResourceClaimStatus": served}}).encode()
        )
        await hollow.bind("served")
        assert hollow.phase("served") == "Running"
        hollow.pod("greedy", spec=hollow.wants("d"))
        hollow.claim("d")
        await hollow.allocate("d", "greedy")
        await hollow.bind("greedy")
        assert hollow.violations[1:] == [("greedy", "DeviceInUse")]

    run_story(HollowCluster(), story)
