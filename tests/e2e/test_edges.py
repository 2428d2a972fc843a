"""Pods at the edges of what a real server stores: too large for another byte, or with amounts that no machine has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.namespace_scene import RESOURCE, Scene, Tree, pod_tree
from tests.support import cluster as planes
from tests.support import live
from tests.support.live import Live
from tests.support.rest import RefusedError

pytestmark = pytest.mark.slow

IN_FLIGHT = (
    4  # so many pods that never can be bound would stop all others if they kept their places
)
LEAST, MOST = 1_400_000, 1_600_000  # bytes: a pod with the one fits, with the other not


@pytest.fixture(scope="module")
def cluster() -> Iterator[Live]:
    """A cluster of its own: pods that are too large for another byte cannot even be deleted."""
    with live.private() as lives:
        result = [item for item in live.installed() if item["kind"] == "CustomResourceDefinition"]
        planes.apply(lives.plane, result)
        names = [f"crd/{item['metadata']['name']}" for item in result]
        planes.kubectl(lives.plane, "wait", "--for=condition=Established", *names, "--timeout=60s")
        lives.play("--nodes", "1")
        lives.schedule(configuration={"writes": {"inFlightPods": IN_FLIGHT}})
        lives.wait_for("a leader", lives.leads)
        yield lives


@pytest.fixture(scope="module")
def story(cluster: Live) -> Scene:
    """A node with more devices than there are large pods. It goes with the cluster: those pods cannot be removed."""
    scene = Scene(cluster, planes.fresh_namespace(cluster.plane))
    scene.fleet(gpus=2 * IN_FLIGHT)
    return scene


def large(story: Scene, name: str, size: int, *, scheduler: str = "dovetail") -> None:
    """Creates a pod of about this size that uses a claim of its own."""
    tree = pod_tree(name, claims=[name], scheduler=scheduler)
    tree["spec"]["containers"][0]["env"] = [{"name": "FILLER", "value": "x" * size}]
    story.rest.create("pods", tree, story.namespace)


def largest(story: Scene) -> int:
    """The size of a pod to which the server cannot add a byte, found by halving. None of the pods tried is ours."""
    fits, fails = LEAST, MOST
    tries = 0
    while fails - fits > 1:
        size = (fits + fails) // 2
        try:
            large(story, f"probe-{tries:02d}", size, scheduler="anything")  # a name as long as ours
            fits = size
        except RefusedError:
            fails = size
        tries += 1
    return fits


def test_pods_that_cannot_take_another_byte_delay_no_other_pod_and_get_an_event(
    cluster: Live, story: Scene
) -> None:
    size = largest(story)
    names = [f"large-{number:02d}" for number in range(IN_FLIGHT + 1)]  # as long as the names tried
    for name in names:
        story.claim(name)
        large(story, name, size)
    story.wait(
        "an event for each of them",
        lambda: all(story.events("FailedScheduling", name) for name in names),
    )
    for name in names:
        assert "too large" in story.events("FailedScheduling", name)[0]["note"]
    story.template()
    story.pod("honest", templates=["gpu"])
    story.wait_running("honest")
    story.wait("what they held to be free", lambda: story.held_once() == 1)
    assert cluster.metric("dovetail_writes_given_up_total", what="binding") >= len(names)


@pytest.mark.parametrize("resource", ["cpu", "memory"])
@pytest.mark.parametrize("amount", ["1e400", "1e1100", "1e1500"])
def test_amounts_that_no_machine_has_are_refused_with_a_reason(
    story: Scene, resource: str, amount: str
) -> None:
    name = f"{resource}-{amount}"
    story.pod(name, limits={resource: amount})
    story.wait_refused(name, "lack", resource)


def test_a_share_that_no_device_has_is_refused_with_a_reason(story: Scene) -> None:
    tree: Tree = {
        "deviceClassName": story.device_class,
        "capacity": {"requests": {"memory": "1e1100"}},
    }
    body = {"devices": {"requests": [{"name": "gpu", "exactly": tree}]}}
    head = {"apiVersion": RESOURCE, "kind": "ResourceClaim", "metadata": {"name": "share"}}
    story.rest.create("resourceclaims", head | {"spec": body}, story.namespace)
    story.pod("sharing", claims=["share"])
    story.wait_refused("sharing", "offer memory of", "no device has it")


def test_the_definition_of_intents_keeps_parts(story: Scene) -> None:
    members = [{"pod": "a", "uid": "u", "node": "n"}]
    spec = {"gang": "gang/large", "members": members, "part": 2, "parts": 3, "batch": "b"}
    head = {"apiVersion": "dovetail.dev/v1alpha1", "kind": "Intent", "metadata": {"name": "part"}}
    kept = story.rest.create("intents", head | {"spec": spec}, story.namespace)["spec"]
    assert {name: kept[name] for name in ("part", "parts", "batch")} == {
        "part": 2,
        "parts": 3,
        "batch": "b",
    }
