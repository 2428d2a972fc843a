"""GPUs that pods request as KAI and HAMi let them: honoured, or refused by name; never dropped without a word."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.admission import admit
from dovetail.cel import selectors
from dovetail.kubetypes.core import nodes, pods
from dovetail.kubetypes.field_errors import Terms
from dovetail.model import gangs, gpu_annotations, plan
from dovetail.model.reasons import ReasonCode
from dovetail.world.world import World
from tests.schedule import build

GPU = "nvidia.com/gpu"


def annotated(name: str, annotations: dict[str, str], *, gpus: int = 0, **spec: Any) -> pods.Pod:
    resources: dict[str, Any] = {"requests": {"cpu": "1"}}
    if gpus:
        resources["limits"] = {GPU: str(gpus)}
    containers = [{"name": "main", "resources": resources}]
    return build.pod(name, metadata={"annotations": annotations}, containers=containers, **spec)


def plugin_node(name: str, product: str | None, gpus: int = 8) -> nodes.Node:
    """A node whose GPUs a device plugin counts."""
    labels = {} if product is None else {gpu_annotations.PRODUCT_LABEL: product}
    return build.node(name, labels=labels, allocatable={GPU: str(gpus)})


def plugin_cluster() -> World:
    return build.world(
        plugin_node("a", "NVIDIA-A100-SXM4-80GB"),
        plugin_node("b", "NVIDIA-GB200"),
        plugin_node("c", "Tesla-V100-PCIE-32GB"),
    )


def driver_cluster() -> World:
    """Three nodes of two GPUs that a driver publishes, and a class behind nvidia.com/gpu."""
    world = build.world(build.gpu_class(extendedResourceName=GPU))
    products = {"a": "NVIDIA A100-SXM4-80GB", "b": "NVIDIA GB200", "c": "Tesla V100-PCIE-32GB"}
    for name, product in products.items():
        productName = {"string": product}
        build.put(world, build.node(name), build.gpu_slice(name, 2, productName=productName))
    return world


def refusal_of(done: plan.Plan) -> plan.Refusal:
    [refusal] = done.refusals
    return refusal


# Shares, as KAI's annotations request them


@pytest.mark.parametrize(
    "annotations",
    [
        {"gpu-fraction": "0.5"},
        {"gpu-memory": "2000"},
        {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"},
        {"gpu-fraction": "0.5", "gpu-fraction-container-name": "main"},
    ],
)
def test_a_pod_that_asks_for_a_share_by_annotation_waits_instead_of_running_without_a_gpu(
    annotations: dict[str, str],
) -> None:
    done = build.decided(build.world(annotated("shares", annotations), nodes=2))
    assert not done.placements
    refusal = refusal_of(done)
    key, value = next(iter(annotations.items()))
    assert f'annotation {key}: "{value}"' in refusal.summary
    assert "capacity.requests.memory" in refusal.summary
    assert [one.reason.code for one in refusal.obstacles] == [ReasonCode.ANNOTATION]


def test_a_share_in_a_gang_holds_the_gang_back_for_the_same_reason() -> None:
    labels = {"dovetail.dev/gang": "g", "dovetail.dev/gang-min": "2"}
    members = [
        build.pod(name, metadata={"labels": labels, "annotations": words})
        for name, words in (("a", {"gpu-fraction": "0.5"}), ("b", {}))
    ]
    done = build.decided(build.world(*members, nodes=2))
    assert not done.placements
    assert 'annotation gpu-fraction: "0.5"' in build.summary_of(done, "a")


def test_a_pod_with_a_claim_has_its_share_from_there_and_a_note_says_so() -> None:
    pod = annotated("claims", {"gpu-fraction": "0.5"}, resourceClaims=_claims("one"))
    world = build.world(build.claim("one"), pod, nodes=1)
    assert build.nodes_of(build.decided(world)) == {"claims": "n0"}
    assert gangs.gang_of_pod(pod).problems == (
        "gpu-fraction is ignored: the pod's claims say which GPUs it gets",
    )


@pytest.mark.parametrize(
    ("annotations", "gpus", "words"),
    [
        ({"gpu-fraction": "1.5"}, 0, "expected a number above 0 and below 1"),
        ({"gpu-memory": "2Gi"}, 0, "expected MiB as a whole number"),
        ({"gpu-fraction": "0.5", "gpu-memory": "1"}, 0, "gpu-fraction is set too"),
        ({"gpu-fraction-num-devices": "2"}, 0, "neither gpu-fraction nor gpu-memory"),
        ({"gpu-fraction": "0.5"}, 1, "requests GPUs as a resource too"),
        ({"gpu-fraction": "0.5", "gpu-fraction-container-name": "x"}, 0, "no container of this"),
    ],
)
def test_a_share_that_cannot_be_given_is_refused_by_name(
    annotations: dict[str, str], gpus: int, words: str
) -> None:
    world = plugin_cluster()
    build.put(world, annotated("p", annotations, gpus=gpus))
    refusal = refusal_of(build.decided(world))
    assert words in refusal.summary
    assert [each.reason.code for each in refusal.obstacles] == [ReasonCode.ANNOTATION]


def test_a_pod_with_the_claim_for_its_share_has_no_note() -> None:
    entry = {"name": "gpu-share", "resourceClaimTemplateName": "dovetail-gpu-fraction-0.5"}
    pod = annotated("p", {"gpu-fraction": "0.5"}, resourceClaims=[entry])
    assert gangs.gang_of_pod(pod).problems == ()


def test_where_no_gpu_offers_shares_the_reason_says_what_to_do() -> None:
    entry = {"name": "gpu-share", "resourceClaimTemplateName": "dovetail-gpu-fraction-0.5"}
    pod = annotated("p", {"gpu-fraction": "0.5"}, resourceClaims=[entry])
    refusal = refusal_of(build.decided(build.world(pod, nodes=2)))
    assert "no GPU offers shares of its memory" in refusal.summary
    assert "allowMultipleAllocations" in refusal.summary
    assert [each.reason.code for each in refusal.obstacles] == [ReasonCode.NEVER]


def _claims(name: str) -> list[dict[str, str]]:
    return [{"name": name, "resourceClaimName": name}]


# Types and uuids, as HAMi's annotations choose them


@pytest.mark.parametrize("cluster", [plugin_cluster, driver_cluster])
@pytest.mark.parametrize(
    ("annotations", "allowed"),
    [
        ({gpu_annotations.USE_TYPE: "A100"}, {"a"}),
        ({gpu_annotations.USE_TYPE: "a100, v100"}, {"a", "c"}),
        ({gpu_annotations.USE_TYPE: "Tesla V100-PCIE-32GB"}, {"c"}),
        ({gpu_annotations.NO_USE_TYPE: "GB200,A100"}, {"c"}),
        ({gpu_annotations.USE_TYPE: "NVIDIA", gpu_annotations.NO_USE_TYPE: "A100"}, {"b"}),
        ({gpu_annotations.USE_TYPE: " , "}, {"a", "b", "c"}),
    ],
)
def test_a_pod_gets_gpus_of_the_types_it_names_only(
    cluster: Any, annotations: dict[str, str], allowed: set[str]
) -> None:
    world = cluster()
    used: set[str] = set()
    for number in range(3):
        gpus = 8 if cluster is plugin_cluster else 2
        build.put(world, annotated(f"p{number}", annotations, gpus=gpus))
        done = build.decided(world)
        used |= set(build.nodes_of(done).values())
        build.carried_out(world, done)
    assert used == allowed


def test_a_uuid_is_chosen_from_the_devices_of_a_driver() -> None:
    world = driver_cluster()
    build.put(world, annotated("p", {gpu_annotations.USE_UUID: "GPU-x, b-1"}, gpus=1))
    [placement] = build.decided(world).placements
    assert placement.made is not None
    [result] = placement.made.result.devices.results
    assert (result.pool, result.device) == ("b", "gpu-1")


def test_an_api_server_takes_the_claim_however_long_the_choice_is() -> None:
    world = driver_cluster()
    longest = ",".join(f"GPU-{number}" for number in range(450))
    assert len(longest) <= gpu_annotations.LONGEST_CHOICE
    words = {
        gpu_annotations.USE_TYPE: f"A100,{longest}",
        gpu_annotations.NO_USE_TYPE: longest,
        gpu_annotations.USE_UUID: f"a-1,{longest}",
        gpu_annotations.NO_USE_UUID: longest,
    }
    build.put(world, annotated("p", words, gpus=1))
    [placement] = build.decided(world).placements
    assert placement.made is not None
    metadata = build.replaced(placement.made.claim.metadata, name="made")
    claim = build.replaced(placement.made.claim, metadata=metadata)
    verdict = admit.create(claim, Terms(selectors.problem, now="2026-01-01T00:00:00Z"))
    assert verdict.is_valid, verdict.problems


def test_uuids_that_are_excluded_are_not_used() -> None:
    world = driver_cluster()
    excluded = ",".join(f"{node}-{index}" for node in "abc" for index in range(2) if node != "c")
    words = {gpu_annotations.NO_USE_UUID: f"{excluded},c-0"}
    build.put(world, annotated("p", words, gpus=1))
    [placement] = build.decided(world).placements
    assert placement.made is not None
    [result] = placement.made.result.devices.results
    assert (result.pool, result.device) == ("c", "gpu-1")


def test_a_device_plugin_cannot_choose_by_uuid_and_the_reason_says_so() -> None:
    world = plugin_cluster()
    build.put(world, annotated("p", {gpu_annotations.USE_UUID: "GPU-x"}, gpus=1))
    summary = refusal_of(build.decided(world)).summary
    assert summary.startswith("3 nodes: 3 cannot serve annotation nvidia.com/use-gpuuuid")
    assert "a device plugin counts the GPUs" in summary


def test_nodes_that_do_not_state_their_type_are_out() -> None:
    world = build.world(plugin_node("bare", None))
    build.put(world, annotated("p", {gpu_annotations.NO_USE_TYPE: "A100"}, gpus=1))
    assert "no label nvidia.com/gpu.product" in refusal_of(build.decided(world)).summary


def test_pods_that_differ_in_the_choice_alone_are_not_of_one_kind() -> None:
    world = plugin_cluster()
    for name, kind in (("p", "A100"), ("q", "GB200"), ("r", "V100")):
        build.put(world, annotated(name, {gpu_annotations.USE_TYPE: kind}, gpus=1))
    assert build.nodes_of(build.decided(world)) == {"p": "a", "q": "b", "r": "c"}


def test_a_choice_that_no_device_meets_is_named_in_the_words_of_the_pod() -> None:
    world = driver_cluster()
    build.put(world, annotated("p", {gpu_annotations.USE_TYPE: "H100, L4"}, gpus=1))
    assert refusal_of(build.decided(world)).summary == (
        "3 nodes: 3 cannot serve resource nvidia.com/gpu: "
        '2 of class gpu -> 0 with annotation nvidia.com/use-gputype: "H100, L4" (needs 1)'
    )


def test_a_choice_that_is_no_readable_text_is_still_only_text() -> None:
    world = driver_cluster()
    words = {gpu_annotations.USE_TYPE: 'A100"] || true || ["\\\u2028\n'}
    build.put(world, annotated("p", words, gpus=1))
    assert not build.decided(world).placements


def test_a_choice_too_long_for_a_selector_is_refused() -> None:
    world = driver_cluster()
    build.put(world, annotated("p", {gpu_annotations.USE_UUID: "GPU-1," * 1000}, gpus=1))
    assert "name fewer GPUs" in refusal_of(build.decided(world)).summary


@pytest.mark.parametrize(
    ("annotations", "gpus", "words"),
    [
        ({gpu_annotations.USE_TYPE: "A100"}, 0, "requests no GPU as an extended resource"),
        ({gpu_annotations.GPU_POLICY: "spread"}, 1, "filled up one by one"),
        ({gpu_annotations.NODE_POLICY: "spread"}, 1, "filled up one by one"),
        ({gpu_annotations.NUMA_BIND: "true"}, 1, "constraint"),
        ({gpu_annotations.VGPU_MODE: "mig"}, 1, "up to its driver"),
    ],
)
def test_what_has_no_effect_is_named(annotations: dict[str, str], gpus: int, words: str) -> None:
    [problem] = gangs.gang_of_pod(annotated("p", annotations, gpus=gpus)).problems
    assert problem.startswith(next(iter(annotations)))
    assert words in problem


def test_what_has_an_effect_has_no_note() -> None:
    words = {gpu_annotations.USE_TYPE: "A100", gpu_annotations.GPU_POLICY: "binpack"}
    assert gangs.gang_of_pod(annotated("p", words, gpus=1)).problems == ()


@pytest.mark.parametrize("resource", [*gpu_annotations.HAMI_RESOURCES])
def test_resources_that_only_hami_counts_are_answered_with_what_to_write_instead(
    resource: str,
) -> None:
    limits = {GPU: "1", resource: "30"}
    pod = build.pod("p", containers=[{"name": "main", "resources": {"limits": limits}}])
    world = plugin_cluster()
    build.put(world, pod)
    summary = refusal_of(build.decided(world)).summary
    assert f"3 lack {resource} (needs 30, at most 0 free" in summary
    assert "only HAMi's scheduler counts" in summary
    assert "capacity.requests.memory" in summary
