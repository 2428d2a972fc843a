"""Work that does not exist yet, from files: the objects that controllers would create for it, without a cluster.

Given manifests and what was read of the cluster. The server and the controllers of the embedded cluster, in memory and
for this question alone, admit the objects and create pods and claims as in a cluster. What they would refuse is an
error that names the file. Never writes to the cluster that was read.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Final

from dovetail import errors
from dovetail.answer.replica import replica
from dovetail.kubetypes import codec, object_set, registry
from dovetail.manifest import manifests
from dovetail.ports import failures
from dovetail.sim import virtual_clock, workload_store
from dovetail.sim.server import api_server, builtin_kinds, served_kinds

# What admission and controllers read besides the new objects.
FRAME: Final = (registry.NAMESPACE, registry.TEMPLATE, builtin_kinds.PRIORITY_CLASS)
MOST_ROUNDS: Final = 10_000  # of the controllers, each of up to a hundred tasks
# Kinds whose pods other controllers create, which are not part of the embedded cluster.
FOREIGN: Final = frozenset(
    kind.name
    for kind in (*registry.OWNERS, *registry.PARENTS)
    if kind not in (registry.JOB, registry.STATEFUL_SET, registry.POD_GROUP, registry.COMPOSITE)
)
_WANTED: Final = frozenset(kind.unique_name for kind in (*replica.KINDS, *FRAME))


def expanded(
    given: Sequence[manifests.ManifestObject],
    cluster: object_set.ObjectSet,
    now: datetime.datetime,
    *,
    is_lenient: bool = False,
) -> tuple[codec.Stored, ...]:
    """The given objects as admitted, and what controllers create for them now. Raises InputError.

    `is_lenient` admits priorities without a class, as simulations have them.
    """
    has_daemons = any(item.stored.struct.kind == "DaemonSet" for item in given)
    frame = (*FRAME, registry.NODE) if has_daemons else FRAME
    kept = [
        api_server.StoredObject(served_kinds.table_key(kind), _place(stored), stored.document)
        for kind in frame
        for stored in cluster.listed(kind.unique_name)
    ]
    api = api_server.SimApi(
        virtual_clock.VirtualClock(now),
        is_complete=not is_lenient,
        restored=api_server.Restored(cluster.revision, kept),
    )
    store = workload_store.WorkloadStore(api)
    known = _documents(api)
    for item in given:
        _create(api, item)
    for _ in range(MOST_ROUNDS):
        revision = api.shelf.revision
        if store.settle() and api.shelf.revision == revision:
            break

    created = [
        codec.decode(document) for key, document in _documents(api).items() if key not in known
    ]
    return tuple(stored for stored in created if object_set.key_of(stored.struct).kind in _WANTED)


def _create(api: api_server.SimApi, item: manifests.ManifestObject) -> None:
    struct = item.stored.struct
    if struct.kind in FOREIGN:
        raise errors.InputError(
            str(
                item.problem(
                    "",
                    f"no controller here creates the pods of a {struct.kind}; give its pods, or a Job, "
                    "Deployment, StatefulSet, ReplicaSet or DaemonSet instead",
                )
            )
        )
    is_namespace = struct.kind == registry.NAMESPACE.name
    if is_namespace and api.find(registry.NAMESPACE, struct.metadata.name) is not None:
        return  # files often bring their namespace along
    try:
        api.put(item.stored.tree)
    except failures.ApiFailure as failure:
        raise errors.InputError(str(item.problem("", str(failure)))) from None


def _documents(api: api_server.SimApi) -> dict[tuple[object, tuple[str, str]], bytes]:
    return {
        (key, record.key): record.document
        for key, table in api.shelf.tables()
        for record in table.all()
    }


def _place(stored: codec.Stored) -> tuple[str, str]:
    return stored.struct.metadata.namespace, stored.struct.metadata.name
