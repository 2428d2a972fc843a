"""What users see on a real API server: claims of every kind, reasons for waiting, devices that must be prepared.

Each story has devices of its own on the shared cluster and can fail: whatever is expected is read back from the server.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from dovetail.devcluster import kube_binaries
from tests.e2e.namespace_scene import (
    Scene,
    exactly,
    node_of,
    phase_of,
    pod_tree,
    reason_of,
    scene,
    users_of,
)
from tests.support.live import Live, devices_of

pytestmark = pytest.mark.slow


# Claims


def test_a_claim_shared_by_three_pods_is_allocated_once(cluster: Live) -> None:
    with scene(cluster) as story:
        story.fleet(nodes=3, gpus=1)
        story.claim("shared")
        for name in ("a", "b", "c"):
            story.pod(name, claims=["shared"])
        pods = story.wait_running("a", "b", "c")
        (claim,) = story.claims()
        assert len({node_of(pod) for pod in pods.values()}) == 1
        assert sorted(users_of(claim)) == sorted(pod["metadata"]["uid"] for pod in pods.values())
        assert len(devices_of(claim)) == 1


def test_admin_access_sees_devices_that_are_in_use_and_takes_none(cluster: Live) -> None:
    with scene(cluster) as story:
        story.fleet(nodes=1, gpus=2)
        label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
        story.rest.patch("namespaces", story.namespace, label)
        story.template()
        everything = exactly("all", story.device_class, allocationMode="All", adminAccess=True)
        story.template("monitor", everything)
        story.pod("a", templates=["gpu"])
        story.wait_running("a")
        story.pod("monitor", templates=["monitor"])
        story.wait_running("monitor")
        assert len(story.devices_of("monitor")) == 2
        story.pod("b", templates=["gpu"])  # the monitor must not stand in its way
        story.wait_running("b")
        assert story.devices_of("a") != story.devices_of("b")


def test_a_deleted_claim_from_a_template_is_recreated_and_used(cluster: Live) -> None:
    with scene(cluster) as story:
        (node,) = story.fleet(nodes=1, gpus=1)
        story.template()
        story.rest.patch("nodes", node, {"spec": {"unschedulable": True}})
        story.pod("a", templates=["gpu"])
        first = story.wait("a claim", story.claims)[0]
        story.wait_refused("a", "cordoned")
        story.rest.delete("resourceclaims", first["metadata"]["name"], story.namespace)
        # The controller remembers for an hour that it made a claim; only a new one looks again.
        cluster.plane.terminate(kube_binaries.CONTROLLER_MANAGER)
        cluster.plane.start(kube_binaries.CONTROLLER_MANAGER)
        story.wait(
            "another claim",
            lambda: [
                one for one in story.claims() if one["metadata"]["uid"] != first["metadata"]["uid"]
            ],
        )
        story.rest.patch("nodes", node, {"spec": {"unschedulable": None}})
        story.wait_running("a")
        (claim,) = story.claims()
        assert claim["metadata"]["uid"] != first["metadata"]["uid"]
        assert len(devices_of(claim)) == 1


def test_a_pod_deleted_while_it_waits_leaves_no_claim(cluster: Live) -> None:
    with scene(cluster) as story:
        story.fleet(nodes=1, gpus=1)
        story.template()
        story.pod("first", templates=["gpu"])
        story.wait_running("first")
        story.pod("second", templates=["gpu"], limits={"nvidia.com/gpu": "1"})
        story.wait_refused("second", "gpu")
        story.rest.delete("pods", "second", story.namespace)
        story.wait("the end of the second pod's claim", lambda: len(story.claims()) == 1)
        story.rest.delete("pods", "first", story.namespace)
        story.wait("the end of all claims", lambda: not story.claims())


def test_two_claims_of_which_one_does_not_fit_hold_nothing_until_both_do(cluster: Live) -> None:
    with scene(cluster) as story:
        (node,) = story.fleet(nodes=1, gpus=2)
        story.template()
        story.template("two", exactly("gpus", story.device_class, count=2))
        story.pod("both", templates=["gpu", "two"])
        story.wait_refused("both", "t1")
        story.pod(
            "small", templates=["gpu"]
        )  # what the first cannot use as a whole is free for others
        story.wait_running("small")
        assert len(story.held()) == 1
        devices = [{"name": f"gpu-{number}"} for number in range(5)]
        patch = {
            "spec": {
                "devices": devices,
                "pool": {"name": node, "generation": 2, "resourceSliceCount": 1},
            }
        }
        story.rest.patch("resourceslices", f"{node}-devices", patch)
        story.wait_running("both")
        assert story.held_once() == 4


# Events


def test_waiting_is_reported_once_per_reason_and_starting_too(cluster: Live) -> None:
    with scene(cluster) as story:
        (node,) = story.fleet(nodes=1, gpus=1)
        story.template()
        story.pod("first", templates=["gpu"])
        story.wait_running("first")
        assert story.wait("word of the first", lambda: story.events("Scheduled", "first"))[0][
            "note"
        ].endswith(node)
        story.pod("second", templates=["gpu"])
        story.wait_refused("second", "gpu")
        condition = _scheduled_condition(story.pods()["second"])
        assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
        for number in range(3):  # each of these makes the scheduler ask again, with the same answer
            story.rest.patch(
                "nodes", node, {"metadata": {"labels": {"example.com/try": str(number)}}}
            )
            attempts = cluster.metric("scheduler_schedule_attempts_total", result="unschedulable")
            story.wait(
                "another attempt",
                lambda before=attempts: (
                    cluster.metric("scheduler_schedule_attempts_total", result="unschedulable")
                    > before
                ),
            )
        story.rest.patch("nodes", node, {"spec": {"unschedulable": True}})
        story.wait_refused("second", "cordoned")
        story.wait(
            "an event about the cordon",
            lambda: any("cordoned" in note for note in _refusal_notes(story, "second")),
        )
        story.rest.patch("nodes", node, {"spec": {"unschedulable": None}})
        story.wait_refused("second", "gpu")
        story.rest.delete("pods", "first", story.namespace)
        story.wait_running("second")
        story.wait("an event about the start", lambda: story.events("Scheduled", "second"))
        notes = _refusal_notes(story, "second")
        # The taint that Kubernetes sets with a cordon leaves a little later and may be a reason of its own.
        assert all(before != after for before, after in itertools.pairwise(notes)), notes
        assert sum("cordoned" in note for note in notes) == 1, notes
        assert len(story.events("Scheduled", "second")) == 1
        assert _scheduled_condition(story.pods()["second"])["status"] == "True"


def test_pods_of_other_schedulers_are_not_touched(cluster: Live) -> None:
    with scene(cluster) as story:
        story.fleet(nodes=1, gpus=1)
        story.template()
        story.rest.create(
            "pods", pod_tree("theirs", templates=["gpu"], scheduler="other"), story.namespace
        )
        story.wait(
            "the claim of their pod",
            lambda: story.pods()["theirs"]["status"].get("resourceClaimStatuses"),
        )
        story.pod("ours", templates=["gpu"])
        story.wait_running("ours")
        theirs = story.pods()["theirs"]
        assert node_of(theirs) == ""
        assert "conditions" not in theirs["status"] or not reason_of(theirs)
        writers = {entry["manager"] for entry in theirs["metadata"]["managedFields"]}
        assert not any("dovetail" in writer for writer in writers), writers
        assert story.events("FailedScheduling", "theirs") == []
        name = theirs["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
        claim = next(one for one in story.claims() if one["metadata"]["name"] == name)
        assert devices_of(claim) == []
        assert "finalizers" not in claim["metadata"]


# Devices that must be prepared


def test_a_device_with_conditions_is_bound_only_when_its_driver_says_so(cluster: Live) -> None:
    with scene(cluster) as story:
        story.fabric(nodes=1)
        story.pod("a", templates=["gpu"])
        claim = story.allocated()
        assert claim["status"]["allocation"].get("allocationTimestamp")
        story.report(claim, "Attached", "False")
        story.pod("plain")  # the loop goes on meanwhile
        story.wait_running("plain")
        assert node_of(story.pods()["a"]) == ""
        story.report(claim, "Attached", "True")
        story.wait_running("a")


def test_a_device_that_cannot_be_prepared_is_given_back(cluster: Live) -> None:
    with scene(cluster) as story:
        story.fabric(nodes=1)
        with story.rest.record("resourceclaims", story.namespace) as recording:
            story.pod("a", templates=["gpu"])
            claim = story.allocated()
            story.report(claim, "AttachFailed", "True")
            name = claim["metadata"]["name"]
            story.wait(
                "the device given back and taken again",
                lambda: (
                    _changes([bool(devices_of(one.object)) for one in recording.of(name)])[:3]
                    == [False, True, False]
                ),
            )
        claim = story.allocated()
        assert not claim["status"].get("devices"), (
            "what was said about the old device must not count for the new one"
        )
        story.report(claim, "Attached", "True")
        story.wait_running("a")


# Device plugins


def test_device_plugin_resources_are_counted_and_the_fifth_pod_waits(cluster: Live) -> None:
    with scene(cluster) as story:
        story.node("plugin", offers={"example.com/gpu": "4"})
        names = [f"p{number}" for number in range(5)]
        for name in names:
            story.pod(name, limits={"example.com/gpu": "1"})
        story.wait("four running pods", lambda: _running(story) == 4)
        waiting = next(name for name, pod in story.pods().items() if not node_of(pod))
        story.wait_refused(waiting, "example.com/gpu")
        assert story.claims() == []
        story.rest.delete("pods", next(name for name in names if name != waiting), story.namespace)
        story.wait_running(waiting)


def test_where_a_device_plugin_offers_the_resource_no_claim_is_made(cluster: Live) -> None:
    with scene(cluster) as story:
        resource = f"{story.namespace}.example.com/gpu"
        story.classed(extendedResourceName=resource)
        by_plugin = story.node(
            "plugin", labels={"example.com/kind": "plugin"}, offers={resource: "1"}
        )
        by_devices = story.node("devices", labels={"example.com/kind": "devices"})
        for node in (by_plugin, by_devices):
            story.slice(node, [{"name": "gpu-0"}])
        for kind in ("plugin", "devices"):
            story.pod(kind, limits={resource: "1"}, nodeSelector={"example.com/kind": kind})
        pods = story.wait_running("plugin", "devices")
        assert "extendedResourceClaimStatus" not in pods["plugin"]["status"]
        made = pods["devices"]["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
        assert [one["metadata"]["name"] for one in story.claims()] == [made]
        assert story.held() == [(by_devices, "gpu-0")]


def test_an_annotation_of_hami_chooses_the_type_of_gpu(cluster: Live) -> None:
    """A real API server takes the selectors of the claim that is made."""
    with scene(cluster) as story:
        resource = f"{story.namespace}.nvidia.com/gpu"
        story.classed(extendedResourceName=resource)
        for name, product in (("a", "NVIDIA A100-SXM4-80GB"), ("b", "NVIDIA GB200")):
            attributes = {"productName": {"string": product}, "uuid": {"string": f"GPU-{name}"}}
            story.slice(story.node(name), [{"name": f"gpu-{name}", "attributes": attributes}])
        for name, words in (
            ("typed", {"nvidia.com/use-gputype": "GB200,H100"}),
            ("chosen", {"nvidia.com/use-gpuuuid": "GPU-a", "nvidia.com/nouse-gputype": "GB200"}),
            ("absent", {"nvidia.com/use-gputype": "H100"}),
        ):
            story.pod(name, limits={resource: "1"}, annotations=words)
        story.pod("share", annotations={"gpu-fraction": "0.5"})
        story.wait_running("typed", "chosen")
        held = sorted(device for _, device in story.held())
        assert held == ["gpu-a", "gpu-b"]
        story.wait_refused("absent", resource)
        story.wait_refused("share", "annotation gpu-fraction", "capacity.requests.memory")


# Removal by force


def test_the_device_of_a_pod_removed_by_force_rests_until_the_node_lets_go(cluster: Live) -> None:
    """The grace is longer than any test: the device rests until the node itself is gone."""
    with scene(cluster) as story:
        (node,) = story.fleet(nodes=1, gpus=1)
        story.template()
        story.pod("first", templates=["gpu"], terminationGracePeriodSeconds=3600)
        story.wait_running("first")
        story.pod("second", templates=["gpu"])
        story.wait_refused("second", "gpu")
        story.rest.delete("pods", "first", story.namespace, gracePeriodSeconds=0)
        story.wait("a quarantine", lambda: cluster.metric("dovetail_quarantined_devices") > 0)
        story.wait_refused("second", "first", "removed by force")
        story.pod("without", nodeSelector={"kubernetes.io/hostname": node})
        story.wait_running("without")  # the scheduler goes on meanwhile
        assert story.held() == []

        story.rest.delete("nodes", node)
        story.wait(
            "the end of the quarantine", lambda: cluster.metric("dovetail_quarantined_devices") == 0
        )
        story.node("n0")
        story.wait_running("second")
        assert story.held() == [(node, "gpu-0")]


def _changes(states: list[bool]) -> list[bool]:
    """The states without repetition."""
    return [one for place, one in enumerate(states) if place == 0 or states[place - 1] != one]


def _running(story: Scene) -> int:
    return sum(phase_of(pod) == "Running" for pod in story.pods().values())


def _refusal_notes(story: Scene, pod: str) -> list[str]:
    """What the events say about why the pod waits, oldest first."""
    events = story.events("FailedScheduling", pod)
    return [event["note"] for event in sorted(events, key=lambda event: str(event["eventTime"]))]


def _scheduled_condition(pod: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(
        one for one in pod["status"]["conditions"] if one["type"] == "PodScheduled"
    )
    return found
