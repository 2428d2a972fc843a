"""Effective sizes: dual prices of the best packing, and what a placement loses of it."""

from __future__ import annotations

import itertools

import pytest

from dovetail.schedule.node.score import effective_sizes


def test_a_share_that_leaves_no_room_for_another_occupies_the_whole_gpu() -> None:
    assert effective_sizes.EffectiveSizes({810: 5}).prices == pytest.approx({810: 1.0})


def test_halves_and_thirds_occupy_what_their_number_on_a_gpu_says() -> None:
    assert effective_sizes.EffectiveSizes({470: 3}).prices == pytest.approx({470: 1 / 2})
    assert effective_sizes.EffectiveSizes({320: 3}).prices == pytest.approx({320: 1 / 3})


def test_a_share_that_goes_with_a_scarce_partner_is_priced_with_it() -> None:
    sizes = effective_sizes.EffectiveSizes({650: 1, 320: 5})
    assert sizes.prices == pytest.approx({650: 2 / 3, 320: 1 / 3})


def test_prices_never_make_a_pattern_worth_more_than_the_gpu_that_holds_it() -> None:
    mix = {160: 9, 220: 4, 320: 7, 470: 11, 590: 3, 650: 2, 810: 6}
    prices = effective_sizes.EffectiveSizes(mix).prices
    sizes = sorted(mix)
    for count in range(1, 7):
        for pattern in itertools.combinations_with_replacement(sizes, count):
            if sum(pattern) <= 1000:
                assert sum(prices[size] for size in pattern) <= 1 + 1e-6


def test_a_placement_that_keeps_the_best_pattern_loses_nothing() -> None:
    sizes = effective_sizes.EffectiveSizes({470: 6, 320: 6, 650: 1})
    lost = sizes.loss(470)
    assert lost[100] == pytest.approx(0)  # an empty GPU: two of them fill it
    assert lost[53] == pytest.approx(0)  # beside another 470
    assert lost[68] == pytest.approx(2 / 3 - 1 / 2)  # beside a 320: closes the place of two more


def test_a_size_that_the_mix_does_not_know_is_charged_what_it_takes_from_an_empty_gpu() -> None:
    sizes = effective_sizes.EffectiveSizes({500: 1})
    assert sizes.loss(600)[100] == pytest.approx(0)
    assert sizes.loss(600)[70] == pytest.approx(
        0
    )  # half a GPU is lost there too, which is its price


def test_no_sharing_pods_means_no_loss() -> None:
    assert not any(effective_sizes.EffectiveSizes({}).loss(300))
