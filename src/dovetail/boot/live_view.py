"""Loads objects of a real cluster into an in-memory cluster, for read-only commands.

Given a connection and the kinds; kinds that are not installed there are skipped. Never writes.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dovetail.kube import client
from dovetail.kube.auth import client_config
from dovetail.kube.http import transport
from dovetail.kube.watching import wait_for_kind
from dovetail.kubetypes import codec, meta, registry
from dovetail.kubetypes.custom import intents
from dovetail.live.intents import promise_store, recovery
from dovetail.model import plan
from dovetail.ports import failures
from dovetail.sim.local import local_cluster


async def is_served(connection: client_config.Connection, plural: str) -> bool:
    """Whether the cluster has one of Dovetail's own kinds."""
    async with transport.Transport(connection, user_agent="dovetail") as over:
        kinds = await wait_for_kind.served(over, registry.OURS)
    return any(kind.plural == plural for kind in kinds)


async def promises(connection: client_config.Connection) -> tuple[plan.Promise, ...]:
    """The promised starts a scheduler stored; none where it stores none, or RBAC forbids reading them."""
    stored: list[intents.Intent] = []
    async with transport.Transport(connection, user_agent="dovetail") as over:
        try:
            for kind in await wait_for_kind.served(over, (registry.INTENT,)):
                listed, _ = await client.list_all(over, kind)
                stored += listed
        except failures.Refused:
            return ()

    # Of several about one gang the last attempt wins.
    by_gang: dict[plan.GangRef, plan.Promise] = {}
    for intent in sorted(stored, key=lambda intent: intent.spec.attempt):
        promise = promise_store.promise_of(intent)
        if promise is not None:
            by_gang[recovery.gang_of(intent)] = promise
    return tuple(by_gang.values())


async def cluster(
    connection: client_config.Connection, kinds: Iterable[registry.Kind]
) -> local_cluster.Cluster:
    """All objects of these kinds. Raises ApiFailure where the cluster is unreachable or refuses."""
    records: dict[local_cluster.Key, local_cluster.Record] = {}
    async with transport.Transport(connection, user_agent="dovetail") as over:
        for kind in await wait_for_kind.served(over, tuple(kinds)):
            listed, _ = await client.list_all(over, kind)
            for item in listed:
                # Items of a list have no apiVersion and kind.
                typed = msgspec.structs.replace(item, api_version=kind.api_version, kind=kind.name)
                document = msgspec.Raw(codec.encode_struct(typed))
                records[local_cluster.key_of(typed)] = local_cluster.Record(document, meta.NO_RAW)
    return local_cluster.Cluster(name=connection.server, records=records)
