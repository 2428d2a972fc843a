"""Builds the real parts of the tests, one by one: oracle, drain, Helm, Grafana's schema, Kubernetes, a node, NVIDIA's.

Given at least one Kubernetes version, as `python -m tools.realparts 1.37`. The first and the last line about each
build go to stderr; those in between, and what a failed build printed, go to the log alone. Prints the names of the
parts that could not be built on stdout. A part that fails does not keep the next from being built.
Exit codes: 0 all are there, 1 a build failed, 3 no Go.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, TextIO

from dovetail.devcluster import go_build, kube_binaries
from dovetail.devcluster.real_node import node_programs
from tools.drain import build as drain
from tools.grafana import build as grafana
from tools.helm import build as helm
from tools.nvidia import build as nvidia
from tools.nvidia_upgrade import build as nvidia_upgrade
from tools.oauth2proxy import build as oauth2proxy
from tools.oracle import build as oracle

ROOT: Final = Path(__file__).resolve().parent.parent
LOG: Final = ROOT / ".venv" / "realparts.log"


class Part(NamedTuple):
    """One thing to build; tests know it by its name."""

    name: str
    build: Callable[[go_build.Say], Path]


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("versions", nargs="+", choices=kube_binaries.VERSIONS)
    versions = parser.parse_args().versions

    with LOG.open("w", encoding="utf-8") as log:
        return built(parts(versions), Talk(log))


def parts(versions: list[str]) -> Iterator[Part]:
    """What the tests on these versions need. A directory of finished programs takes the place of Kubernetes."""
    yield Part("oracle", oracle.binary)
    yield Part("helm", helm.binary)
    yield Part("grafana-schema", grafana.binary)
    if not os.environ.get(kube_binaries.ASSETS_VARIABLE):
        for version in versions:
            yield Part(f"kubernetes-{version}", functools.partial(_kubernetes, version))
    yield Part("drain", drain.binary)  # after Kubernetes: kubectl is made of the same packages
    if node_programs.VERSION in versions:
        # After Kubernetes, of whose packages the kubelet is made: Go keeps what it has compiled.
        yield Part("node", _node)
    yield Part("nvidia-upgrade", nvidia_upgrade.binary)
    yield Part("oauth2-proxy", oauth2proxy.binary)
    for group in nvidia.GROUPS:  # last: they share the build cache of Kubernetes
        yield Part(f"nvidia-{group}", functools.partial(nvidia.directory_of, group))


def built(wanted: Iterator[Part], talk: Talk) -> int:
    """Builds all that can be built; the exit code."""
    code = 0
    for part in wanted:
        try:
            part.build(talk)
        except go_build.GoMissing as missing:
            code = go_build.GO_MISSING
            problem: Exception = missing
        except go_build.BuildFailed as failed:
            code = go_build.BUILD_FAILED
            problem = failed
        else:
            continue
        talk.record(str(problem))
        print(part.name, flush=True)
    return code


class Talk:
    """Writes every line to the log, and the first of a kind to stderr: progress would break the tests' output."""

    def __init__(self, log: TextIO) -> None:
        self._log = log
        self._subject = ""

    def __call__(self, text: str) -> None:
        """One line about a build; what stands before the ellipsis is its subject."""
        self.record(text)
        subject = text.partition("…")[0]
        if subject != self._subject:
            go_build.say_on_stderr(text)
        self._subject = subject

    def record(self, text: str) -> None:
        """Writes to the log alone."""
        print(text, file=self._log, flush=True)


def _kubernetes(version: str, talk: go_build.Say) -> Path:
    return go_build.finished(kube_binaries.recipe(version), say=talk)


def _node(talk: go_build.Say) -> Path:
    """The directory of the last of its programs."""
    *_, directory = [go_build.finished(recipe, say=talk) for recipe in node_programs.recipes()]
    return directory


if __name__ == "__main__":
    sys.exit(main())
