"""Queues on a real server: found when their definition comes, with conditions on what is wrong, gone when it goes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail.devcluster import kube_binaries
from tests.cli import running
from tests.e2e.namespace_scene import Scene, exactly, pod_tree
from tests.support import cluster as planes
from tests.support import live
from tests.support.live import Live

pytestmark = pytest.mark.slow

DEFINITIONS = ("queues.dovetail.dev", "topologies.dovetail.dev")


@pytest.fixture(scope="module")
def queued() -> Iterator[Live]:
    """The shared cluster, whose scheduler began without the definitions; they go again."""
    found = live.cluster(kube_binaries.DEFAULT)
    planes.apply(
        found.plane, [one for one in live.installed() if one["metadata"]["name"] in DEFINITIONS]
    )
    for name in DEFINITIONS:
        planes.kubectl(
            found.plane, "wait", "--for=condition=Established", f"crd/{name}", "--timeout=60s"
        )
    yield found
    planes.kubectl(found.plane, "delete", "crd", *DEFINITIONS, "--ignore-not-found")


def test_queues_come_to_life_with_their_definition_and_say_what_is_wrong(queued: Live) -> None:
    cluster = queued
    own = f"q-{uuid.uuid4().hex[:8]}"
    queues: dict[str, dict[str, Any]] = {
        "org": {"resources": {"gpu": {"quota": 4}}},
        "team": {"parent": f"{own}-org", "resources": {"nvidia.com/gpu": {"quota": 8}}},
        "lost": {"parent": f"{own}-gone"},
        "egg": {"parent": f"{own}-hen"},
        "hen": {"parent": f"{own}-egg"},
    }
    planes.apply(cluster.plane, [_queue(f"{own}-{name}", spec) for name, spec in queues.items()])
    said: dict[str, tuple[str, str]] = cluster.wait_for(
        "all conditions", lambda: _conditions(cluster, own, len(queues))
    )
    assert said == {
        "org": ("True", "QuotasExceedParent"),
        "team": ("True", "Ready"),
        "lost": ("False", "ParentMissing"),
        "egg": ("False", "ParentsFormACircle"),
        "hen": ("False", "ParentsFormACircle"),
    }

    planes.kubectl(
        cluster.plane, "patch", "queue", f"{own}-hen", "--type=json", "-p", _without_parent()
    )
    planes.kubectl(cluster.plane, "delete", "queue", f"{own}-org")
    wanted = {"team": "ParentMissing", "hen": "Ready", "egg": "Ready", "lost": "ParentMissing"}
    cluster.wait_for(
        "repaired and broken ones", lambda: _reasons(cluster, own, len(wanted)) == wanted
    )
    found = planes.get(cluster.plane, "queue", f"{own}-hen")
    assert found["status"]["observedGeneration"] == found["metadata"]["generation"] == 2
    assert cluster.consistent()["consistent"], cluster.consistent()
    planes.kubectl(cluster.plane, "delete", "queue", *(f"{own}-{name}" for name in wanted))


def test_the_status_has_the_numbers_decided_with_and_a_label_alone_opens_nothing(
    queued: Live, tmp_path: Path
) -> None:
    """One GPU for the queue: of two pods one runs; a pod of a namespace that is not picked waits and says why."""
    plane = queued.plane
    inside, outside = planes.fresh_namespace(plane), planes.fresh_namespace(plane)
    planes.kubectl(plane, "label", "namespace", inside, f"example.com/team={inside}")
    selector = {"matchLabels": {"example.com/team": inside}}
    spec = {
        "resources": {"nvidia.com/gpu": {"quota": 1, "limit": 1}},
        "namespaceSelector": selector,
    }
    planes.apply(plane, [_queue(inside, spec)])
    # Until the scheduler has found the definition, pods start without a queue.
    planes.kubectl(plane, "wait", "--for=condition=Ready", f"queue/{inside}", "--timeout=120s")
    stories = [Scene(queued, inside), Scene(queued, outside)]
    for story in stories:
        story.template("gpu", exactly("gpu", "gpu.nvidia.com"))
    first, stray = stories
    first.pod("a", templates=["gpu"], nodeSelector={})
    first.wait_running("a")
    first.pod("b", templates=["gpu"], nodeSelector={})
    first.wait_refused("b", inside)
    queued.wait_for(
        "the numbers",
        lambda: _gpus(queued, inside) == {"charged": "1", "requested": "2", "fairShare": "1"},
    )
    found = planes.get(plane, "queue", inside)["status"]
    assert (found["running"], found["pending"]) == (1, 1)

    tree = pod_tree("c", templates=["gpu"])
    tree["metadata"]["labels"] = {"dovetail.dev/queue": inside}
    stray.rest.create("pods", tree, outside)
    stray.wait_refused(
        "c", f"queue {inside} does not take namespace {outside}", "namespaceSelector"
    )

    shown = running.inside(tmp_path, "get", "queues", inside, "--kubeconfig", str(plane.kubeconfig))
    assert shown.code == 0, shown.err
    assert [shown.column(name) for name in ("QUEUE", "GPUS", "LIMIT", "PENDING")] == [
        [inside],
        ["1"],
        ["1"],
        ["1"],
    ]

    first.rest.delete("pods", "a", inside)
    first.wait_running("b")
    for story in stories:
        story.end()
    planes.kubectl(plane, "delete", "queue", inside)


def test_without_the_definition_scheduling_goes_on(queued: Live, tmp_path: Path) -> None:
    planes.kubectl(queued.plane, "delete", "crd", *DEFINITIONS)
    done = running.inside(tmp_path, "get", "queues", "--kubeconfig", str(queued.plane.kubeconfig))
    assert done.code == 1
    assert (
        done.err
        == "error: the cluster does not serve queues\nnext: dovetail install --definitions\n"
    )
    queued.wait_for("a picture without them", lambda: queued.consistent()["consistent"])
    assert queued.leads()


def _gpus(cluster: Live, queue: str) -> dict[str, str]:
    gpu = (
        planes.get(cluster.plane, "queue", queue)
        .get("status", {})
        .get("resources", {})
        .get("gpu", {})
    )
    return {name: gpu[name] for name in ("charged", "requested", "fairShare") if name in gpu}


def _conditions(cluster: Live, own: str, count: int) -> dict[str, tuple[str, str]] | None:
    """What the conditions say by queue, once all have one."""
    found = {}
    for one in planes.get(cluster.plane, "queues")["items"]:
        for condition in one.get("status", {}).get("conditions", ()):
            if condition["type"] == "Ready" and one["metadata"]["name"].startswith(own):
                name = one["metadata"]["name"].removeprefix(f"{own}-")
                found[name] = (condition["status"], condition["reason"])
    return found if len(found) == count else None


def _reasons(cluster: Live, own: str, count: int) -> dict[str, str]:
    return {name: reason for name, (_, reason) in (_conditions(cluster, own, count) or {}).items()}


def _without_parent() -> str:
    return '[{"op": "remove", "path": "/spec/parent"}]'


def _queue(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }
