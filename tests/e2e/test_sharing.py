"""Parts of devices, second choices and classic resources: nothing is allocated twice, whichever process dies."""

from __future__ import annotations

import collections
import random
from typing import Any

import pytest

from dovetail.devcluster import kube_binaries
from dovetail.quantity import quantity
from tests.e2e.namespace_scene import Scene, exactly, node_of, phase_of, scene, selecting, users_of
from tests.faults import crashing
from tests.faults.crashing import Point
from tests.support.live import Live, devices_of

pytestmark = pytest.mark.slow

PROFILES = {
    "1g.10gb": 10,
    "2g.20gb": 5,
    "3g.40gb": 5,
}  # more than the four GPUs of one node can serve
STARTING_WRITES = (
    "claim-create",
    "claim-status",
    "pod-status",
    "binding",
)  # of a pod with classic resources
SHORT_LEASE = {"leaseDurationSeconds": 2, "renewDeadlineSeconds": 1.5, "retryPeriodSeconds": 0.5}


def test_second_choice_is_half_a_gpu_when_every_first_choice_is_taken(cluster: Live) -> None:
    with scene(cluster) as story:
        h100 = "device.attributes['gpu.nvidia.com'].productName.startsWith('NVIDIA H100')"
        story.template(
            "eight", exactly("gpus", "gpu.nvidia.com", count=8, selectors=selecting(h100))
        )
        first = {"name": "h100", "deviceClassName": "gpu.nvidia.com", "selectors": selecting(h100)}
        second = {
            "name": "half",
            "deviceClassName": "mig.nvidia.com",
            "selectors": _profile("3g.40gb"),
        }
        story.template("either", {"name": "gpu", "firstAvailable": [first, second]})
        fillers = [f"filler-{number}" for number in range(4)]
        for name in fillers:
            story.pod(name, templates=["eight"], nodeSelector={"dovetail.dev/pool": "h100"})
        story.wait_running(*fillers)
        story.pod("flexible", templates=["either"], nodeSelector=None)
        story.wait_running("flexible")
        assert _requests_of(story, "flexible") == ["gpu/half"]
        story.rest.delete("pods", "filler-0", story.namespace)
        story.wait("a free H100", lambda: "filler-0" not in story.pods())
        story.pod("lucky", templates=["either"], nodeSelector=None)
        story.wait_running("lucky")
        assert _requests_of(story, "lucky") == ["gpu/h100"]


def test_partitions_of_one_gpu_never_draw_more_than_it_has(cluster: Live) -> None:
    node = "a100-1"
    with scene(cluster) as story:
        names = []
        for profile, count in PROFILES.items():
            template = story.template(
                profile.replace(".", "-"),
                exactly("mig", "mig.nvidia.com", selectors=_profile(profile)),
            )
            names += [f"{template}-{number}" for number in range(2 * count)]
        random.Random(7).shuffle(names)
        for name in names:
            template = name.rpartition("-")[0]
            story.pod(name, templates=[template], nodeSelector={"kubernetes.io/hostname": node})
        story.wait("an answer for every pod", lambda: _is_settled(story))
        _check_counters(story, node)
        running = [name for name, pod in story.pods().items() if node_of(pod)]
        assert 4 <= len(running) < len(names)  # some must wait, or the test shows nothing
        for name in running[::2]:
            story.rest.delete("pods", name, story.namespace)
        story.wait("the end of half of them", lambda: not set(running[::2]) & set(story.pods()))
        story.wait(
            "others in their place",
            lambda: _is_settled(story) and len(_placed(story)) > len(running) // 2,
        )
        _check_counters(story, node)


def test_shares_of_a_device_never_add_up_to_more_than_it_has(cluster: Live) -> None:
    with scene(cluster) as story:
        story.classed()
        node = story.node("shared")
        policy = {"default": "10Gi", "validRange": {"min": "5Gi", "max": "80Gi", "step": "5Gi"}}
        memory = {"value": "80Gi", "requestPolicy": policy}
        story.slice(
            node,
            [{"name": "gpu-0", "allowMultipleAllocations": True, "capacity": {"memory": memory}}],
        )
        sizes = [25, 15, 10, 22, 5, 30, 12, 8]
        for number, size in enumerate(sizes):
            capacity = {"requests": {"memory": f"{size}Gi"}}
            story.claim(f"share-{number}", exactly("memory", story.device_class, capacity=capacity))
            story.pod(f"p{number}", claims=[f"share-{number}"])
        story.wait("an answer for every pod", lambda: _is_settled(story))
        assert 0 < _memory_in_use(story) <= 80
        waiting = [name for name, pod in story.pods().items() if not node_of(pod)]
        assert waiting
        for name in [name for name in story.pods() if name not in waiting]:
            story.rest.delete("pods", name, story.namespace)
        story.wait(
            "room for those who waited", lambda: all(node_of(pod) for pod in story.pods().values())
        )
        assert 0 < _memory_in_use(story) <= 80
        shares = [result["shareID"] for claim in story.claims() for result in _results(claim)]
        assert len(set(shares)) == len(shares)


