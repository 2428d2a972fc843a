"""Asks what a drain of a node would do: of the objects that were read, and of the API server by dry runs.

Given a view of a cluster, and the chosen cluster itself where it may be asked. A dry run of an eviction judges budgets
and webhooks and changes nothing; each answer stands alone, so the budgets are counted here as well. Never evicts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from dovetail.answer.drain import drain_answer, drain_filters, prediction
from dovetail.ask import api_session, cluster_view, replicas
from dovetail.kubetypes import registry
from dovetail.kubetypes.core import pods
from dovetail.model import policy
from dovetail.ports import api, failures

if TYPE_CHECKING:
    from dovetail.boot import cluster_choice
    from dovetail.kube.http import transport

KINDS: Final = (prediction.DAEMON_SET,)  # read besides
AT_ONCE: Final = 16  # dry runs


class Rehearsal(NamedTuple):
    """The server's answers by pod, empty where it would evict; or why it could not be asked."""

    answers: dict[str, str] | None
    problem: str = ""


def drain(
    seen: cluster_view.View,
    policy_: policy.Policy,
    node: str,
    options: drain_filters.Options,
    *,
    selects: prediction.Selects | None = None,
    choice: cluster_choice.Choice | None = None,
) -> drain_answer.Prediction:
    """The prediction; with a cluster to ask, its server judges each eviction too. Raises InputError."""
    replica = replicas.replica_of(seen, policy_)
    known = daemon_sets(seen)
    rehearsal = Rehearsal(None)
    if choice is not None and not options.disable_eviction and node in replica.world.nodes:
        leaving = prediction.leaving(replica, node, options, daemon_sets=known, selects=selects)
        rehearsal = rehearsed(choice, leaving)
    answer = prediction.predict(
        replica,
        node,
        options,
        daemon_sets=known,
        selects=selects,
        answers=rehearsal.answers,
    )
    if not rehearsal.problem:
        return answer
    return msgspec.structs.replace(answer, unknown=(*answer.unknown, rehearsal.problem))


def daemon_sets(seen: cluster_view.View) -> drain_filters.DaemonSets:
    """The DaemonSets that were read; unknown where they could not be, or where a snapshot holds none."""
    kind = prediction.DAEMON_SET
    names = [
        (stored.struct.metadata.namespace, stored.struct.metadata.name)
        for stored in seen.objects.listed(kind.unique_name)
    ]
    is_unread = kind in seen.unserved or (seen.is_snapshot and not names)
    return drain_filters.DaemonSets(None if is_unread else frozenset(names))


def rehearsed(choice: cluster_choice.Choice, leaving: Iterable[pods.Pod]) -> Rehearsal:
    """What the server answers to a dry run of each eviction."""

    async def ask(over: transport.Transport) -> dict[str, str]:
        from dovetail.kube import client

        server = client.KubeApi(over)
        slots = asyncio.Semaphore(AT_ONCE)

        async def answer_for(pod: pods.Pod) -> tuple[str, str]:
            metadata = pod.metadata
            target = api.Target(registry.POD, metadata.namespace, metadata.name)
            try:
                async with slots:
                    await server.evict(target, uid=metadata.uid, is_rehearsal=True)
            except failures.Missing:
                pass  # gone meanwhile: nothing is left to evict
            except failures.Protected as refusal:
                return f"{metadata.namespace}/{metadata.name}", str(refusal)
            return f"{metadata.namespace}/{metadata.name}", ""

        return dict(await asyncio.gather(*map(answer_for, leaving)))

    try:
        return Rehearsal(api_session.run(choice, ask))
    except failures.ApiFailure as failure:
        return Rehearsal(None, f"the server did not judge the evictions: {failure}")
