"""`dovetail dev`: a real Kubernetes control plane with hollow GPU nodes, in the background of this machine."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dovetail import errors
from dovetail.cli import output
from dovetail.cli.cluster import fleet_option
from dovetail.devcluster import kube_binaries
from dovetail.tables import text

if TYPE_CHECKING:  # imported in the commands, so that help comes at once
    from dovetail.devcluster import dev_cluster
    from dovetail.sim.fleet import fleet_spec

UNHEALTHY = 1
MOST_NODES = 10_000

_directory = click.option(
    "--dir",
    "directory",
    metavar="DIR",
    help="Directory of the cluster. [default: dev in the state directory]",
)


@click.group(name="dev")
def group() -> None:
    """Run a real Kubernetes control plane with hollow GPU nodes on this machine.

    etcd, kube-apiserver, kube-controller-manager and kube-scheduler listen on 127.0.0.1 only. The nodes are objects
    whose kubelet is played: pods bound to them run without containers. `dev up --kubelet` adds a node with a real one.
    """


@group.command(name="up")
@click.option(
    "--nodes", type=click.IntRange(1, MOST_NODES), metavar="N", help="N nodes with eight H100 each."
)
@click.option(
    "--fleet",
    "file",
    metavar="FILE",
    help="YAML file that describes the fleet. [default: a sample]",
)
@click.option(
    "--kube-version",
    type=click.Choice(kube_binaries.VERSIONS),
    default=kube_binaries.DEFAULT,
    show_default=True,
    metavar="V",
)
@click.option(
    "--no-kube-scheduler",
    is_flag=True,
    help="Leave kube-scheduler out: pods that name no other scheduler wait.",
)
@click.option(
    "--kubelet",
    "has_kubelet",
    is_flag=True,
    help="Add a node with a real kubelet and containerd, whose pods run. Needs root.",
)
@click.option(
    "--machine",
    metavar="KIND",
    help="Give that node the fake GPUs of a server, such as dgx-h100, and start the node agent on it.",
)
@_directory
def up(
    *,
    nodes: int | None,
    file: str | None,
    kube_version: str,
    no_kube_scheduler: bool,
    has_kubelet: bool,
    machine: str | None,
    directory: str | None,
) -> int:
    """Start the cluster and print how to reach it.

    \b
    eval "$(dovetail dev up --nodes 20)"
    kubectl get nodes

    The first start of a version builds it from source, which needs Go and takes minutes.
    """
    if nodes is not None and file is not None:
        raise click.UsageError("give --nodes or --fleet, not both")
    if machine is not None and not has_kubelet:
        raise click.UsageError(
            "--machine needs --kubelet: hollow nodes have the GPUs of their fleet"
        )
    from dovetail.devcluster import dev_cluster

    place = _place(directory)
    running = dev_cluster.status(place)
    if running is None:
        running = dev_cluster.up(
            place,
            _fleet(nodes, file),
            version=kube_version,
            has_kube_scheduler=not no_kube_scheduler,
            kubelet=dev_cluster.Kubelet(machine=machine) if has_kubelet else None,
            say=output.say,
        )
    elif running.problem is not None:
        raise errors.StateError(
            f"the cluster in {place}: {running.problem}\nnext: dovetail dev down"
        )
    else:
        output.say(f"a cluster of Kubernetes {running.version} is already up in {place}")
    output.say(
        f"{text.counted(running.nodes or 0, 'node')} of fleet {running.fleet}; kubectl: {running.kubectl}"
    )
    output.write_lines(
        [f"export KUBECONFIG={shlex.quote(running.kubeconfig)}"]
    )  # for a shell to evaluate
    output.next_step("dev status")
    return 0


@group.command(name="status")
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(("table", "json")),
    default="table",
    show_default=True,
)
@_directory
def status(*, form: str, directory: str | None) -> int:
    """Show each part of the cluster; exit 1 if one is down."""
    from dovetail.devcluster import dev_cluster

    place = _place(directory)
    running = dev_cluster.status(place)
    if running is None:
        raise errors.StateError(f"no cluster in {place}\nnext: dovetail dev up")
    if form == "json":
        output.write_json(running)
    else:
        _show(running)
    return 0 if running.is_up else UNHEALTHY


@group.command(name="down")
@_directory
def down(*, directory: str | None) -> int:
    """End the cluster's processes and remove its directory."""
    from dovetail.devcluster import dev_cluster

    place = _place(directory)
    if dev_cluster.down(place, say=output.say):
        output.say(f"removed {place}")
    else:
        output.say(f"no cluster in {place}")
    output.next_step("dev up")
    return 0


def _place(directory: str | None) -> Path:
    from dovetail.devcluster import dev_cluster

    return Path(directory).expanduser() if directory else dev_cluster.default_directory()


def _fleet(nodes: int | None, file: str | None) -> "fleet_spec.Fleet":
    from dovetail.devcluster import dev_cluster
    from dovetail.sim.fleet import fleet_spec

    if nodes is not None:
        return dev_cluster.sized_fleet(nodes)
    if file is None:
        return fleet_spec.sample()
    return fleet_option.fleet(file)


def _show(status: "dev_cluster.Status") -> None:
    rows = [
        (
            part.name,
            str(part.pid),
            "yes" if part.is_alive else "no",
            part.health,
            str(part.port or "-"),
            part.log,
        )
        for part in status.parts
    ]
    output.write_lines(text.table(("part", "pid", "alive", "health", "port", "log"), rows))
    output.say(
        f"Kubernetes {status.version or '?'}, fleet {status.fleet or '?'}, {_node_line(status)}"
    )
    output.say(f"kubeconfig: {status.kubeconfig or '?'}")
    output.say(f"kubectl: {status.kubectl or '?'}")
    if status.problem is not None:
        output.say(f"not up: {status.problem}")
    output.next_step(
        "dev down" if status.problem is not None else f"scheduler --kubeconfig {status.kubeconfig}"
    )


def _node_line(status: "dev_cluster.Status") -> str:
    if status.nodes is None:
        return "nodes unknown"
    return f"{status.nodes} of {text.counted(status.nodes_expected, 'node')} there, {status.nodes_ready} ready"
