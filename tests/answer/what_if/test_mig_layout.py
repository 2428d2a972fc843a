"""Where MIG partitions sit on a board: what fits is what the driver allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import errors, gpus
from dovetail.answer.what_if import mig_layout

H100 = gpus.by_name("H100-SXM5-80GB")
assert H100 is not None
NAMES = [profile.name.value for profile in gpus.profiles(H100)]


@pytest.mark.parametrize(
    ("names", "starts"),
    [
        (["3g.40gb", "4g.40gb"], [0, 4]),  # 4g may start at 0 only, so 3g goes to 4
        (["1g.10gb"] * 7, [0, 1, 2, 3, 4, 5, 6]),
        (["7g.80gb"], [0]),
        (["2g.20gb", "3g.40gb", "2g.20gb"], [0, 2, 4]),
    ],
)
def test_profiles_that_fit_together(names: list[str], starts: list[int]) -> None:
    assert [placed.start for placed in mig_layout.layout(H100, names)] == starts


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["4g.40gb", "4g.40gb"], "8 compute slices are asked for, H100-SXM5-80GB has 7"),
        (["3g.40gb", "3g.40gb", "1g.10gb"], "no placement of its 8 memory slices allows it"),
        (["1g.10gb+me", "1g.10gb+me"], "holds 1g.10gb+me at most 1 times, not 2"),
        (["3g.20gb"], "did you mean 3g.40gb or 2g.20gb?"),
    ],
)
def test_profiles_that_do_not(names: list[str], message: str) -> None:
    with pytest.raises(errors.InputError) as caught:
        mig_layout.layout(H100, names)
    assert message in str(caught.value)


@given(st.lists(st.sampled_from(NAMES), min_size=1, max_size=7))
def test_a_layout_never_uses_a_slice_twice_and_only_allowed_starts(names: list[str]) -> None:
    try:
        placed = mig_layout.layout(H100, names)
    except errors.InputError:
        return
    used = [index for each in placed for index in range(each.start, each.start + each.size)]
    assert len(used) == len(set(used))
    assert max(used) < 8
    assert sorted(each.profile.name.value for each in placed) == sorted(names)
    for each in placed:
        assert each.profile.starts is not None
        assert each.start in each.profile.starts.value


def test_a_board_without_mig() -> None:
    board = gpus.by_name("L40S")
    assert board is not None
    with pytest.raises(errors.InputError, match="L40S has no MIG"):
        mig_layout.layout(board, ["1g.10gb"])
