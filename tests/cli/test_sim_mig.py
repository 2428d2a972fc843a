"""`dovetail sim mig`: the report of a run, and what it says about names it does not know."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli import running


def test_a_run_reports_what_was_served_by_profile(tmp_path: Path) -> None:
    options = ["--gpus", "4", "--mix", "small>large", "--seed", "2", "--moves", "1"]
    run = running.inside(tmp_path, "sim", "mig", *options, "-o", "json")
    assert run.code == 0, run.err
    report = json.loads(run.out)
    assert (report["policy"], report["moves"], report["gpus"]) == ("lex", 1, 4)
    assert 0 < report["accepted_slices_pct"] < 100
    assert list(report["accepted_pct"])[-1] == "7g.80gb"

    table = running.inside(tmp_path, "sim", "mig", *options)
    assert "PROFILE      SERVED %" in table.lines
    assert f"{report['accepted_slices_pct']} % of the slices served" in table.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mix", "tiny"], "there are: uniform, small, large"),
        (["--policy", "magic"], "there are: first-fit, best-fit, lex, repack"),
        (["--board", "L4"], "with MIG; there are:"),
        (["--board", "A30", "--mix", "small"], "A30: uniform"),
    ],
)
def test_bad_input_says_what_is_wrong(tmp_path: Path, arguments: list[str], message: str) -> None:
    run = running.inside(tmp_path, "sim", "mig", *arguments)
    assert run.code != 0
    assert message in run.err