def test_pods_with_classic_resources_get_one_claim_each_whenever_the_scheduler_dies(
    cluster: Live,
) -> None:
    """Killed before and after each write that starts such a pod; the next one goes on with the claim that is there."""
    is_default = cluster.plane.parts.minor == kube_binaries.DEFAULT
    points = [Point(what, is_before) for what in STARTING_WRITES for is_before in (True, False)]
    chosen = points if is_default else points[1::2]
    with scene(cluster) as story:
        resource = f"{story.namespace}.example.com/gpu"
        story.classed(extendedResourceName=resource)
        node = story.node("n0")
        story.slice(node, [{"name": f"gpu-{number}"} for number in range(2 * len(chosen))])
        cluster.stop()
        try:
            with (
                crashing.crashes(cluster.plane) as crashes,
                story.rest.record("resourceclaims", story.namespace) as seen,
            ):
                for number, point in enumerate(chosen):
                    _die_while_starting(story, crashes, point, name=f"p{number}", resource=resource)
                cluster.schedule(configuration={"leaderElection": SHORT_LEASE})
                pods = story.wait_running(*(f"p{number}" for number in range(len(chosen))))
            made = {item.object["metadata"]["uid"] for item in seen.seen}
            assert len(made) == len(chosen)  # never a second one, not even for a moment
        finally:
            cluster.stop(kill=True)
            cluster.schedule()
            cluster.wait_for("a leader", cluster.leads)
        assert story.held_once() == 2 * len(chosen)
        for pod in pods.values():
            name = pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
            claim = next(item for item in story.claims() if item["metadata"]["name"] == name)
            assert users_of(claim) == [pod["metadata"]["uid"]]


def _die_while_starting(
    story: Scene, crashes: crashing.Crashes, point: Point, *, name: str, resource: str
) -> None:
    """A scheduler finishes what the one before it left, then dies at this point of a new pod's start."""
    cluster = story.live
    left = [*story.pods()]
    process = cluster.schedule(configuration={"leaderElection": SHORT_LEASE}, through=crashes.port)
    cluster.wait_for("a leader", cluster.leads)
    if left:
        story.wait_running(*left)
    crashes.arm(process, point)
    story.pod(name, limits={resource: "2"})
    write = crashes.wait_for_death()
    cluster.stop(kill=True)
    assert story.namespace in write, f"{point}: died at another write: {write}"
    is_bound = point == Point("binding", is_before=False)
    assert bool(node_of(story.pods()[name])) == is_bound, point


def _profile(name: str) -> list[dict[str, Any]]:
    return selecting(f"device.attributes['gpu.nvidia.com'].profile == '{name}'")


def _results(claim: dict[str, Any]) -> list[dict[str, Any]]:
    allocation = claim.get("status", {}).get("allocation")
    return list(allocation["devices"]["results"]) if allocation else []


def _requests_of(story: Scene, pod: str) -> list[str]:
    uid = story.pods()[pod]["metadata"]["uid"]
    return [
        result["request"]
        for claim in story.claims()
        if uid in users_of(claim)
        for result in _results(claim)
    ]


def _placed(story: Scene) -> list[str]:
    return [name for name, pod in story.pods().items() if node_of(pod)]


def _is_settled(story: Scene) -> bool:
    """Whether every pod has a node or says why not, and nothing changes any more."""
    pods = story.pods().values()
    return all(phase_of(pod) == "Running" if node_of(pod) else _is_refused(pod) for pod in pods)


def _is_refused(pod: dict[str, Any]) -> bool:
    return any(
        item["type"] == "PodScheduled" and item["reason"] == "Unschedulable"
        for item in pod["status"].get("conditions", ())
    )


def _check_counters(story: Scene, node: str) -> None:
    """Adds up, from the published slices alone, what all devices in use draw from each counter."""
    slices = [
        item for item in story.rest.list("resourceslices") if item["spec"]["pool"]["name"] == node
    ]
    limits = {
        (item["name"], counter): quantity.parse(amount["value"]).nanos
        for slice_ in slices
        for item in slice_["spec"].get("sharedCounters", ())
        for counter, amount in item["counters"].items()
    }
    devices = {
        item["name"]: item for slice_ in slices for item in slice_["spec"].get("devices", ())
    }
    drawn: collections.Counter[tuple[str, str]] = collections.Counter()
    used = [
        device
        for claim in story.rest.list("resourceclaims")
        for _, pool, device in devices_of(claim)
        if pool == node
    ]
    assert len(set(used)) == len(used) > 0
    for name in used:
        for item in devices[name]["consumesCounters"]:
            for counter, amount in item["counters"].items():
                drawn[(item["counterSet"], counter)] += quantity.parse(amount["value"]).nanos
    assert drawn
    assert {key for key, amount in drawn.items() if amount > limits[key]} == set()


def _memory_in_use(story: Scene) -> float:
    taken = [
        result["consumedCapacity"]["memory"]
        for claim in story.claims()
        for result in _results(claim)
    ]
    return sum(quantity.parse(item).nanos for item in taken) / (10**9 * 2**30)
