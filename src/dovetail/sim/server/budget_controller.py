"""The disruption controller, in memory: counts for every PodDisruptionBudget how many of its pods may be evicted now.

Given the object store and the namespaces in which something changed; writes the status of their budgets. The number of
pods a budget expects is the number it selects. Never evicts.
"""

from __future__ import annotations

import math
from typing import Any

from dovetail.kubetypes import registry
from dovetail.kubetypes.core import disruption_budgets
from dovetail.sim.server.object_store import ObjectStore, Record

Tree = dict[str, Any]


def count(shelf: ObjectStore, namespace: str) -> None:
    """Writes the statuses of the budgets of a namespace. Linear in its pods and budgets."""
    budgets = shelf.all(registry.BUDGET, namespace)
    if not budgets:
        return
    pods = shelf.all(registry.POD, namespace)
    for budget in budgets:
        tree = budget.tree
        status = _status(budget, pods)
        if tree.get("status") != status:
            shelf.put(registry.BUDGET, tree | {"status": status})


def _status(budget: Record, pods: list[Record]) -> Tree:
    covered = [
        record.struct
        for record in pods
        if record.struct.status.phase not in ("Succeeded", "Failed")
        and disruption_budgets.covers(budget.struct, record.struct)
    ]
    healthy = sum(
        disruption_budgets.is_counted(pod) and pod.metadata.deletion_timestamp is None
        for pod in covered
    )
    desired = _desired(budget.tree.get("spec") or {}, len(covered))
    allowed = max(0, healthy - desired)
    condition = {
        "type": "DisruptionAllowed",
        "status": "True" if allowed else "False",
        "reason": "SufficientPods" if allowed else "InsufficientPods",
    }
    return {
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "disruptionsAllowed": allowed,
        "expectedPods": len(covered),
        "observedGeneration": budget.metadata.generation,
        "conditions": [condition],
    }


def _desired(spec: Tree, expected: int) -> int:
    """How many pods have to stay healthy. Percentages are rounded up, as upstream."""
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if most is not None:
        return max(0, expected - _amount(most, expected))
    return _amount(1 if least is None else least, expected)


def _amount(value: Any, total: int) -> int:
    if isinstance(value, str) and value.endswith("%"):
        return math.ceil(int(value.removesuffix("%")) * total / 100)
    return int(value)
