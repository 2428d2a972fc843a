"""What a question looks at: the objects of a cluster or of a snapshot, and the time they show.

Given the cluster that was chosen, or a path, and the lists that are needed. What could not be read is part of the view:
the caller says it. Never writes to a cluster, never prints.
"""

from __future__ import annotations

import contextlib
import datetime
import gc
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from dovetail.ask import api_session
from dovetail.kubetypes import object_set, registry

if TYPE_CHECKING:
    from dovetail.boot import cluster_choice
    from dovetail.snapshot import any_snapshot

EPOCH: Final = datetime.datetime.fromtimestamp(0, datetime.UTC)  # before anything was read


class View(msgspec.Struct, frozen=True):
    """What was read: the objects, the time they show, and how messages name their cluster."""

    objects: object_set.ObjectSet
    now: datetime.datetime
    name: str
    is_embedded: bool
    unserved: tuple[registry.Kind, ...] = ()
    is_snapshot: bool = False
    unreadable: tuple[str, ...] = ()  # objects that were left out, and why
    duplicates: tuple[str, ...] = ()  # objects that a snapshot has twice
    server_version: str = ""  # of the API server, where a snapshot recorded it

    @property
    def is_ours(self) -> bool:
        """Whether Dovetail schedules every pod: no other scheduler is known to be there."""
        return self.is_embedded or self.is_snapshot


def of_cluster(choice: cluster_choice.Choice, reads: Sequence[object_set.Read]) -> View:
    """Reads these lists of the chosen cluster. Raises ApiFailure where it is unreachable or refuses."""
    from dovetail.kube import read_objects

    with not_collecting():
        reading = api_session.awaited(
            read_objects.read(choice.connection, reads, cluster=choice.name)
        )
    return View(
        objects=reading.objects,
        now=datetime.datetime.now(datetime.UTC),
        name=choice.name,
        is_embedded=choice.is_embedded,
        unserved=reading.unserved,
        unreadable=tuple(reading.unreadable),
    )


def of_path(path: str, *, kinds: Collection[str] | None = None) -> View:
    """A saved cluster, these kinds of it or all. Raises InputError for a path that holds none."""
    from dovetail.snapshot import any_snapshot

    with not_collecting():
        return of_snapshot(any_snapshot.read(path, kinds=kinds))


def of_snapshot(saved: any_snapshot.Snapshot) -> View:
    """A snapshot that was read."""
    return View(
        objects=saved.objects,
        now=saved.taken_at,
        name=saved.name,
        is_embedded=False,
        is_snapshot=True,
        unreadable=tuple(saved.problems),
        duplicates=tuple(saved.duplicates),
        server_version=saved.server_version,
    )


def nothing_of(choice: cluster_choice.Choice) -> View:
    """A cluster of which nothing was read yet."""
    return View(object_set.NOTHING, EPOCH, choice.name, choice.is_embedded)


@contextlib.contextmanager
def not_collecting() -> Iterator[None]:
    """What is read and shown lives until a command ends: to look for garbage among it only costs time."""
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_collecting:
            gc.enable()
