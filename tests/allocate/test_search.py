"""Stories of the allocator: what it finds, what it proves impossible at once, what it prefers."""

from __future__ import annotations

import pytest

from dovetail.allocate import allocator
from tests.allocate import build
from tests.allocate.build import ask, claim, devices_of, exactly, profile

FEW_STEPS = 5_000


def _refused(outcome: allocator.Outcome) -> allocator.Refused:
    assert isinstance(outcome, allocator.Refused), outcome
    assert outcome.steps <= FEW_STEPS
    return outcome


@pytest.mark.parametrize("number", [8, 16, 24, 31])
def test_one_more_than_there_are_is_refused_without_a_search(number: int) -> None:
    _refused(ask(build.node(build.gpus(number)), claim(exactly(number + 1))))


def test_two_claims_for_one_more_than_64_are_refused() -> None:
    expected = [
        claim(exactly(32), name="a"),
        claim(exactly(32), name="b"),
        claim(exactly(1), name="c"),
    ]
    view = build.node(build.gpus(64))
    _refused(ask(view, *expected))
    assert len(set(devices_of(ask(view, *expected[:2])))) == 64


@pytest.mark.parametrize(("number", "counts"), [(12, (3, 3, 3, 4)), (9, (1,) * 10), (16, (8, 9))])
def test_requests_that_together_want_one_too_many_are_refused(
    number: int, counts: tuple[int, ...]
) -> None:
    view = build.node(build.gpus(number))
    _refused(ask(view, claim(*(exactly(count) for count in counts))))
    fitting = (*counts[:-1], counts[-1] - 1)
    assert len(set(devices_of(ask(view, claim(*(exactly(count) for count in fitting)))))) == number


def test_requests_with_different_wishes_are_matched_not_tried() -> None:
    """Each refuses one device; the last accepts a single one that another would take first."""
    uuid = f'device.attributes["{build.DRIVER}"].uuid'
    picky = [exactly(where=f'{uuid} != "uuid-{number}"') for number in range(8)]
    only = exactly(where=f'{uuid} == "uuid-0"')
    view = build.node(build.gpus(9))
    names = devices_of(ask(view, claim(*picky, only)))
    assert len(set(names)) == 9
    assert names[-1] == "gpu-0"
    _refused(ask(view, claim(*picky, only, exactly())))


def test_mixed_partitions_fill_eight_boards_to_the_last_place() -> None:
    view = build.mig_node(8)
    assert len(devices_of(ask(view, claim(profile("4g", 8), profile("2g", 8))))) == 16
    _refused(ask(view, claim(profile("4g", 8), profile("2g", 9))))
    assert (
        len(
            devices_of(
                ask(view, claim(profile("1g", 30), name="a"), claim(profile("1g", 26), name="b"))
            )
        )
        == 56
    )
    _refused(ask(view, claim(profile("1g", 30), name="a"), claim(profile("1g", 27), name="b")))


def test_six_profiles_that_want_more_compute_than_there_is_are_refused() -> None:
    expected = (("7g", 2), ("4g", 4), ("3g", 5), ("2g", 4), ("1gd", 4), ("1g", 5))
    _refused(ask(build.mig_node(8), claim(*(profile(name, count) for name, count in expected))))


def test_a_common_parent_keeps_partitions_on_one_board() -> None:
    same = [{"matchAttribute": f"{build.DRIVER}/parent"}]
    view = build.mig_node(4, in_use=["gpu-0-2g-0", "gpu-1-1g-6", "gpu-2-3g-4"])
    names = devices_of(ask(view, claim(profile("2g", 2), profile("1g"), constraints=same)))
    assert len({name[:5] for name in names}) == 1
    _refused(ask(view, claim(profile("3g", 2), profile("1g"), constraints=same)))


