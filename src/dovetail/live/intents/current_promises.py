"""The promise in force for each gang, by the Intents in which the scheduler stores its promises.

Given Intents as a watch delivers them. A changed promise is a new Intent, written before the old one is deleted: of
several about one gang the last attempt counts. Intents that promise nothing, or cannot be read, count for nothing.
Never writes.
"""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.kubetypes.custom import intents
from dovetail.live.intents import promise_store, recovery
from dovetail.model import plan
from dovetail.world.events import ObjectKey


class CurrentPromises:
    """The Intents with promises. They are few: the scheduler promises a start to the first gangs only."""

    def __init__(self) -> None:
        self._intents: dict[ObjectKey, intents.Intent] = {}

    def put(self, intent: intents.Intent, *, is_there: bool = True) -> plan.GangRef | None:
        """Takes an Intent in, or one that is gone. Returns the gang whose promise may differ now."""
        before = self._intents.pop(_key(intent), None)
        if is_there and promise_store.promise_of(intent) is not None:
            self._intents[_key(intent)] = intent
            return recovery.gang_of(intent)
        return None if before is None else recovery.gang_of(before)

    def replace(self, listed: Iterable[intents.Intent]) -> set[plan.GangRef]:
        """These are all Intents. Returns the gangs whose promise may differ now."""
        present = list(listed)
        keys = {_key(intent) for intent in present}
        gone = [intent for key, intent in self._intents.items() if key not in keys]
        touched = [self.put(intent, is_there=False) for intent in gone]
        touched += [self.put(intent) for intent in present]
        return {gang for gang in touched if gang is not None}

    def gangs(self) -> tuple[plan.GangRef, ...]:
        """Those with a promise, and those that lost one."""
        return tuple(dict.fromkeys(map(recovery.gang_of, self._intents.values())))

    def intent(self, gang: plan.GangRef) -> intents.Intent | None:
        """The Intent that stores the promise to a gang."""
        own = [each for each in self._intents.values() if recovery.gang_of(each) == gang]
        return max(own, key=lambda each: (each.spec.attempt, each.metadata.name), default=None)

    def promise(self, gang: plan.GangRef) -> plan.Promise | None:
        """The promise to a gang, or the one that was lost."""
        intent = self.intent(gang)
        return None if intent is None else promise_store.promise_of(intent)


def _key(intent: intents.Intent) -> ObjectKey:
    return intent.metadata.namespace, intent.metadata.name
