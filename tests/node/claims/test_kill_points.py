"""SIGKILL before every effect: the next agent finishes or undoes what was begun, and loses nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tests.node.claims.kill_points import SCENARIOS


@pytest.mark.slow
@pytest.mark.parametrize("scenario", list(SCENARIOS))
def test_an_agent_killed_anywhere_leaves_nothing_the_next_one_cannot_settle(scenario: str) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("the fake GPUs need gcc")
    command = [sys.executable, "-m", "tests.node.claims.kill_points", scenario]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "kill points" in finished.stdout
