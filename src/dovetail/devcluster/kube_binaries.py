"""Finds the programs of a real Kubernetes control plane: etcd, kube-apiserver and the others.

Given a Kubernetes version, returns where its programs are: in the directory KUBEBUILDER_ASSETS names, else in
the user's cache, built from the pinned Go modules on first use. Never downloads a finished program.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from dovetail import errors
from dovetail.devcluster import go_build

VERSIONS: Final = ("1.37", "1.36")
DEFAULT: Final = VERSIONS[0]
ASSETS_VARIABLE: Final = "KUBEBUILDER_ASSETS"  # the name envtest gave it

ETCD: Final = "etcd"
APISERVER: Final = "kube-apiserver"
CONTROLLER_MANAGER: Final = "kube-controller-manager"
SCHEDULER: Final = "kube-scheduler"
KUBECTL: Final = "kubectl"
PROGRAMS: Final = (ETCD, APISERVER, CONTROLLER_MANAGER, SCHEDULER, KUBECTL)

_HERE: Final = Path(__file__).resolve().parent
_PIN: Final = re.compile(r"^\s*k8s\.io/kubernetes (v\d+\.\d+\.\d+\S*)", re.MULTILINE)
_REPORTED: Final = re.compile(r"Kubernetes (v\d+\.\d+\.\d+\S*)")


class PartsMissing(errors.DovetailError):
    """The programs of the requested version are missing and cannot be built; the message has the next step."""


class Parts(NamedTuple):
    """Where the programs of one Kubernetes version are. `version` is the full one, such as v1.37.1."""

    version: str
    directory: Path

    @property
    def minor(self) -> str:
        """The version as people ask for it: 1.37."""
        return minor_of(self.version)

    @property
    def etcd(self) -> Path:
        """The store."""
        return self.directory / ETCD

    @property
    def apiserver(self) -> Path:
        """kube-apiserver."""
        return self.directory / APISERVER

    @property
    def controller_manager(self) -> Path:
        """kube-controller-manager."""
        return self.directory / CONTROLLER_MANAGER

    @property
    def scheduler(self) -> Path:
        """kube-scheduler."""
        return self.directory / SCHEDULER

    @property
    def kubectl(self) -> Path:
        """The command line of Kubernetes."""
        return self.directory / KUBECTL


def binaries(
    version: str = DEFAULT,
    *,
    say: go_build.Say = go_build.say_on_stderr,
    environ: Mapping[str, str] = os.environ,
) -> Parts:
    """The programs of one version, built first if need be. Raises PartsMissing."""
    if directory := environ.get(ASSETS_VARIABLE):
        return _given(Path(directory).expanduser(), version)
    return _built(version, say=say)


def minor_of(version: str) -> str:
    """v1.37.1 is 1.37."""
    return ".".join(version.removeprefix("v").split(".")[:2])


def pinned(version: str) -> str:
    """The full version the pins of a minor version name."""
    pin = _PIN.search((_module(version) / "go.mod").read_text(encoding="utf-8"))
    if pin is None:
        raise PartsMissing(f"the pins of Kubernetes {version} name no k8s.io/kubernetes version")
    return pin[1]


def recipe(version: str) -> go_build.Recipe:
    """How the programs of a version are built."""
    module = _module(version)
    full = pinned(version)
    return go_build.Recipe(
        name="kube",
        title=f"Kubernetes {full}",
        directory=module,
        sources=(module / "go.mod", module / "go.sum"),
        programs=PROGRAMS,
        package="tool",  # all that go.mod lists under `tool`
        link_flags=link_flags(full),
        renamed={"server": ETCD},  # etcd's main package is called so
    )


def link_flags(full: str) -> str:
    """Stamps a program with its version: else a server reports v0.0.0, and clients judge its features by that."""
    major, minor = minor_of(full).split(".")
    stamp = "k8s.io/component-base/version"
    stamps = {"gitVersion": full, "gitMajor": major, "gitMinor": minor}
    settings = [f"-X {stamp}.{name}={value}" for name, value in stamps.items()]
    return " ".join(["-s", "-w", *settings])


def _module(version: str) -> Path:
    if version not in VERSIONS:
        raise PartsMissing(
            f"there are no pins for Kubernetes {version}; known: {', '.join(VERSIONS)}"
        )
    # A wheel has the pins next to this file; a checkout has them under tools/.
    for pins in (_HERE / "pins", _HERE.parents[2] / "tools" / "kube"):
        if (pins / f"v{version}" / "go.mod").is_file():
            return pins / f"v{version}"
    raise PartsMissing(
        f"the pins of Kubernetes {version} (go.mod, go.sum) are not part of this installation"
    )


def _built(version: str, *, say: go_build.Say) -> Parts:
    try:
        return Parts(version=pinned(version), directory=go_build.finished(recipe(version), say=say))
    except go_build.GoMissing as missing:
        raise PartsMissing(
            f"{missing}; install Go, or set {ASSETS_VARIABLE} to a directory that holds them"
        ) from None


def _given(directory: Path, version: str) -> Parts:
    """The programs in a directory of the user, which may lack some or have the wrong version."""
    absent = [name for name in PROGRAMS if not os.access(directory / name, os.X_OK)]
    if absent:
        raise PartsMissing(
            f"{ASSETS_VARIABLE}={directory} lacks {', '.join(absent)}; "
            f"add what is missing, or unset {ASSETS_VARIABLE} to have all of it built from source"
        )
    reported = _reported(directory / APISERVER)
    if minor_of(reported) != version:
        raise PartsMissing(
            f"Kubernetes {version} was requested, but {ASSETS_VARIABLE}={directory} holds {reported}; "
            f"name another directory, or unset {ASSETS_VARIABLE}"
        )
    return Parts(version=reported, directory=directory)


def _reported(apiserver: Path) -> str:
    try:
        answer = subprocess.run(  # noqa: S603 - the program its owner named
            [apiserver, "--version"], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise PartsMissing(f"{apiserver} cannot be run: {error.strerror}") from None
    version = _REPORTED.search(answer.stdout)
    if answer.returncode != 0 or version is None:
        printed = (answer.stdout + answer.stderr).strip()[-300:] or "nothing"
        raise PartsMissing(
            f"`{apiserver} --version` ended with {answer.returncode} and said: {printed}"
        )
    return version[1]
