"""Runs one real node: a machine of namespaces with containerd and a kubelet that registers with a control plane.

Given a control plane, a name and the directory that keeps the record, starts the parts and waits until the Node is
ready. Each part can be restarted by itself, and the whole rebooted. Needs root. Never changes this machine beyond the
node's home, its cgroups and the network interfaces of its pods, all of which end with it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from dovetail import errors
from dovetail.devcluster import control_plane, free_ports, processes
from dovetail.devcluster.real_node import (
    cgroups,
    container_image,
    machine,
    node_agent_command,
    node_agent_rights,
    node_config,
    node_health,
    node_layout,
    node_object,
    node_programs,
    node_record,
    node_setup,
    snapshotter,
)

READY_SECONDS: Final = 120.0  # a busy machine with two cores needs a tenth of it
POLL_SECONDS: Final = 0.1
IMAGE_NAMESPACE: Final = "k8s.io"  # containerd's namespace in which CRI looks for images

Say = Callable[[str], None]


class NodeRefused(errors.DovetailError):
    """This machine cannot run a real node; the message has the reason and the next step."""


class RealNode:
    """One node. For one thread at a time; a tethered node ends with the thread that started it."""

    def __init__(
        self,
        plane: control_plane.ControlPlane,
        layout: node_layout.NodeLayout,
        programs: node_programs.Programs,
        *,
        directory: Path,
        is_tethered: bool,
    ) -> None:
        self.layout = layout
        self.name = layout.name
        self.roster = node_record.roster_of(directory)
        self._plane = plane
        self._programs = programs
        self._directory = directory
        self._is_tethered = is_tethered
        self._ports = node_config.Ports(free_ports.reserve(), free_ports.reserve())
        self._children: list[subprocess.Popen[bytes]] = []
        self._agent_command: list[str] = []

    def boot(self) -> None:
        """Starts the machine with nothing from the last boot, and on it containerd and the kubelet."""
        machine.prepare(self.layout)
        node_setup.write(self._plane, self.layout, self._programs, ports=self._ports)
        cgroups.make(self.layout.cgroup)
        self.start_process(node_layout.MACHINE, machine.first_process(self.layout))
        self._await(node_layout.MACHINE, self.layout.is_up_mark.exists, "ready to be entered")
        self.start_containerd()
        self._import_image()
        node_object.create(self._plane, self.layout)
        self.start_kubelet()

    def start_containerd(self) -> None:
        """Starts containerd and waits until it answers."""
        command = node_config.containerd_command(self.layout, self._programs)
        self.start_process(node_layout.CONTAINERD, self.command_inside(command))
        self._await(node_layout.CONTAINERD, self._containerd_answers, "answering")

    def start_kubelet(self) -> None:
        """Starts the kubelet and waits until the Node is ready."""
        command = node_config.kubelet_command(self.layout, self._programs)
        inside = self.command_inside(command)
        self.start_process(node_layout.KUBELET, inside, port=self._ports.health)
        self._await(node_layout.KUBELET, self._kubelet_answers, "answering")
        self._await(node_layout.KUBELET, self.is_ready, "ready")

    def start_agent(
        self, driver: node_agent_command.DriverFiles, *, options: Sequence[str] = ()
    ) -> None:
        """Starts the node agent for the GPUs of a driver, with the rights that the chart gives it, and waits for it.

        `options` are further ones of `dovetail node-agent`. It is ready when its socket invites the kubelet.
        """
        node_agent_rights.grant(self._plane, self.layout)
        self._agent_command = node_agent_command.command(
            kubeconfig=self.layout.agent_kubeconfig,
            node_name=self.name,
            # Its usual place is shorter than that outside the namespaces: the sockets of MPS daemons are deep below.
            kubelet_root=node_layout.KUBELET_ROOT_INSIDE,
            cdi_directory=self.layout.cdi,
            boot_id_file=self.layout.boot_id,
            cdi_hook=node_programs.cdi_hook(),
            driver=driver,
            options=tuple(options),
        )
        self.start_agent_again()

    def start_agent_again(self, *options: str, process: str = node_layout.AGENT) -> None:
        """Starts the node agent with the options and rights that it had, and further options. Needs no API server.

        Another name of the process lets two agents run beside each other, as in a rolling update.
        """
        self.start_process(process, self.command_inside([*self._agent_command, *options]))
        self._await(process, lambda: node_health.agent_serves(self.layout), "serving the kubelet")

    def start_process(
        self, process: str, command: Sequence[str | Path], *, port: int | None = None
    ) -> None:
        """Starts a process that belongs to the node and ends with it."""
        name = self.layout.process_name(process)
        log = self.layout.log_of(process)
        child = processes.start(
            command,
            log=log,
            is_tethered=self._is_tethered,
            note=lambda pid: self.roster.add(processes.recorded(name, pid, log=log, port=port)),
        )
        self._children.append(child)

    def restart_containerd(self) -> None:
        """Kills containerd and starts it again. The containers run on."""
        self.kill(node_layout.CONTAINERD)
        self.start_containerd()

    def restart_kubelet(self) -> None:
        """Kills the kubelet and starts it again. The pods run on."""
        self.kill(node_layout.KUBELET)
        self.start_kubelet()

    def reboot(self) -> None:
        """Ends all processes of the node at once, as a power cut would, and boots it again with another boot id."""
        self.power_off()
        self.boot()

    def power_off(self) -> None:
        """Ends all processes of the node at once. Its disk stays."""
        node_record.end_processes(self.layout, self.roster)
        self._reap()

    def stop(self) -> None:
        """Ends the node and removes all that it made on this machine."""
        node_record.remove(self._directory, self.name)
        self._reap()
        for port in self._ports:
            free_ports.release(port)

    def kill(self, process: str, *, grace_seconds: float = 0) -> None:
        """Kills one process of the node, or asks it to end first if there is a grace."""
        name = self.layout.process_name(process)
        record = self.roster.all()[name]
        program = self._program_behind(record)
        processes.end(program, grace_seconds=grace_seconds)
        processes.end(record, grace_seconds=0)
        self.roster.remove(name)
        self._reap()

    def pid_of(self, process: str) -> int:
        """The process id of a program of the node, as this machine counts."""
        return self._program_behind(self.roster.all()[self.layout.process_name(process)]).pid

    def is_ready(self) -> bool:
        """Whether the Node is ready, and the report is from the current boot."""
        return node_object.is_ready(self._plane, self.layout)

    @property
    def pod_network(self) -> ipaddress.IPv4Network:
        """The addresses of the node's pods."""
        return node_config.pod_network(self._ports)

    def command_inside(self, command: Sequence[str | Path]) -> list[str]:
        """The command line that runs a program inside the node's namespaces."""
        name = self.layout.process_name(node_layout.MACHINE)
        return machine.inside(self.roster.all()[name], command)

    def ctr(self, *arguments: str | Path) -> str:
        """What containerd's own command line prints."""
        address = f"--address={self.layout.containerd_socket}"
        namespace = f"--namespace={IMAGE_NAMESPACE}"
        done = subprocess.run(  # noqa: S603 - no shell reads it
            self.command_inside([self._programs.ctr, address, namespace, *arguments]),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise control_plane.StartFailed(f"ctr {arguments[0]} failed: {done.stderr.strip()}")
        return done.stdout

    def import_image(self, archive: Path) -> None:
        """Gives containerd an image, from an archive of the format of `docker save`."""
        kind = snapshotter.snapshotter(self.layout.home)
        self.ctr("images", "import", "--local", f"--snapshotter={kind}", archive)

    def _import_image(self) -> None:
        """Gives containerd the one image that the node's pods use."""
        file = self.layout.home / "image.tar"
        file.write_bytes(container_image.archive(self._programs.container.read_bytes()))
        self.import_image(file)
        file.unlink()

    def _reap(self) -> None:
        """Drops the processes that have ended."""
        self._children = [child for child in self._children if child.poll() is None]

    def _program_behind(self, record: processes.ProcessRecord) -> processes.ProcessRecord:
        """The program for which a process has entered the namespaces; the process itself if that is it."""
        children = machine.children_of(record.pid) if processes.is_alive(record) else []
        if not children:
            return record
        return processes.recorded(record.name, children[0], log=Path(record.log))

    def _containerd_answers(self) -> bool:
        if self.layout.containerd_socket.exists():
            with contextlib.suppress(control_plane.StartFailed):
                return bool(self.ctr("version"))
        return False

    def _kubelet_answers(self) -> bool:
        name = self.layout.process_name(node_layout.KUBELET)
        return node_health.of_kubelet(self.roster.all()[name]).is_ok

    def _await(self, process: str, condition: Callable[[], bool], state: str) -> None:
        """Waits for a condition. Raises StartFailed with the end of the log if the process ends or time runs out."""
        name = self.layout.process_name(process)
        record = self.roster.all()[name]
        deadline = time.monotonic() + READY_SECONDS
        while not condition():
            if not processes.is_alive(record):
                problem = f"{name} ended before it was {state}"
            elif time.monotonic() > deadline:
                problem = f"{name} was not {state} after {READY_SECONDS:.0f} s"
            else:
                time.sleep(POLL_SECONDS)
                continue
            tail = processes.tail_of(Path(record.log))
            raise control_plane.StartFailed(f"{problem}; the end of {record.log}:\n{tail}")


def start(
    plane: control_plane.ControlPlane,
    name: str,
    *,
    directory: Path,
    is_tethered: bool = True,
    say: Say = lambda _: None,
) -> RealNode:
    """Boots a node and waits until it is ready. A failed start is cleared up.

    `directory` keeps the record of the node and of its processes; it may be the control plane's.
    """
    require(plane.parts.minor)
    programs = node_programs.programs(say=say)
    node_record.remove_orphans()
    layout = node_record.create(directory, name, is_tethered=is_tethered)
    node = RealNode(plane, layout, programs, directory=directory, is_tethered=is_tethered)

    began = time.monotonic()
    try:
        node.boot()
    except BaseException:
        node.stop()
        raise
    say(f"node {name} ready after {time.monotonic() - began:.1f} s")
    return node


def require(version: str) -> None:
    """Raises NodeRefused if no node for a control plane of this version can run here, whatever is built."""
    if refusal := node_programs.refusal():
        raise NodeRefused(refusal)
    if version != node_programs.VERSION:
        # A kubelet must not be newer than its API server (Kubernetes' version skew policy).
        raise NodeRefused(
            f"the kubelet is of Kubernetes {node_programs.VERSION} and needs a control plane of that version, "
            f"not {version}"
        )
