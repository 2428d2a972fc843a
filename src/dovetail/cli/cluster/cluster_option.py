"""The options that say which cluster a command works on, and the reading of its objects.

--kubeconfig, --context and --state choose a cluster as `boot/cluster_choice.py` does; --snapshot a saved one. Given the
lists that a command needs. Never writes to a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from dovetail import errors
from dovetail.ask import cluster_view
from dovetail.cli import output
from dovetail.files import state_directory
from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.core import nodes

if TYPE_CHECKING:
    from dovetail.boot import cluster_choice
    from dovetail.snapshot import any_snapshot

F = TypeVar("F", bound=Callable[..., Any])

MOST_UNREADABLE: Final = 5  # objects that are named one by one
_CHOSEN: Final = "dovetail.cluster"
_READ: Final = "dovetail.snapshots"
_HAS_REPORTED: Final = "dovetail.implausible"


def readable(command: F) -> F:
    """The options of a command that only reads: a cluster, or a snapshot of one."""
    add = click.option(
        "--snapshot",
        metavar="PATH",
        expose_value=False,
        callback=_remember,
        help="Look at a saved cluster instead: a snapshot, or any files of objects; - is stdin.",
    )
    return writable(add(command))


def writable(command: F) -> F:
    """The options that choose a cluster."""
    options = (
        click.option(
            "--state",
            metavar="DIR",
            expose_value=False,
            callback=_remember,
            help="The embedded cluster of this directory. "
            f"[default: ${state_directory.STATE_VARIABLE} or the user's state directory]",
        ),
        click.option(
            "--context",
            metavar="NAME",
            expose_value=False,
            callback=_remember,
            help="The kubeconfig's context. [default: its current one]",
        ),
        click.option(
            "--kubeconfig",
            metavar="FILE",
            expose_value=False,
            callback=_remember,
            help="How to reach the cluster. [default: $KUBECONFIG, the embedded cluster, ~/.kube/config]",
        ),
    )
    for option in options:
        command = option(command)
    return command


def chosen() -> cluster_choice.Choice:
    """The cluster that the options of this command choose."""
    from dovetail.boot import cluster_choice

    return cluster_choice.choose(chosen_options())


def chosen_options() -> cluster_choice.Options:
    """The options themselves, for a process that may have to choose again."""
    from dovetail.boot import cluster_choice

    return cluster_choice.Options(
        kubeconfig=_given("kubeconfig"), context=_given("context"), state=_given("state")
    )


def snapshot() -> Path | None:
    """The path that --snapshot names, if it was given."""
    path = _given("snapshot")
    if path is None:
        return None
    if any(map(_given, ("kubeconfig", "context", "state"))):
        raise click.UsageError("give --snapshot or a cluster, not both")
    return Path(path)


def is_named() -> bool:
    """Whether an option names a cluster or a snapshot."""
    return any(map(_given, ("snapshot", "kubeconfig", "context", "state")))


def default_namespace() -> str:
    """The namespace of commands that name none: the context's, or `default`."""
    if snapshot() is not None:
        return object_set.DEFAULT_NAMESPACE
    return chosen().connection.namespace


def namespace_words(namespace: str) -> str:
    """The option that a command needs for that namespace: ` -n NAME`, or nothing for the default one."""
    return "" if namespace == default_namespace() else f" -n {namespace}"


def view(reads: Sequence[object_set.Read]) -> cluster_view.View:
    """Reads these lists of the chosen cluster, or of the snapshot, which may hold more than that."""
    path = snapshot()
    if path is not None:
        saved = read_snapshot(path, kinds={read.kind.unique_name for read in reads})
        _report_implausible(saved.objects)
        return cluster_view.of_snapshot(saved)
    seen = cluster_view.of_cluster(chosen(), reads)
    _report_unreadable(seen.unreadable)
    _report_implausible(seen.objects)
    return seen


def whole_snapshot(path: Path) -> cluster_view.View:
    """Everything that a snapshot holds."""
    return cluster_view.of_snapshot(read_snapshot(path))


def widened(seen: cluster_view.View, reads: Sequence[object_set.Read]) -> cluster_view.View:
    """The view with further lists; the same where none are needed."""
    if not reads:
        return seen
    more = view(reads)
    if more.objects is seen.objects:
        return seen
    objects = object_set.joined(seen.objects, more.objects)
    return msgspec.structs.replace(seen, objects=objects, unserved=seen.unserved + more.unserved)


def say_cluster(name: str) -> None:
    """A closing line of tables: whom the answer is about."""
    output.say(f"cluster: {name}")


def next_step(command: str, *, otherwise: str = "") -> None:
    """The last line: the next command, about the same snapshot where one was looked at.

    `otherwise` is the command for snapshots, where the other one would change a cluster.
    """
    path = _given("snapshot")
    if path is None:
        output.next_step(command)
    elif path == "-":
        output.next_step("snapshot show -")  # what was read is gone: it has to be given again
    else:
        output.next_step(otherwise or f"{command} --snapshot {path}")


def read_snapshot(path: Path, *, kinds: Collection[str] | None = None) -> any_snapshot.Snapshot:
    """The saved cluster, these kinds of it or all; files of objects are read once by a command.

    Says what was left out. A path that holds no cluster is wrong usage.
    """
    from dovetail.snapshot import any_snapshot

    meta = click.get_current_context().meta
    known: dict[str, any_snapshot.Snapshot] = meta.setdefault(_READ, {})
    if str(path) in known:
        return known[str(path)]
    try:
        with cluster_view.not_collecting():
            saved = any_snapshot.read(str(path), kinds=kinds)
    except errors.InputError as error:
        raise output.BadInput(str(error)) from None
    _report_unreadable(saved.problems)
    say_some(saved.duplicates, "given twice", "objects that are given twice")
    if saved.is_whole:
        known[str(path)] = saved
    return saved


def _report_unreadable(unreadable: Sequence[str]) -> None:
    say_some(unreadable, "left out", "that cannot be read")


def _report_implausible(objects: object_set.ObjectSet) -> None:
    """Names the nodes whose GPUs are not shown because their numbers cannot be; once in a command."""
    from dovetail.tables.gpus import plugin_gpus

    meta = click.get_current_context().meta
    if meta.get(_HAS_REPORTED) or not objects.count(registry.NODE.name):
        return
    meta[_HAS_REPORTED] = True
    problems = []
    for stored in objects.listed(registry.NODE.name):
        excess = (
            plugin_gpus.implausible(stored.struct) if isinstance(stored.struct, nodes.Node) else ""
        )
        if excess:
            name = stored.struct.metadata.name
            most = plugin_gpus.MOST_COUNTED
            problems.append(f"GPUs of node {name}: it counts {excess}, at most {most} can be")
    say_some(problems, "not shown", "nodes that count more than can be")


def say_some(lines: Sequence[str], label: str, rest: str) -> None:
    """The first lines, and how many more there are."""
    for line in lines[:MOST_UNREADABLE]:
        output.say(f"{label}: {line}")
    if len(lines) > MOST_UNREADABLE:
        output.say(f"{label}: {len(lines) - MOST_UNREADABLE} more {rest}")


def _remember(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    context.meta.setdefault(_CHOSEN, {})[parameter.name] = value


def _given(name: str) -> str | None:
    context = click.get_current_context()
    value: str | None = context.meta.get(_CHOSEN, {}).get(name)
    return value
