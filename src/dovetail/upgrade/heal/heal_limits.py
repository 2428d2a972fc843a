"""Why a remedy may not begin now: the policy's limits, an upgrade under way, bare pods, the breaker of its pool.

Given the facts, the policy and the pods that would leave. Each refusal names its rule, and says need, have and next
step. Never begins a remedy.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from dovetail.upgrade.heal import remedy_ladder
from dovetail.upgrade.heal.heal_facts import HealFacts, NodeFacts
from dovetail.upgrade.heal.heal_policy import HealPolicy
from dovetail.upgrade.heal.heal_record import MovedPod, Unreadable
from dovetail.upgrade.heal.remedy_ladder import Rung

MOST_MOVED: Final = 1_500  # pods of one remedy: the record has to fit into an annotation


class Rule(StrEnum):
    """What forbids a remedy, as metrics name it."""

    RECORD = "record"  # what was done before cannot be read
    HIGHEST = "highest"
    UPGRADE = "upgrade"
    NOT_READY = "not-ready"
    BARE_PODS = "bare-pods"
    TOO_MANY_PODS = "too-many-pods"
    BREAKER = "breaker"


class Refusal(msgspec.Struct, frozen=True):
    """A remedy is due, and a rule forbids it now."""

    rule: Rule
    reason: str


def refusal(
    node: NodeFacts, rung: Rung, moved: Sequence[MovedPod], facts: HealFacts, policy: HealPolicy
) -> Refusal | None:
    """Why the remedy may not begin, apart from the breaker."""
    if remedy_ladder.height(rung) > remedy_ladder.height(policy.highest):
        return Refusal(
            Rule.HIGHEST,
            f"needs {rung}; the policy allows up to {policy.highest}; next: do it by hand, or raise "
            "`highest`",
        )
    if node.upgrade:
        return Refusal(Rule.UPGRADE, f"{node.upgrade}; next: wait until the upgrade is done")
    if not node.is_ready and rung not in (Rung.REBOOT, Rung.REPLACE):
        return Refusal(
            Rule.NOT_READY,
            f"the node is not ready: {rung} could not be seen; next: look at its kubelet",
        )
    bare = [pod for pod in moved if not facts.pods[pod.uid].has_controller]
    if bare and not policy.evict_bare_pods:
        return Refusal(
            Rule.BARE_PODS,
            f"{len(bare)} pods have no controller that creates them again: {names(bare)}; next: "
            "delete them, or set evictBarePods",
        )
    if len(moved) > MOST_MOVED:
        return Refusal(
            Rule.TOO_MANY_PODS,
            f"{len(moved)} pods would have to leave; at most {MOST_MOVED}; next: do it by hand",
        )
    return None


class Breakers:
    """How many nodes of each pool are healed or were begun within the breaker's time."""

    def __init__(self, facts: HealFacts, policy: HealPolicy, *, now: float) -> None:
        self._policy = policy
        self._sizes: dict[str, int] = {}
        self._engaged: dict[str, set[str]] = {}
        self._struck: dict[str, set[str]] = {}
        for node in facts.nodes:
            self._sizes[node.pool] = self._sizes.get(node.pool, 0) + 1
            if self._is_engaged(node, now=now):
                self._engaged.setdefault(node.pool, set()).add(node.name)
            blocking = [fault for gpu in node.gpus for fault in gpu.faults if fault.is_blocking]
            if any(now - fault.since < policy.breaker_seconds for fault in blocking):
                self._struck.setdefault(node.pool, set()).add(node.name)

    def refusal(self, node: NodeFacts) -> Refusal | None:
        """Why no remedy may begin on the node now."""
        size = self._sizes[node.pool]
        allowed = self._policy.allowed(size)
        struck = len(self._struck.get(node.pool, ()))
        seconds = self._policy.breaker_seconds
        if struck > allowed:
            return Refusal(
                Rule.BREAKER,
                f"breaker of pool {node.pool}: {struck} of {size} nodes failed within {seconds} s, "
                f"more than {allowed}: a common cause is likely; next: look at driver, fabric, power",
            )
        engaged = self._engaged.get(node.pool, set()) - {node.name}
        if len(engaged) >= allowed:
            return Refusal(
                Rule.BREAKER,
                f"breaker of pool {node.pool}: {len(engaged)} of {size} nodes are healed now or were "
                f"begun within {seconds} s; {allowed} allowed; next: wait for "
                f"{listed(sorted(engaged))}",
            )
        return None

    def begun(self, node: NodeFacts) -> None:
        """A remedy begins on the node."""
        self._engaged.setdefault(node.pool, set()).add(node.name)

    def _is_engaged(self, node: NodeFacts, *, now: float) -> bool:
        if isinstance(node.record, Unreadable):
            return True  # what was begun there is not known
        recent = [
            each for each in node.record.attempts if now - each.began < self._policy.breaker_seconds
        ]
        return node.record.is_active or bool(recent)


def names(moved: Sequence[MovedPod]) -> str:
    """Pods for a sentence."""
    return listed([f"{pod.namespace}/{pod.name}" for pod in moved])


def listed(words: Sequence[str], *, most: int = 4) -> str:
    """The first few, and how many more there are."""
    shown = ", ".join(words[:most])
    return f"{shown} and {len(words) - most} more" if len(words) > most else shown
