"""Objects of a real cluster as a cluster in memory, for commands that only show them.

Given how to reach it and the kinds; what is not installed there is left out. Never writes.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dovetail.kube import api, arriving, config, transport
from dovetail.loops import pledges, recovery
from dovetail.model import kinds, meta, objects, plan
from dovetail.ports import failures
from dovetail.sim import cluster as clusters


async def is_served(connection: config.Connection, plural: str) -> bool:
    """Whether the cluster knows one of our own kinds."""
    async with transport.Transport(connection, user_agent="dovetail") as over:
        return any(kind.plural == plural for kind in await arriving.served(over, kinds.OURS))


async def promises(connection: config.Connection) -> tuple[plan.Promise, ...]:
    """The starts that a scheduler promised and put down; none where it keeps none, or where we may not read them."""
    async with transport.Transport(connection, user_agent="dovetail") as over:
        try:
            kept = [await api.list_all(over, kind) for kind in await arriving.served(over, (kinds.INTENT,))]
        except failures.Refused:
            return ()
    found = sorted((one for listed, _ in kept for one in listed), key=lambda one: one.spec.attempt)
    read = {recovery.gang_of(one): promise for one in found if (promise := pledges.promise_of(one)) is not None}
    return tuple(read.values())  # of several about one gang the last that was written


async def cluster(connection: config.Connection, wanted: Iterable[kinds.Kind]) -> clusters.Cluster:
    """All objects of these kinds. Raises ApiFailure where the cluster does not answer or refuses."""
    records: dict[clusters.Key, clusters.Record] = {}
    async with transport.Transport(connection, user_agent="dovetail") as over:
        for kind in await arriving.served(over, tuple(wanted)):
            found, _ = await api.list_all(over, kind)
            for one in found:
                named = msgspec.structs.replace(one, api_version=kind.api_version, kind=kind.name)  # lists leave it out
                document = msgspec.Raw(objects.encode_struct(named))
                records[clusters.key_of(named)] = clusters.Record(document, meta.NO_RAW)
    return clusters.Cluster(name=connection.server, records=records)
