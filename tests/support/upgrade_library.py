"""Talks to NVIDIA's own driver upgrade library behind JSON lines, built on first use.

One request is one reconcile of the GPU Operator's upgrade controller against a real API server.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import oracle, real

BUILD = Path(__file__).resolve().parents[2] / "tools" / "nvidia_upgrade" / "build.py"


def start(kubeconfig: Path) -> oracle.Oracle:
    """A new process. Ends the test when Go is missing or the build fails."""
    return oracle.Oracle(binary(), f"--kubeconfig={kubeconfig}")


@functools.cache
def binary() -> Path:
    """The built program. Skips, or fails under REQUIRE_REAL=1, where there is no Go."""
    real.refuse_unbuilt("nvidia-upgrade")
    built = subprocess.run(
        [sys.executable, str(BUILD)], stdout=subprocess.PIPE, text=True, check=False
    )
    if built.returncode == oracle.GO_MISSING:
        real.missing("a Go toolchain, to build NVIDIA's upgrade library")
    if built.returncode != 0:
        pytest.fail(
            "NVIDIA's upgrade library does not build; its build output is on stderr", pytrace=False
        )
    return Path(built.stdout.strip())
