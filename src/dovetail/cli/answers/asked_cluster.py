"""The cluster that a question of the command line is about, and the policy of its scheduler.

Given the options of the command: a cluster or a snapshot, and the scheduler's configuration file. Never writes to a
cluster, never decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from dovetail.ask import cluster_view, replicas, scheduler_policy
from dovetail.cli import output
from dovetail.cli.cluster import cluster_option
from dovetail.kubetypes import object_set, registry
from dovetail.model import policy

F = TypeVar("F", bound=Callable[..., Any])

MOST_NAMED: Final = 5  # kinds of a file without a cluster


def configurable(command: F) -> F:
    """The option that names the scheduler's configuration, passed as `file`."""
    add = click.option(
        "--config",
        "file",
        metavar="FILE",
        help="The scheduler's configuration: whose pods, how queues share.",
    )
    return add(command)


def view(
    file: str | None, more: Sequence[registry.Kind] = ()
) -> tuple[cluster_view.View, policy.Policy]:
    """The objects that questions need, with further kinds where the cluster serves them, and the policy."""
    # First: a wrong file is reported before any request.
    configured = scheduler_policy.configured(file)
    seen = cluster_option.view(replicas.reads(more))
    _refuse_without_cluster(seen.objects)
    return seen, configured or scheduler_policy.default(seen)


def _refuse_without_cluster(objects: object_set.ObjectSet) -> None:
    """Files that hold neither nodes nor pods are no cluster to ask about."""
    path = cluster_option.snapshot()
    kinds = (registry.NODE, registry.POD)
    if path is None or any(objects.count(kind.unique_name) for kind in kinds):
        return
    held = Counter(stored.struct.kind for stored in objects.all())
    words = [f"{count} {kind}" for kind, count in sorted(held.items()) if kind]
    holds = f"; it holds {', '.join(words[:MOST_NAMED])}" if words else ""
    raise output.BadInput(f"{path}: no nodes and no pods to ask about{holds}")
