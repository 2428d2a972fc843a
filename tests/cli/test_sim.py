"""`dovetail sim run`: the report of a run, and what it says about input it cannot use."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli import running
from tests.study import openb_folder


@pytest.mark.parametrize("policy", ["dovetail", "bestfit"])
def test_a_run_reports_allocation_by_arrived_demand(tmp_path: Path, policy: str) -> None:
    folder = openb_folder.written(tmp_path)
    run = running.inside(
        tmp_path, "sim", "run", "--trace", "openb:default", "--policy", policy,
        "--traces", str(folder), "-o", "json",
    )  # fmt: skip
    assert run.code == 0, run.err
    report = json.loads(run.out)
    # 1000, 500, 0 and 1000 milli arrive for 3000: all fit, at 33, 50, 50 and 83 percent.
    assert report["allocation_pct"]["33"] == 33.33
    assert report["allocation_pct"]["50"] == 50.0
    assert report["allocation_pct"]["83"] == 83.33
    assert report["first_failure_pct"] is None
    assert report["fragmented_pct"] >= 0
    assert report["seconds"] >= 0
    assert report["order"] == "published"


def test_the_table_shows_what_failed(tmp_path: Path) -> None:
    folder = openb_folder.written(tmp_path)
    run = running.inside(
        tmp_path, "sim", "run", "--trace", "openb:default", "--seed", "9", "--traces", str(folder)
    )
    assert run.code == 0, run.err
    assert "own order" in run.lines[0]
    assert "ARRIVED %   ALLOCATED %" in run.lines


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--trace", "openb:default", "--policy", "magic"],
            "there are: random, first-fit, best-fit",
        ),
        (["--trace", "openb:nope"], "there are: default, other"),
        (["--trace", "helios"], "expected openb:TRACE"),
        (["--trace", "philly"], "no philly_pcs.csv.gz"),
        (["--trace", "openb:default", "--seed", "-1"], "expected a number from 0"),
        (["--trace", "openb:default", "--traces", "nowhere"], "alibaba/clusterdata"),
    ],
)
def test_bad_input_says_what_is_wrong(tmp_path: Path, arguments: list[str], message: str) -> None:
    folder = openb_folder.written(tmp_path)
    run = running.inside(tmp_path, "sim", "run", "--traces", str(folder), *arguments)
    assert run.code != 0
    assert message in run.err


def test_without_numpy_the_extra_is_named(tmp_path: Path) -> None:
    program = "import sys; sys.modules['numpy'] = None; from dovetail.cli.main import main; sys.exit(main())"
    ended = subprocess.run(
        [sys.executable, "-c", program, "sim", "run", "--trace", "openb:default"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert "pip install 'dovetail[study]'" in ended.stderr
