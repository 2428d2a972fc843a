"""`dovetail dev`: a real Kubernetes control plane with hollow GPU nodes, in the background of this machine."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dovetail import errors
from dovetail.boot import kubeparts
from dovetail.cli import options, output, text

if TYPE_CHECKING:  # imported in the commands, so that help comes at once
    from dovetail.boot import devcluster
    from dovetail.sim import fleet as fleets

UNHEALTHY = 1
MOST_NODES = 10_000

_directory = click.option(
    "--dir", "directory", metavar="DIR", help="Directory of the cluster. [default: dev in the state directory]"
)


@click.group(name="dev")
def group() -> None:
    """Run a real Kubernetes control plane with hollow GPU nodes on this machine.

    etcd, kube-apiserver and kube-controller-manager listen on 127.0.0.1 only. The nodes are objects whose kubelet
    is played: pods bound to them run without containers.
    """


@group.command(name="up")
@click.option("--nodes", type=click.IntRange(1, MOST_NODES), metavar="N", help="N nodes with eight H100 each.")
@click.option("--fleet", "file", metavar="FILE", help="YAML file that describes the fleet. [default: a sample]")
@click.option(
    "--kube-version", type=click.Choice(kubeparts.VERSIONS), default=kubeparts.DEFAULT, show_default=True, metavar="V"
)
@_directory
def up(*, nodes: int | None, file: str | None, kube_version: str, directory: str | None) -> int:
    """Start the cluster and print how to reach it.

    \b
    eval "$(dovetail dev up --nodes 20)"
    kubectl get nodes

    The first start of a version builds it from source, which needs Go and takes minutes.
    """
    if nodes is not None and file is not None:
        raise click.UsageError("give --nodes or --fleet, not both")
    from dovetail.boot import devcluster

    place = _place(directory)
    found = devcluster.status(place)
    if found is None:
        found = devcluster.up(place, _fleet(nodes, file), version=kube_version, say=output.say)
    elif found.problem is not None:
        raise errors.StateError(f"the cluster in {place}: {found.problem}\nnext: dovetail dev down")
    else:
        output.say(f"a cluster of Kubernetes {found.version} is already up in {place}")
    output.say(f"{text.counted(found.nodes or 0, 'node')} of fleet {found.fleet}; kubectl: {found.kubectl}")
    output.write_lines([f"export KUBECONFIG={shlex.quote(found.kubeconfig)}"])  # for a shell to evaluate
    output.next_step("dev status")
    return 0


@group.command(name="status")
@click.option("-o", "--output", "form", type=click.Choice(("table", "json")), default="table", show_default=True)
@_directory
def status(*, form: str, directory: str | None) -> int:
    """Show each part of the cluster; exit 1 if one is down."""
    from dovetail.boot import devcluster

    place = _place(directory)
    found = devcluster.status(place)
    if found is None:
        raise errors.StateError(f"no cluster in {place}\nnext: dovetail dev up")
    if form == "json":
        output.write_json(found)
    else:
        _show(found)
    return 0 if found.is_up else UNHEALTHY


@group.command(name="down")
@_directory
def down(*, directory: str | None) -> int:
    """End the cluster's processes and remove its directory."""
    from dovetail.boot import devcluster

    place = _place(directory)
    if devcluster.down(place, say=output.say):
        output.say(f"removed {place}")
    else:
        output.say(f"no cluster in {place}")
    output.next_step("dev up")
    return 0


def _place(directory: str | None) -> Path:
    from dovetail.boot import devcluster

    return Path(directory).expanduser() if directory else devcluster.default_directory()


def _fleet(nodes: int | None, file: str | None) -> "fleets.Fleet":
    from dovetail.boot import devcluster
    from dovetail.sim import fleet as fleets

    if nodes is not None:
        return devcluster.sized_fleet(nodes)
    if file is None:
        return fleets.sample()
    return options.fleet(file)


def _show(found: "devcluster.Status") -> None:
    rows = [
        (part.name, str(part.pid), "yes" if part.is_alive else "no", str(part.port or "-"), part.log)
        for part in found.parts
    ]
    output.write_lines(text.table(("part", "pid", "alive", "port", "log"), rows))
    output.say(f"Kubernetes {found.version or '?'}, fleet {found.fleet or '?'}, {_node_line(found)}")
    output.say(f"kubeconfig: {found.kubeconfig or '?'}")
    output.say(f"kubectl: {found.kubectl or '?'}")
    if found.problem is not None:
        output.say(f"not up: {found.problem}")
    output.next_step("dev down" if found.problem is not None else f"scheduler --kubeconfig {found.kubeconfig}")


def _node_line(found: "devcluster.Status") -> str:
    if found.nodes is None:
        return "nodes unknown"
    return f"{found.nodes} of {text.counted(found.nodes_expected, 'node')} there, {found.nodes_ready} ready"
