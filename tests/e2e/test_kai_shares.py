"""Shares of a GPU by KAI's annotations on a real API server: its policy adds the claim, we create the template."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from dovetail.sim.server import share_claims
from tests.e2e import installing
from tests.e2e.namespace_scene import Scene, pod_tree, scene
from tests.support import cluster as planes
from tests.support.live import Live

pytestmark = pytest.mark.slow

Tree = dict[str, Any]
HALF = {"gpu-fraction": "0.5"}
MEMORY = {"gpu-memory": "2000"}
# Annotations, some of which no share can be given for.
WORDS: list[dict[str, str]] = [
    {},
    HALF,
    MEMORY,
    *[{"gpu-fraction": text} for text in (".25", "0.333333", "0.50", "00.5", "0.1234567", "0.0")],
    *[{"gpu-fraction": text} for text in ("1", "1.0", "-0.5", "5e-1", "", "0.5\n", "0.५", "x")],
    *[{"gpu-memory": text} for text in ("1", "999999999", "1000000000", "0", "01", "2Gi", "-1")],
    HALF | MEMORY,
    HALF | {"gpu-fraction-num-devices": "1"},
    HALF | {"gpu-fraction-num-devices": "16"},
    MEMORY | {"gpu-fraction-num-devices": "2"},
    HALF | {"gpu-fraction-num-devices": "17"},
    HALF | {"gpu-fraction-num-devices": "0"},
    {"gpu-fraction-num-devices": "2"},
    HALF | {"gpu-fraction-container-name": "last"},
    MEMORY | {"gpu-fraction-container-name": "setup"},
    HALF | {"gpu-fraction-container-name": "absent"},
    HALF | {"gpu-fraction-container-name": ""},
    {"gpu-fraction-container-name": "main"},
]
GPU = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}
SLICE = {"limits": {"nvidia.com/mig-1g.10gb": "1"}, "requests": {"nvidia.com/mig-1g.10gb": "1"}}
# What a pod may have besides.
SPECS: dict[str, Tree] = {
    "plain": {},
    "claims": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]},
    "gpus": {"containers": [{"name": "main", "image": "example", "resources": GPU}]},
    "other": {
        "containers": [
            {"name": "main", "image": "example", "resources": {"requests": {"cpu": "1"}}},
            {"name": "last", "image": "example"},
        ],
        "initContainers": [
            {"name": "setup", "image": "example"},
            {"name": "driver", "image": "example", "resources": SLICE},
        ],
    },
    "placed": {"nodeName": "some-node"},
}


@pytest.fixture(scope="module")
def policy(cluster: Live) -> Iterator[str]:
    """A namespace of a cluster where the chart's policy is in force."""
    name = planes.fresh_namespace(cluster.plane)
    done = installing.run(
        cluster, "install", name, "--set", "replicas=0", "--set", "kaiShares.mode=always"
    )
    assert done.code == 0, done.err
    try:
        cluster.wait_for("the policy", lambda: _claims_of(_tried(cluster, name, _pod(HALF)))[0])
        yield name
    finally:
        assert installing.run(cluster, "uninstall", name).code == 0
        cluster.delete_namespace(name)


@pytest.mark.parametrize("words", WORDS, ids=str)
def test_the_policy_adds_what_the_embedded_server_adds(
    cluster: Live, policy: str, words: dict[str, str]
) -> None:
    pod = _pod(words)
    stored = _tried(cluster, policy, pod)
    ours = share_claims.with_claim(pod)
    assert _claims_of(stored) == _claims_of(ours)
    assert [each["name"] for each in stored["spec"]["containers"]] == ["main", "middle", "last"]
    assert [each["name"] for each in stored["spec"]["initContainers"]] == ["setup"]


@pytest.mark.parametrize("kind", SPECS)
def test_a_pod_that_gets_gpus_otherwise_stays_as_it_is(
    cluster: Live, policy: str, kind: str
) -> None:
    pod = _pod(HALF)
    pod["spec"] |= copy.deepcopy(SPECS[kind])
    stored = _tried(cluster, policy, pod)
    assert _claims_of(stored) == _claims_of(share_claims.with_claim(pod))
    assert bool(_claims_of(stored)[1]) == (kind == "plain")


def test_pods_of_other_schedulers_stay_as_they_are(cluster: Live, policy: str) -> None:
    pod = _pod(HALF)
    pod["spec"]["schedulerName"] = "kai-scheduler"  # which is none of ours here
    assert _claims_of(_tried(cluster, policy, pod)) == ([], {})


def test_two_halves_share_a_gpu_and_a_third_waits(cluster: Live, policy: str) -> None:
    with scene(cluster) as story:
        story.pod("early", annotations=HALF)
        story.wait_refused("early", "no GPU offers shares of its memory")
        _shareable(story, "n0", 1)  # from now on there is one
        story.pod("half", annotations=HALF)
        story.wait_running("early", "half")
        assert story.devices_of("early") == story.devices_of("half")
        third = story.pod("third", annotations={"gpu-memory": "1"})
        message = story.wait_refused("third", "with capacity left")
        assert "claim gpu-share" in message
        assert third["spec"]["resourceClaims"][0]["name"] == "gpu-share"

        consumed = [_result(claim)["consumedCapacity"] for claim in story.claims() if _has(claim)]
        assert consumed == [{"memory": "40Gi"}] * 2
        story.rest.delete("pods", "half", story.namespace, gracePeriodSeconds=0)
        story.wait_running("early", "third")


