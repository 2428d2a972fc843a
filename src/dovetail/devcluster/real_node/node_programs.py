"""Finds the programs of a real node: kubelet, containerd, runc, the CNI plugins, and our one container program.

kubelet, containerd and the container program are built from pinned Go modules on first use and kept in the user's
cache; runc and the CNI plugins are the distribution's. Never downloads a finished program.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Final, NamedTuple

from dovetail.devcluster import go_build, kube_binaries

VERSION: Final = "1.37"  # the Kubernetes version of the pinned kubelet
KUBELET: Final = "kubelet"
CONTAINERD: Final = "containerd"
SHIM: Final = "containerd-shim-runc-v2"
CTR: Final = "ctr"
CONTAINER: Final = "container"
CDI_HOOK: Final = "nvidia-cdi-hook"
TOOLKIT: Final = (CDI_HOOK, "nvidia-ctk")

CNI_PLUGINS: Final = ("loopback", "ptp", "host-local")  # the ones a node's network is made of
CNI_DIRECTORIES: Final = (Path("/usr/lib/cni"), Path("/opt/cni/bin"), Path("/usr/libexec/cni"))
# What enters and leaves the namespaces of a node; all of it is in util-linux.
NAMESPACE_TOOLS: Final = ("unshare", "nsenter", "setpriv", "mount")

_HERE: Final = Path(__file__).resolve().parent
_KUBERNETES_PIN: Final = re.compile(r"^\s*k8s\.io/kubernetes (v\d+\.\d+\.\d+\S*)", re.MULTILINE)


class Programs(NamedTuple):
    """Where the programs of a real node are."""

    kubelet: Path
    containerd: Path
    ctr: Path
    container: Path
    runc: Path
    cni: Path


def programs(*, say: go_build.Say = go_build.say_on_stderr) -> Programs:
    """The programs, built first if need be. Raises PartsMissing if one cannot be had, BuildFailed if a build fails."""
    runc, cni = _of_the_distribution()
    try:
        built = {recipe.name: go_build.finished(recipe, say=say) for recipe in recipes()}
    except go_build.GoMissing as missing:
        raise kube_binaries.PartsMissing(f"{missing}; install Go") from None
    return Programs(
        kubelet=built[KUBELET] / KUBELET,
        containerd=built[CONTAINERD] / CONTAINERD,
        ctr=built[CONTAINERD] / CTR,
        container=built[CONTAINER] / CONTAINER,
        runc=runc,
        cni=cni,
    )


def cdi_hook(*, say: go_build.Say = go_build.say_on_stderr) -> Path:
    """NVIDIA's hook program, which runc calls for the containers that get a GPU. Built first if need be."""
    try:
        return go_build.finished(toolkit(), say=say) / CDI_HOOK
    except go_build.GoMissing as missing:
        raise kube_binaries.PartsMissing(f"{missing}; install Go") from None


def toolkit() -> go_build.Recipe:
    """How NVIDIA's container toolkit is built, of which a node with GPUs needs the hook."""
    module = _module("toolkit")
    return go_build.Recipe(
        name="nvidia-toolkit",
        title="NVIDIA's container toolkit",
        directory=module,
        sources=(module / "go.mod", module / "go.sum"),
        programs=TOOLKIT,
        package="tool",
        # go-nvml leaves the functions of NVML unresolved until they are called: the linker must not insist on them.
        link_flags="-s -w -extldflags=-Wl,-z,lazy",
    )


def recipes() -> tuple[go_build.Recipe, ...]:
    """How each of the programs is built, the quickest first."""
    return (_container(), _containerd(), _kubelet())


def refusal() -> str | None:
    """Why this machine cannot run a real node whatever is built; None if it can."""
    if os.geteuid() != 0:
        return "a real node makes namespaces, mounts and cgroups, which only root may"
    try:
        _of_the_distribution()
    except kube_binaries.PartsMissing as missing:
        return str(missing)
    return None


def _container() -> go_build.Recipe:
    module = _module("container")
    return go_build.Recipe(
        name=CONTAINER,
        title="the container program",
        directory=module,
        sources=(module / "go.mod", module / "main.go"),
        programs=(CONTAINER,),
        link_flags="-s -w",
    )


def _containerd() -> go_build.Recipe:
    module = _module("containerd")
    return go_build.Recipe(
        name=CONTAINERD,
        title="containerd",
        directory=module,
        sources=(module / "go.mod", module / "go.sum"),
        programs=(CONTAINERD, SHIM, CTR),
        package="tool",
        link_flags="-s -w",
    )


def _kubelet() -> go_build.Recipe:
    module = _module("kubelet")
    sources = (module / "go.mod", module / "go.sum")
    pin = _KUBERNETES_PIN.search(sources[0].read_text(encoding="utf-8"))
    if pin is None:
        raise kube_binaries.PartsMissing(
            "the pins of the kubelet name no k8s.io/kubernetes version"
        )
    return go_build.Recipe(
        name=KUBELET,
        title=f"kubelet {pin[1]}",
        directory=module,
        sources=sources,
        programs=(KUBELET,),
        package="tool",
        link_flags=kube_binaries.link_flags(pin[1]),
    )


def _module(name: str) -> Path:
    # A wheel has the sources next to this file; a checkout has them under tools/.
    tools = _HERE.parents[3] / "tools"
    for home in (_HERE / "sources", tools / "node", tools / "nvidia"):
        if (home / name / "go.mod").is_file():
            return home / name
    raise kube_binaries.PartsMissing(f"the Go module of {name} is not part of this installation")


def _of_the_distribution() -> tuple[Path, Path]:
    """runc and the directory of the CNI plugins."""
    absent = [tool for tool in NAMESPACE_TOOLS if shutil.which(tool) is None]
    if absent:
        raise kube_binaries.PartsMissing(
            f"a real node needs {', '.join(absent)} on PATH; Debian has them in util-linux and mount"
        )
    runc = shutil.which("runc") or shutil.which("runc", path="/usr/sbin:/usr/local/sbin")
    if runc is None:
        raise kube_binaries.PartsMissing(
            "a real node needs runc, which is not on PATH; Debian has it in the package runc"
        )
    for directory in CNI_DIRECTORIES:
        if all((directory / plugin).exists() for plugin in CNI_PLUGINS):
            return Path(runc), directory
    searched = ", ".join(map(str, CNI_DIRECTORIES))
    raise kube_binaries.PartsMissing(
        f"a real node needs the CNI plugins {', '.join(CNI_PLUGINS)}, which are not in {searched}; "
        "Debian has them in the package containernetworking-plugins"
    )
