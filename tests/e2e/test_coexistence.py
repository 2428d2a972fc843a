"""A real kube-scheduler next to ours: devices allocated twice are detected and reported; with a border none are."""

from __future__ import annotations

import collections
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e import installing
from tests.e2e.namespace_scene import SCENE, Scene, held_together, node_of, pod_tree, users_of
from tests.support import cluster as planes
from tests.support import live
from tests.support.live import Live, devices_of

pytestmark = pytest.mark.slow

COUNT = 200  # pods of each scheduler, where they have to meet
APART = (
    80  # where a border keeps them apart: both sides have room, so a pod crosses a leaky one soon
)
THEIRS = "default-scheduler"
OWNER = "example.com/owner"
SHORT = {"leaseDurationSeconds": 3, "renewDeadlineSeconds": 2, "retryPeriodSeconds": 0.5}
Device = tuple[str, str, str]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Live]:
    """A cluster with hollow nodes and a kube-scheduler that is not slowed down by its own limits."""
    with live.private() as lives:
        lives.play("--nodes", "1")
        lives.plane.start_scheduler(THEIRS, qps=1000, burst=2000)
        yield lives


@contextmanager
def beside(cluster: Live, **ownership: Any) -> Iterator[Scene]:
    """A scene with our scheduler beside theirs. Two wide nodes: one for us, one for them, where there is a border."""
    scene = Scene(cluster, planes.fresh_namespace(cluster.plane))
    scene.classed()
    scene.template()
    cluster.schedule(configuration={"leaderElection": SHORT, "ownership": ownership})
    try:
        cluster.wait_for("a leader", cluster.leads)
        yield scene
    finally:
        cluster.stop(kill=True)
        cluster.rest.delete("leases", "dovetail-scheduler", "kube-system")
        scene.end()


def test_our_unbound_pod_releases_a_device_that_another_scheduler_allocated_too(
    cluster: Live,
) -> None:
    """Our pod has a device and waits for its driver; then another scheduler allocates the same device."""
    with beside(cluster) as story:
        node = story.node("fabric")
        conditions = {
            "bindingConditions": ["Attached"],
            "bindingFailureConditions": ["AttachFailed"],
        }
        story.slice(
            node,
            [{"name": f"gpu-{number}", "bindsToNode": True} | conditions for number in range(2)],
        )
        story.pod("ours", templates=["gpu"])
        ours = story.allocated()
        name, device = ours["metadata"]["name"], devices_of(ours)[0]
        story.claim("theirs")
        _allocate(story, "theirs", ours)
        story.wait(
            "our claim on the other device", lambda: _device(story, name) not in (None, device)
        )
        assert _device(story, "theirs") == device
        story.wait("no overlap any more", lambda: cluster.metric("dovetail_overlaps") == 0)
        story.report(
            next(claim for claim in story.claims() if claim["metadata"]["name"] == name),
            "Attached",
            "True",
        )
        story.wait_running("ours")


def test_a_device_in_use_that_another_scheduler_allocates_too_is_reported_on_both_claims(
    cluster: Live,
) -> None:
    with beside(cluster) as story:
        story.slice(story.node("n0"), [{"name": f"gpu-{number}"} for number in range(2)])
        story.pod("ours", templates=["gpu"])
        story.wait_running("ours")
        ours = story.allocated()
        name, device = ours["metadata"]["name"], devices_of(ours)[0]
        story.claim("theirs")
        _allocate(story, "theirs", ours)
        for item in ("theirs", name):
            result = story.wait(
                f"an event on {item}", lambda item=item: story.events("DeviceGivenTwice", item)
            )
            assert len(result) == 1
            assert device[2] in result[0]["note"]
        story.wait("a count", lambda: cluster.metric("dovetail_overlaps") == 1)
        assert (
            _device(story, name) == _device(story, "theirs") == device
        )  # neither is ours to take away
        story.rest.delete("resourceclaims", "theirs", story.namespace)
        story.wait("no overlap any more", lambda: cluster.metric("dovetail_overlaps") == 0)


