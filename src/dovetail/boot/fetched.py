"""Objects of a real cluster as a cluster in memory, for commands that only show them.

Given how to reach it and the kinds; what is not installed there is left out. Never writes.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dovetail.kube import api, arriving, config, transport
from dovetail.model import kinds, meta, objects
from dovetail.sim import cluster as clusters


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
