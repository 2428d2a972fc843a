"""Patches of recommendations, carried out on an API server in memory, and what the engine says about them."""

from __future__ import annotations

from typing import Any

from dovetail.answer.replica.replica import Replica
from dovetail.answer.right_size import cluster_work, device_choices, in_cluster, size_patches
from dovetail.answer.right_size.right_size_answer import Answer, Recommendation
from dovetail.kubetypes import codec, object_set
from dovetail.model import policy
from dovetail.sim.fleet import fleet_objects, fleet_spec
from tests.answer.fixes import trial_cluster
from tests.answer.right_size import building
from tests.answer.what_if.building import NOW

Tree = dict[str, Any]
H100 = building.H100
H100_BYTES = building.H100_BYTES


def fleet() -> list[Tree]:
    """One node with two H100 that can be divided."""
    pool = fleet_spec.Pool(
        name="h100", count=1, gpu="H100-SXM5-80GB", gpus_per_node=2, rack="r1", mig=True
    )
    return objects_of(pool)


def objects_of(pool: fleet_spec.Pool) -> list[Tree]:
    """Nodes, devices and classes; the server has its namespaces."""
    trees = fleet_objects.objects_of(fleet_spec.Fleet(name="test", pools=(pool,)))
    return [tree for tree in trees if tree["kind"] != "Namespace"]


def template(*selectors: str, **exactly: Any) -> Tree:
    whole: Tree = {"deviceClassName": "gpu.nvidia.com", "count": 1, **exactly}
    if selectors:
        whole["selectors"] = [{"cel": {"expression": each}} for each in selectors]
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": whole}]}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpu", "namespace": "team"},
        "spec": {"spec": spec},
    }


def deployment(replicas: int = 1) -> Tree:
    spec = {
        "containers": [
            {"name": "main", "image": "serve:1", "resources": {"claims": [{"name": "gpu"}]}}
        ],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
    }
    return trial_cluster.workload("Deployment", "chat", spec=spec, replicas=replicas)


def advised(replica: Replica, memory_gib: int = 8) -> Recommendation:
    """What is advised about the Deployment `chat`, whose pods are in the cluster."""
    ((key, pods),) = cluster_work.pods_by_family(replica).items()
    assert str(key) == "deployment/team/chat"
    parts = [
        building.work(
            pod.metadata.name, memory=lambda _: memory_gib * building.GIB, product=H100,
            owner_=cluster_work.owner_of(pod),
        )
        for pod in pods
    ]  # fmt: skip
    answer: Answer = building.answer(
        building.together(*parts), programs=cluster_work.programs(replica)
    )
    (advice,) = in_cluster.completed(answer, replica).work
    return advice


def test_a_claim_template_becomes_a_slice_and_the_pod_starts_on_it() -> None:
    cluster = trial_cluster.Cluster(*fleet(), template(), deployment())
    advice = advised(cluster.replica())
    assert advice.is_patchable
    kinds = [(patch.object.kind, patch.delete) for patch in advice.patches]
    assert kinds[:2] == [("ResourceClaimTemplate", True), ("ResourceClaimTemplate", False)]
    assert advice.what_if is not None
    assert (advice.what_if.pods, advice.what_if.pods_start) == (1, 1)
    assert advice.what_if.fit_before == 2  # the Deployment's own pod waits and is not counted
    assert advice.what_if.fit_after == 13  # 14 slices of 1g.10gb, one of them its own
    for patch in advice.patches:
        cluster._apply(patch)
        cluster.settle()
    (name,) = cluster.pod_names()
    assert cluster.starts(name).starts
    after = cluster.tree("ResourceClaimTemplate", "gpu")["spec"]["spec"]["devices"]["requests"]
    assert after[0]["exactly"]["deviceClassName"] == "mig.nvidia.com"
    (selector,) = after[0]["exactly"]["selectors"]
    assert '.profile == "1g.10gb"' in selector["cel"]["expression"]


