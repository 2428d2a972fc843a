"""Ten thousand MIG nodes must fit in 2 GiB: what is alike is kept once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT_KIB = 2 * 1024 * 1024
NODES = 10_000


@pytest.mark.slow
def test_a_fleet_of_identical_nodes_costs_little_a_node() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.fleet_memory", "500"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    result = msgspec.json.decode(done.stdout)
    assert result["devices"] == 500 * 8 * 26
    assert result["classes"] == 1
    assert result["growthKiBPerNode"] * NODES < LIMIT_KIB
