"""Properties of recommendations about any records."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dovetail.answer.right_size.right_size_answer import Answer
from dovetail.model.accounting import records
from dovetail.model.accounting.records import Form, Records
from tests.answer.right_size import building
from tests.answer.right_size.building import GIB, HOUR

PRODUCTS = (building.H100, "NVIDIA A100-SXM4-80GB", "NVIDIA L40S", "NVIDIA-A30", "Some GPU", "")
KINDS = ("ReplicaSet", "Job", "StatefulSet", "PyTorchJob", "")
moments = st.integers(0, 200 * HOUR)
shares = st.none() | st.integers(0, 1_200_000)


@st.composite
def recorded(draw: st.DrawFn) -> Records:
    """Pods that held something, samples about some of them, gaps and failures; times may be anything."""
    assets, allocations, usage, failures = [], [], [], []
    for number in range(draw(st.integers(0, 3))):
        owner = records.Owner(
            "team", f"p-{number}", f"u-{number}", draw(st.sampled_from(KINDS)), "w"
        )
        asset = f"GPU-{number}"
        memory = draw(st.sampled_from((0, 24 * GIB, building.H100_BYTES)))
        assets.append(
            records.Asset(asset, "n", draw(st.sampled_from(PRODUCTS)), 0, memory_bytes=memory)
        )
        start = draw(moments)
        end = draw(st.none() | st.integers(start, 200 * HOUR))
        micro_gpu = draw(st.sampled_from((1_000_000, 142_857, 500_000, 2_000_000)))
        allocations.append(
            records.Allocation(
                f"a-{number}", asset, "n", micro_gpu, draw(st.sampled_from(Form)), owner, start, end,
                draw(st.sampled_from(("", "1g.10gb", "9g.9gb"))),
            )
        )  # fmt: skip
        level = draw(st.integers(0, 80 * GIB))
        for index in range(draw(st.sampled_from((0, 1, 40, 120)))):
            when = start + index * HOUR
            seen = (
                draw(st.none() | st.integers(0, level)) if index < 3 else level * (index % 7) // 6
            )
            usage.append(
                records.Usage(
                    asset, f"a-{number}", when, when + HOUR, draw(shares) if index < 3 else 9, seen
                )
            )
        if draw(st.booleans()):
            failures.append(records.OutOfMemory(draw(moments), owner))
    gaps = draw(
        st.lists(st.builds(records.Gap, st.sampled_from(records.GapSource), moments), max_size=2)
    )
    return Records(
        tuple(assets), tuple(allocations), tuple(usage), gaps=tuple(gaps),
        out_of_memory=tuple(failures),
    )  # fmt: skip


def _answer(given_: Records, **options: Any) -> Answer:
    return building.answer(given_, days=9, **options)


@given(recorded())
def test_never_less_memory_than_the_largest_seen(given_: Records) -> None:
    for advice in _answer(given_).work:
        if advice.recommended is not None:
            assert advice.needs is not None
            assert advice.recommended.memory_bytes >= advice.needs.largest_memory_bytes
            assert advice.needs.memory_bytes >= advice.needs.largest_memory_bytes


@given(recorded())
def test_the_same_records_in_any_order_give_the_same_answer(given_: Records) -> None:
    turned = building.with_field(
        given_,
        usage=given_.usage[::-1],
        assets=given_.assets[::-1],
        allocations=given_.allocations[::-1],
        gaps=given_.gaps[::-1],
    )
    assert _answer(given_) == _answer(given_)
    assert _answer(turned) == _answer(given_)


@given(recorded(), recorded())
def test_more_records_never_break_it(first: Records, second: Records) -> None:
    both = _answer(building.together(first, second))
    held = sum(advice.gpu_hours_held for advice in both.work)
    assert held >= 0
    assert all(advice.why for advice in both.work)


@given(recorded())
def test_what_is_saved_is_never_more_than_what_was_held(given_: Records) -> None:
    for advice in _answer(given_).work:
        assert advice.gpu_hours_saved <= advice.gpu_hours_held + 0.01
