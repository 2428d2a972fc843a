"""Gangs: pods that start together or not at all, as a tree of groups; a pod alone is a gang of one.

Which gang a pod belongs to is read off the pod (`membership`); what is known about the gang comes from whoever knows it
(a native PodGroup, an owner, labels). Data and the reading of it; never counts pods, never decides.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from dovetail.model import meta, pods

GANG_LABEL: Final = "dovetail.dev/gang"
GROUP_LABEL: Final = "dovetail.dev/gang-group"
MIN_LABEL: Final = "dovetail.dev/gang-min"
QUEUE_LABEL: Final = "dovetail.dev/queue"
DEFAULT_GROUP: Final = "default"

GangKey = tuple[str, str]  # namespace and name; the name says the source, such as gang/llama or job/train


class TopologyWish(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Where pods want to be together: levels by label key or alias."""

    topology: str
    required: str | None = None
    preferred: str | None = None
    relax_after_seconds: int | None = None  # from then on, since it waits, what was required is only preferred
    spread: bool = False  # rather over many domains than in one
    segment: int | None = None  # pods come in so many, each lot in one domain of the required level


class Group(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A node of the tree below the root."""

    name: str
    parent: str | None = None  # None: the root
    holds_groups: bool = False  # else pods
    min: int = 1  # pods, or child groups, without which it is nothing
    max: int | None = None
    topology: TopologyWish | None = None


class Gang(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What is known about a gang. Times are seconds; None where the policy's or the queue's value holds."""

    metadata: meta.ObjectMeta  # its name is the key's
    queue: str = ""  # as the workload names it; a label alone opens nothing
    priority: int | None = None  # None: its pods'
    is_preemptible: bool | None = None  # None: by the policy
    min_groups: int = 1  # of the root's children
    groups: tuple[Group, ...] = (Group(name=DEFAULT_GROUP),)
    topology: TopologyWish | None = None  # of the root
    may_evict_after: int = 0  # until that age it may start but make nobody yield
    stale_grace: int | None = None  # below its minimum for so long it is taken back; negative: never
    stale_since: str | None = None  # since when it is below its minimum
    expected_runtime: int | None = None
    max_runtime: int | None = None
    last_checkpoint: str | None = None  # RFC 3339
    is_recreated: bool = True  # whether something makes its pods anew
    counts_failures: bool = False  # an eviction counts as a failure of its Job


class Membership(NamedTuple):
    """The gang of a pod, and the group in it."""

    gang: GangKey
    group: str


def membership(pod: pods.Pod) -> Membership:
    """The gang a pod belongs to, by what the pod itself says."""
    labels = pod.metadata.labels
    if name := labels.get(GANG_LABEL):
        return Membership((pod.metadata.namespace, f"gang/{name}"), labels.get(GROUP_LABEL, DEFAULT_GROUP))
    return Membership((pod.metadata.namespace, f"pod/{pod.metadata.name}"), DEFAULT_GROUP)


def implied(pod: pods.Pod) -> Gang:
    """What a pod says about its gang where nobody else says anything."""
    labels = pod.metadata.labels
    key = membership(pod).gang
    needed = labels.get(MIN_LABEL, "")
    smallest = int(needed) if needed.isascii() and needed.isdecimal() and len(needed) < 7 else 1
    found = pod.metadata
    return Gang(
        metadata=meta.ObjectMeta(namespace=key[0], name=key[1], creation_timestamp=found.creation_timestamp),
        queue=labels.get(QUEUE_LABEL, ""),
        groups=(Group(name=DEFAULT_GROUP, min=smallest),),
        is_recreated=any(one.controller for one in found.owner_references),
    )
