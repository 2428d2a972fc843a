"""Why something is refused, in numbers: one vocabulary from the allocator to the answers people read.

Given by whoever refuses; holds what was needed, what was there and a sentence. Never decides anything.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class ReasonCode(StrEnum):
    """What stood in the way. Extended as more rooms refuse things."""

    NO_DEVICES = "NoDevices"  # the node shows no device at all
    CLASS = "ClassMatchesTooFew"
    SELECTOR = "SelectorMatchesTooFew"
    CEL_ERROR = "CelError"  # a selector could not be evaluated on some devices: they do not match
    CAPACITY_POLICY = "CapacityNotOffered"  # no device offers such an amount, empty or not
    NOT_OWNED = "NotOwned"  # nodes or devices that belong to another scheduler
    TAINT = "DevicesTainted"
    IN_USE = "DevicesInUse"
    QUARANTINE = "DevicesQuarantined"  # their pod was removed by force and may still run
    COUNTERS = "CountersExhausted"
    CAPACITY = "CapacityExhausted"
    CONSTRAINT = "ConstraintUnmet"
    COMBINATION = "RequestsCompete"  # each request fits alone, together they do not
    LIMIT = "TooManyDevices"
    ALL_DEVICES = "NotAllDevicesFree"
    INVALID_POOL = "InvalidPool"
    INCOMPLETE_POOL = "IncompletePool"
    INPUT = "InvalidInput"  # the claim or its class cannot be understood
    SELECTOR_COST = "SelectorsTooExpensive"  # evaluating them takes more than any pod may spend
    BUDGET = "SearchUnfinished"
    TO_BE_CONTINUED = "NodesLeftToJudge"  # the next cycle goes on where this one ended
    # About a pod and its nodes, from schedule/:
    OTHER_NODE = "OtherNodeNamed"
    CORDONED = "NodeUnschedulable"
    NODE_TAINT = "NodeTainted"
    NODE_LABELS = "NodeLabelsDiffer"
    NODE_FEATURES = "NodeFeaturesMissing"
    POD_AFFINITY = "PodAffinityUnmet"
    POD_ANTI_AFFINITY = "PodAntiAffinityUnmet"
    SPREAD = "TopologySpreadUnmet"
    SPREAD_LABEL = "TopologyLabelMissing"  # the node says nothing about its place
    HOST_PORT = "HostPortInUse"
    NOMINATED = "HeldForNominatedPod"
    PROMISED = "KeptForPromise"  # the pod would still be there when somebody was promised to start
    NEVER = "FitsNoNode"  # no node could serve it, were all of them empty
    ROOM = "TooLittleRoom"  # cpu, memory, pods, extended resources
    CLAIM_ELSEWHERE = "ClaimAllocatedElsewhere"
    CLAIM_MISSING = "ClaimMissing"
    CLAIM_NOT_MADE = "ClaimNotMadeYet"
    CLAIM_DELETING = "ClaimBeingDeleted"
    CLAIM_RETURNING = "ClaimBeingGivenBack"
    CLAIM_NOT_OURS = "ClaimOfAnotherPod"
    CLAIM_UNREADABLE = "ClaimUnreadable"
    CLAIM_FULL = "ClaimReservedByTooMany"
    VOLUME_MISSING = "VolumeMissing"  # the claim, or the volume it has
    VOLUME_DELETING = "VolumeBeingDeleted"
    VOLUME_NOT_OURS = "VolumeOfAnotherPod"
    VOLUME_UNBOUND = "VolumeNotBound"  # and nobody waits for the pod before binding it
    VOLUME_NODE = "VolumeElsewhere"
    VOLUME_NONE = "NoVolumeFits"
    VOLUME_SPACE = "StorageExhausted"
    VOLUME_LIMIT = "TooManyVolumes"
    VOLUME_DRIVER = "VolumeDriverMissing"
    VOLUME_IN_USE = "VolumeInUse"
    GATED = "SchedulingGated"
    NO_NODES = "NoNodes"
    # About queues and gangs:
    QUEUE_LIMIT = "QueueLimitReached"
    QUEUE_QUOTA = "NonPreemptibleOverQuota"
    POWER_CAP = "PowerCapReached"  # of a rack, or whatever a Topology caps
    QUEUE_BEHIND = "QueueBelowQuota"  # behind work of others beyond their quota that cannot be made to yield
    QUEUE_SHARE = "QueueAtFairShare"
    QUEUE_UNUSABLE = "QueueUnusable"  # it does not exist, is not for this namespace, or is broken
    GANG_INCOMPLETE = "GangIncomplete"  # too few pods are there to reach its minimum
    GANG_WAITS = "GangCannotStart"  # another member, or all together, found no place
    TOPOLOGY = "TopologyUnmet"
    CLAIM_QUEUE = "ClaimOfAnotherQueue"
    TOO_YOUNG = "MayNotEvictYet"


class Reason(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """One obstacle: which, for whom, how much was needed, how much was there."""

    code: ReasonCode
    subject: str = ""
    need: int | None = None
    have: int | None = None
    detail: str = ""
    pool: str = ""  # the node's, where something about the node itself stood in the way

    def __str__(self) -> str:
        where = f"{self.subject}: " if self.subject else ""
        amounts = f" (needs {self.need}, has {self.have})" if self.need is not None and self.have is not None else ""
        return f"{where}{self.detail or self.code.value}{amounts}"
