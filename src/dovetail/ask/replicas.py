"""The cluster a question is about, as a replica: its objects, the scheduler's policy, and the starts it promised.

Given what was read. Never writes to a cluster, never decides.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.answer.replica import replica
from dovetail.ask import cluster_view
from dovetail.kubetypes import object_set, registry
from dovetail.live.intents import stored_promises
from dovetail.model import policy


def reads(more: Sequence[registry.Kind] = ()) -> list[object_set.Read]:
    """The lists that questions need; the further kinds as far as the cluster serves them and lets us read them."""
    kinds = dict.fromkeys((*replica.KINDS, registry.INTENT))
    further = [kind for kind in dict.fromkeys(more) if kind not in kinds]
    return [
        *(object_set.Read(kind) for kind in kinds),
        *(object_set.Read(kind, is_optional=True) for kind in further),
    ]


def replica_of(seen: cluster_view.View, policy_: policy.Policy) -> replica.Replica:
    """The replica of what was read."""
    promised = stored_promises.promises_of(seen.objects)
    return replica.Replica(seen.objects, policy_, seen.now, promises=promised)
