"""Builds NVIDIA's node programs once and prints where they are, one directory per line.

Given the pins in the folders beside it and a Go toolchain with a C compiler: the DRA driver, the device plugin with
GPU Feature Discovery, the container toolkit, and a few lines around what the toolkit decides about NVIDIA_REQUIRE_*;
all, or those that the arguments name. NVIDIA's sources are unmodified.
Exit codes: 0 printed, 1 build failed, 2 unknown program group, 3 no Go.
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

DRA_DRIVER: Final = "dra"
DEVICE_PLUGIN: Final = "plugin"
TOOLKIT: Final = "toolkit"
REQUIREMENTS: Final = "requirements"

USAGE: Final = 2

# go-nvml leaves the functions of NVML unresolved until they are called, so the linker must not insist on them.
_LINK_FLAGS: Final = "-s -w -extldflags=-Wl,-z,lazy"

_TITLES: Final[Mapping[str, str]] = {
    DRA_DRIVER: "NVIDIA's DRA driver",
    DEVICE_PLUGIN: "NVIDIA's device plugin",
    TOOLKIT: "NVIDIA's container toolkit",
    REQUIREMENTS: "NVIDIA's image requirements",
}
GROUPS: Final = tuple(_TITLES)
_PROGRAMS: Final[Mapping[str, tuple[str, ...]]] = {
    DRA_DRIVER: ("gpu-kubelet-plugin",),
    DEVICE_PLUGIN: ("gpu-feature-discovery", "nvidia-device-plugin"),
    TOOLKIT: ("nvidia-cdi-hook", "nvidia-ctk"),
    REQUIREMENTS: ("requirements",),
}


def recipe(group: str) -> go_build.Recipe:
    """How one group of programs is built."""
    directory = SOURCES / group
    return go_build.Recipe(
        name=f"nvidia-{group}",
        title=_TITLES[group],
        directory=directory,
        sources=(directory / "go.mod", directory / "go.sum", *sorted(directory.glob("*.go"))),
        programs=_PROGRAMS[group],
        # The folders without a source of ours list programs under `tool` in go.mod.
        package="." if group == REQUIREMENTS else "tool",
        link_flags=_LINK_FLAGS,
    )


def directory_of(group: str, say: go_build.Say = go_build.say_on_stderr) -> Path:
    """Where the finished programs of a group are, built first if need be. Safe in several processes at once."""
    return go_build.finished(recipe(group), say=say)


def main(groups: Sequence[str]) -> int:
    """The command line: directories on stdout, talk on stderr."""
    if unknown := sorted(set(groups) - set(GROUPS)):
        print(f"unknown: {', '.join(unknown)}; pinned: {', '.join(GROUPS)}", file=sys.stderr)
        return USAGE
    builds = [functools.partial(directory_of, group) for group in groups or GROUPS]
    return go_build.printed(
        builds, without_go="install Go, or run without the tests that ask NVIDIA's programs"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
