"""Scarcity prices of GPU models and of places for pods with several GPUs."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.study.placement import scarcity
from tests.study import build

NO_DEVICES = np.full(2, -1, dtype=np.intp)


def test_models_cost_nothing_if_no_pod_insists_on_one() -> None:
    cluster = build.cluster(build.node("a"))
    prices = scarcity.ModelPrices(cluster, build.mix((build.whole(1), 5)))
    assert prices.by_model() is None


def test_a_model_is_priced_by_the_share_of_it_that_typed_pods_will_need() -> None:
    cluster = build.cluster(
        build.node("a", gpus=4, model="A10"), build.node("b", gpus=4, model="T4")
    )
    mix = build.mix((build.whole(1, models=("T4",)), 1), (build.whole(1), 3))
    prices = scarcity.ModelPrices(cluster, mix).by_model()
    # A quarter of the demand wants T4, which is half of the idle GPUs: half of them are spoken for.
    assert prices == pytest.approx([0, 0.25])


def test_a_model_with_more_demand_than_supply_costs_its_full_value() -> None:
    cluster = build.cluster(
        build.node("a", gpus=8, model="A10"), build.node("b", gpus=1, model="T4")
    )
    mix = build.mix((build.whole(1, models=("T4",)), 1), (build.whole(1), 1))
    assert scarcity.ModelPrices(cluster, mix).by_model() == pytest.approx([0, 1])


def test_a_pod_that_breaks_a_place_for_a_larger_one_pays_for_it() -> None:
    cluster = build.cluster(build.node("a", gpus=2), build.node("b", gpus=3))
    mix = build.mix((build.whole(2), 1))
    prices = scarcity.SlotPrices(cluster, mix)
    # Two places for 5 / 2 expected pods: price 1. Node a loses its place, node b keeps one.
    assert prices.cost(build.whole(1), NO_DEVICES) == pytest.approx([2, 0])


def test_a_sharing_pod_pays_only_where_it_opens_a_free_gpu() -> None:
    cluster = build.cluster(build.node("a", gpus=2), build.node("b", gpus=3))
    cluster.place(build.share(500), 1, 0)
    prices = scarcity.SlotPrices(cluster, build.mix((build.whole(2), 1)))
    devices = np.zeros(2, dtype=np.intp)
    assert prices.cost(build.share(300), devices) == pytest.approx([2, 0])


def test_places_are_counted_again_after_a_placement() -> None:
    cluster = build.cluster(build.node("a", gpus=2), build.node("b", gpus=2))
    prices = scarcity.SlotPrices(cluster, build.mix((build.whole(2), 1), (build.whole(1), 6)))
    first = prices.cost(build.whole(1), NO_DEVICES)
    cluster.place(build.whole(1), 0, -1)
    second = prices.cost(build.whole(1), NO_DEVICES)
    assert first[0] == pytest.approx(first[1])
    assert second[0] == 0  # nothing left to break
    assert second[1] > first[1]  # the last place is scarcer


def test_places_need_memory_and_the_right_model() -> None:
    small = build.node("a", gpus=2, memory_mib=1_000)
    wrong = build.node("b", gpus=2, model="A10")
    cluster = build.cluster(small, wrong)
    mix = build.mix((build.whole(2, models=("T4",), memory_mib=2_000), 1))
    assert not scarcity.SlotPrices(cluster, mix).cost(build.whole(1), NO_DEVICES).any()