def test_distinct_values_that_span_boards_are_counted_across_them() -> None:
    """Two values of numa on eight boards: at most two devices, whatever else the claim asks for."""
    devices = [tree for gpu in range(8) for tree in build.partitions(gpu)]
    for device in devices:
        device["attributes"]["numa"] = {"int": int(device["name"][4]) // 4}
    view = build.node(devices, counters=[build.board(gpu) for gpu in range(8)])
    apart = [{"distinctAttribute": f"{build.DRIVER}/numa", "requests": ["r0"]}]
    names = devices_of(ask(view, claim(profile("2g", 2), profile("1g", 6), constraints=apart)))
    assert {int(name[4]) // 4 for name in names[:2]} == {0, 1}
    _refused(ask(view, claim(profile("2g", 3), profile("1g", 6), constraints=apart)))


def test_a_budget_that_runs_out_is_neither_yes_nor_no() -> None:
    expected = claim(profile("4g", 8), profile("2g", 8))
    outcome = ask(build.mig_node(8), expected, budget=5)
    assert isinstance(outcome, allocator.Undecided)
    assert outcome.steps == 6


def test_the_earlier_alternative_is_taken_where_it_fits() -> None:
    expected = claim([profile("7g"), profile("3g")], [profile("7g"), profile("1g")])
    assert devices_of(ask(build.mig_node(2), expected)) == ["gpu-0-7g-0", "gpu-1-7g-0"]
    outcome = ask(build.mig_node(2, in_use=["gpu-1-1g-6"]), expected)
    assert isinstance(outcome, allocator.Allocated)
    assert outcome.preference == (0, 1)
    assert devices_of(outcome) == ["gpu-0-7g-0", "gpu-1-1g-4"]
    single = ask(build.mig_node(1), expected)
    assert isinstance(single, allocator.Allocated)
    assert single.preference == (1, 1)


def test_ten_identical_alternatives_are_not_tried_in_every_order() -> None:
    whole = exactly(where=f'device.attributes["{build.DRIVER}"].numa == 0')
    view = build.node(build.gpus(12))
    outcome = ask(view, claim(*[[whole, exactly()] for _ in range(10)]))
    assert isinstance(outcome, allocator.Allocated)
    assert outcome.preference == (0,) * 6 + (1,) * 4
    _refused(ask(view, claim(*[[whole, exactly()] for _ in range(13)])))


def test_a_share_goes_to_the_fullest_device_it_fits() -> None:
    view = build.node(build.shareable(3))
    pool = view.pools[0]._replace(
        shared={1: {"memory": 60 * 2**30 * 10**9}, 2: {"memory": 75 * 2**30 * 10**9}}
    )
    view = view._replace(pools=(pool,))
    share = exactly(capacity={"requests": {"memory": "10Gi"}})
    assert devices_of(ask(view, claim(share))) == ["gpu-1"]
    assert sorted(devices_of(ask(view, claim(share, share, share)))) == ["gpu-0", "gpu-1", "gpu-1"]


def test_two_devices_of_one_request_are_never_shares_of_one() -> None:
    share = exactly(2, capacity={"requests": {"memory": "10Gi"}})
    assert (
        devices_of(ask(build.node(build.shareable(3)), claim(share, share)))
        == ["gpu-0", "gpu-1"] * 2
    )
    _refused(ask(build.node(build.shareable(1)), claim(share)))


def test_admin_access_neither_takes_nor_is_kept_away() -> None:
    view = build.node(build.gpus(2), in_use=["gpu-0"])
    monitor = exactly(2, adminAccess=True)
    names = devices_of(ask(view, claim(monitor, name="monitor"), claim(exactly(), name="work")))
    assert names == ["gpu-0", "gpu-1", "gpu-1"]
    _refused(ask(view, claim(monitor, exactly())))


def test_the_smallest_device_that_does_is_taken() -> None:
    large, small = build.gpus(2)
    small["capacity"] = {"memory": {"value": "40Gi"}}
    assert devices_of(ask(build.node([large, small]), claim(exactly()))) == ["gpu-1"]


def test_a_device_that_must_be_prepared_comes_last() -> None:
    first, second = build.gpus(2)
    first["bindingConditions"], first["bindingFailureConditions"] = ["ready"], ["broken"]
    assert devices_of(ask(build.node([first, second]), claim(exactly()))) == ["gpu-1"]


def test_share_ids_are_the_same_for_the_same_question_and_differ_otherwise() -> None:
    view = build.node(build.shareable(1))
    share = exactly(capacity={"requests": {"memory": "10Gi"}})

    def ids(*wanted: object) -> list[str | None]:
        outcome = ask(view, *wanted)
        assert isinstance(outcome, allocator.Allocated)
        return [item.share_id for result in outcome.results for item in result.devices.results]

    once = ids(claim(share, share, name="a"), claim(share, name="b"))
    assert once == ids(claim(share, share, name="a"), claim(share, name="b"))
    assert len(set(once)) == 3


def test_an_unknown_class_fails_whatever_the_node() -> None:
    outcome = ask(build.node(build.gpus(1)), claim(exactly(deviceClassName="no-such-class")))
    assert isinstance(outcome, allocator.Failed)
    assert "no-such-class" in outcome.message
    assert not outcome.is_local


def test_shares_that_want_more_than_all_devices_hold_are_refused_by_adding_up() -> None:
    sizes = [*range(10, 52, 3), *range(15, 45, 3)]
    expected = [exactly(capacity={"requests": {"memory": f"{size}Gi"}}) for size in sizes]
    assert sum(sizes) > 8 * 80
    _refused(ask(build.node(build.shareable(8)), claim(*expected)))


def test_alternatives_of_thirty_requests_fit_together_in_few_steps() -> None:
    outcome = ask(
        build.mig_node(8),
        claim(*[[profile(name) for name in ("7g", "3g", "1g")] for _ in range(30)]),
    )
    assert isinstance(outcome, allocator.Allocated)
    assert outcome.preference == tuple(sorted(outcome.preference))
    assert outcome.preference.count(0) == 4
    assert outcome.steps < 100_000


def test_a_refusal_whose_reasons_take_too_long_says_so() -> None:
    expected = (("7g", 2), ("4g", 4), ("3g", 5), ("2g", 4), ("1gd", 4), ("1g", 5))
    asked = claim(*(profile(name, count) for name, count in expected))
    [whole] = _refused(ask(build.mig_node(8), asked)).reasons
    assert "compete for 144 devices" in whole.detail
    [cut] = _refused(ask(build.mig_node(8), asked, budget=2)).reasons
    assert cut.code == whole.code
    assert "not found out within 2 steps" in cut.detail
