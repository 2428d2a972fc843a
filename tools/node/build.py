"""Builds the programs of a real node once and prints where they are, one directory per line.

Given nothing but the pins and sources in this directory and a Go toolchain. Exit codes: 0 printed, 1 build failed,
3 no Go.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).resolve().parents[2] / "src")
)  # any Python will do, installed or not

from dovetail.devcluster import go_build
from dovetail.devcluster.real_node import node_programs


def main() -> int:
    """The command line: directories on stdout, talk on stderr."""
    builds = [functools.partial(go_build.finished, recipe) for recipe in node_programs.recipes()]
    return go_build.printed(builds, without_go="install Go, or run without real nodes")


if __name__ == "__main__":
    sys.exit(main())
