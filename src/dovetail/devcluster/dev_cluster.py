"""A real control plane with hollow nodes on this machine, in the background: `dovetail dev`.

Given a directory, a fleet and a Kubernetes version, and on request a node with a real kubelet, starts the parts as
processes that outlive the command, records them on disk, reports their status, and ends exactly those processes. The
data is scratch: it is deleted with the directory. Never prints.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from dovetail import errors
from dovetail.devcluster import control_plane, kube_binaries, probe, processes
from dovetail.devcluster.fake_gpus import gpu_machines, hardware
from dovetail.devcluster.real_node import (
    node_agent_command,
    node_health,
    node_layout,
    node_record,
    real_node,
)
from dovetail.files import private_files, state_directory
from dovetail.install import apply_chart
from dovetail.kube.auth import client_config
from dovetail.kube.http import transport
from dovetail.sim.fleet import fleet_objects, fleet_spec

STATE: Final = "dev.json"
PLAYER: Final = "player"
REAL_NODE: Final = "real-0"
HEALTHY: Final = "ok"
NO_HEALTH: Final = "-"  # of a part without an endpoint, or one that ended
NODES: Final = "/api/v1/nodes"
SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"
POLL_SECONDS: Final = 0.3
STALLED_SECONDS: Final = 60.0  # without a single new or ready node or slice
DOWN_GRACE_SECONDS: Final = 3.0  # the data is deleted anyway, so a slow shutdown has no use

Say = Callable[[str], None]


class Kubelet(msgspec.Struct, frozen=True, kw_only=True):
    """A node with a real kubelet. `machine` names the kind of server whose GPUs it has, all of them fake."""

    machine: str | None = None


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The record of `up` for `status` and `down`. `starter` is the command that is or was starting it."""

    starter: processes.ProcessRecord
    is_ready: bool = False
    version: str = ""
    port: int = 0
    kubectl: str = ""
    kubeconfig: str = ""
    ca: str = ""
    token: str = ""
    fleet: str = ""
    nodes: int = 0


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One process, whether it is alive, and what its health endpoint answers; `-` if it has none."""

    name: str
    pid: int
    is_alive: bool
    health: str
    port: int | None
    log: str


class Status(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The status of the cluster. Node counts are None if the API server does not answer."""

    is_up: bool
    directory: str
    problem: str | None
    version: str
    kubeconfig: str
    kubectl: str
    fleet: str
    nodes_expected: int
    nodes: int | None
    nodes_ready: int | None
    parts: list[Part]


def default_directory() -> Path:
    """The default directory of the cluster."""
    return state_directory.state_directory(None) / "dev"


def sized_fleet(nodes: int) -> fleet_spec.Fleet:
    """One pool of nodes with eight H100 each, four to a rack."""
    pool = fleet_spec.Pool(
        name="h100",
        count=nodes,
        gpu="H100-SXM5-80GB",
        machine="DGX-H100",
        rack="r",
        nodes_per_rack=4,
        cpu="224",
        memory="2Ti",
    )
    return fleet_spec.Fleet(name="dev", pools=(pool,))


def up(
    directory: Path,
    fleet: fleet_spec.Fleet,
    *,
    version: str,
    has_kube_scheduler: bool = True,
    kubelet: Kubelet | None = None,
    say: Say,
) -> Status:
    """Starts a cluster and waits until all nodes exist. A failed start is cleaned up."""
    if kubelet is not None:  # before minutes are spent on the rest
        _check(kubelet, version)
    directory = directory.absolute()
    try:
        state = _claim(directory)
    except OSError as error:
        raise errors.StateError(f"{directory} cannot be used: {error.strerror}") from None
    try:
        _start(
            directory,
            state,
            fleet=fleet,
            version=version,
            has_kube_scheduler=has_kube_scheduler,
            kubelet=kubelet,
            say=say,
        )
    except OSError as error:
        _remove(directory, say=_silent)
        raise errors.StateError(
            f"the cluster could not be started in {directory}: {error}"
        ) from error
    except BaseException:
        _remove(directory, say=_silent)
        raise
    running = status(directory)
    assert running is not None
    return running


def status(directory: Path) -> Status | None:
    """The status of the cluster in a directory; None if there is none."""
    state = _state(directory.absolute())
    if state is None:
        return None
    parts = [_part(process, state) for process in _roster(directory).all().values()]
    total, ready = _nodes(state)
    problem = _problem(state, parts, nodes=total)
    return Status(
        is_up=problem is None,
        directory=str(directory.absolute()),
        problem=problem,
        version=state.version,
        kubeconfig=state.kubeconfig,
        kubectl=state.kubectl,
        fleet=state.fleet,
        nodes_expected=state.nodes,
        nodes=total,
        nodes_ready=ready,
        parts=parts,
    )


