"""Which GPU type a user means, by what drivers publish and nodes are labelled with."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import errors
from dovetail.ask.submission import gpu_products, gpu_requests
from dovetail.kubetypes import codec, object_set
from dovetail.kubetypes.resource import device_classes
from dovetail.sim.fleet import fleet_objects, fleet_spec

PRODUCTS = (
    "NVIDIA H100 80GB HBM3",
    "NVIDIA A100-SXM4-80GB",
    "NVIDIA A100-SXM4-40GB",
    "NVIDIA GeForce RTX 4090",
    "NVIDIA GH200 480GB",
    "NVIDIA L4",
    "NVIDIA L40S",
)
TYPES = tuple(gpu_products.GpuType(product=name, driver="gpu.nvidia.com") for name in PRODUCTS)


@pytest.mark.parametrize(
    ("typed", "products"),
    [
        ("h100", ["NVIDIA H100 80GB HBM3"]),
        ("H100", ["NVIDIA H100 80GB HBM3"]),
        ("NVIDIA-H100-80GB-HBM3", ["NVIDIA H100 80GB HBM3"]),
        ("nvidia h100 80gb hbm3", ["NVIDIA H100 80GB HBM3"]),
        ("a100", ["NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-40GB"]),
        ("a100-80gb", ["NVIDIA A100-SXM4-80GB"]),
        ("a100_40GB", ["NVIDIA A100-SXM4-40GB"]),
        ("rtx4090", ["NVIDIA GeForce RTX 4090"]),
        ("4090", ["NVIDIA GeForce RTX 4090"]),
        ("l4", ["NVIDIA L4"]),
        ("gh200", ["NVIDIA GH200 480GB"]),
    ],
)
def test_people_write_a_type_in_many_ways(typed: str, products: list[str]) -> None:
    assert [each.product for each in gpu_products.matching(typed, TYPES)] == products


@pytest.mark.parametrize("typed", ["h10", "b200", "gpu", "nvidia", "-", "h100-40gb", ""])
def test_another_word_is_refused_with_the_types_there_are(typed: str) -> None:
    with pytest.raises(errors.InputError) as refusal:
        gpu_products.matching(typed, TYPES)
    for word in ("h100-80gb-hbm3", "a100-sxm4-40gb", "geforce-rtx-4090"):
        assert word in str(refusal.value)


@given(st.sampled_from(TYPES), st.sampled_from(["lower", "upper", "title"]), st.randoms())
def test_the_words_of_a_product_mean_it_in_any_case_and_order(
    gpu_type: gpu_products.GpuType, case: str, chance: Any
) -> None:
    words = gpu_type.word.split("-")
    chance.shuffle(words)
    typed = "-".join(getattr(word, case)() for word in words)
    assert gpu_type in gpu_products.matching(typed, TYPES)


def objects(*trees: dict[str, Any]) -> object_set.ObjectSet:
    return object_set.of("test", map(codec.decode, trees))


def fleet() -> list[dict[str, Any]]:
    return list(fleet_objects.objects_of(fleet_spec.sample()))


def classes_in(trees: list[dict[str, Any]]) -> list[device_classes.DeviceClass]:
    structs = [codec.decode(tree).struct for tree in trees if tree["kind"] == "DeviceClass"]
    return [each for each in structs if isinstance(each, device_classes.DeviceClass)]


def test_every_type_of_a_fleet_has_a_word_that_means_it_and_a_class_that_serves_it() -> None:
    trees = fleet()
    types = gpu_products.types_of(objects(*trees))
    assert types
    for each in types:
        assert each in gpu_products.matching(each.word, types)
        wish = gpu_requests.Wish(count=1, types=(each,), is_any_type=False)
        if each.sample is None:
            continue
        claim = gpu_requests.request_for(wish, classes_in(trees)).claim
        assert claim is not None
        assert claim["devices"]["requests"][0]["exactly"]["deviceClassName"] == "gpu.nvidia.com"


def node(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"nvidia.com/gpu": "4", "cpu": "64"}},
    }


def test_gpus_that_a_device_plugin_counts_are_asked_for_by_resource_and_label() -> None:
    label = "nvidia.com/gpu.product"
    types = gpu_products.types_of(
        objects(
            node("a", **{label: "NVIDIA-A100-SXM4-80GB"}),
            node("b", **{label: "NVIDIA-A100-SXM4-40GB"}),
            node("c", **{label: "NVIDIA-L4"}),
        )
    )
    wish = gpu_requests.Wish(count=2, types=gpu_products.matching("a100", types), is_any_type=False)
    request = gpu_requests.request_for(wish, [])
    assert request.claim is None
    assert request.resources == {"nvidia.com/gpu": "2"}
    products = {"NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-SXM4-40GB"}
    assert {label: set(values) for label, values in request.node_labels.items()} == {
        label: products
    }
    with pytest.raises(errors.InputError, match="cannot divide them by memory"):
        gpu_requests.request_for(gpu_requests.Wish(count=1, types=types, memory="20Gi"), [])


def test_a_product_with_quotes_stays_one_string_of_the_selector() -> None:
    odd = gpu_products.GpuType(product='X "1" \\ Y', driver="gpu.nvidia.com")
    assert gpu_products.selector_of([odd]).endswith('== "X \\"1\\" \\\\ Y"')
