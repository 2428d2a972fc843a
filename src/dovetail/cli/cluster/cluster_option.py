"""The options that say which cluster a command works on, and the reading of its objects.

--kubeconfig, --context and --state choose a cluster as `boot/cluster_choice.py` does; --snapshot a saved one. Given the
lists that a command needs. Never writes to a cluster.
"""

from __future__ import annotations

import contextlib
import datetime
import gc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from dovetail.cli import output
from dovetail.cli.cluster import api_session
from dovetail.files import state_directory
from dovetail.kubetypes import object_set, registry

if TYPE_CHECKING:
    from dovetail.boot import cluster_choice

F = TypeVar("F", bound=Callable[..., Any])

MOST_UNREADABLE: Final = 5  # objects that are named one by one
EPOCH: Final = datetime.datetime.fromtimestamp(0, datetime.UTC)  # before anything was read
_CHOSEN: Final = "dovetail.cluster"


class View(msgspec.Struct, frozen=True):
    """What a command read: the objects, the time they show, and how messages name their cluster."""

    objects: object_set.ObjectSet
    now: datetime.datetime
    name: str
    is_embedded: bool
    unserved: tuple[registry.Kind, ...] = ()


def readable(command: F) -> F:
    """The options of a command that only reads: a cluster, or a snapshot of one."""
    add = click.option(
        "--snapshot",
        metavar="DIR",
        expose_value=False,
        callback=_remember,
        help="Look at a saved cluster instead.",
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

    options = cluster_choice.Options(
        kubeconfig=_given("kubeconfig"), context=_given("context"), state=_given("state")
    )
    return cluster_choice.choose(options)


def snapshot() -> Path | None:
    """The directory that --snapshot names, if it was given."""
    directory = _given("snapshot")
    if directory is None:
        return None
    if any(map(_given, ("kubeconfig", "context", "state"))):
        raise click.UsageError("give --snapshot or a cluster, not both")
    return Path(directory)


def default_namespace() -> str:
    """The namespace of commands that name none: the context's, or `default`."""
    if snapshot() is not None:
        return object_set.DEFAULT_NAMESPACE
    return chosen().connection.namespace


def view(reads: Sequence[object_set.Read]) -> View:
    """Reads these lists of the chosen cluster, or the whole snapshot."""
    directory = snapshot()
    if directory is not None:
        return _saved(directory)
    from dovetail.kube import read_objects

    choice = chosen()
    with not_collecting():
        reading = api_session.awaited(
            read_objects.read(choice.connection, reads, cluster=choice.name)
        )
    _report_unreadable(reading.unreadable)
    now = datetime.datetime.now(datetime.UTC)
    return View(reading.objects, now, choice.name, choice.is_embedded, reading.unserved)


@contextlib.contextmanager
def not_collecting() -> Iterator[None]:
    """What is read and shown lives until the command ends: to look for garbage among it only costs time."""
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_collecting:
            gc.enable()


def widened(seen: View, reads: Sequence[object_set.Read]) -> View:
    """The view with further lists; the same where none are needed. A snapshot holds everything already."""
    if not reads or snapshot() is not None:
        return seen
    more = view(reads)
    objects = object_set.joined(seen.objects, more.objects)
    return msgspec.structs.replace(seen, objects=objects, unserved=seen.unserved + more.unserved)


def say_cluster(name: str) -> None:
    """A closing line of tables: whom the answer is about."""
    output.say(f"cluster: {name}")


def _saved(directory: Path) -> View:
    from dovetail.snapshot import saved_objects, snapshot_files

    saved = saved_objects.read(directory)
    name = f"snapshot {saved.objects.cluster} in {directory}"
    return View(saved.objects, snapshot_files.taken_at(saved.manifest), name, False)


def _report_unreadable(unreadable: Sequence[str]) -> None:
    for problem in unreadable[:MOST_UNREADABLE]:
        output.say(f"left out: {problem}")
    if len(unreadable) > MOST_UNREADABLE:
        output.say(f"left out: {len(unreadable) - MOST_UNREADABLE} more that cannot be read")


def _remember(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    context.meta.setdefault(_CHOSEN, {})[parameter.name] = value


def _given(name: str) -> str | None:
    context = click.get_current_context()
    value: str | None = context.meta.get(_CHOSEN, {}).get(name)
    return value
