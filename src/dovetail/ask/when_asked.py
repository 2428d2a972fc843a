"""Asks when waiting work starts, of all of it or of what a name means.

Given what was read of a cluster, and the policy. Never decides.
"""

from __future__ import annotations

from dovetail.answer import when as answers
from dovetail.ask import cluster_view
from dovetail.live.intents import stored_promises
from dovetail.model import policy
from dovetail.world.owners import facts_of_objects


def when(
    seen: cluster_view.View,
    rules: policy.Policy,
    *,
    name: str | None = None,
    namespace: str | None = None,
) -> list[answers.Expectation]:
    """When waiting work starts: all of it, or the gang, workload or pod of that name."""
    facts = facts_of_objects.facts_of(seen.objects)
    promised = stored_promises.promises_of(seen.objects)
    expectations = answers.when(facts, rules, seen.now, promises=promised)
    return [each for each in expectations if is_selected(each, name, namespace)]


def is_selected(expectation: answers.Expectation, name: str | None, namespace: str | None) -> bool:
    """Whether the expectation is about the gang, workload or pod of that name."""
    gang = expectation.gang
    if namespace is not None and gang.namespace != namespace:
        return False
    if name is None or name in (gang.name, gang.name.partition("/")[2], str(gang)):
        return True
    return name.removeprefix("pod/") in expectation.members
