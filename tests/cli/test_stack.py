"""`dovetail stack` and `stack check`: forms, exit codes, files, and clusters of every sort."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.answer.stack import fleets
from tests.cli import running

HOSTILE = "test/<script>alert(1)</script>:cuda12.8"


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """A cluster as kubectl prints it."""
    trees = [
        fleets.node("h100-0"),
        fleets.node("v100-0", fleets.V100),
        fleets.policy("25.10.1", "570.211.01"),
        fleets.pod("a", HOSTILE, "v100-0"),
        fleets.pod("b", "test/x:cu128", "h100-0"),
    ]
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": trees}))
    return file


def _stack(dump: Path, *words: str) -> running.Run:
    return running.inside(dump.parent, "stack", *words, "--snapshot", str(dump))


def test_without_a_command_the_inventory_is_shown(dump: Path) -> None:
    run = _stack(dump)
    assert run.code == 0
    assert run.lines[0].startswith("kubernetes unknown, GPU operator 25.10.1; 2 nodes")
    assert "UNKNOWN" in run.out
    assert json.loads(_stack(dump, "-o", "json").out)["nodes"][0]["driverLoaded"]["value"]


def test_a_check_that_fails_names_pool_image_and_row(dump: Path) -> None:
    run = _stack(dump, "check", "--to", "driver=595.91.07")
    assert run.code == 1
    assert run.lines[0].startswith("no: something would not work (driver 595.91.07): 2 nodes")
    assert "gpu volta supports driver ..580" in run.out
    assert "--to driver=595.91.07 -o wide" in run.err
    answer = json.loads(_stack(dump, "check", "--to", "driver=595.91.07", "-o", "json").out)
    assert answer["outcome"] == "no"
    assert [each["outcome"] for each in answer["nodes"]] == ["go", "no"]


def test_exit_codes_say_go_refused_and_wrong_input(dump: Path) -> None:
    assert _stack(dump, "check", "--to", "driver=580.178.04").code == 0
    unknown = (fleets.node("h100-0"), fleets.pod("c", "test/own:latest", "h100-0"))
    dump.write_text("\n---\n".join(map(json.dumps, unknown)))
    assert _stack(dump, "check", "--to", "driver=580.178.04").code == 1
    assert _stack(dump, "check", "--to", "driver=580.178.04", "--allow-unknown").code == 0
    wrong = _stack(dump, "check", "--to", "driver=999")
    assert (wrong.code, wrong.out) == (2, "")
    assert "no row knows it" in wrong.err


def test_the_page_stands_alone_and_runs_nothing_of_the_cluster(dump: Path) -> None:
    page = _stack(dump, "check", "--to", "driver=595.91.07", "-o", "html").out
    assert page.startswith("<!doctype html>")
    assert "&lt;script&gt;alert(1)" in page
    for word in ("<script", "http", "src=", "@import"):
        assert word not in page.replace("&lt;script", "")


def test_rows_of_the_user_decide_and_wrong_ones_are_refused(dump: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.yaml"
    line = 'subject: "gpu volta", relation: supports, range: "driver ..595"'
    head = 'source: "our lab"\ndate: "2026-11-01"\nconfidence: high\nrows:\n'
    rows.write_text(f"{head}  - {{ {line} }}\n")
    assert _stack(dump, "check", "--to", "driver=595.91.07", "--rows", str(rows)).code == 0
    rows.write_text("rows: 5\n")
    wrong = _stack(dump, "check", "--rows", str(rows))
    assert (wrong.code, wrong.out) == (2, "")
    assert "expected a list `rows`" in wrong.err


def test_an_unknown_command_is_refused(dump: Path) -> None:
    run = running.inside(dump.parent, "stack", "chekc")
    assert run.code == 2
    assert "did you mean check?" in run.err


@pytest.mark.slow
def test_the_embedded_cluster_and_its_snapshot_answer_alike(state: Path, tmp_path: Path) -> None:
    words = ("stack", "check", "--to", "driver=595.91.07", "-o", "json")
    live = running.inside(state, *words)
    assert live.code == 1  # the images of the sample state no CUDA
    saved = str(tmp_path / "saved")
    assert running.inside(state, "snapshot", "save", saved).code == 0
    again = running.inside(state, *words, "--snapshot", saved)
    assert json.loads(again.out)["images"] == json.loads(live.out)["images"]
    inventory = json.loads(running.inside(state, "stack", "-o", "json", "--snapshot", saved).out)
    assert inventory["kubernetes"]["value"].startswith("1.")
