"""Kills an agent at every effect it has on the world, and looks at what the next agent makes of it.

Run as a program with the name of a scenario: before each effect a child process that works through the scenario ends
by SIGKILL; then another child starts an agent on what is left and checks it. Prints the number of kill points. It is a
process of its own, so that forking meets no threads.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dovetail.devcluster.fake_gpus.hardware import Hardware
from dovetail.node.claims import execution
from dovetail.node.kubelet.claim_service import Prepared
from dovetail.node.nvml import mig_control
from dovetail.node.nvml.control import NvmlControl
from tests.node.claims.node import Node, Tree, mps, share, time_slicing

Step = tuple[str, str]  # prepare or unprepare, and the claim
PARTITION = "gpu-0-mig-3g40gb-9-4"

CLAIMS: dict[str, tuple[tuple[Any, ...], list[Tree]]] = {
    "eval": ((PARTITION,), []),
    "small": (("gpu-0-mig-1g10gb-19-0", "gpu-0-mig-1g10gb-19-1"), []),
    "train": (("gpu-1",), [time_slicing("Long")]),
    "infer": (("gpu-1",), [mps(defaultActiveThreadPercentage=50)]),
    "share-a": ((share(PARTITION, memory="4Gi"),), []),
    "share-b": ((share(PARTITION, memory="4Gi"),), []),
}
SCENARIOS: dict[str, list[Step]] = {
    "partitions": [
        ("prepare", "eval"),
        ("prepare", "small"),
        ("unprepare", "eval"),
        ("unprepare", "small"),
    ],
    "whole": [("prepare", "train"), ("unprepare", "train")],
    "mps": [("prepare", "infer"), ("unprepare", "infer")],
    "shares": [
        ("prepare", "share-a"),
        ("prepare", "share-b"),
        ("unprepare", "share-a"),
        ("unprepare", "share-b"),
    ],
}


class Executioner:
    """Ends this process before the n-th effect, which is after the one before it."""

    def __init__(self, kill_at: int) -> None:
        self.kill_at = kill_at
        self.count = 0

    def tick(self) -> None:
        self.count += 1
        if self.count == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            self.tick()
            return call(*arguments, **options)

        return counted

    def attach(self) -> None:
        """Everything by which the agent changes the world."""
        for name in ("replace", "unlink"):
            setattr(os, name, self.around(getattr(os, name)))
        shutil.rmtree = self.around(shutil.rmtree)  # type: ignore[assignment]
        subprocess.run = self.around(subprocess.run)
        mig_control._fill = self.around(mig_control._fill)
        for name in ("create_mig_device", "destroy_mig_device", "set_mig_mode"):
            setattr(NvmlControl, name, self.around(getattr(NvmlControl, name)))
        for name in ("set_compute_mode", "set_time_slice"):
            setattr(NvmlControl, name, self.around(getattr(NvmlControl, name)))


def node_in(folder: Path, scenario: str) -> Node:
    """The node with the claims of a scenario; uids are the same each time."""
    node = Node(folder, Hardware.open(folder / "hw"))
    for name in dict.fromkeys(name for _, name in SCENARIOS[scenario]):
        devices, configs = CLAIMS[name]
        node.allocate(name, *devices, configs=configs)
    return node


def work(folder: Path, scenario: str, kill_at: int) -> None:
    """The agent that is killed."""
    node = node_in(folder, scenario)
    node.start()
    Executioner(kill_at).attach()
    for verb, name in SCENARIOS[scenario]:
        outcome = getattr(node, verb)(name)
        assert outcome is None or isinstance(outcome, Prepared), outcome


def check(folder: Path, scenario: str) -> None:
    """The agent that comes after."""
    node = node_in(folder, scenario)
    node.start()
    claims = node.checkpoint()["claims"]
    assert all(claim["state"] == "PrepareCompleted" for claim in claims.values()), claims
    held = [device for claim in claims.values() for device in claim["devices"]]
    recorded = {device["instance"]["uuid"] for device in held if "instance" in device}
    gpus = node.hardware.snapshot().gpus
    instances = [instance for gpu in gpus for instance in gpu.gpu_instances]
    existing = {compute.uuid for gi in instances for compute in gi.compute_instances}
    assert existing == recorded, f"{existing} exist, {recorded} are recorded"
    assert len(instances) == len(recorded), "an instance without a compute instance is left"
    assert len(node.cdi_files()) == len(claims), node.cdi_files()
    has_daemon = any(claim.get("sharing") for claim in claims.values()) and scenario == "mps"
    assert len(alive(node)) == int(has_daemon)
    assert node.is_mig_on() == bool(instances), "MIG mode is on for partitions only"

    names = list(dict.fromkeys(name for _, name in SCENARIOS[scenario]))
    for name in names:
        answer = node.prepare(name)
        assert isinstance(answer, Prepared), answer
    for name in names:
        assert node.unprepare(name) is None
    assert [gpu.gpu_instances for gpu in node.hardware.snapshot().gpus] == [(), ()]
    assert node.cdi_files() == []
    assert node.checkpoint()["claims"] == {}
    assert [gpu.time_slice for gpu in node.hardware.snapshot().gpus] == [0, 0]
    assert [gpu.compute_mode for gpu in node.hardware.snapshot().gpus] == [0, 0]
    assert not node.is_mig_on()
    assert alive(node) == []
    assert not list((node.plugin / "mps").glob("*"))


def alive(node: Node) -> list[str]:
    """The MPS daemons that answer."""
    daemons = execution.MpsDaemons(node.plugin / "mps", node.agent._execution.specs._root)
    return [name for name in daemons.names() if daemons.is_alive(name)]


def in_child(job: Callable[..., None], *arguments: Any) -> int:
    """Runs a job in a child process; its exit code, negative for a signal."""

    def run() -> None:
        try:
            job(*arguments)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def make(folder: Path) -> None:
    """The hardware; in a child, so that this process loads no NVML."""
    Hardware.create(folder / "hw", gpus=2)


def main(scenario: str) -> int:
    """Returns 0 if every kill point was survived."""
    kill_at = 1
    while True:
        folder = Path(tempfile.mkdtemp(prefix="kill-"))
        assert in_child(make, folder) == 0
        outcome = in_child(work, folder, scenario, kill_at)
        assert outcome in (0, -signal.SIGKILL), f"kill point {kill_at}: the agent failed"
        if in_child(check, folder, scenario) != 0:
            print(f"{scenario}: kill point {kill_at} was not survived; see {folder}")
            return 1
        shutil.rmtree(folder)
        if outcome == 0:
            break
        kill_at += 1
    print(f"{scenario}: {kill_at - 1} kill points")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
