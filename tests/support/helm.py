"""The real Helm for tests: built on first use, run with nothing of the user's own Helm."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import real

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "chart"
GO_MISSING = 3  # exit code of the build driver


@functools.cache
def program() -> Path:
    """Helm itself; skips, or fails under REQUIRE_REAL=1, where it cannot be built."""
    real.refuse_unbuilt("helm")
    build = ROOT / "tools" / "helm" / "build.py"
    done = subprocess.run([sys.executable, build], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == GO_MISSING:
        real.missing("a Go toolchain to build Helm with")
    if done.returncode != 0:
        pytest.fail("Helm could not be built; what Go said is above", pytrace=False)
    return Path(done.stdout.strip())


def run(*arguments: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Helm with these arguments, however it ends. Its caches and configuration live for this one call."""
    with tempfile.TemporaryDirectory(prefix="dovetail-helm-") as scratch:
        own = {f"HELM_{name}_HOME": scratch for name in ("CACHE", "CONFIG", "DATA")}
        own["KUBECONFIG"] = str(kubeconfig or Path(scratch) / "none")
        return subprocess.run(
            [str(program()), *arguments],
            env={**os.environ, **own},
            capture_output=True,
            text=True,
            check=False,
        )


def said(*arguments: str, kubeconfig: Path | None = None) -> str:
    """What Helm printed; its complaint fails the test."""
    done = run(*arguments, kubeconfig=kubeconfig)
    assert done.returncode == 0, f"helm {' '.join(arguments)}: {done.stderr.strip()}"
    return done.stdout


def template(*arguments: str) -> list[dict[str, Any]]:
    """The objects Helm makes of the chart."""
    text = said("template", "dovetail", str(CHART), "--namespace", "dovetail-system", *arguments)
    return [item for item in yaml.safe_load_all(text) if item]
