"""The starts that a scheduler promised, read from the intents it stored.

Given a set of objects; none where the scheduler stores no intents. Never writes.
"""

from __future__ import annotations

from dovetail.kubetypes import codec, object_set, registry
from dovetail.kubetypes.custom import intents
from dovetail.live.intents import promise_store, recovery
from dovetail.model import plan


def promises_of(objects: object_set.ObjectSet) -> tuple[plan.Promise, ...]:
    """The promise of every gang that has one. Of several about one gang the last attempt wins."""
    found = [codec.typed(each, intents.Intent) for each in objects.listed(registry.INTENT.name)]
    stored = [intent for intent in found if intent is not None]
    by_gang: dict[plan.GangRef, plan.Promise] = {}
    for intent in sorted(stored, key=lambda intent: intent.spec.attempt):
        promise = promise_store.promise_of(intent)
        if promise is not None:
            by_gang[recovery.gang_of(intent)] = promise
    return tuple(by_gang.values())