def _part(process: processes.ProcessRecord, state: State) -> Part:
    is_alive = processes.is_alive(process)
    return Part(
        name=process.name,
        pid=process.pid,
        is_alive=is_alive,
        health=_health(process, state) if is_alive else NO_HEALTH,
        port=process.port,
        log=process.log,
    )


def _health(process: processes.ProcessRecord, state: State) -> str:
    if process.port is None or not state.ca:
        return NO_HEALTH
    if node_layout.is_kubelet(process.name):
        answer = node_health.of_kubelet(process)
    else:
        answer = control_plane.health_of(
            process.name, process.pid, port=process.port, ca=Path(state.ca), token=state.token
        )
    return HEALTHY if answer.is_ok else str(answer)


def down(directory: Path, *, say: Say) -> bool:
    """Ends the recorded processes and removes the directory. Returns whether there was a cluster."""
    directory = directory.absolute()
    state = _state(directory)
    if state is None:
        return False
    if not state.is_ready and processes.is_alive(state.starter):
        # It would go on starting what we end. Interrupted, it cleans up behind itself.
        raise errors.StateError(
            f"the cluster in {directory} is being started by process {state.starter.pid}; "
            "wait for it, or press Ctrl-C where it runs"
        )
    _remove(directory, say=say)
    return True


def _claim(directory: Path) -> State:
    """Claims the directory. Raises StateError if it holds anything else."""
    private_files.make_directory(directory, option="--dir")
    state = State(starter=processes.recorded("starter", os.getpid(), log=directory))
    try:
        with os.fdopen(
            private_files.create(directory / STATE), "wb"
        ) as file:  # the lock: one of two makes it
            file.write(msgspec.json.encode(state))
    except FileExistsError:
        raise errors.StateError(f"a cluster is already in {directory}") from None
    if other_files := sorted(path.name for path in directory.iterdir() if path.name != STATE):
        (directory / STATE).unlink()
        shown = ", ".join(other_files[:3])
        raise errors.StateError(
            f"{directory} holds other things ({shown}); expected an empty or new directory"
        )
    return state


def _start(
    directory: Path,
    state: State,
    *,
    fleet: fleet_spec.Fleet,
    version: str,
    has_kube_scheduler: bool,
    kubelet: Kubelet | None,
    say: Say,
) -> None:
    say(f"starting Kubernetes {version} in {directory}")
    parts = kube_binaries.binaries(version, say=say)
    plane = control_plane.start(parts, directory, is_tethered=False, say=say)
    expected = _expected(fleet)
    state = msgspec.structs.replace(
        state,
        version=parts.version,
        port=plane.port,
        kubectl=str(parts.kubectl),
        kubeconfig=str(plane.kubeconfig),
        ca=str(plane.ca),
        token=plane.token,
        fleet=fleet.name,
        nodes=expected[NODES],
    )
    _keep(directory, state)
    if has_kube_scheduler:
        plane.launch(kube_binaries.SCHEDULER)  # it starts while the nodes are created
    asyncio.run(_define(state))
    player = _start_player(directory, state, fleet)
    _wait_for_fleet(state, expected, player=player, say=say)
    if has_kube_scheduler:
        plane.wait_for(kube_binaries.SCHEDULER)
        say(f"{kube_binaries.SCHEDULER} ready, for pods that name no other scheduler")
    if kubelet is not None:
        _start_real_node(directory, plane, kubelet, say=say)
        state = msgspec.structs.replace(state, nodes=state.nodes + 1)
    _keep(directory, msgspec.structs.replace(state, is_ready=True))


def _check(kubelet: Kubelet, version: str) -> None:
    """Raises if the node with a real kubelet could not be started in the end."""
    real_node.require(version)
    if kubelet.machine is not None:
        gpu_machines.named(kubelet.machine)


def _start_real_node(
    directory: Path, plane: control_plane.ControlPlane, kubelet: Kubelet, *, say: Say
) -> None:
    """Starts a node with a real kubelet, and the node agent if it is to have GPUs."""
    node = real_node.start(plane, REAL_NODE, directory=directory, is_tethered=False, say=say)
    if kubelet.machine is None:
        return
    gpus = hardware.Hardware.create(node.layout.home / "gpus", machine=kubelet.machine)
    node.start_agent(
        node_agent_command.DriverFiles(gpus.driver_root, gpus.sysfs_root, gpus.proc_root)
    )
    say(f"node agent on {REAL_NODE}, with the fake GPUs of a {kubelet.machine}")


async def _define(state: State) -> None:
    """Applies the definitions of our kinds, so that queues work without an installation."""
    async with transport.Transport(client_config.load(state.kubeconfig)) as over:
        await apply_chart.define(over, say=_silent)


