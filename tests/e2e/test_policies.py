"""deploy/policies on a real API server: who may tolerate the taint of GPU nodes, and who does so by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.namespace_scene import pod_tree
from tests.support import cluster as planes
from tests.support import live, rest
from tests.support.live import Live

pytestmark = [pytest.mark.slow, pytest.mark.newest]

FILE = str(live.ROOT / "deploy" / "policies" / "keep-general-pods-off.yaml")
GPU = {"key": "nvidia.com/gpu", "operator": "Exists"}
Tree = dict[str, Any]


@pytest.fixture(scope="module")
def namespace(cluster: Live) -> Iterator[str]:
    """A namespace of a cluster where the policies are in force."""
    name = planes.fresh_namespace(cluster.plane)
    planes.kubectl(cluster.plane, "apply", "-f", FILE)
    try:
        cluster.wait_for(
            "the policies in force",
            lambda: _is_refused(cluster, name) and _is_helped(cluster, name),
        )
        yield name
    finally:
        planes.kubectl(cluster.plane, "delete", "-f", FILE)
        cluster.delete_namespace(name)


def tried(cluster: Live, namespace: str, *, tolerations: list[Tree], **options: Any) -> Tree:
    """What the server would make of a pod."""
    owner = options.pop("owner", None)
    tree = pod_tree("p", **options, scheduler="no-scheduler")
    tree["spec"]["tolerations"] = tolerations
    if owner:
        tree["metadata"]["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "u"}
        ]
    body: Tree = cluster.rest.ask("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", tree)
    return body


@pytest.mark.parametrize(
    "toleration",
    [
        GPU,
        {"operator": "Exists"},
        {"key": "nvidia.com/gpu", "operator": "Equal", "value": "present"},
    ],
)
def test_a_general_pod_may_not_tolerate_gpu_nodes(
    cluster: Live, namespace: str, toleration: Tree
) -> None:
    with pytest.raises(rest.RefusedError, match="asks for no GPU but tolerates the taint"):
        tried(cluster, namespace, tolerations=[toleration])


@pytest.mark.parametrize(
    "options",
    [
        {"limits": {"nvidia.com/gpu": "1"}},
        {"claims": ["c"]},
        {"owner": "DaemonSet"},
    ],
    ids=["classic", "claim", "daemonset"],
)
def test_who_belongs_there_may(cluster: Live, namespace: str, options: Tree) -> None:
    assert (
        GPU.items()
        <= tried(cluster, namespace, tolerations=[GPU], **options)["spec"]["tolerations"][0].items()
    )


def test_other_tolerations_are_not_changed(cluster: Live, namespace: str) -> None:
    """The pod keeps exactly the tolerations it came with, besides those every API server adds."""
    added = [
        {
            "key": f"node.kubernetes.io/{what}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        }
        for what in ("not-ready", "unreachable")
    ]
    other_key = {"key": "example.com/x", "operator": "Exists"}
    other_effect = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}

    def tolerations_of(*given: Tree) -> list[Tree]:
        trees: list[Tree] = tried(cluster, namespace, tolerations=[*given])["spec"]["tolerations"]
        return trees

    assert tolerations_of() == added
    assert tolerations_of(other_key) == [other_key, *added]
    assert tolerations_of(other_effect) == [other_effect]  # covers both that would be added


def test_a_pod_that_claims_devices_tolerates_the_taint_by_itself(
    cluster: Live, namespace: str
) -> None:
    other = {"key": "example.com/x", "operator": "Exists"}
    for given in ([], [other], [GPU]):
        made = tried(cluster, namespace, tolerations=given, claims=["c"])["spec"]["tolerations"]
        assert [item["key"] for item in made if item["key"] == "nvidia.com/gpu"] == [
            "nvidia.com/gpu"
        ]
        assert all(any(item.items() <= each.items() for each in made) for item in given)
    plain = tried(cluster, namespace, tolerations=[])["spec"]["tolerations"]
    assert "nvidia.com/gpu" not in [item["key"] for item in plain]


def test_system_namespaces_are_left_alone(cluster: Live, namespace: str) -> None:
    assert tried(cluster, "kube-system", tolerations=[{"operator": "Exists"}])


def _is_refused(cluster: Live, namespace: str) -> bool:
    try:
        tried(cluster, namespace, tolerations=[GPU])
    except rest.RefusedError as refused:
        if "tolerates the taint" in str(refused):
            return True
        if "service account" not in str(refused) and "serviceaccount" not in str(refused):
            raise
    return False


def _is_helped(cluster: Live, namespace: str) -> bool:
    made = tried(cluster, namespace, tolerations=[], claims=["c"])["spec"]["tolerations"]
    return any(item.get("key") == "nvidia.com/gpu" for item in made)
