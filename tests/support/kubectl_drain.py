"""Talks to kubectl's own drain package behind JSON lines, built on first use.

Given requests, returns the answers in the same order, as `tests/support/oracle.py` does for the oracle.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import oracle, real

BUILD = Path(__file__).resolve().parents[2] / "tools" / "drain" / "build.py"


def start() -> oracle.Oracle:
    """A new process. Ends the test when Go is missing or the build fails."""
    return oracle.Oracle(binary())


@functools.cache
def binary() -> Path:
    """The built program. Skips, or fails under REQUIRE_REAL=1, where there is no Go."""
    real.refuse_unbuilt("drain")
    built = subprocess.run(
        [sys.executable, str(BUILD)], stdout=subprocess.PIPE, text=True, check=False
    )
    if built.returncode == oracle.GO_MISSING:
        real.missing("a Go toolchain, to build kubectl's drain")
    if built.returncode != 0:
        pytest.fail("kubectl's drain does not build; its build output is on stderr", pytrace=False)
    return Path(built.stdout.strip())
