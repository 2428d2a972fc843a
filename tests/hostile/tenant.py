"""A user of one namespace: what it may create there, under which names, and what the server refused it."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, Final

from tests.support import rest
from tests.support.waiting import is_true_within

SCHEDULER: Final = "dovetail"
TEMPLATE: Final = "one"
RESOURCE: Final = "resource.k8s.io/v1"
Tree = dict[str, Any]


class Tenant:
    """One user in one namespace, with the rights it was granted."""

    def __init__(self, api: rest.Rest, namespace: str, *, chance: random.Random) -> None:
        self.api = api
        self.namespace = namespace
        self.chance = chance
        self.refused: Counter[int] = Counter()  # by status
        self._count = 0

    def name(self, prefix: str) -> str:
        """A name that this tenant did not use before."""
        self._count += 1
        return f"{prefix}-{self._count}"

    def create(self, plural: str, tree: Tree) -> bool:
        """Whether the server took the object; a refusal is noted, as refusing is the server's good right."""
        try:
            self.api.create(plural, tree, namespace=self.namespace)
        except rest.RefusedError as refused:
            self.refused[refused.status] += 1
            return False
        return True

    def patch(self, plural: str, name: str, patch: Tree) -> None:
        """Changes an object if it is still there and the server lets this tenant."""
        try:
            self.api.patch(plural, name, patch, namespace=self.namespace)
        except rest.RefusedError as refused:
            self.refused[refused.status] += 1

    def delete(self, plural: str, name: str, **options: Any) -> None:
        """Deletes an object if the server lets this tenant."""
        try:
            self.api.delete(plural, name, namespace=self.namespace, **options)
        except rest.RefusedError as refused:
            self.refused[refused.status] += 1

    def wait_bound(self, name: str, *, seconds: float = 5.0) -> bool:
        """Whether a pod of this tenant got a node in time; an attack goes on without it."""

        def is_bound() -> bool:
            return bool(
                self.api.read("pods", name, namespace=self.namespace)["spec"].get("nodeName")
            )

        return is_true_within(is_bound, seconds=seconds)


def template(name: str = TEMPLATE, *, count: int = 1, selectors: list[str] | None = None) -> Tree:
    """A template of claims for whole GPUs."""
    chosen = [{"cel": {"expression": text}} for text in selectors or ()]
    exactly: Tree = {"deviceClassName": "gpu.nvidia.com", "count": count, "selectors": chosen}
    return {
        "apiVersion": RESOURCE,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}},
    }


def pod(
    name: str,
    *,
    templates: tuple[str, ...] = (),
    requests: Tree | None = None,
    labels: Tree | None = None,
    annotations: Tree | None = None,
    **spec: Any,
) -> Tree:
    """A pod for our scheduler."""
    claims = [{"name": text, "resourceClaimTemplateName": text} for text in templates]
    resources: Tree = {"requests": {"cpu": "10m"} | (requests or {})}
    if claims:
        resources["claims"] = [{"name": claim["name"]} for claim in claims]
    tree: Tree = {
        "schedulerName": SCHEDULER,
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": "none", "resources": resources}],
    }
    if claims:
        tree["resourceClaims"] = claims
    metadata = {"name": name, "labels": labels or {}, "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": tree | spec}


def job(name: str, *, parallelism: int = 1, pod_tree: Tree, **spec: Any) -> Tree:
    """A Job with pods like this one."""
    expected = {
        "metadata": {"labels": pod_tree["metadata"]["labels"]},
        "spec": pod_tree["spec"] | {"restartPolicy": "Never"},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"parallelism": parallelism, "completions": parallelism, "template": expected}
        | spec,
    }
