"""Builds the programs of the pinned Kubernetes versions once and prints where they are, one directory per line.

Given versions such as 1.37, or none for all that are pinned. Exit codes: 0 printed, 1 build failed, 2 unknown
version, 3 no Go.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).resolve().parents[2] / "src")
)  # any Python will do, installed or not

from dovetail.devcluster import go_build, kube_binaries

USAGE = 2


def main(versions: Sequence[str]) -> int:
    """The command line: directories on stdout, talk on stderr."""
    if unknown := sorted(set(versions) - set(kube_binaries.VERSIONS)):
        print(
            f"unknown: {', '.join(unknown)}; pinned: {', '.join(kube_binaries.VERSIONS)}",
            file=sys.stderr,
        )
        return USAGE
    recipes = map(kube_binaries.recipe, versions or kube_binaries.VERSIONS)
    return go_build.printed(functools.partial(go_build.finished, one) for one in recipes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
