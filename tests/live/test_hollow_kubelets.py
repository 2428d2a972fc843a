"""Hollow nodes and their pods: taken through stages, devices checked before the start, deleted at the end."""

from __future__ import annotations

import json

import pytest

from dovetail.hollow import hollow_kubelets, pod_stages
from dovetail.kubetypes import registry
from dovetail.ports.api import Target
from tests.live.hollow_cluster import Theatre, told

# Pods


def test_a_bound_pod_runs_with_the_status_a_kubelet_would_write() -> None:
    async def story(stage: Theatre) -> None:
        stage.node()
        containers = [{"name": "main", "image": "none"}, {"name": "log", "image": "none"}]
        inits = [
            {"name": "fetch", "image": "none"},
            {"name": "side", "image": "none", "restartPolicy": "Always"},
        ]
        stage.pod(spec={"containers": containers, "initContainers": inits})
        assert stage.phase() == "Pending"
        await stage.bind()
        status = stage.tree()["status"]
        assert status["phase"] == "Running"
        assert stage.conditions() == dict.fromkeys(
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
        assert stage.violations == []

    told(Theatre(), story)


def test_a_pod_on_a_node_with_a_kubelet_is_not_touched() -> None:
    async def story(stage: Theatre) -> None:
        stage.node("real", hollow=False)
        stage.pod()
        await stage.bind(node="real")
        await stage.passes(60)
        assert stage.phase() == "Pending"
        assert stage.renewed("real") is None

    told(Theatre(), story)


def test_a_pod_ends_when_it_says() -> None:
    async def story(stage: Theatre) -> None:
        stage.node()
        stage.pod("good", annotations={pod_stages.RUN_SECONDS: "30"})
        stage.pod("bad", annotations={pod_stages.RUN_SECONDS: "10.5", pod_stages.EXIT_CODE: "2"})
        for name in ("good", "bad"):
            await stage.bind(name)
        await stage.passes(10)
        assert (stage.phase("good"), stage.phase("bad")) == ("Running", "Running")
        await stage.passes(1)
        assert stage.phase("bad") == "Failed"
        [ended] = stage.tree("bad")["status"]["containerStatuses"]
        assert ended["state"]["terminated"]["exitCode"] == 2
        assert stage.conditions("bad")["Ready"] == "False"
        await stage.passes(18.5)
        assert stage.phase("good") == "Running"
        await stage.passes(1)
        assert stage.phase("good") == "Succeeded"
        [ended] = stage.tree("good")["status"]["containerStatuses"]
        assert (
            ended["state"]["terminated"]["exitCode"],
            ended["state"]["terminated"]["reason"],
        ) == (0, "Completed")
        assert stage.conditions("good")["PodScheduled"] == "True"

    told(Theatre(), story)


def test_rules_give_containers_ends_of_their_own() -> None:
    async def story(stage: Theatre) -> None:
        stage.node()
        stage.pod(
            spec={
                "containers": [{"name": "main", "image": "none"}, {"name": "side", "image": "none"}]
            }
        )
        await stage.bind()
        assert stage.phase() == "Pending"
        await stage.passes(5)
        assert stage.phase() == "Running"
        await stage.passes(5)
        codes = {
            item["name"]: item["state"]["terminated"]["exitCode"]
            for item in stage.tree()["status"]["containerStatuses"]
        }
        assert (stage.phase(), codes) == ("Failed", {"main": 137, "side": 0})
        assert stage.tree()["status"]["reason"] == "OOMKilled"

    ends = pod_stages.Stage(
        phase="Failed",
        after=5,
        exit_code=137,
        reason="OOMKilled",
        containers=(pod_stages.ContainerEnd(name="side", exit_code=0),),
    )
    told(
        Theatre(
            pod_stages.Stages(
                rules=(pod_stages.Rule(steps=(pod_stages.Stage(phase="Running", after=5), ends)),)
            )
        ),
        story,
    )


def test_a_terminating_pod_ends_and_is_let_go() -> None:
    async def story(stage: Theatre) -> None:
        stage.node()
        stage.pod()
        await stage.bind()
        await stage.tells_to_end()
        await stage.passes(4)
        assert stage.phase() == "Running"
        await stage.passes(2)
        assert stage.phase() == "gone"

    told(Theatre(pod_stages.Stages(terminate_seconds=5)), story)


def test_a_pod_held_by_a_finalizer_is_let_go_once_and_shows_how_it_ended() -> None:
    async def story(stage: Theatre) -> None:
        stage.node()
        stage.pod(finalizers=["batch.kubernetes.io/job-tracking"])
        await stage.bind()
        await stage.tells_to_end()
        await stage.passes(60)
        assert stage.phase() == "Failed"
        [ended] = stage.tree()["status"]["containerStatuses"]
        assert ended["state"]["terminated"]["exitCode"] == 143
        assert stage.tree()["metadata"]["deletionGracePeriodSeconds"] == 0
        assert (
            len([write for write in stage.writes if write.startswith("delete pods")]) == 2
        )  # ours and the node's

    told(Theatre(), story)


def test_what_others_write_of_a_pod_stays() -> None:
    async def story(stage: Theatre) -> None:
        stage.node()
        stage.pod(annotations={pod_stages.RUN_SECONDS: "10"})
        await stage.bind()
        conditions = [
            *stage.tree()["status"]["conditions"],
            {"type": "DisruptionTarget", "status": "True"},
        ]
        target = Target(registry.POD, "default", "p", "status")
        await stage.api.patch(target, json.dumps({"status": {"conditions": conditions}}).encode())
        await stage.passes(11)
        assert stage.phase() == "Succeeded"
        assert stage.conditions()["DisruptionTarget"] == "True"

    told(Theatre(), story)


def test_a_player_that_is_behind_writes_over_nothing_and_catches_up() -> None:
    async def story(stage: Theatre) -> None:
        stage.node()
        stage.pod(annotations={pod_stages.RUN_SECONDS: "10"})
        await stage.bind()
        stage.feeds["Pod"].hold()
        target = Target(registry.POD, "default", "p")
        await stage.api.patch(target, b'{"metadata": {"labels": {"x": "y"}}}')
        await stage.passes(15)
        assert stage.phase() == "Running"  # what the player knows is out of date: a conflict
        stage.feeds["Pod"].release()
        await stage.passes(15)
        assert (stage.phase(), stage.tree()["metadata"]["labels"]) == ("Succeeded", {"x": "y"})

    told(Theatre(), story)


def test_a_new_player_goes_on_where_the_last_one_was() -> None:
    first = Theatre()

    async def begins(stage: Theatre) -> None:
        stage.node()
        stage.pod(annotations={pod_stages.RUN_SECONDS: "30"})
        await stage.bind()
        await stage.passes(20)

    async def goes_on(stage: Theatre) -> None:
        assert stage.phase() == "Running"
        await stage.passes(9)
        assert stage.phase() == "Running"
        await stage.passes(2)
        assert stage.phase() == "Succeeded"

    told(first, begins)
    second = Theatre()
    second.api, second.clock = first.api, first.clock
    second.player = hollow_kubelets.HollowKubelets(first.api, first.clock, let_go=second._let_go)
    told(second, goes_on)


# Claims


def test_a_pod_starts_with_its_claims_allocated_and_reserved() -> None:
    async def story(stage: Theatre) -> None:
        stage.node()
        stage.claim("a")
        stage.claim("b")
        stage.pod(spec=stage.wants("a", "b"))
        await stage.allocate("a", "p", device="gpu-0")
        await stage.allocate("b", "p", device="gpu-1")
        await stage.bind()
        assert (stage.phase(), stage.violations) == ("Running", [])

    told(Theatre(), story)


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
    async def story(stage: Theatre) -> None:
        stage.node()
        stage.pod(spec=stage.wants("a"))
        if device_of is not None:
            stage.claim("a")
        if device_of:
            await stage.allocate("a", *users, node=device_of)
        await stage.bind()
        await stage.passes(30)
        assert (stage.phase(), stage.violations) == ("Pending", [("p", code)])
        [event] = stage.api.all(registry.EVENT)
        assert (event.reason, event.type, event.regarding.name) == (
            "FailedPrepareDynamicResources",
            "Warning",
            "p",
        )
        assert event.note.startswith(f"{code}: ")

    told(Theatre(), story)


def test_a_pod_starts_as_soon_as_its_claim_is_put_right() -> None:
    async def story(stage: Theatre) -> None:
        stage.node()
        stage.claim("a")
        stage.pod(spec=stage.wants("a"))
        await stage.bind()
        assert stage.violations == [("p", "NotAllocated")]
        await stage.allocate("a", "p")
        assert stage.phase() == "Running"
        assert stage.violations == [("p", "NotAllocated")]

    told(Theatre(), story)


def test_a_claim_the_player_has_not_heard_of_yet_is_asked_for_first() -> None:
    async def story(stage: Theatre) -> None:
        stage.node()
        stage.feeds["ResourceClaim"].hold()
        stage.claim("a")
        stage.pod(spec=stage.wants("a"))
        await stage.allocate("a", "p")
        await stage.bind()
        assert (stage.phase(), stage.violations) == ("Running", [])
        assert "get resourceclaims default/a" in stage.writes

    told(Theatre(), story)


def test_a_claim_made_for_another_pod_does_not_do() -> None:
    async def story(stage: Theatre) -> None:
        stage.node()
        stage.claim("a")
        stage.pod(spec={"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]})
        await stage.bind()
        assert stage.violations == [("p", "ClaimNotMade")]
        await stage.allocate("a", "p")
        statuses = [{"name": "gpu", "resourceClaimName": "a"}]
        target = Target(registry.POD, "default", "p", "status")
        await stage.api.patch(
            target, json.dumps({"status": {"resourceClaimStatuses": statuses}}).encode()
        )
        await stage.passes(1)
        assert stage.violations == [("p", "ClaimNotMade"), ("p", "ClaimNotOwned")]

    told(Theatre(), story)


def test_a_device_cannot_serve_two_claims_at_once() -> None:
    async def story(stage: Theatre) -> None:
        stage.node()
        for name in ("a", "b"):
            stage.claim(name)
            stage.pod(f"pod-{name}", spec=stage.wants(name))
            await stage.allocate(name, f"pod-{name}", device="gpu-0")
            await stage.bind(f"pod-{name}")
        assert (stage.phase("pod-a"), stage.phase("pod-b")) == ("Running", "Pending")
        assert stage.violations == [("pod-b", "DeviceInUse")]
        await stage.tells_to_end("pod-a")
        await stage.passes(10)
        assert (stage.phase("pod-a"), stage.phase("pod-b")) == ("gone", "Running")

    told(Theatre(), story)


def test_a_device_is_free_when_the_last_user_of_its_claim_is_gone_however_that_came() -> None:
    async def story(stage: Theatre) -> None:
        stage.node()
        for name in ("a", "b"):
            stage.claim(name)
        for name in ("p", "q"):
            stage.pod(name, spec=stage.wants("a"))
        stage.pod("later", spec=stage.wants("b"))
        await stage.allocate("a", "p", "q")
        await stage.allocate("b", "later")
        for name in ("p", "q", "later"):
            await stage.bind(name)
        assert stage.violations == [("later", "DeviceInUse")]
        for name, then in (("p", "Pending"), ("q", "Running")):
            await stage.api.delete(
                Target(registry.POD, "default", name), grace_seconds=0
            )  # by force
            await stage.passes(hollow_kubelets.RETRY_SECONDS + 1)
            assert stage.phase("later") == then

    told(Theatre(), story)


def test_a_shared_device_and_an_admins_look_are_no_violation() -> None:
    async def story(stage: Theatre) -> None:
        stage.node()
        shares = ("7f0de2f5-3a34-4a0c-9d8e-0d3f0f3b6c01", "7f0de2f5-3a34-4a0c-9d8e-0d3f0f3b6c02")
        for name, share in zip("ab", shares, strict=True):
            stage.claim(name)
            stage.pod(f"pod-{name}", spec=stage.wants(name))
            await stage.allocate(name, f"pod-{name}", device="gpu-0", shareID=share)
            await stage.bind(f"pod-{name}")
        assert (stage.phase("pod-a"), stage.phase("pod-b"), stage.violations) == (
            "Running",
            "Running",
            [],
        )

    told(Theatre(), story)


def test_two_pods_may_share_a_claim() -> None:
    async def story(stage: Theatre) -> None:
        stage.node()
        stage.claim("a")
        for name in ("p", "q"):
            stage.pod(name, spec=stage.wants("a"))
        await stage.allocate("a", "p", "q")
        for name in ("p", "q"):
            await stage.bind(name)
        assert (stage.phase("p"), stage.phase("q"), stage.violations) == ("Running", "Running", [])

    told(Theatre(), story)


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
    async def story(stage: Theatre) -> None:
        stage.node(has={"cpu": "4", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "3"})
        for name in ("first", "second"):
            stage.pod(name, spec=asking(**wants))
            await stage.bind(name)
        assert (stage.phase("first"), stage.phase("second")) == ("Running", "Pending")
        assert stage.violations == [("second", "OutOfResources")]
        assert resource in stage.player.violations[0].message
        await stage.tells_to_end("first")
        await stage.passes(10)
        assert stage.phase("second") == "Running"

    told(Theatre(), story)


def test_a_node_has_so_many_places_for_pods() -> None:
    async def story(stage: Theatre) -> None:
        stage.node(has={"pods": "2"})
        for name in ("a", "b", "c"):
            stage.pod(name)
            await stage.bind(name)
        assert [stage.phase(name) for name in ("a", "b", "c")] == ["Running", "Running", "Pending"]
        assert stage.violations == [("c", "OutOfResources")]

    told(Theatre(), story)


def test_an_extended_resource_the_node_does_not_count_needs_a_claim_that_serves_it() -> None:
    async def story(stage: Theatre) -> None:
        stage.node(has={"cpu": "4", "pods": "10"})
        stage.pod("bare", spec=asking(gpu="1"))
        await stage.bind("bare")
        assert stage.violations == [("bare", "OutOfResources")]
        stage.pod("served", spec=asking(gpu="1"))
        stage.claim("c", owner="served")
        await stage.allocate("c", "served")
        mapped = {"containerName": "main", "resourceName": "nvidia.com/gpu", "requestName": "gpu"}
        served = {"resourceClaimName": "c", "requestMappings": [mapped]}
        target = Target(registry.POD, "default", "served", "status")
        await stage.api.patch(
            target, json.dumps({"status": {"extendedResourceClaimStatus": served}}).encode()
        )
        await stage.bind("served")
        assert stage.phase("served") == "Running"
        stage.pod("greedy", spec=stage.wants("d"))
        stage.claim("d")
        await stage.allocate("d", "greedy")
        await stage.bind("greedy")
        assert stage.violations[1:] == [("greedy", "DeviceInUse")]

    told(Theatre(), story)
