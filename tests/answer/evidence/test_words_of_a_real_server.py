"""The words of a real API server and its controllers are read as the forms they are: nothing here is quoted by us."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.answer.why.cause_codes import CauseClass, CauseCode
from dovetail.answer.why.evidence import observed
from tests.answer.evidence import objects
from tests.answer.evidence.objects import Tree
from tests.support import cluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

LISTS = (
    "jobs,deployments,replicasets,pods,resourcequotas,resourceclaimtemplates,resourceclaims,events"
)
CLASS = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"


def template(**spec: Any) -> Tree:
    limits = {objects.GPU: "8"} if spec.pop("has_gpus", False) else {}
    container = {"name": "main", "image": "example/x", "resources": {"limits": limits}}
    return {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [container], **spec}}


def job(name: str, **spec: Any) -> Tree:
    body = template(restartPolicy="Never", **spec)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": body},
    }


def deployment(name: str, **spec: Any) -> Tree:
    body = {"selector": {"matchLabels": {"app": "x"}}, "template": template(**spec)}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": body}


def quota(name: str, **hard: str) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name},
        "spec": {"hard": {key.replace("__", "/"): value for key, value in hard.items()}},
    }


CLAIMS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "two-gpus"},
    "spec": {
        "spec": {
            "devices": {
                "requests": [
                    {"name": "g", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 2}}
                ]
            }
        }
    },
}


def claiming(name: str, template_name: str) -> Tree:
    spec = template(resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": template_name}])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec["spec"]}


OBJECTS = (
    quota("gpus", **{"requests.nvidia.com__gpu": "4"}),
    quota("devices", **{CLASS.replace("/", "__"): "1"}),
    CLAIMS,
    job("over-quota", has_gpus=True),
    deployment("no-runtime", runtimeClassName="nvidia-absent"),
    job("no-priority", priorityClassName="absent"),
    job("privileged", hostNetwork=True),
    claiming("no-template", "three-gpus"),
    claiming("no-devices", "two-gpus"),
)
EXPECTED = {
    ("Job", "over-quota"): (CauseCode.RESOURCE_QUOTA, CauseClass.QUOTA, "8 more asked for"),
    ("Deployment", "no-runtime"): (
        CauseCode.RUNTIME_CLASS_MISSING,
        CauseClass.CONFIG,
        "nvidia-absent",
    ),
    ("Job", "no-priority"): (CauseCode.ADMISSION_DENIED, CauseClass.CONFIG, "PriorityClass absent"),
    ("Job", "privileged"): (
        CauseCode.ADMISSION_DENIED,
        CauseClass.POLICY,
        'pod security "baseline',
    ),
    ("Pod", "no-template"): (
        CauseCode.TEMPLATE_MISSING,
        CauseClass.CONFIG,
        "did you mean two-gpus",
    ),
    ("Pod", "no-devices"): (CauseCode.RESOURCE_QUOTA, CauseClass.QUOTA, "2 more asked for"),
}


def test_refusals_of_a_real_api_server_are_read() -> None:
    plane = cluster.control_plane()
    namespace = cluster.fresh_namespace(plane)
    level = "pod-security.kubernetes.io/enforce=baseline"
    cluster.kubectl(plane, "label", "namespace", namespace, level)
    cluster.apply(plane, OBJECTS, namespace=namespace)

    def answers() -> dict[tuple[str, str], Any]:
        trees = cluster.get(plane, "-n", namespace, LISTS)["items"]
        replica = objects.replica_of(*trees)
        wanted = [tree for tree in trees if (tree["kind"], tree["metadata"]["name"]) in EXPECTED]
        return {
            (tree["kind"], tree["metadata"]["name"]): observed.observed(replica, objects.ref(tree))
            for tree in wanted
        }

    def is_complete() -> bool:
        seen = answers()
        return len(seen) == len(EXPECTED) and all(
            answer is not None and answer.evidence for answer in seen.values()
        )

    wait_until(is_complete, "an event about each refusal", pause=0.5, so_far=lambda: str(answers()))
    for subject, (code, class_, words) in EXPECTED.items():
        answer = answers()[subject]
        assert (answer.cause.code, answer.cause.class_) == (code, class_), (subject, answer)
        assert words in answer.cause.sentence
