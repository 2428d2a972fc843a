"""Builds the pinned Helm once and prints where it is.

Given nothing but the pins in this directory and a Go toolchain. Exit codes: 0 path printed, 1 build failed, 3 no Go.
"""

from __future__ import annotations

import sys
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
sys.path.insert(0, str(SOURCES.parents[1] / "src"))  # any Python will do, installed or not

from dovetail.devcluster import go_build  # noqa: E402


def binary(say: go_build.Say = go_build.say_on_stderr) -> Path:
    """The path of a finished Helm, built first if need be. Safe to call from several processes at once."""
    recipe = go_build.Recipe(
        name="helm",
        title="Helm",
        directory=SOURCES,
        sources=(SOURCES / "go.mod", SOURCES / "go.sum"),
        programs=("helm",),
        package="tool",  # what go.mod lists under `tool`
        link_flags="-s -w",
    )
    return go_build.finished(recipe, say=say) / "helm"


if __name__ == "__main__":
    sys.exit(
        go_build.printed([binary], without_go="install Go, or run without the tests that ask Helm")
    )
