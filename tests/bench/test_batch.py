"""The batch benchmark still measures what it says: every case, small, ends as it should."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bench import batch, batch_cases, batch_run
from bench.batch_worlds import NODES_PER_ZONE, Devices
from dovetail.model import plan

ONE_ZONE = NODES_PER_ZONE + 2  # the smallest that every case fits, and two nodes of another


@pytest.mark.slow
@pytest.mark.parametrize("devices", Devices)
@pytest.mark.parametrize("case", batch_cases.CASES)
def test_a_case_ends_as_it_says(case: str, devices: Devices) -> None:
    figures = batch_run.measured(case, ONE_ZONE, devices, rounds=0, settles=False)
    assert "wrong" not in figures, figures["wrong"]


def test_a_plan_that_is_not_the_expected_one_is_reported() -> None:
    nothing = plan.Plan(placements=(), refusals=())
    assert batch_cases.mismatch(batch_cases.Expected(), nothing) is None
    assert batch_cases.mismatch(batch_cases.Expected(evictions=None), nothing) is not None
    assert "placements=3" in (
        batch_cases.mismatch(batch_cases.Expected(placements=3), nothing) or ""
    )


def test_a_run_is_kept_and_compared_with_the_size_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "batch.json"
    sizes = ["--cases", "reclaim", "--nodes", "2", "4", "--devices", "plugin"]
    assert batch.main([*sizes, "--output", str(kept)]) == 0
    rows = msgspec.json.decode(kept.read_bytes())["rows"]
    assert list(rows) == ["reclaim, 2 nodes, plugin", "reclaim, 4 nodes, plugin"]
    assert rows["reclaim, 4 nodes, plugin"]["timesSizeBefore"] > 0
    assert "| reclaim one GPU, all GPUs taken |" in capsys.readouterr().out


def test_a_case_without_an_answer_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        batch.main(["--cases", "fill", "--nodes", "2", "--devices", "plugin", "--limit", "0.001"])
        == 1
    )
    assert "no answer within" in capsys.readouterr().out