@pytest.mark.parametrize(("whole", "step"), [("1", "10m"), ("100", "1")])
def test_gpus_that_also_offer_a_share_of_the_whole_are_shared_alike(
    cluster: Live, policy: str, whole: str, step: str
) -> None:
    with scene(cluster) as story:
        steps = {"min": step, "max": whole, "step": step}
        share = {"value": whole, "requestPolicy": {"default": whole, "validRange": steps}}
        _shareable(story, "n0", 1, **{"dovetail.dev/share": share})
        story.pod("half", annotations=HALF)
        story.pod("memory", annotations={"gpu-memory": "40960"})
        story.wait_running("half", "memory")
        assert story.devices_of("half") == story.devices_of("memory")
        consumed = [_result(claim)["consumedCapacity"] for claim in story.claims()]
        part = {"1": "500m", "100": "50"}[whole]
        assert consumed == [{"memory": "40Gi", "dovetail.dev/share": part}] * 2


def test_a_share_of_several_gpus_is_of_different_ones_and_goes_to_the_named_container(
    cluster: Live, policy: str
) -> None:
    with scene(cluster) as story:
        node = _shareable(story, "n0", 2)
        words = {"gpu-fraction-num-devices": "2", "gpu-fraction-container-name": "worker"}
        containers = [{"name": name, "image": "example"} for name in ("proxy", "worker")]
        story.pod("wide", annotations=MEMORY | words, containers=containers)
        pod = story.wait_running("wide")["wide"]
        assert story.devices_of("wide") == [(node, "gpu-0"), (node, "gpu-1")]
        having = [each["name"] for each in pod["spec"]["containers"] if _uses(each)]
        assert having == ["worker"]


def test_a_whole_gpu_is_shared_with_no_other_pod(cluster: Live, policy: str) -> None:
    with scene(cluster) as story:
        _shareable(story, "n0", 1)
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
        story.template("whole", request)
        story.pod("whole", templates=["whole"])
        story.wait_running("whole")
        story.pod("share", annotations={"gpu-memory": "1"})
        story.wait_refused("share", "with capacity left")


def test_a_template_goes_with_its_pod_and_is_created_again(cluster: Live, policy: str) -> None:
    with scene(cluster) as story:
        _shareable(story, "n0", 1)
        story.pod("first", annotations=HALF)
        story.wait_running("first")
        [template] = story.rest.list("resourceclaimtemplates", story.namespace)
        assert template["metadata"]["name"] == "dovetail-gpu-fraction-0.5"
        story.rest.delete("pods", "first", story.namespace, gracePeriodSeconds=0)
        story.wait(
            "the template to go",
            lambda: not story.rest.list("resourceclaimtemplates", story.namespace),
        )
        story.pod("second", annotations=HALF)
        story.wait_running("second")


def test_names_outside_the_pattern_are_not_created(cluster: Live) -> None:
    with scene(cluster) as story:
        _shareable(story, "n0", 1)
        for name in ("dovetail-gpu-fraction-1.5", "dovetail-gpu-memory-2gi", "mine"):
            story.pod(name.replace(".", "-"), templates=[name])
            story.wait_refused(name.replace(".", "-"), f"template {name} does not exist")
        assert story.rest.list("resourceclaimtemplates", story.namespace) == []


def _shareable(story: Scene, name: str, count: int, **capacity: Tree) -> str:
    """A node with GPUs that NVIDIA's driver publishes as shareable; its name."""
    node = story.node(name)
    policy = {"default": "80Gi", "validRange": {"min": "1Mi", "step": "1Mi"}}
    devices = [
        {
            "name": f"gpu-{number}",
            "allowMultipleAllocations": True,
            "attributes": {
                "type": {"string": "gpu"},
                "uuid": {"string": f"GPU-{node}-{number}"},
            },
            "capacity": {"memory": {"value": "80Gi", "requestPolicy": policy}} | capacity,
        }
        for number in range(count)
    ]
    story.slice(node, devices, driver="gpu.nvidia.com")
    return node


def _pod(words: dict[str, str]) -> Tree:
    """A pod of three containers and one that runs before them."""
    pod = pod_tree("p", annotations=words)
    names = ("main", "middle", "last")
    pod["spec"]["containers"] = [{"name": name, "image": "example"} for name in names]
    pod["spec"]["initContainers"] = [{"name": "setup", "image": "example"}]
    del pod["spec"]["resourceClaims"]
    return pod


def _tried(cluster: Live, namespace: str, pod: Tree) -> Tree:
    """What the server would store."""
    tree: Tree = cluster.rest.ask("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)
    return tree


def _claims_of(pod: Tree) -> tuple[list[Tree], dict[str, list[Tree]]]:
    """The pod's claims, and which containers use which."""
    spec = pod["spec"]
    containers = [*spec["containers"], *spec.get("initContainers", ())]
    uses = {each["name"]: _uses(each) for each in containers if _uses(each)}
    return spec.get("resourceClaims", []), uses


def _uses(container: Tree) -> list[Tree]:
    claims: list[Tree] = container.get("resources", {}).get("claims", [])
    return claims


def _has(claim: Tree) -> bool:
    return "allocation" in claim.get("status", {})


def _result(claim: Tree) -> Tree:
    [result] = claim["status"]["allocation"]["devices"]["results"]
    tree: Tree = result
    return tree
