"""Asks about the GPU stack as people put the question: with the rows that are shipped, and rows of their own.

Given the cluster or snapshot that was read, and names of files. Raises InputError for what cannot be read. Never
decides what fits together.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING, Final

from dovetail.answer.stack import compatibility_rows, row_file, stack_inventory
from dovetail.answer.stack.compatibility_rows import Origin, Rows
from dovetail.ask import api_session, cluster_view
from dovetail.files import bounded_files
from dovetail.kubetypes import object_set, registry
from dovetail.ports import failures

if TYPE_CHECKING:
    from dovetail.boot import cluster_choice

SHIPPED: Final = "dovetail.ask.lifecycle.stack_rows"
SUFFIX: Final = ".yaml"


def rows(files: Sequence[str] = (), releases: Sequence[str] = ()) -> Rows:
    """The shipped rows, release files of vendors, and the user's rows, which decide. Raises InputError."""
    entries = list(_shipped())
    for file in releases:
        name = bounded_files.display_name(file)
        entries += row_file.read_releases(bounded_files.text(file), name)
    for file in files:
        name = bounded_files.display_name(file)
        entries += row_file.read(bounded_files.text(file), name, Origin.USER)
    return Rows(entries)


def reads() -> list[object_set.Read]:
    """The lists that an inventory needs; further kinds as far as the cluster serves them and lets us read them."""
    return [
        *(object_set.Read(kind) for kind in stack_inventory.NEEDED),
        *(object_set.Read(kind, is_optional=True) for kind in stack_inventory.FURTHER),
    ]


def server_version(choice: cluster_choice.Choice) -> str:
    """The version of a cluster's API server."""
    from dovetail.kube import discovery

    return api_session.run(choice, discovery.version).git_version


def inventory(
    seen: cluster_view.View, known: Rows, *, version: str = ""
) -> stack_inventory.Inventory:
    """The stack of what was read."""
    return stack_inventory.read(seen.objects, known, server_version=version or seen.server_version)


def gpus_of_nodes(choice: cluster_choice.Choice) -> dict[str, int]:
    """How many GPUs each node of a cluster has; nothing where its nodes may not be listed."""
    lists = [object_set.Read(registry.NODE), object_set.Read(registry.SLICE, is_optional=True)]
    try:
        seen = cluster_view.of_cluster(choice, lists)
    except failures.Refused:
        return {}
    return {stack.node: stack.gpus for stack in stack_inventory.of_nodes(seen.objects).nodes}


def _shipped() -> list[compatibility_rows.Entry]:
    entries = []
    files = sorted(resources.files(SHIPPED).iterdir(), key=lambda file: file.name)
    for file in files:
        if file.name.endswith(SUFFIX):
            entries += row_file.read(file.read_text(encoding="utf-8"), file.name, Origin.SHIPPED)
    return entries
