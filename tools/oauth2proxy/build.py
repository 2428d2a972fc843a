"""Builds the pinned oauth2-proxy once and prints where it is.

Given nothing but the pins in this directory and a Go toolchain. Exit codes: 0 path printed, 1 build failed, 3 no Go.
"""

from __future__ import annotations

import sys
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
sys.path.insert(0, str(SOURCES.parents[1] / "src"))  # any Python will do, installed or not

from dovetail.devcluster import go_build  # noqa: E402

PROGRAM = "oauth2-proxy"


def binary(say: go_build.Say = go_build.say_on_stderr) -> Path:
    """The path of a finished oauth2-proxy, built first if need be. Safe to call from several processes at once."""
    recipe = go_build.Recipe(
        name="oauth2-proxy",
        title="oauth2-proxy",
        directory=SOURCES,
        sources=(SOURCES / "go.mod", SOURCES / "go.sum"),
        programs=(PROGRAM,),
        package="tool",  # what go.mod lists under `tool`
        link_flags="-s -w",
    )
    return go_build.finished(recipe, say=say) / PROGRAM


if __name__ == "__main__":
    sys.exit(
        go_build.printed(
            [binary], without_go="install Go, or run without the tests that ask oauth2-proxy"
        )
    )
