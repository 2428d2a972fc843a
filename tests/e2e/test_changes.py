"""The cluster changes while pods are being placed: nodes are lost, pools are published again, devices are tainted."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.namespace_scene import (
    Scene,
    exactly,
    held_together,
    node_of,
    reason_of,
    scene,
    selecting,
    users_of,
)
from tests.e2e.test_examples import rule_version
from tests.support.live import Live, devices_of

pytestmark = [pytest.mark.slow, pytest.mark.newest]


def test_a_pod_that_waits_for_a_deleted_node_starts_on_another(cluster: Live) -> None:
    with scene(cluster) as story:
        nodes = story.fabric(nodes=2)
        story.pod("a", templates=["gpu"])
        claim = story.allocated()
        (_, lost, _) = devices_of(claim)[0]
        other = next(name for name in nodes if name != lost)
        story.pod("neighbour", nodeSelector={"kubernetes.io/hostname": lost})
        story.wait_running("neighbour")
        story.rest.delete("nodes", lost)
        story.wait(
            "the device of the lost node given back", lambda: story.held() == [(other, "gpu-0")]
        )
        story.report(story.allocated(), "Attached", "True")
        pods = story.wait_running("a")
        assert node_of(pods["a"]) == other
        assert node_of(pods["neighbour"]) == lost  # what is bound is not ours to move


def test_a_scheduler_that_comes_back_finds_the_node_of_its_work_gone(cluster: Live) -> None:
    with scene(cluster) as story:
        nodes = story.fabric(nodes=2)
        story.pod("a", templates=["gpu"])
        (_, lost, _) = devices_of(story.allocated())[0]
        other = next(name for name in nodes if name != lost)
        with rescheduled(cluster):
            story.rest.delete("nodes", lost)
        story.wait(
            "the device of the lost node given back", lambda: story.held() == [(other, "gpu-0")]
        )
        story.report(story.allocated(), "Attached", "True")
        assert node_of(story.wait_running("a")["a"]) == other


def test_a_node_that_goes_silent_gets_no_new_pods_and_keeps_its_devices(cluster: Live) -> None:
    """While it is unknown whether its pods still run, no other pod may get their devices."""
    with scene(cluster) as story:
        (node, other) = story.fleet(nodes=2, gpus=2)
        story.template()
        story.pod("running", templates=["gpu"], nodeSelector={"kubernetes.io/hostname": node})
        story.wait_running("running")
        story.rest.patch(
            "nodes", node, {"metadata": {"annotations": {"dovetail.dev/silent": "true"}}}
        )
        story.wait("the taint of an unreachable node", lambda: _is_unreachable(story, node))
        for name in ("b", "c", "d"):
            story.pod(name, templates=["gpu"])
        story.wait(
            "two of three on the other node", lambda: _nodes(story, "b", "c", "d").count(other) == 2
        )
        story.wait_refused(
            next(name for name in ("b", "c", "d") if not node_of(story.pods()[name])), "taint"
        )
        assert node_of(story.pods()["running"]) == node
        assert story.held_once() == 3
        story.rest.patch(
            "nodes", node, {"metadata": {"annotations": {"dovetail.dev/silent": None}}}
        )
        story.wait_running("b", "c", "d")
        assert story.held_once() == 4


def test_a_pool_republished_under_load_allocates_no_device_that_is_gone(cluster: Live) -> None:
    """40 pods while the pool still has gpu-0, 40 more once the scheduler has seen that it has gpu-40 instead."""
    count = 40
    with scene(cluster) as story:
        story.classed()
        story.template()
        wide = story.node("wide")
        devices = [
            {"name": f"gpu-{number}", "attributes": {"n": {"int": number}}}
            for number in range(2 * count + 2)
        ]
        story.slice(wide, devices[: count + 1])
        story.template(
            "new", exactly("gpu", story.device_class, selectors=_numbered(story, len(devices) - 1))
        )
        with (
            story.rest.record("resourceclaims", story.namespace) as recording,
            loading(story, "early", count),
        ):
            story.wait("the first devices", story.held)
            pool = {"name": wide, "generation": 2, "resourceSliceCount": 1}
            patch = {"spec": {"devices": devices[1:], "pool": pool}}
            story.rest.patch("resourceslices", f"{wide}-devices", patch)
            story.pod(
                "probe", templates=["new"]
            )  # who gets the new device proves that the new pool was seen
            story.wait_running("probe")
            with loading(story, "late", count):
                pass
        names = [f"{kind}-{number}" for kind in ("early", "late") for number in range(count)]
        pods = story.wait_running(*names)
        late = {pods[f"late-{number}"]["metadata"]["uid"] for number in range(count)}
        taken = [
            item
            for claim in story.claims()
            if not late.isdisjoint(users_of(claim))
            for item in devices_of(claim)
        ]
        assert len(taken) == count
        assert (story.driver, wide, "gpu-0") not in taken
        assert story.held_once() == 2 * count + 1
        assert not held_together(recording.seen)
        assert cluster.consistent()["consistent"]


def test_a_taint_rule_that_comes_and_goes_under_load(cluster: Live) -> None:
    """No pod made while the rule is known gets a tainted device, and none waits once it is gone."""
    count = 30
    with scene(cluster) as story:
        (node, other) = story.fleet(nodes=2, gpus=100)
        story.template()
        story.template("there", exactly("gpu", story.device_class))
        late: set[str] = set()
        with story.rest.record("resourceclaims", story.namespace) as recording:
            for turn in range(2):
                with loading(story, f"before-{turn}", count // 2):
                    rule = _tainted(story, node, turn)
                probe = _refused(story, node, turn)  # from now on the rule is known
                with loading(story, f"under-{turn}", count):
                    pass
                names = [f"under-{turn}-{number}" for number in range(count)]
                late.update(story.wait_running(*names)[name]["metadata"]["uid"] for name in names)
                cluster.rest.ask("DELETE", rule)
                story.wait_running(probe)
                for number in range(count // 2):
                    story.rest.delete("pods", f"under-{turn}-{number}", story.namespace)
        pods = {pod["metadata"]["uid"]: node_of(pod) for pod in story.pods().values()}
        assert {pods[uid] for uid in late if uid in pods} == {other}
        story.wait("all pods", lambda: all(node_of(pod) for pod in story.pods().values()))
        story.held_once()
        assert not held_together(recording.seen)
        assert cluster.consistent()["consistent"]


def _refused(story: Scene, node: str, turn: int) -> str:
    """A pod that waits because of the rule. Pods before it got a device: the scheduler did not know the rule yet."""
    for number in itertools.count():
        name = f"probe-{turn}-{number}"
        story.pod(name, templates=["there"], nodeSelector={"kubernetes.io/hostname": node})

        def is_decided(name: str = name) -> bool:
            pod = story.pods()[name]
            return bool(node_of(pod)) or "tolerated" in reason_of(pod)

        story.wait(f"a node or a reason for {name}", is_decided)
        if not node_of(story.pods()[name]):
            return name
    raise AssertionError("unreachable")


@contextmanager
def rescheduled(cluster: Live) -> Iterator[None]:
    """No scheduler runs during the block: it was killed, and its successor starts at the end."""
    cluster.stop(kill=True)
    try:
        yield
    finally:
        cluster.schedule()
        cluster.wait_for("a scheduler that leads", cluster.leads)


@contextmanager
def loading(story: Scene, prefix: str, count: int) -> Iterator[None]:
    """Pods are made one after another while the block runs; all are there at its end."""
    problems: list[BaseException] = []

    def make() -> None:
        try:
            for number in range(count):
                story.pod(f"{prefix}-{number}", templates=["gpu"])
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=make)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    assert not problems, problems


def _numbered(story: Scene, number: int) -> list[dict[str, object]]:
    return selecting(f"device.attributes['{story.driver}'].n == {number}")


def _tainted(story: Scene, pool: str, turn: int) -> str:
    """A rule that taints a whole pool; its path."""
    version = rule_version(story.live)
    name = f"{story.namespace}-{turn}"
    spec = {
        "deviceSelector": {"driver": story.driver, "pool": pool},
        "taint": {"key": "example.com/broken", "effect": "NoSchedule"},
    }
    tree = {
        "apiVersion": version,
        "kind": "DeviceTaintRule",
        "metadata": {"name": name},
        "spec": spec,
    }
    story.rest.ask("POST", f"/apis/{version}/devicetaintrules", tree)
    return f"/apis/{version}/devicetaintrules/{name}"


def _is_unreachable(story: Scene, node: str) -> bool:
    taints = story.rest.read("nodes", node)["spec"].get("taints", ())
    return any(taint["key"] == "node.kubernetes.io/unreachable" for taint in taints)


def _nodes(story: Scene, *names: str) -> list[str]:
    result = story.pods()
    return [node_of(result[name]) for name in names]
