"""The answer to "why does this pod not start": plain data that tables, JSON, the dashboard and scripts show.

Given by `why.why`. Every number in it was counted, every fix in it was tried on a replica. Computes nothing.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from dovetail.answer.replica.patches import ObjectRef, Patch
from dovetail.answer.why.cause_codes import CauseClass, CauseCode
from dovetail.model import plan


class Cause(msgspec.Struct, frozen=True, kw_only=True, rename={"class_": "class"}):
    """What keeps the pod from starting, in one sentence."""

    class_: CauseClass
    code: CauseCode
    sentence: str


class FunnelStep(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many nodes or devices are left after one more rule."""

    of: str  # nodes, or devices
    step: str  # the rule, such as "tolerates their taints"
    left: int
    removed: int = 0
    detail: str = ""  # what was asked, and the nearest that was seen


class Holder(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod that holds what is missing."""

    pod: str  # namespace/name
    holds: str  # such as "8 nvidia.com/gpu on node a"
    node: str = ""
    queue: str = ""
    priority: int = 0
    since: plan.Instant | None = None
    until: plan.Instant | None = None  # None: it states no runtime


class Who(StrEnum):
    """Who can carry out a fix, from the nearest to the farthest."""

    USER = "user"
    QUEUE_ADMIN = "queue-admin"
    CLUSTER_ADMIN = "cluster-admin"


class Fix(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A change with which the pod starts. Shown only after the engine placed the pod with it."""

    who: Who
    title: str  # such as "tolerate taint nvidia.com/gpu=present:NoSchedule"
    patch: tuple[Patch, ...]
    verified: bool = True
    effect: str = ""  # what happens then, such as "starts on node gpu-3"


class Why(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The whole answer about one pod, or about a workload whose pods do not exist."""

    subject: ObjectRef
    schedulable: bool
    cause: Cause | None
    funnel: tuple[FunnelStep, ...]
    holders: tuple[Holder, ...]
    fixes: tuple[Fix, ...]
    verdict: str = ""  # the sentence for a pod that starts: where, after whom
    also: tuple[Cause, ...] = ()  # further causes that stand in the way
    evidence: tuple[str, ...] = ()  # conditions and events that say the same, with their source
    expected_start: plan.Instant | None = None
    more_holders: int = 0  # beyond those that are listed
