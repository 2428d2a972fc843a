"""Where gangs come from, on a real API server: native groups, Jobs that ask, and a kind that is installed later.

Native groups are served where the gate GenericWorkload is on. No JobSet controller runs here: the stories make
the Jobs it would make, and the real Job controller makes their pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.namespace_scene import SCENE, Scene, exactly, node_of, phase_of, reason_of, scene
from tests.support import cluster as planes
from tests.support import live
from tests.support.live import Live

pytestmark = pytest.mark.slow

Tree = dict[str, Any]
NATIVE = {"1.37": "scheduling.k8s.io/v1beta1", "1.36": "scheduling.k8s.io/v1alpha2"}
GATES = {"GenericWorkload": True, "DRAWorkloadResourceClaims": True}
COMPOSITES = "scheduling.k8s.io/v1alpha3"  # 1.37 alone, and off by default
UPSTREAM = "upstream"
COMPOSITE_GATES = {"CompositePodGroup": True, "TopologyAwareWorkloadScheduling": True}
with_composites = pytest.mark.parametrize("cluster", ["1.37"], indirect=True, scope="module")
JOB_SETS = {  # as little of the real definition as a server needs
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "jobsets.jobset.x-k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, a test"},
    },
    "spec": {
        "group": "jobset.x-k8s.io",
        "names": {
            "kind": "JobSet",
            "listKind": "JobSetList",
            "plural": "jobsets",
            "singular": "jobset",
        },
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha2",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


@pytest.fixture(scope="module", params=planes.EACH_VERSION)
def cluster(request: pytest.FixtureRequest) -> Iterator[Live]:
    """A cluster that serves native groups, with our scheduler."""
    version = request.param
    has_composites = version == "1.37"
    served = (f"{NATIVE[version]}=true", *((f"{COMPOSITES}=true",) if has_composites else ()))
    gates = GATES | (COMPOSITE_GATES if has_composites else {})
    with live.private(version, feature_gates=gates, runtime_config=served) as lives:
        planes.apply(
            lives.plane,
            [item for item in live.installed() if item["kind"] == "CustomResourceDefinition"],
        )
        lives.play("--nodes", "1")
        lives.schedule()
        lives.wait_for("a leader", lives.leads)
        yield lives


@pytest.fixture
def story(cluster: Live) -> Iterator[Scene]:
    """A node with room for two pods."""
    with scene(cluster) as scenes:
        scenes.node("small", offers={"cpu": "2"})
        yield scenes


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


def test_pods_of_a_native_group_share_its_claim(cluster: Live, story: Scene) -> None:
    """Made by kube-controller-manager for the group, reserved for the group, and free when its last pod is gone."""
    story.fleet(nodes=2, gpus=2)
    assert share_of_claim(story) == ({("scheduling.k8s.io", "podgroups", "pg")}, 1, 2)
    made = planes.get(cluster.plane, "podgroups.scheduling.k8s.io", "pg", "-n", story.namespace)
    assert [claim["uid"] for claim in story.claims()[0]["status"]["reservedFor"]] == [
        made["metadata"]["uid"]
    ]
    story.rest.delete("pods", "a", story.namespace)
    story.wait("the end of a", lambda: "a" not in story.pods())
    story.pod("next", templates=["two"])  # two GPUs are left, and it is not of the group
    story.wait_running("next")
    assert len(story.held()) == 4
    story.rest.delete("pods", "b", story.namespace)
    story.wait("what the group held", lambda: len(story.held()) == 2)
    planes.kubectl(
        cluster.plane, "delete", "podgroups.scheduling.k8s.io", "pg", "-n", story.namespace
    )
    story.wait("the end of its claim", lambda: len(story.claims()) == 1)


def test_a_claim_of_a_native_group_goes_with_the_group(cluster: Live, story: Scene) -> None:
    """A named one stays, without devices: kube-controller-manager takes it back when the group is gone."""
    story.fleet(nodes=1, gpus=1)
    story.claim("ours")
    group = {
        "apiVersion": NATIVE[cluster.plane.parts.minor],
        "kind": "PodGroup",
        "metadata": {"name": "pg"},
        "spec": {
            "schedulingPolicy": {"basic": {}},
            "resourceClaims": [{"name": "c0", "resourceClaimName": "ours"}],
        },
    }
    planes.apply(cluster.plane, [group], namespace=story.namespace)
    story.pod("a", claims=["ours"], schedulingGroup={"podGroupName": "pg"})
    story.wait_running("a")
    assert [claim["resource"] for claim in story.claims()[0]["status"]["reservedFor"]] == [
        "podgroups"
    ]
    cluster.stop()  # none of our processes helps
    planes.kubectl(
        cluster.plane,
        "delete",
        "podgroups.scheduling.k8s.io",
        "pg",
        "-n",
        story.namespace,
        "--wait=false",
    )
    story.rest.delete("pods", "a", story.namespace)
    story.wait("the devices", lambda: story.held() == [])
    assert len(story.claims()) == 1
    cluster.schedule()
    cluster.wait_for("a leader", cluster.leads)


@with_composites
def test_groups_of_a_group_start_together_in_one_place(cluster: Live, story: Scene) -> None:
    start_groups_in_racks(
        story, lambda: story.wait_refused("p0", "CompositePodGroup llama", "not been seen")
    )


@with_composites
def test_upstream_treats_native_groups_alike(cluster: Live) -> None:
    """The same groups under a kube-scheduler with the same gates: claims reserved alike, all in one rack or none."""
    cluster.plane.start_scheduler(UPSTREAM)
    result = {}
    try:
        for scheduler in ("dovetail", UPSTREAM):
            with scene(cluster) as story:
                story.fleet(nodes=2, gpus=2)
                shared = share_of_claim(story, schedulerName=scheduler)
            with scene(cluster) as story:
                start_groups_in_racks(story, schedulerName=scheduler)
            result[scheduler] = shared
    finally:
        cluster.plane.kill(f"kube-scheduler-{UPSTREAM}")
    assert (
        result["dovetail"] == result[UPSTREAM] == ({("scheduling.k8s.io", "podgroups", "pg")}, 1, 2)
    )


def share_of_claim(story: Scene, **spec: Any) -> tuple[set[tuple[str, str, str]], int, int]:
    """Two pods of a group that share a claim for two GPUs: its users, on how many nodes, with how many devices."""
    story.template("two", exactly("gpu", story.device_class, count=2))
    expected = [{"name": "t0", "resourceClaimTemplateName": "two"}]  # as the pods call it
    group = {
        "apiVersion": NATIVE[story.live.plane.parts.minor],
        "kind": "PodGroup",
        "metadata": {"name": "pg"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}, "resourceClaims": expected},
    }
    planes.apply(story.live.plane, [group], namespace=story.namespace)
    for name in ("a", "b"):
        story.pod(name, templates=["two"], **({"schedulingGroup": {"podGroupName": "pg"}} | spec))
    result = story.wait_running("a", "b")
    (claim,) = story.claims()
    users = {
        (item["apiGroup"], item["resource"], item["name"])
        for item in claim["status"]["reservedFor"]
    }
    return users, len({node_of(pod) for pod in result.values()}), len(story.held())


def start_groups_in_racks(
    story: Scene, first: Callable[[], object] = lambda: None, **spec: Any
) -> None:
    """Two PodGroups of two pods below a composite that needs both, in one rack; the third rack has the room."""
    for rack, cpus in (("a", "3"), ("b", "2")):
        story.node(f"rack-{rack}", labels={"example.com/rack": rack}, offers={"cpu": cpus})
    origin = {"workloadName": "llama", "templateName": "all"}
    root = {
        "apiVersion": COMPOSITES,
        "kind": "CompositePodGroup",
        "metadata": {"name": "llama"},
        "spec": {
            "workloadRef": origin,
            "schedulingPolicy": {"gang": {"minGroupCount": 2}},
            "schedulingConstraints": {"topology": [{"key": "example.com/rack"}]},
        },
    }
    names = {"prefill": ("p0", "p1"), "decode": ("d0", "d1")}
    groups = [
        {
            "apiVersion": NATIVE["1.37"],
            "kind": "PodGroup",
            "metadata": {"name": name},
            "spec": {
                "parentCompositePodGroupName": "llama",
                "workloadRef": origin | {"templateName": name},
                "schedulingPolicy": {"gang": {"minCount": 2}},
            },
        }
        for name in names
    ]
    planes.apply(story.live.plane, groups, namespace=story.namespace)
    for name, members in names.items():
        for member in members:
            story.pod(
                member, limits={"cpu": "1"}, **({"schedulingGroup": {"podGroupName": name}} | spec)
            )
    first()
    planes.apply(story.live.plane, [root], namespace=story.namespace)
    story.wait("word of it", lambda: all(tried(pod) for pod in story.pods().values()))
    assert all(node_of(pod) == "" for pod in story.pods().values())
    story.node("rack-c", labels={"example.com/rack": "c"}, offers={"cpu": "4"})
    result = story.wait_running("p0", "p1", "d0", "d1")
    assert {node_of(result[member]) for members in names.values() for member in members} == {
        f"{story.namespace}-rack-c"
    }


def tried(pod: Tree) -> bool:
    """Whether a scheduler found no room for the pod, its group being there."""
    text = reason_of(pod)
    return (
        bool(text)
        and "not been seen" not in text
        and "to appear" not in text
        and "not found" not in text
    )


def test_a_job_starts_together_if_it_asks_and_singly_if_not(cluster: Live, story: Scene) -> None:
    story.rest.create(
        "jobs", job(story, "together", 3, **{"dovetail.dev/gang-min": "all"}), story.namespace
    )
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
    cluster.wait_for(
        "its watch", lambda: cluster.metric("dovetail_watch_lists_total", kind="JobSet") > 0
    )
    spec = {
        "replicatedJobs": [
            {"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 2}}}
        ]
    }
    tree = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "llama"},
        "spec": spec,
    }
    planes.apply(cluster.plane, [tree], namespace=story.namespace)
    story.node("large", offers={"cpu": "2"})
    story.rest.create("jobs", replica(story, 0), story.namespace)
    first = story.wait("two pods", lambda: pods if len(pods := story.pods()) == 2 else None)
    story.wait_refused(min(first))  # they fit, and the other half is not there
    assert all(node_of(pod) == "" for pod in story.pods().values())
    story.rest.create("jobs", replica(story, 1), story.namespace)
    story.wait("all four", lambda: running(story, "llama") == 4)


def test_pods_of_a_group_of_kai_start_together(cluster: Live, story: Scene) -> None:
    """Its definition has the same kind and plural as Kubernetes' own groups, and is installed later."""
    names = {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"}
    version = JOB_SETS["spec"]["versions"][0] | {"name": "v2alpha2"}
    spec = JOB_SETS["spec"] | {"group": "scheduling.run.ai", "names": names, "versions": [version]}
    definition = JOB_SETS | {"metadata": {"name": "podgroups.scheduling.run.ai"}, "spec": spec}
    for name in ("a", "b", "c"):
        story.pod(name, limits={"cpu": "1"}, annotations={"pod-group-name": "kai"})
    story.wait_refused("a", "KAI PodGroup kai has not been seen")
    planes.apply(cluster.plane, [definition])
    planes.kubectl(
        cluster.plane, "wait", "--for=condition=Established", "crd/podgroups.scheduling.run.ai"
    )
    group = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "kai"},
        "spec": {"minMember": 3},
    }
    planes.apply(cluster.plane, [group], namespace=story.namespace)
    lacking(story)
    assert all(node_of(pod) == "" for pod in story.pods().values())
    story.node("large", offers={"cpu": "2"})
    story.wait_running("a", "b", "c")


def lacking(story: Scene) -> None:
    """Waits until a pod says that there is no room: then its whole gang was looked at."""
    story.wait(
        "word of it", lambda: any("lacks cpu" in reason_of(pod) for pod in story.pods().values())
    )


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
    tree = job(story, f"llama-workers-{index}", 2)
    tree["spec"]["template"]["metadata"]["labels"] = {
        "jobset.sigs.k8s.io/jobset-name": "llama",
        "jobset.sigs.k8s.io/replicatedjob-name": "workers",
        "jobset.sigs.k8s.io/job-index": str(index),
    }
    return tree


def running(story: Scene, prefix: str) -> int:
    """How many pods of a name run."""
    return sum(
        name.startswith(f"{prefix}-") and phase_of(pod) == "Running"
        for name, pod in story.pods().items()
    )