def _start_player(
    directory: Path, state: State, fleet: fleet_spec.Fleet
) -> processes.ProcessRecord:
    """Starts the process that creates the hollow nodes and runs their kubelets."""
    file, log = directory / "fleet.json", directory / f"{PLAYER}.log"
    private_files.replace(file, msgspec.json.format(msgspec.json.encode(fleet)) + b"\n")
    module = ["-m", "dovetail.boot.hollow_nodes"]
    command = [sys.executable, *module, "--kubeconfig", state.kubeconfig, "--fleet", str(file)]

    def note(pid: int) -> None:
        _roster(directory).add(processes.recorded(PLAYER, pid, log=log))

    processes.start(command, log=log, is_tethered=False, note=note)
    return _roster(directory).all()[PLAYER]


def _expected(fleet: fleet_spec.Fleet) -> dict[str, int]:
    """How many objects of the collections that grow with a fleet there must be."""
    kinds = [tree["kind"] for tree in fleet_objects.objects_of(fleet)]
    return {NODES: kinds.count("Node"), SLICES: kinds.count("ResourceSlice")}


def _wait_for_fleet(
    state: State, expected: dict[str, int], *, player: processes.ProcessRecord, say: Say
) -> None:
    """Waits until nodes and slices are there and the nodes ready, and says how many are.

    Raises when the player ended or nothing moves.
    """
    best, moved = -1, time.monotonic()
    while True:
        counts = {path: _count(state, path) for path in expected}
        is_complete = all(counts[path] >= expected[path] for path in expected)
        ready = (
            (_nodes(state)[1] or 0) if is_complete else 0
        )  # a long list: requested only when it can be complete
        if sum(counts.values()) + ready > best:
            best, moved = sum(counts.values()) + ready, time.monotonic()
            shown = f"nodes {counts[NODES]}/{expected[NODES]}, slices {counts[SLICES]}/{expected[SLICES]}"
            say(f"{shown}, {ready} ready" if is_complete else shown)
        if is_complete and ready >= expected[NODES]:
            return
        if not processes.is_alive(player):
            raise _stuck("the player of the nodes ended", player)
        if time.monotonic() - moved > STALLED_SECONDS:
            raise _stuck(f"no new or ready node or slice for {STALLED_SECONDS:.0f} s", player)
        time.sleep(POLL_SECONDS)


def _stuck(problem: str, player: processes.ProcessRecord) -> control_plane.StartFailed:
    tail = processes.tail_of(Path(player.log))
    return control_plane.StartFailed(
        f"{problem}; the end of the log of the player of nodes:\n{tail}"
    )


def _count(state: State, path: str) -> int:
    return probe.count(state.port, path, ca=Path(state.ca), token=state.token) or 0


def _nodes(state: State) -> tuple[int | None, int | None]:
    """All nodes and those that are ready."""
    if not state.port:
        return None, None
    nodes = probe.listed(state.port, NODES, ca=Path(state.ca), token=state.token)
    if nodes is None:
        return None, None
    conditions = [node.get("status", {}).get("conditions", []) for node in nodes]
    ready = [any(c["type"] == "Ready" and c["status"] == "True" for c in own) for own in conditions]
    return len(nodes), sum(ready)


def _problem(state: State, parts: list[Part], *, nodes: int | None) -> str | None:
    """What keeps the cluster from being up."""
    if not state.is_ready:
        if processes.is_alive(state.starter):
            return f"is being started by process {state.starter.pid}"
        return "its start was interrupted"
    if dead := [part.name for part in parts if not part.is_alive]:
        return f"{', '.join(dead)} ended"
    if unhealthy := [part for part in parts if part.health not in (HEALTHY, NO_HEALTH)]:
        return f"{unhealthy[0].name} is not healthy ({unhealthy[0].health})"
    if nodes is None:
        return "the API server does not answer"
    if nodes < state.nodes:
        return f"{state.nodes - nodes} of {state.nodes} nodes are gone"
    return None


def _remove(directory: Path, *, say: Say) -> None:
    """Ends the recorded processes, the youngest first, and then forgets them."""
    for node in node_record.remove_all(directory):
        say(f"node {node} ended")
    for process in reversed(list(_roster(directory).all().values())):
        processes.end(process, grace_seconds=DOWN_GRACE_SECONDS)
        say(f"{process.name} ended")
    shutil.rmtree(directory)


def _roster(directory: Path) -> processes.ProcessRecords:
    return processes.ProcessRecords(directory / control_plane.ROSTER)


def _state(directory: Path) -> State | None:
    try:
        content = (directory / STATE).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return msgspec.json.decode(content, type=State)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise errors.StateError(
            f"{directory / STATE} cannot be read: {error}; remove {directory} by hand"
        ) from None


def _keep(directory: Path, state: State) -> None:
    private_files.replace(
        directory / STATE, msgspec.json.encode(state)
    )  # it holds the admin's token


def _silent(_: str) -> None:
    return None
