"""The benchmark of right-sizing: what a rule may see, what counts as wrong, and that draws repeat."""

from __future__ import annotations

from pathlib import Path

from bench import right_size, right_size_traces
from dovetail.answer.right_size import memory_need

GIB = 1024**3


def series(*memory: int) -> right_size_traces.Series:
    return right_size_traces.Series("w", tuple(range(0, 60 * len(memory), 60)), memory)


def test_a_rule_sees_the_first_half_only() -> None:
    case = right_size.training(series(*[GIB] * 50, *[9 * GIB] * 50), 0, 0.5, 1)
    assert case.samples[-1] == GIB
    assert case.seen.largest == GIB
    assert case.later == 9 * GIB


def test_more_memory_than_allowed_is_a_violation_and_the_whole_gpu_never_is() -> None:
    case = right_size.training(series(*[8 * GIB] * 50, *[12 * GIB] * 50), 0, 0.5, 1)
    small = right_size.outcome(case, 9 * GIB)
    assert (small.is_exceeded, small.is_slice_exceeded) == (True, True)
    rounded_up = right_size.outcome(
        case, 11 * GIB
    )  # the slice of 20 GB holds what the bytes do not
    assert (rounded_up.is_exceeded, rounded_up.is_slice_exceeded) == (True, False)
    whole = right_size.outcome(case, 79 * GIB)
    assert (whole.is_exceeded, whole.is_slice_exceeded, whole.hours_saved) == (False, False, 0)


def test_draws_repeat() -> None:
    form = right_size_traces.DRAWN._replace(pods=3, minutes=100)
    assert right_size_traces.drawn(7, form) == right_size_traces.drawn(7, form)
    assert right_size_traces.drawn(7, form) != right_size_traces.drawn(8, form)


def test_the_default_is_among_the_candidates() -> None:
    assert memory_need.DEFAULT in right_size.candidates()


def test_without_traces_it_says_what_is_missing(tmp_path: Path) -> None:
    traces, absent = right_size_traces.recorded(tmp_path)
    assert traces == []
    assert len(absent) == 5
    assert "pod_gpu_memory_used_bytes_anon.csv" in absent[0]


def test_a_measured_trace_takes_the_place_of_the_stand_in(tmp_path: Path) -> None:
    rows = [f"{60 * minute}.0,{GIB + minute},pod-a" for minute in range(100)]
    file = tmp_path / right_size_traces.MEASURED_FILE
    file.write_text("\n".join(["timestamp_anon,value,container_ip", *rows]))
    (trace,), _ = right_size_traces.recorded(tmp_path)
    assert (trace.origin, len(trace.series)) == ("measured", 1)
    assert trace.series[0].memory[-1] == GIB + 99