def test_without_ownership_every_device_allocated_twice_is_reported(cluster: Live) -> None:
    with beside(cluster) as story:
        _wide(story, "shared")
        with story.rest.record("resourceclaims", story.namespace) as recording:
            _race(story, COUNT)
            story.wait("an answer for all", lambda: _placed(story) == 2 * COUNT)
        assert held_together(recording.seen), "the schedulers never met: the race shows nothing"
        twice = [device for device, count in _holders(story).items() if count > 1]
        story.wait(
            "the count of overlaps", lambda: cluster.metric("dovetail_overlaps") == len(twice)
        )
        involved = {
            item["metadata"]["name"]
            for item in story.claims()
            if not set(twice).isdisjoint(devices_of(item))
        }
        story.wait("an event on every claim", lambda: involved <= _claims_with_events(story))
        bound = {uid: pod for pod in story.pods().values() if (uid := pod["metadata"]["uid"])}
        for (
            claim
        ) in story.claims():  # what is left doubled is left to people: both pods have their nodes
            assert all(node_of(bound[uid]) for uid in users_of(claim))
        assert cluster.consistent()["consistent"]


def test_nodes_owned_by_label_are_never_shared(cluster: Live) -> None:
    with beside(cluster, nodeLabels={OWNER: "dovetail"}) as story:
        mine = _wide(story, "ours", labels={OWNER: "dovetail"})
        theirs = _wide(story, "theirs", labels={OWNER: "others"})
        _check_apart(story, mine, theirs, their_spec={"nodeSelector": {OWNER: "others"}})


def test_nodes_owned_by_taint_are_never_shared(cluster: Live) -> None:
    with beside(cluster, nodeTaint=OWNER) as story:
        mine, theirs = _wide(story, "ours"), _wide(story, "theirs")
        taint = {"key": OWNER, "value": "dovetail", "effect": "NoSchedule"}
        story.rest.patch("nodes", mine, {"spec": {"taints": [taint]}})
        tolerations = [{"key": OWNER, "operator": "Exists"}]
        _check_apart(story, mine, theirs, our_spec={"tolerations": tolerations})


def test_devices_owned_by_rule_are_never_shared(cluster: Live) -> None:
    """Both schedulers use both nodes; the rule keeps theirs off one pool and us off the other."""
    with beside(cluster, deviceTaintRules=["owned-by-dovetail"]) as story:
        mine, theirs = _wide(story, "ours"), _wide(story, "theirs")
        spec = {
            "deviceSelector": {"driver": story.driver, "pool": mine},
            "taint": {"key": OWNER, "value": "dovetail", "effect": "NoSchedule"},
        }
        path = "/apis/resource.k8s.io/v1/devicetaintrules"
        head = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule"}
        story.rest.ask(
            "POST", path, head | {"metadata": {"name": "owned-by-dovetail"}, "spec": spec}
        )
        try:
            _wait_known(story, mine)
            _check_apart(story, mine, theirs)
        finally:
            story.rest.ask("DELETE", f"{path}/owned-by-dovetail")


def test_with_ours_killed_everything_else_goes_on(cluster: Live) -> None:
    """Installed with its admission policy, then ended by force: nothing that is not ours waits for it."""
    name = "kept-going"
    installed = installing.run(cluster, "install", name, "--set", "replicas=0")
    assert installed.code == 0, installed.err
    try:
        with beside(cluster) as story:
            story.node("n0")
            labels = {"dovetail.dev/scheduling": "enabled"}
            story.rest.patch("namespaces", story.namespace, {"metadata": {"labels": labels}})
            cluster.wait_for("the policy", lambda: _asking(story, is_rehearsal=True) == "dovetail")
            cluster.stop(kill=True)

            assert (
                _asking(story) == "dovetail"
            )  # created although no scheduler runs that would place it
            _make_job(story)
            story.wait("a job that ran", lambda: _job(story).get("succeeded") == 2)
            story.rest.create("pods", pod_tree("plain", scheduler=THEIRS), story.namespace)
            story.wait_running("plain")
            for gone in ("plain", "asking"):
                story.rest.delete("pods", gone, story.namespace, gracePeriodSeconds=0)
            story.rest.delete("jobs", "two", story.namespace, propagationPolicy="Foreground")
            story.wait("all pods to go", lambda: not story.pods())
            cluster.schedule(configuration={"leaderElection": SHORT})  # for the scene to end
    finally:
        assert installing.run(cluster, "uninstall", name).code == 0


def _asking(story: Scene, *, is_rehearsal: bool = False) -> str:
    """Makes a pod that asks for a GPU and names no scheduler; whose it became."""
    tree = pod_tree("asking", limits={"nvidia.com/gpu": "1"})
    del tree["spec"]["schedulerName"]
    query = "?dryRun=All" if is_rehearsal else ""
    made = story.rest.ask("POST", f"/api/v1/namespaces/{story.namespace}/pods{query}", tree)
    return str(made["spec"]["schedulerName"])


