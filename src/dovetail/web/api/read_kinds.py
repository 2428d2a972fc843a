"""The kinds of objects that endpoints read, in groups that a person can name: what a user must be allowed to list.

Each endpoint lists its groups; a test fails where one reads or shows a kind of another group. A kind that no group has
is read by no endpoint. Plain data.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dovetail.answer.why import subjects
from dovetail.answer.why.evidence import kueue_conditions
from dovetail.kubetypes import gpu_stack_kinds, object_set, registry


class Group(NamedTuple):
    """Kinds that are read together, by their unique names."""

    name: str
    kinds: frozenset[str]


def _group(name: str, *kinds: registry.Kind | str) -> Group:
    names = [
        kind if isinstance(kind, str) else object_set.unique_kind(kind.api_version, kind.name)
        for kind in kinds
    ]
    return Group(name, frozenset(names))


def _of_kueue(name: str) -> str:
    return object_set.unique_kind(kueue_conditions.API_VERSION, name)


PODS: Final = _group("pods", registry.POD, registry.NAMESPACE)
OWNERS: Final = _group("owners", *registry.OWNERS, *registry.PARENTS, *subjects.MORE_KINDS)
QUEUES: Final = _group("queues", registry.QUEUE)
TOPOLOGIES: Final = _group("topologies", registry.TOPOLOGY)
NODES: Final = _group("nodes", registry.NODE)
SLICES: Final = _group("slices", registry.SLICE, registry.TAINT_RULE, registry.DEVICE_CLASS)
CLAIMS: Final = _group("claims", registry.CLAIM, registry.TEMPLATE)
EVENTS: Final = _group("events", registry.EVENT)
INTENTS: Final = _group("intents", registry.INTENT)
BUDGETS: Final = _group("budgets", registry.BUDGET)
VOLUMES: Final = _group("volumes", *registry.STORAGE)
QUOTAS: Final = _group("quotas", "ResourceQuota")
LEASES: Final = _group("leases", registry.LEASE)
CLASSES: Final = _group("classes", "PriorityClass", "RuntimeClass")
UPGRADES: Final = _group("upgrades", registry.STACK_UPGRADE)
PLATFORM: Final = _group("platform", *gpu_stack_kinds.ALL)
CONFIG_MAPS: Final = _group("config maps", "ConfigMap")
OTHER_SCHEDULERS: Final = _group(
    "other schedulers",
    _of_kueue("Workload"),
    _of_kueue("LocalQueue"),
    _of_kueue("ClusterQueue"),
    object_set.unique_kind("scheduling.volcano.sh/v1beta1", "PodGroup"),
)

WORK: Final = (PODS, OWNERS, QUEUES)
DEVICES: Final = (NODES, SLICES, CLAIMS)
# What a decision depends on.
ENGINE: Final = (*WORK, TOPOLOGIES, *DEVICES, INTENTS, BUDGETS, VOLUMES)
# What the answer about one pod quotes besides.
EVIDENCE: Final = (EVENTS, QUOTAS, LEASES, CLASSES, OTHER_SCHEDULERS)
ALL: Final = (*ENGINE, *EVIDENCE, UPGRADES, PLATFORM, CONFIG_MAPS)
