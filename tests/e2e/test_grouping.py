"""Where gangs come from, on a real API server: native groups, Jobs that ask, and a kind that is installed later.

Native groups are served where the gate GenericWorkload is on. Nobody runs a JobSet controller here: the stories make
the Jobs it would make, and the real Job controller makes their pods.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.scene import SCENE, Scene, node_of, phase_of, reason_of, scene
from tests.support import cluster as planes
from tests.support import live
from tests.support.live import Live

pytestmark = pytest.mark.slow

Tree = dict[str, Any]
NATIVE = {"1.37": "scheduling.k8s.io/v1beta1", "1.36": "scheduling.k8s.io/v1alpha2"}
JOB_SETS = {  # as little of the real definition as a server needs
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "jobsets.jobset.x-k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, a test"},
    },
    "spec": {
        "group": "jobset.x-k8s.io",
        "names": {"kind": "JobSet", "listKind": "JobSetList", "plural": "jobsets", "singular": "jobset"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha2",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


@pytest.fixture(scope="module", params=planes.VERSIONS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Live]:
    """A cluster that serves native groups, with our scheduler."""
    version = request.param
    served = (f"{NATIVE[version]}=true",)
    with live.private(version, feature_gates={"GenericWorkload": True}, runtime_config=served) as made:
        planes.apply(made.plane, [one for one in live.installed() if one["kind"] == "CustomResourceDefinition"])
        made.play("--nodes", "1")
        made.schedule()
        made.wait_for("a leader", made.leads)
        yield made


@pytest.fixture
def story(cluster: Live) -> Iterator[Scene]:
    """A node with room for two pods."""
    with scene(cluster) as made:
        made.node("small", offers={"cpu": "2"})
        yield made


def test_a_native_group_starts_together(cluster: Live, story: Scene) -> None:
    version = NATIVE[cluster.plane.parts.minor]
    policy = {"gang": {"minCount": 3}}
    group = {
        "apiVersion": version,
        "kind": "PodGroup",
        "metadata": {"name": "pg"},
        "spec": {"schedulingPolicy": policy},
    }
    for name in ("a", "b", "c"):
        story.pod(name, limits={"cpu": "1"}, schedulingGroup={"podGroupName": "pg"})
    story.wait_refused("a", "not been seen")  # its group is not there yet
    planes.apply(cluster.plane, [group], namespace=story.namespace)
    lacking(story)
    assert all(node_of(pod) == "" for pod in story.pods().values())
    story.node("large", offers={"cpu": "2"})
    story.wait_running("a", "b", "c")


def test_a_job_starts_together_if_it_asks_and_singly_if_not(cluster: Live, story: Scene) -> None:
    story.rest.create("jobs", job(story, "together", 3, **{"dovetail.dev/gang-min": "all"}), story.namespace)
    lacking(story)
    assert len(story.pods()) == 3
    assert all(node_of(pod) == "" for pod in story.pods().values())
    story.rest.create("jobs", job(story, "singly", 3), story.namespace)
    story.wait("two of the other", lambda: running(story, "singly") == 2)
    assert running(story, "together") == 0
    story.node("large", offers={"cpu": "4"})
    story.wait("all", lambda: running(story, "together") == running(story, "singly") == 3)


def test_a_kind_that_is_installed_later_is_read(cluster: Live, story: Scene) -> None:
    planes.apply(cluster.plane, [JOB_SETS])
    cluster.wait_for("its watch", lambda: cluster.metric("dovetail_watch_lists_total", kind="JobSet") > 0)
    spec = {"replicatedJobs": [{"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 2}}}]}
    tree = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "llama"}, "spec": spec}
    planes.apply(cluster.plane, [tree], namespace=story.namespace)
    story.node("large", offers={"cpu": "2"})
    story.rest.create("jobs", replica(story, 0), story.namespace)
    first = story.wait("two pods", lambda: pods if len(pods := story.pods()) == 2 else None)
    story.wait_refused(min(first))  # they fit, and the other half is not there
    assert all(node_of(pod) == "" for pod in story.pods().values())
    story.rest.create("jobs", replica(story, 1), story.namespace)
    story.wait("all four", lambda: running(story, "llama") == 4)


def lacking(story: Scene) -> None:
    """Waits until a pod says that there is no room: then its whole gang was looked at."""
    story.wait("word of it", lambda: any("lacks cpu" in reason_of(pod) for pod in story.pods().values()))


def job(story: Scene, name: str, pods: int, **annotations: str) -> Tree:
    """A Job whose pods take one cpu each."""
    container = {"name": "main", "image": "example", "resources": {"requests": {"cpu": "1"}}}
    spec: Tree = {"schedulerName": "dovetail", "restartPolicy": "Never", "containers": [container]}
    spec |= {"nodeSelector": {SCENE: story.namespace}, "terminationGracePeriodSeconds": 1}
    template = {"metadata": {}, "spec": spec}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"parallelism": pods, "completions": pods, "template": template},
    }


def replica(story: Scene, index: int) -> Tree:
    """A Job as a JobSet controller makes it."""
    made = job(story, f"llama-workers-{index}", 2)
    made["spec"]["template"]["metadata"]["labels"] = {
        "jobset.sigs.k8s.io/jobset-name": "llama",
        "jobset.sigs.k8s.io/replicatedjob-name": "workers",
        "jobset.sigs.k8s.io/job-index": str(index),
    }
    return made


def running(story: Scene, prefix: str) -> int:
    """How many pods of a name run."""
    return sum(name.startswith(f"{prefix}-") and phase_of(pod) == "Running" for name, pod in story.pods().items())
