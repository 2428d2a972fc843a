"""Builds NVIDIA's driver upgrade library behind JSON lines once and prints where the program is.

Given nothing but this directory and a Go toolchain. Exit codes: 0 path printed, 1 build failed, 3 no Go.
"""

from __future__ import annotations

import sys
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
sys.path.insert(0, str(SOURCES.parents[1] / "src"))  # any Python will do, installed or not

from dovetail.devcluster import go_build  # noqa: E402


def binary(say: go_build.Say = go_build.say_on_stderr) -> Path:
    """The path of the finished program, built first if need be. Safe to call from several processes at once."""
    recipe = go_build.Recipe(
        name="nvidia-upgrade",
        title="NVIDIA's upgrade library",
        directory=SOURCES,
        sources=(*SOURCES.glob("*.go"), SOURCES / "go.mod", SOURCES / "go.sum"),
        programs=("nvidia_upgrade",),
        link_flags="-s -w",
    )
    return go_build.finished(recipe, say=say) / "nvidia_upgrade"


if __name__ == "__main__":
    sys.exit(
        go_build.printed(
            [binary],
            without_go="install Go, or run without the tests beside NVIDIA's upgrade library",
        )
    )
