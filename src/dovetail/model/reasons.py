"""Why something is refused, in numbers: one vocabulary from the allocator to the messages people read.

A reason holds what was needed, what was there and a sentence. Its code also says which changes in the
cluster may help, so that the scheduling queue knows which events wake the pod. Never decides anything.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Final

import msgspec


class Change(Enum):
    """Kinds of changes that may let a refused pod start: each reason code below names those that
    may help, and `live/queue/queueing_hints.py` says which event is which kind of change.
    """

    ITSELF = "the pod"  # its spec, labels, gates or claims differ
    ITS_CLAIMS = "the pods that name it"  # a claim or a volume claim that the pod names differs
    VOLUMES = "pods that use volumes"  # a volume, storage class or storage driver differs
    NEIGHBOURS = "pods that wait because of where other pods are, or are not"
    SHARES = "all pods, where they are decided about together"  # what queues, gangs, promises count
    CAPACITY = "all pods"  # a pod ends, or a node, device, rule, queue or gang differs
    TIME = "no pod"  # no event: the scheduler retries by itself, at a time that the plan names


_DEVICES: Final = (Change.CAPACITY, Change.ITS_CLAIMS)  # a shared claim may get devices elsewhere
_VOLUMES: Final = (Change.VOLUMES, Change.ITS_CLAIMS)
_QUEUES: Final = (Change.CAPACITY, Change.SHARES)


class ReasonCode(StrEnum):
    """What stood in the way, and which changes may remove it. Extended as more rooms refuse things."""

    _value_: str
    helped_by: frozenset[Change]

    def __new__(cls, value: str, *helped_by: Change) -> ReasonCode:
        """The code as text, with the changes that wake a pod refused for it."""
        code = str.__new__(cls, value)
        code._value_ = value
        code.helped_by = frozenset(helped_by)
        return code

    NO_DEVICES = "NoDevices", *_DEVICES  # the node shows no device at all
    CLASS = "ClassMatchesTooFew", *_DEVICES
    SELECTOR = "SelectorMatchesTooFew", *_DEVICES
    # A selector could not be evaluated on some devices, which then do not match:
    CEL_ERROR = "CelError", *_DEVICES
    # No device offers such an amount, empty or not:
    CAPACITY_POLICY = "CapacityNotOffered", *_DEVICES
    NOT_OWNED = "NotOwned", *_DEVICES  # nodes or devices that belong to another scheduler
    TAINT = "DevicesTainted", *_DEVICES
    IN_USE = "DevicesInUse", *_DEVICES
    # Their pod was removed by force and may still run:
    QUARANTINE = "DevicesQuarantined", *_DEVICES, Change.TIME
    COUNTERS = "CountersExhausted", *_DEVICES
    CAPACITY = "CapacityExhausted", *_DEVICES
    CONSTRAINT = "ConstraintUnmet", *_DEVICES
    COMBINATION = "RequestsCompete", *_DEVICES  # each request fits alone, together they do not
    LIMIT = "TooManyDevices", *_DEVICES
    ALL_DEVICES = "NotAllDevicesFree", *_DEVICES
    INVALID_POOL = "InvalidPool", *_DEVICES
    INCOMPLETE_POOL = "IncompletePool", *_DEVICES
    INPUT = "InvalidInput", *_DEVICES  # the claim or its class cannot be understood
    # Evaluating them takes more than any pod may spend:
    SELECTOR_COST = "SelectorsTooExpensive", *_DEVICES
    BUDGET = "SearchUnfinished", Change.TIME
    TO_BE_CONTINUED = "NodesLeftToJudge", Change.TIME  # the next cycle goes on where this one ended
    # About a pod and its nodes, from schedule/:
    OTHER_NODE = "OtherNodeNamed", Change.CAPACITY, Change.ITSELF
    CORDONED = "NodeUnschedulable", Change.CAPACITY
    NODE_TAINT = "NodeTainted", Change.CAPACITY, Change.ITSELF
    NODE_LABELS = "NodeLabelsDiffer", Change.CAPACITY, Change.ITSELF
    NODE_FEATURES = "NodeFeaturesMissing", Change.CAPACITY
    POD_AFFINITY = "PodAffinityUnmet", Change.CAPACITY, Change.NEIGHBOURS
    POD_ANTI_AFFINITY = "PodAntiAffinityUnmet", Change.CAPACITY, Change.NEIGHBOURS
    SPREAD = "TopologySpreadUnmet", Change.CAPACITY, Change.NEIGHBOURS
    SPREAD_LABEL = "TopologyLabelMissing", Change.CAPACITY  # the node says nothing about its place
    HOST_PORT = "HostPortInUse", Change.CAPACITY
    NOMINATED = "HeldForNominatedPod", Change.CAPACITY, Change.NEIGHBOURS
    # The pod would still run at the time another gang was promised to start:
    PROMISED = "KeptForPromise", *_QUEUES, Change.TIME
    # No node could serve it, were all of them empty:
    NEVER = "FitsNoNode", Change.CAPACITY, Change.ITSELF
    ROOM = "TooLittleRoom", Change.CAPACITY  # cpu, memory, pods, extended resources
    CLAIM_ELSEWHERE = "ClaimAllocatedElsewhere", *_DEVICES
    CLAIM_MISSING = "ClaimMissing", Change.ITS_CLAIMS
    CLAIM_NOT_MADE = "ClaimNotMadeYet", Change.ITS_CLAIMS, Change.ITSELF
    CLAIM_DELETING = "ClaimBeingDeleted", Change.ITS_CLAIMS
    CLAIM_RETURNING = "ClaimBeingGivenBack", Change.ITS_CLAIMS
    CLAIM_NOT_OURS = "ClaimOfAnotherPod", Change.ITS_CLAIMS
    CLAIM_UNREADABLE = "ClaimUnreadable", Change.ITS_CLAIMS
    CLAIM_FULL = "ClaimReservedByTooMany", Change.ITS_CLAIMS
    VOLUME_MISSING = "VolumeMissing", *_VOLUMES  # the claim, or the volume it has
    VOLUME_DELETING = "VolumeBeingDeleted", *_VOLUMES
    VOLUME_NOT_OURS = "VolumeOfAnotherPod", *_VOLUMES
    VOLUME_UNBOUND = "VolumeNotBound", *_VOLUMES  # and its binding does not wait for the pod
    VOLUME_NODE = "VolumeElsewhere", *_VOLUMES, Change.CAPACITY
    VOLUME_NONE = "NoVolumeFits", *_VOLUMES
    VOLUME_SPACE = "StorageExhausted", *_VOLUMES
    VOLUME_LIMIT = "TooManyVolumes", *_VOLUMES, Change.CAPACITY
    VOLUME_DRIVER = "VolumeDriverMissing", *_VOLUMES, Change.CAPACITY
    VOLUME_IN_USE = "VolumeInUse", *_VOLUMES, Change.CAPACITY
    GATED = "SchedulingGated", Change.ITSELF
    ANNOTATION = "AnnotationUnsupported", Change.ITSELF  # it must not be ignored
    # A device plugin's GPUs are not those that an annotation allows:
    GPU_CHOICE = "GpusNotAllowed", Change.CAPACITY, Change.ITSELF
    # The node's driver is not one that the variables NVIDIA_REQUIRE_* of the pod ask for:
    IMAGE_REQUIREMENTS = "ImageRequirementsUnmet", Change.CAPACITY, Change.ITSELF
    NO_NODES = "NoNodes", Change.CAPACITY
    # About queues and gangs:
    QUEUE_LIMIT = "QueueLimitReached", *_QUEUES
    QUEUE_QUOTA = "NonPreemptibleOverQuota", *_QUEUES
    POWER_CAP = "PowerCapReached", *_QUEUES  # of a rack, or another level of a Topology
    # Other queues use more than their quota, and their pods cannot be evicted:
    QUEUE_BEHIND = "QueueBelowQuota", *_QUEUES
    QUEUE_SHARE = "QueueAtFairShare", *_QUEUES
    # It does not exist, is not for this namespace, or is broken:
    QUEUE_UNUSABLE = "QueueUnusable", *_QUEUES
    GANG_INCOMPLETE = "GangIncomplete", *_QUEUES  # too few pods are there to reach its minimum
    GANG_WAITS = "GangCannotStart", *_QUEUES  # another member, or all together, found no place
    TOPOLOGY = "TopologyUnmet", *_QUEUES
    CLAIM_QUEUE = "ClaimOfAnotherQueue", *_DEVICES
    TOO_YOUNG = "MayNotEvictYet", Change.TIME


class Reason(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """One obstacle: which, for whom, how much was needed, how much was there."""

    code: ReasonCode
    subject: str = ""
    need: int | None = None
    have: int | None = None
    detail: str = ""
    pool: str = ""  # the node's, where something about the node itself stood in the way
    offered: int | None = None  # devices of the request's class that the node has, in use or not

    def __str__(self) -> str:
        where = f"{self.subject}: " if self.subject else ""
        text = f"{where}{self.detail or self.code.value}"
        if self.need is None or self.have is None:
            return text
        return f"{text} (needs {self.need}, has {self.have})"
