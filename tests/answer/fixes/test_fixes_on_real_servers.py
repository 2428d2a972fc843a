"""Fixes on a real API server with its controllers: every patch is accepted, and the pods that come of it would start.

Nodes and devices are not on the server: a node without a kubelet is tainted there sooner or later. They are added to
what is read from it.
"""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
import pytest

from dovetail.answer.replica import patches, verdict
from dovetail.answer.replica.replica import Replica
from dovetail.answer.why.fixes import search
from dovetail.answer.why.why_answer import Fix, Who
from dovetail.devcluster import control_plane
from dovetail.kubetypes import codec, object_set
from dovetail.model import policy
from tests.answer.fixes import trial_cluster as build
from tests.answer.fixes.test_claim_fixes import ATTRIBUTES
from tests.answer.fixes.test_pod_fixes import TAINT, TOLERATE, titles
from tests.support import cluster, waiting

pytestmark = pytest.mark.slow

Tree = dict[str, Any]
LISTED = (
    "pods,jobs,cronjobs,deployments,replicasets,statefulsets,"
    "resourceclaims,resourceclaimtemplates,persistentvolumeclaims"
)
NODE = build.node("a", labels={"gpu": "H100"})
DEVICES = [build.node("a", gpus=0), build.gpu_slice("a"), build.device_class()]


class Story:
    """Objects of one namespace on the server, and nodes that are not there."""

    def __init__(self, plane: control_plane.ControlPlane, *nodes: Tree) -> None:
        self._plane = plane
        self._nodes = nodes
        self.namespace = cluster.fresh_namespace(plane)

    def create(self, *trees: Tree) -> None:
        for tree in trees:
            metadata = tree["metadata"] | {"namespace": self.namespace}
            self._kubectl("create", "-f", "-", tree=tree | {"metadata": metadata})

    def objects(self) -> list[Tree]:
        listed = cluster.get(self._plane, "-n", self.namespace, LISTED)
        return [item for item in listed["items"] if _is_there(item)]

    def pod(self) -> Tree | None:
        """The only pod that is there, with its claims."""
        listed = [item for item in self.objects() if item["kind"] == "Pod"]
        if len(listed) != 1:
            return None
        entries = listed[0]["spec"].get("resourceClaims") or ()
        statuses = listed[0].get("status", {}).get("resourceClaimStatuses") or ()
        return listed[0] if len(entries) == len(statuses) else None

    def replica(self) -> tuple[Replica, str]:
        waiting.wait_until(lambda: self.pod() is not None, "a pod with its claims")
        pod = self.pod()
        assert pod is not None
        stored = [codec.decode(tree) for tree in (*self.objects(), *self._nodes)]
        now = datetime.datetime.now(datetime.UTC)
        return Replica(object_set.of("real", stored), policy.DEFAULT, now), pod["metadata"]["uid"]

    def apply(self, fix: Fix) -> None:
        for patch in fix.patch:
            self._apply(patch)

    def _apply(self, patch: patches.Patch) -> None:
        ref = patch.object
        if patch.create is not None:
            self._kubectl("create", "-f", "-", tree=patch.create)
        elif patch.delete:
            self._kubectl("delete", ref.kind, ref.name, "--grace-period=0", "--force")
        else:
            body = msgspec.json.encode(patch.merge).decode()
            self._kubectl("patch", ref.kind, ref.name, "--type=merge", "-p", body)

    def _kubectl(self, *arguments: str, tree: Tree | None = None) -> None:
        text = None if tree is None else msgspec.json.encode(tree).decode()
        cluster.kubectl(self._plane, "-n", self.namespace, *arguments, input=text)

    def fixed_by(self, title: str) -> None:
        """Applies the fix of this title; the pod that is there afterwards starts."""
        replica, pod_id = self.replica()
        assert not verdict.verdict(replica, pod_id).starts
        fixes = [fix for fix in search.search(replica, pod_id) if fix.who is Who.USER]
        assert title in titles(tuple(fixes))
        self.apply(next(fix for fix in fixes if fix.title == title))

        def starts() -> bool:
            replica, pod_id = self.replica()
            return verdict.verdict(replica, pod_id).starts

        waiting.wait_until(starts, f"a pod that starts with {title!r}")


def _is_there(tree: Tree) -> bool:
    return "deletionTimestamp" not in tree["metadata"]


WRONG = {"nodeSelector": {"gpu": "h100"}}
CORRECT = 'nodeSelector gpu: "h100" -> "H100"'
ONE: Tree = {"replicas": 1}
STORIES: dict[str, tuple[list[Tree], list[Tree], str]] = {
    "toleration": ([build.node("a", taints=[TAINT])], [build.pod(gpus=1)], TOLERATE),
    "gate": (
        [NODE],
        [build.pod(gpus=1, schedulingGates=[{"name": "example.com/ready"}])],
        "remove scheduling gate example.com/ready",
    ),
    "pod": ([NODE], [build.pod(gpus=1, **WRONG)], CORRECT),
    "amount": ([NODE], [build.pod(gpus=16)], "nvidia.com/gpu: 16 -> 8"),
    "Job": ([NODE], [build.workload("Job", spec=build.pod_spec(gpus=1, **WRONG))], CORRECT),
    "Deployment": (
        [NODE],
        [
            build.workload(
                "Deployment",
                spec=build.pod_spec(gpus=1, **WRONG),
                strategy={"type": "Recreate"},
                **ONE,
            )
        ],
        CORRECT,
    ),
    "StatefulSet": (
        [NODE],
        [
            build.workload(
                "StatefulSet", spec=build.pod_spec(gpus=1, **WRONG), serviceName="w", **ONE
            )
        ],
        CORRECT,
    ),
    "template": (
        DEVICES,
        [
            build.template(when=f'{ATTRIBUTES}.architecture == "hopper"'),
            build.pod(**build.uses()),
        ],
        'request gpus: architecture == "hopper" -> "Hopper"',
    ),
    "template of a Job": (
        DEVICES,
        [build.template(count=8), build.workload("Job", spec=build.pod_spec(**build.uses()))],
        "request gpus: count 8 -> 4",
    ),
    "template and Job": (
        [build.node("a", gpus=0, taints=[TAINT]), build.gpu_slice("a"), build.device_class()],
        [build.template(count=8), build.workload("Job", spec=build.pod_spec(**build.uses()))],
        f"{TOLERATE}; request gpus: count 8 -> 4",
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_every_patch_is_accepted_and_the_pod_starts(name: str) -> None:
    nodes, trees, title = STORIES[name]
    story = Story(cluster.control_plane(), *nodes)
    story.create(*trees)
    story.fixed_by(title)