def test_selectors_about_the_product_stay_and_those_about_the_form_go() -> None:
    product = f'device.attributes["gpu.nvidia.com"].productName == "{H100}"'
    form = 'device.attributes["gpu.nvidia.com"].type == "gpu"'
    cluster = trial_cluster.Cluster(*fleet(), template(product, form), deployment())
    advice = advised(cluster.replica())
    created = next(patch.create for patch in advice.patches if patch.create)
    exactly = created["spec"]["spec"]["devices"]["requests"][0]["exactly"]
    expressions = [each["cel"]["expression"] for each in exactly["selectors"]]
    assert product in expressions
    assert form not in expressions
    assert advice.what_if is not None
    assert advice.what_if.pods_start == 1


def test_a_counted_gpu_becomes_a_counted_slice() -> None:
    node = trial_cluster.node("n", gpus=2, allocatable={"nvidia.com/mig-1g.10gb": "7"})
    spec = trial_cluster.pod_spec(gpus=1)
    work = trial_cluster.workload("Deployment", "chat", spec=spec, replicas=1)
    cluster = trial_cluster.Cluster(node, work)
    advice = advised(cluster.replica())
    (patch,) = [patch for patch in advice.patches if patch.merge]
    assert patch.object.kind == "Deployment"
    (container,) = patch.merge["spec"]["template"]["spec"]["containers"]  # type: ignore[index]
    assert container["resources"]["limits"] == {"nvidia.com/mig-1g.10gb": "1"}
    assert advice.what_if is not None
    assert (advice.what_if.pods_start, advice.what_if.fit_after) == (1, 6)


def test_without_slices_on_offer_there_is_no_patch_and_it_says_so() -> None:
    pool = fleet_spec.Pool(name="h100", count=1, gpu="H100-SXM5-80GB", gpus_per_node=2, rack="r1")
    advice = advised(trial_cluster.Cluster(*objects_of(pool), template(), deployment()).replica())
    assert advice.recommended is not None
    assert not advice.is_patchable
    assert "no node publishes 1g.10gb slices" in advice.patch_note


def test_work_that_is_not_in_the_cluster_gets_no_patch() -> None:
    stored = [codec.decode(tree) for tree in fleet()]
    replica = Replica(object_set.of("test", stored), policy.DEFAULT, NOW)
    (advice,) = in_cluster.completed(building.answer(building.work(product=H100)), replica).work
    assert "no pod of it is in the cluster" in advice.patch_note


def test_a_program_that_preallocates_is_recognised_in_the_cluster() -> None:
    work = deployment()
    container = work["spec"]["template"]["spec"]["containers"][0]
    container |= {"image": "serve:1", "args": ["--gpu-memory-utilization=0.8"]}
    advice = advised(trial_cluster.Cluster(*fleet(), template(), work).replica())
    assert advice.recommended is None
    assert "--gpu-memory-utilization 0.8 sets how much memory it takes" in advice.why


def test_requests_with_alternatives_are_left_to_people() -> None:
    tree = template()
    (request,) = tree["spec"]["spec"]["devices"]["requests"]
    request["firstAvailable"] = [request.pop("exactly") | {"name": "any"}]
    advice = advised(trial_cluster.Cluster(*fleet(), tree, deployment()).replica())
    assert "several requests or alternatives" in advice.patch_note


def test_a_template_that_other_work_uses_is_left_to_people() -> None:
    cluster = trial_cluster.Cluster(*fleet(), template(), deployment())
    (pod,) = cluster.replica().world.pods.values()
    other = {
        "containers": [{"name": "main"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
    }
    cluster.put(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "other", "namespace": "team"},
            "spec": other,
        }
    )
    share = device_choices.choices(H100, H100_BYTES)[0]
    note = size_patches.change(cluster.replica(), [pod], share).note
    assert "ResourceClaimTemplate gpu is used by pod other as well" in note


def test_shares_need_a_cluster_that_offers_them() -> None:
    cluster = trial_cluster.Cluster(*fleet(), template(), deployment())
    replica = cluster.replica()
    (pods,) = cluster_work.pods_by_family(replica).values()
    share = next(each for each in device_choices.choices(H100, H100_BYTES) if each.shared_by == 2)
    assert "time-slicing or MPS" in size_patches.change(replica, pods, share).note
