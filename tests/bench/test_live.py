"""The live benchmark still runs: a small one, once, with every contender on a real control plane."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from bench import live_contenders, live_report, live_run
from dovetail.devcluster import kube_binaries
from tests.support import cluster

ROOT = Path(__file__).resolve().parents[2]
CONTENDERS = (live_contenders.OURS, live_contenders.KUBE_SCHEDULER, live_contenders.BARE)


def a_run(rate: float, *, own: float = 1.0) -> live_run.Run:
    return live_run.Run(
        pods=10,
        pods_per_second=rate,
        between_bindings_per_second=rate,
        first_binding_seconds=1.0,
        last_binding_seconds=2.0,
        cpu_milliseconds_per_pod={live_run.CONTENDER: own, kube_binaries.APISERVER: 3.0},
        contender_cpu_seconds=0.5,
        resident_mib=50.0,
        peak_mib=60.0,
        others_share=0.0,
    )


def test_a_ratio_compares_runs_of_the_same_round() -> None:
    report = live_report.Report(version="v1.37.1", rounds=3)
    row = live_report.Row(500, 50)
    for ours, bare in ((100, 200), (10, 10), (300, 500)):  # the second round was noisy
        report.add(row, live_contenders.OURS, a_run(ours))
        report.add(row, live_contenders.BARE, a_run(bare))
    tree = report.tree()
    assert tree["ratios"]["500 nodes, 50 % full"] == {"oursToBareWrites": 0.6}
    assert tree["ours"]["500 nodes, 50 % full"]["podsPerSecond"] == 100


def test_the_table_shows_how_cost_grows_with_the_cluster() -> None:
    report = live_report.Report(version="v1.37.1", rounds=1)
    for nodes, own in ((500, 2.0), (2000, 5.0)):
        for name in CONTENDERS:
            report.add(live_report.Row(nodes, 0), name, a_run(100, own=own))
    assert (
        "2000 nodes over 500, 0 % full: ours 2.5x, kube-scheduler 2.5x, bare writes 2.5x"
        in report.text()
    )


@pytest.mark.slow
def test_a_quick_run_measures_every_contender(tmp_path: Path) -> None:
    cluster.parts()
    result = tmp_path / "live.json"
    done = subprocess.run(
        [sys.executable, "-m", "bench", "live", "--quick", "--output", str(result)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    outcome = msgspec.json.decode(result.read_bytes())
    rows = [size["name"] for size in outcome["sizes"]]
    assert rows == ["50 nodes, 0 % full", "50 nodes, 99 % full"]
    for name in CONTENDERS:
        assert [outcome[name][row]["podsPerSecond"] > 0 for row in rows] == [True, True]
    assert outcome["startUp"]["pods"] == 200
    assert outcome["startUp"][live_contenders.OURS]["residentMiB"] > 0
