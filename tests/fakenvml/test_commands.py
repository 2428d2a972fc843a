"""The command line of the fake GPUs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import real

pytestmark = pytest.mark.slow

MODULE = "dovetail.devcluster.fake_gpus"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The module as people start it."""
    words = [str(argument) for argument in arguments]
    command = [sys.executable, "-m", MODULE, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_machine_is_made_shown_broken_and_mended(tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        real.missing("gcc, to build the fake libnvidia-ml with")
    home = tmp_path / "home"
    assert run("make", home, "--machine", "l4", "--gpus", 2, "--name", "node-a").returncode == 0
    assert run("xid", home, 1, 48).returncode == 0
    assert run("set", home, 0, "temperature", 88).returncode == 0
    assert run("lose", home, 0).returncode == 0
    state = json.loads(run("show", home).stdout)
    assert [(gpu["last_xid"], gpu["lost"], gpu["temperature"]) for gpu in state["gpus"]] == [
        (79, 1, 88),
        (48, 0, 32),
    ]
    assert run("restore", home, 0).returncode == 0
    assert json.loads(run("show", home).stdout)["gpus"][0]["lost"] == 0


def test_what_the_hardware_refuses_is_a_message(tmp_path: Path) -> None:
    refused = run("show", tmp_path)
    assert refused.returncode == 1
    assert (
        refused.stderr
        == "error: snapshot: there is no machine, or one of another version of the library (NVML code 9)\n"
    )
