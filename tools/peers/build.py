"""Builds other schedulers for GPU clusters once and prints where they are, one directory per line.

Given the pins in the folders beside it and a Go toolchain: KAI Scheduler with the controllers it needs, and Kueue;
both, or those that the arguments name. Their sources are unmodified. Meant for benchmarks; no test needs them.
Exit codes: 0 printed, 1 build failed, 2 unknown peer, 3 no Go.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).resolve().parent
sys.path.insert(0, str(SOURCES.parents[1] / "src"))  # any Python will do, installed or not

from dovetail.devcluster import go_build  # noqa: E402

KAI: Final = "kai"
KUEUE: Final = "kueue"

USAGE: Final = 2

_TITLES: Final[Mapping[str, str]] = {KAI: "KAI Scheduler", KUEUE: "Kueue"}
_PROGRAMS: Final[Mapping[str, tuple[str, ...]]] = {
    KAI: ("binder", "podgroupcontroller", "podgrouper", "queuecontroller", "scheduler"),
    KUEUE: ("kueue",),
}
PEERS: Final = tuple(_TITLES)


def recipe(peer: str) -> go_build.Recipe:
    """How the programs of one peer are built."""
    directory = SOURCES / peer
    return go_build.Recipe(
        name=f"peer-{peer}",
        title=_TITLES[peer],
        directory=directory,
        sources=(directory / "go.mod", directory / "go.sum"),
        programs=_PROGRAMS[peer],
        package="tool",
        link_flags="-s -w",
    )


def directory_of(peer: str, say: go_build.Say = go_build.say_on_stderr) -> Path:
    """Where the finished programs of a peer are, built first if need be. Safe in several processes at once."""
    return go_build.finished(recipe(peer), say=say)


def main(peers: Sequence[str]) -> int:
    """The command line: directories on stdout, talk on stderr."""
    if unknown := sorted(set(peers) - set(PEERS)):
        print(f"unknown: {', '.join(unknown)}; pinned: {', '.join(PEERS)}", file=sys.stderr)
        return USAGE
    builds = [functools.partial(directory_of, peer) for peer in peers or PEERS]
    return go_build.printed(builds, without_go="install Go, or run the benchmarks without peers")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
