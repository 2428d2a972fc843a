"""Asks what the healer would do now: of the objects that were read, and of the API server by dry runs of evictions.

Given a view of a cluster. The decision is the healer's own (`upgrade/heal`). Never writes to a cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dovetail.ask import cluster_view, replicas
from dovetail.ask.lifecycle import drain_asked
from dovetail.model import policy
from dovetail.node.health.policy_table import HealthPolicy
from dovetail.upgrade.heal import heal_facts, healing
from dovetail.upgrade.heal.heal_policy import HealPolicy
from dovetail.upgrade.heal.healing import Step

if TYPE_CHECKING:
    from dovetail.boot import cluster_choice


class Healing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What would be done, and what the server says to the evictions that belong to it."""

    nodes: int
    gpus: int
    steps: tuple[Step, ...]
    refused: dict[str, str] = {}  # by pod
    unknown: tuple[str, ...] = ()


def heal(
    seen: cluster_view.View,
    policy_: policy.Policy,
    rules: HealPolicy,
    *,
    choice: cluster_choice.Choice | None = None,
) -> Healing:
    """The steps; with a cluster to ask, its server judges each eviction by a dry run."""
    replica = replicas.replica_of(seen, policy_)
    facts = heal_facts.read(replica)
    steps = healing.decide(facts, rules, HealthPolicy(), now=seen.now.timestamp())
    answer = Healing(
        nodes=len(facts.nodes), gpus=sum(len(node.gpus) for node in facts.nodes), steps=steps
    )
    if choice is None:
        return answer
    uids = {pod.uid for step in steps for pod in step.pods}
    leaving = [replica.world.pods[uid] for uid in sorted(uids) if uid in replica.world.pods]
    rehearsal = drain_asked.rehearsed(choice, leaving)
    refused = {pod: why for pod, why in (rehearsal.answers or {}).items() if why}
    unknown = (rehearsal.problem,) if rehearsal.problem else ()
    return msgspec.structs.replace(answer, refused=refused, unknown=unknown)
