"""A server that silently drops fields: conditions of its pods name them, their claims are freed, and it is counted.

Devices were published while the features were on; then the API server is started again without them, as after a
roll-back. What is stored already stays, what is written later is cut.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dovetail.devcluster import kube_binaries
from tests.e2e.namespace_scene import Scene, node_of, scene
from tests.support import live
from tests.support.live import Live

pytestmark = pytest.mark.slow

GATES = {"DRAConsumableCapacity": False, "DRADeviceBindingConditions": False}
CONDITIONS = {
    "bindsToNode": True,
    "bindingConditions": ["Attached"],
    "bindingFailureConditions": ["AttachFailed"],
}
KINDS = {  # a device, and what the server does not keep of a claim that holds it
    "shared": (
        {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "80Gi"}}},
        ("devices.results[].consumedCapacity", "devices.results[].shareID"),
    ),
    "prepared": (
        CONDITIONS,
        ("devices.results[].bindingConditions", "devices.results[].bindingFailureConditions"),
    ),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Live]:
    """A cluster of one hollow fleet, no scheduler yet."""
    with live.private() as lives:
        lives.play("--nodes", "1")
        yield lives


@pytest.fixture(scope="module")
def story(cluster: Live) -> Iterator[Scene]:
    """Devices of every kind, published with all features; then the server starts again with some of them off."""
    with scene(cluster) as scenes:
        for kind, (device, _) in KINDS.items():
            node = scenes.node(kind, labels={"example.com/kind": kind})
            scenes.slice(node, [{"name": "gpu-0"} | device])
        plain = scenes.node("plain", labels={"example.com/kind": "plain"})
        scenes.slice(plain, [{"name": "gpu-0"}])
        scenes.classed()
        scenes.template()
        plane = cluster.plane
        plane.kill(kube_binaries.APISERVER)
        plane.layout = plane.layout._replace(feature_gates={**plane.layout.feature_gates, **GATES})
        plane.start(kube_binaries.APISERVER)
        cluster.schedule()
        cluster.wait_for("a leader", cluster.leads)
        yield scenes


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_the_server_does_not_keep_is_named_and_the_device_given_back(
    cluster: Live, story: Scene, kind: str
) -> None:
    _, fields = KINDS[kind]
    story.pod(kind, templates=["gpu"], nodeSelector={"example.com/kind": kind})
    message = story.wait_refused(kind, "does not keep")
    for field in fields:
        assert field in message
        _wait_counted(cluster, field)
    pod = story.pods()[kind]
    condition = next(item for item in pod["status"]["conditions"] if item["type"] == "PodScheduled")
    assert condition["reason"] == "SchedulerError"
    story.wait(
        "an event",
        lambda: [
            tree for tree in story.events("FailedScheduling", kind) if fields[0] in tree["note"]
        ],
    )
    story.rest.delete("pods", kind, story.namespace)
    story.wait("its claim and device to be gone", lambda: not story.claims())


def test_what_needs_no_such_field_runs_on_the_same_server(cluster: Live, story: Scene) -> None:
    story.pod("plain", templates=["gpu"], nodeSelector={"example.com/kind": "plain"})
    assert node_of(story.wait_running("plain")["plain"]).endswith("-plain")
    assert len(story.held()) == 1


def _wait_counted(cluster: Live, field: str) -> None:
    cluster.wait_for(
        "a count", lambda: cluster.metric("dovetail_fields_dropped_total", field=field) > 0
    )
