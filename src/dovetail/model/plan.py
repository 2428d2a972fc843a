"""The result of `decide`: which pods start where, on which devices, and which are evicted, nominated or refused.

Frozen data that can be stored, compared and carried out elsewhere. Never carried out here.
"""

from __future__ import annotations

import datetime
from enum import StrEnum

import msgspec

from dovetail.kubetypes.core import pods
from dovetail.kubetypes.custom import queues
from dovetail.kubetypes.resource import claims
from dovetail.model import reasons

Instant = datetime.datetime  # with its zone


class PodRef(msgspec.Struct, frozen=True, gc=False, order=True):
    """A pod, by name and identity."""

    namespace: str
    name: str
    uid: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ClaimRef(msgspec.Struct, frozen=True, gc=False, order=True):
    """A claim by name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class GangRef(msgspec.Struct, frozen=True, gc=False, order=True):
    """A gang by its key: namespace, and a name that says the source, such as gang/llama."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Term(msgspec.Struct, frozen=True, gc=False):
    """One named part of a score, in thousandths of a GPU, with a sentence for the operator. Lower is better."""

    name: str
    milli_gpu: float
    sentence: str


class Allocation(msgspec.Struct, frozen=True):
    """Devices to write into a claim that had none."""

    claim: ClaimRef
    result: claims.AllocationResult


class VolumeStep(msgspec.Struct, frozen=True, gc=False):
    """What a volume claim needs before its pod may be bound: this volume, or without one, a new one near the node."""

    claim: ClaimRef
    volume: str = ""


class ExtendedResourceClaim(msgspec.Struct, frozen=True, kw_only=True):
    """The claim whose devices serve a pod's extended resources on its node: to create, allocate and reserve for it.

    With `existing` it was made before and has that name; where its status holds `result` already nothing is left to
    allocate. Afterwards the pod's status must hold the mappings: a kubelet admits the pod only then.
    """

    claim: claims.ResourceClaim  # as found, or to create: then without a name
    result: claims.AllocationResult
    mappings: tuple[pods.ContainerExtendedResourceRequest, ...]
    existing: ClaimRef | None = None


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, its node, the claims to allocate for it and all claims to reserve for it."""

    pod: PodRef
    node: str
    allocations: tuple[Allocation, ...] = ()  # for claims the pod names; `made` is another one
    reservations: tuple[ClaimRef, ...] = ()  # every claim the pod names and is not yet listed in
    made: ExtendedResourceClaim | None = None
    volumes: tuple[VolumeStep, ...] = ()  # to write, and to wait for, before the binding
    terms: tuple[Term, ...] = ()
    warnings: tuple[reasons.Reason, ...] = ()  # what may fail there, though the policy allows it
    gang: GangRef | None = None  # pods of one gang start together: all claims before any binding

    @property
    def score(self) -> float:
        """What the placement costs others, in thousandths of a GPU."""
        return sum(term.milli_gpu for term in self.terms)


class Rule(StrEnum):
    """Why a pod is evicted."""

    PREEMPTED = "Preempted"  # for more important work of its queue
    RECLAIMED = "Reclaimed"  # for a queue below its fair share
    CONSOLIDATED = "Consolidated"  # it moves, so that others fit
    STALE = "GangIncomplete"  # its gang fell below its minimum
    OVERTIME = "MaxRuntimeExceeded"


class Eviction(msgspec.Struct, frozen=True, kw_only=True):
    """A pod to evict, by which rule and for which gang."""

    pod: PodRef
    gang: GangRef
    rule: Rule
    beneficiary: GangRef | None = None  # None where a gang is evicted for its own state
    detail: str = ""  # a sentence with the numbers
    moves_to: str = ""  # the node kept for whatever takes the pod's place
    keeps: tuple[claims.AllocationResult, ...] = ()  # the devices found for it there
    made: ExtendedResourceClaim | None = (
        None  # the claim that some of them are for, if it has none yet
    )


class Nomination(msgspec.Struct, frozen=True, kw_only=True):
    """A node kept for a pod that cannot start yet."""

    pod: PodRef
    node: str
    gang: GangRef


class PromisedSlot(msgspec.Struct, frozen=True, kw_only=True):
    """A node, and devices there, reserved for a pod from its promised start on."""

    pod: PodRef
    node: str
    devices: tuple[str, ...] = ()  # driver/pool/device


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """The start time promised to a gang without room, provided running pods take no longer than they state.

    Without a start none can be computed, and the cause gives the reason. A promise that moved holds the earlier start
    and the reason; a lost one the earlier start and what it was lost to.
    """

    gang: GangRef
    start: Instant | None = None
    latest: Instant | None = None  # if all pods in its way use their full runtime; None: unknown
    seats: tuple[PromisedSlot, ...] = ()
    moved_from: Instant | None = None  # the start promised before, if that was earlier
    cause: str = ""
    lost_to: str = ""  # why the earlier start is not kept, where there is no other
    # Uids of pods that started since, with a stated runtime beyond the enforced one.
    ahead: tuple[str, ...] = ()

    @property
    def nodes(self) -> tuple[str, ...]:
        """Where it will run."""
        return tuple(dict.fromkeys(seat.node for seat in self.seats))


class Obstacle(msgspec.Struct, frozen=True, kw_only=True):
    """A reason and the number of nodes it rules out; 0 nodes if it is about the pod alone."""

    reason: reasons.Reason
    nodes: int = 0
    pools: tuple[
        tuple[str, int], ...
    ] = ()  # how many of them are of which node pool, most first, where that is known


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A pending pod and its obstacles, those of the nodes that came nearest first."""

    pod: PodRef
    summary: str
    obstacles: tuple[Obstacle, ...] = ()
    is_undecided: bool = False  # the budget ended before the answer was known on every node
    # Claims only this pod uses, whose devices keep it from nodes it could try.
    holding: tuple[ClaimRef, ...] = ()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One decision about all pending pods."""

    placements: tuple[Placement, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    nominations: tuple[Nomination, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    promises: tuple[Promise, ...] = ()
    queues: dict[
        str, queues.QueueStatus
    ] = {}  # the numbers it was decided with, where there are queues
    wake_at: Instant | None = None  # when time alone would change the answer

    @property
    def undecided(self) -> int:
        """How many pods are pending only because the budget ended."""
        return sum(refusal.is_undecided for refusal in self.refusals)


def pod_ref(pod: pods.Pod) -> PodRef:
    """The reference to a pod."""
    return PodRef(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)
