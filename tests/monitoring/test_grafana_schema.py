"""Grafana's published schema accepts every dashboard, and would have found what is wrong with one."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dovetail.monitoring.dashboards import all_dashboards
from tests.support import real

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
GO_MISSING = 3  # exit code of the build driver

Tree = dict[str, Any]


@functools.cache
def program() -> Path:
    """The strict reader; skips, or fails under REQUIRE_REAL=1, where it cannot be built."""
    real.refuse_unbuilt("grafana-schema")
    build = ROOT / "tools" / "grafana" / "build.py"
    done = subprocess.run([sys.executable, build], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == GO_MISSING:
        real.missing("a Go toolchain to build the schema of dashboards with")
    if done.returncode != 0:
        pytest.fail("the schema could not be built; what Go said is above", pytrace=False)
    return Path(done.stdout.strip())


def problems(*files: Path) -> str:
    """What is wrong with the files; empty if nothing is."""
    done = subprocess.run([program(), *files], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    assert bool(done.stdout) == (done.returncode == 1)
    return done.stdout


def test_the_schema_accepts_every_dashboard() -> None:
    files = sorted((ROOT / "deploy" / "grafana").glob("*.json"))
    assert len(files) == len(all_dashboards.DASHBOARDS)
    assert problems(*files) == ""


def first_panel(tree: Tree) -> Tree:
    panel: Tree = next(panel for panel in tree["panels"] if panel["type"] == "timeseries")
    return panel


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tree: tree.update(tittle="x"), "tittle"),
        (lambda tree: tree.update(schemaVersion="39"), "schemaVersion"),
        (lambda tree: first_panel(tree).update(heigth=8), "heigth"),
        (lambda tree: first_panel(tree)["options"].update(legnd={}), "legnd"),
        (lambda tree: first_panel(tree)["options"].pop("tooltip"), "tooltip"),
        (lambda tree: first_panel(tree)["targets"][0].update(exprr="up"), "exprr"),
        (lambda tree: first_panel(tree).update(type="graf"), "graf"),
        (lambda tree: first_panel(tree)["fieldConfig"]["defaults"]["custom"].update(x=1), "x"),
    ],
)
def test_the_schema_finds_what_is_wrong(
    change: Callable[[Tree], object], words: str, tmp_path: Path
) -> None:
    tree = json.loads(all_dashboards.files()["fleet.json"])
    change(tree)
    (tmp_path / "wrong.json").write_text(json.dumps(tree), encoding="utf-8")
    assert words in problems(tmp_path / "wrong.json")