def _make_job(story: Scene) -> None:
    pod = pod_tree("unused", scheduler=THEIRS, annotations={"dovetail.dev/run-seconds": "0"})
    template = {"metadata": {"annotations": pod["metadata"]["annotations"]}, "spec": pod["spec"]}
    head = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "two"}}
    story.rest.create(
        "jobs", head | {"spec": {"completions": 2, "template": template}}, story.namespace
    )


def _job(story: Scene) -> Any:
    return story.rest.read("jobs", "two", story.namespace)["status"]


def _check_apart(
    story: Scene,
    mine: str,
    theirs: str,
    *,
    our_spec: dict[str, Any] | None = None,
    their_spec: dict[str, Any] | None = None,
) -> None:
    """All pods run, each on its scheduler's side, and at no moment did two claims hold one device."""
    with story.rest.record("resourceclaims", story.namespace) as recording:
        _race(story, APART, our_spec=our_spec, their_spec=their_spec)
        pods = story.wait_running(*_names("ours", APART), *_names("theirs", APART))
    assert held_together(recording.seen) == []
    assert {node_of(pods[name]) for name in _names("ours", APART)} == {mine}
    assert {node_of(pods[name]) for name in _names("theirs", APART)} == {theirs}
    assert story.live.metric("dovetail_overlaps") == 0
    assert story.events("DeviceGivenTwice") == []


def _wide(story: Scene, name: str, *, labels: dict[str, str] | None = None) -> str:
    """A node with more devices than all pods need, in slices of the largest size."""
    node = story.node(name, labels=labels, offers={"pods": "1000", "cpu": "1000"})
    parts = 4
    pool = {"name": node, "generation": 1, "resourceSliceCount": parts}
    for part in range(parts):
        devices = [{"name": f"gpu-{128 * part + number}"} for number in range(128)]
        story.slice(node, devices, name=f"{node}-{part}", pool=pool)
    return node


def _race(
    story: Scene,
    count: int,
    *,
    our_spec: dict[str, Any] | None = None,
    their_spec: dict[str, Any] | None = None,
) -> None:
    """Makes so many pods of each scheduler at the same time."""
    problems: list[BaseException] = []

    def make(kind: str, scheduler: str, spec: dict[str, Any]) -> None:
        try:
            for name in _names(kind, count):
                tree = pod_tree(name, templates=["gpu"], scheduler=scheduler)
                tree["spec"] |= {"nodeSelector": {SCENE: story.namespace}} | spec
                story.rest.create("pods", tree, story.namespace)
        except BaseException as problem:
            problems.append(problem)

    threads = [
        threading.Thread(target=make, args=("ours", "dovetail", our_spec or {})),
        threading.Thread(target=make, args=("theirs", THEIRS, their_spec or {})),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, problems


def _names(kind: str, count: int) -> list[str]:
    return [f"{kind}-{number}" for number in range(count)]


def _placed(story: Scene) -> int:
    return sum(bool(node_of(pod)) for pod in story.pods().values())


def _holders(story: Scene) -> collections.Counter[Device]:
    return collections.Counter(device for claim in story.claims() for device in devices_of(claim))


def _claims_with_events(story: Scene) -> set[str]:
    return {str(tree["regarding"]["name"]) for tree in story.events("DeviceGivenTwice")}


def _device(story: Scene, name: str) -> Device | None:
    claim = next(item for item in story.claims() if item["metadata"]["name"] == name)
    return next(iter(devices_of(claim)), None)


def _allocate(story: Scene, name: str, like: dict[str, Any]) -> None:
    """Another scheduler writes an allocation with the same device."""
    allocation = like["status"]["allocation"]
    finalizer = {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}
    story.rest.patch("resourceclaims", name, finalizer, story.namespace)
    story.rest.patch(
        "resourceclaims", name, {"status": {"allocation": allocation}}, story.namespace, "status"
    )


def _wait_known(story: Scene, mine: str) -> None:
    """Waits until both schedulers know the rule: theirs no longer gives out devices of our pool, ours only those."""
    tree = pod_tree("probe-theirs", templates=["gpu"], scheduler=THEIRS)
    tree["spec"]["nodeSelector"] = {"kubernetes.io/hostname": mine}
    story.rest.create("pods", tree, story.namespace)
    story.wait_refused("probe-theirs", "cannot allocate")
    story.pod("probe-ours", templates=["gpu"], nodeSelector={"kubernetes.io/hostname": mine})
    story.wait_running("probe-ours")
