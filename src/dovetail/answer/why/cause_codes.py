"""The causes that keep a pod from starting: a stable code each, its class, and its row in the field's list of causes.

The class says whose move it is: config (the author of an object), capacity (others hold what is needed), quota (a limit
is reached), policy (a rule makes it wait), platform (something is broken or missing). Plain data.
"""

from __future__ import annotations

from enum import StrEnum


class CauseClass(StrEnum):
    """Whose move it is."""

    CONFIG = "config"
    CAPACITY = "capacity"
    QUOTA = "quota"
    POLICY = "policy"
    PLATFORM = "platform"


class CauseCode(StrEnum):
    """A cause, with its class and its row in the list of 25 known causes; row 0 is ours alone."""

    _value_: str
    cause_class: CauseClass
    row: int

    def __new__(cls, value: str, cause_class: CauseClass, row: int) -> CauseCode:
        """The code as text."""
        code = str.__new__(cls, value)
        code._value_ = value
        code.cause_class = cause_class
        code.row = row
        return code

    # Room on nodes
    BUSY = "Busy", CauseClass.CAPACITY, 1  # cpu, memory, GPUs of a device plugin, pods
    FRAGMENTED = "Fragmented", CauseClass.CAPACITY, 1  # enough is free, but on no single node
    TOO_LARGE = "TooLargeForAnyNode", CauseClass.CONFIG, 1
    NOT_ADVERTISED = "ResourceNotAdvertised", CauseClass.PLATFORM, 2  # driver or plugin is absent
    RESOURCE_UNKNOWN = "ResourceUnknown", CauseClass.CONFIG, 2  # no node ever offers this name
    NO_NODES = "NoNodes", CauseClass.PLATFORM, 5
    # Rules about nodes
    TAINT = "UntoleratedTaint", CauseClass.CONFIG, 3
    TAKEN_OUT = "NodesTaintedForRepair", CauseClass.PLATFORM, 3  # unhealthy, under maintenance
    RESERVED = "NodesReservedByTaint", CauseClass.POLICY, 3  # idle ones, where its own are full
    NODE_LABELS = "NodeLabelsDiffer", CauseClass.CONFIG, 4
    NODE_NAME = "NodeNameUnknown", CauseClass.CONFIG, 7
    CORDONED = "NodesCordoned", CauseClass.PLATFORM, 5
    NOT_READY = "NodesNotReady", CauseClass.PLATFORM, 5
    NODE_FEATURES = "NodeFeaturesMissing", CauseClass.CONFIG, 9
    IMAGE_REQUIREMENTS = "ImageRequirementsUnmet", CauseClass.CONFIG, 0  # by its variables
    POOL = "NodesOfAnotherOwner", CauseClass.POLICY, 0  # another scheduler's nodes or devices
    # Rules about other pods
    POD_AFFINITY = "PodAffinityUnmet", CauseClass.CONFIG, 6
    POD_ANTI_AFFINITY = "PodAntiAffinityUnmet", CauseClass.CONFIG, 6
    KEPT_AWAY = "KeptAwayByOtherPods", CauseClass.CAPACITY, 6  # by their anti-affinity
    SPREAD = "TopologySpreadUnmet", CauseClass.CONFIG, 6
    HOST_PORT = "HostPortInUse", CauseClass.CAPACITY, 7
    # Volumes
    VOLUME_MISSING = "VolumeClaimMissing", CauseClass.CONFIG, 8
    VOLUME_UNBOUND = "VolumeNotBound", CauseClass.CONFIG, 8
    VOLUME_ELSEWHERE = "VolumeElsewhere", CauseClass.CONFIG, 8  # its zone or node has no room
    VOLUME_NONE = "NoVolumeFits", CauseClass.CONFIG, 8
    VOLUMES_TAKEN = "VolumesInUse", CauseClass.CAPACITY, 8  # there are some, all of them taken
    VOLUME_IN_USE = "VolumeInUse", CauseClass.CAPACITY, 8
    VOLUME_LIMIT = "TooManyVolumes", CauseClass.CAPACITY, 8
    VOLUME_DRIVER = "VolumeDriverMissing", CauseClass.PLATFORM, 8
    # Devices
    DEVICES_BUSY = "DevicesInUse", CauseClass.CAPACITY, 10
    DEVICES_FRAGMENTED = "DevicesFragmented", CauseClass.CAPACITY, 10
    DEVICES_TAINTED = "DevicesTainted", CauseClass.PLATFORM, 10
    DEVICES_QUARANTINED = "DevicesQuarantined", CauseClass.PLATFORM, 10
    NO_DEVICES = "NoDevicesPublished", CauseClass.PLATFORM, 2  # no driver publishes any
    CLASS_MATCHES_NONE = "ClassMatchesTooFew", CauseClass.CONFIG, 10
    SELECTOR = "SelectorMatchesTooFew", CauseClass.CONFIG, 10
    CAPACITY_NOT_OFFERED = "CapacityNotOffered", CauseClass.CONFIG, 10
    CONSTRAINT = "ConstraintUnmet", CauseClass.CONFIG, 10
    TOO_MANY_DEVICES = "MoreDevicesThanAnyNodeHas", CauseClass.CONFIG, 10
    CLASS_MISSING = "DeviceClassMissing", CauseClass.CONFIG, 11
    CEL_ERROR = "CelError", CauseClass.CONFIG, 11
    CLAIM_INVALID = "ClaimInvalid", CauseClass.CONFIG, 11
    POOL_INVALID = "ResourcePoolInvalid", CauseClass.PLATFORM, 11
    POOL_INCOMPLETE = "ResourcePoolIncomplete", CauseClass.PLATFORM, 11
    CLAIM_ELSEWHERE = "ClaimAllocatedElsewhere", CauseClass.CAPACITY, 11
    CLAIM_IN_USE = "ClaimInUse", CauseClass.CAPACITY, 11
    SEARCH_UNFINISHED = "SearchUnfinished", CauseClass.PLATFORM, 11
    CLAIM_MISSING = "ClaimMissing", CauseClass.CONFIG, 12
    TEMPLATE_MISSING = "ClaimTemplateMissing", CauseClass.CONFIG, 12
    CLAIM_NOT_MADE = "ClaimNotMade", CauseClass.PLATFORM, 12  # its controller does not run
    BINDING_CONDITIONS = "BindingConditionsPending", CauseClass.PLATFORM, 13
    # Rules about when
    GATED = "SchedulingGated", CauseClass.POLICY, 14
    GANG_INCOMPLETE = "GangIncomplete", CauseClass.POLICY, 15
    GANG_CANNOT_START = "GangCannotStart", CauseClass.CAPACITY, 15
    GANG_TOO_LARGE = "GangTooLarge", CauseClass.CONFIG, 15  # not even in an empty cluster
    TOPOLOGY = "TopologyUnmet", CauseClass.CAPACITY, 15
    TOPOLOGY_UNKNOWN = "TopologyUnknown", CauseClass.CONFIG, 15  # no such level or label
    TOPOLOGY_TOO_SMALL = "TopologyTooSmall", CauseClass.CONFIG, 15  # no domain could hold it, empty
    PREEMPTION_NEVER = "PreemptionForbidden", CauseClass.POLICY, 18
    PROMISED = "KeptForPromise", CauseClass.POLICY, 0
    TOO_YOUNG = "MayNotEvictYet", CauseClass.POLICY, 0
    POWER_CAP = "PowerCapReached", CauseClass.POLICY, 0
    SCHEDULER_ABSENT = "SchedulerAbsent", CauseClass.PLATFORM, 0  # it names one that does not run
    BEING_DELETED = "BeingDeleted", CauseClass.POLICY, 0
    ANNOTATION = "AnnotationUnsupported", CauseClass.CONFIG, 0
    # Queues
    QUEUE_LIMIT = "QueueLimitReached", CauseClass.QUOTA, 0
    QUEUE_QUOTA = "QueueQuotaReached", CauseClass.QUOTA, 0
    QUEUE_SHARE = "QueueAtFairShare", CauseClass.QUOTA, 0
    QUEUE_UNUSABLE = "QueueUnusable", CauseClass.CONFIG, 0
    # Other schedulers
    KUEUE_QUOTA = "KueueQuota", CauseClass.QUOTA, 16
    KUEUE_CONFIG = "KueueMisconfigured", CauseClass.CONFIG, 16
    KUEUE_POLICY = "KueueHolds", CauseClass.POLICY, 16
    KUEUE_TOPOLOGY = "KueueTopology", CauseClass.CAPACITY, 16
    KAI_CAPACITY = "KaiResources", CauseClass.CAPACITY, 17
    KAI_QUOTA = "KaiQuota", CauseClass.QUOTA, 17
    KAI_CONFIG = "KaiQueueMissing", CauseClass.CONFIG, 17
    OTHER_SCHEDULER = "OtherScheduler", CauseClass.CAPACITY, 1  # in the words of its message
    # What an API server refused, and what happened after the placement
    RESOURCE_QUOTA = "ResourceQuotaExceeded", CauseClass.QUOTA, 19
    ADMISSION_DENIED = "AdmissionDenied", CauseClass.POLICY, 19
    RUNTIME_CLASS_MISSING = "RuntimeClassMissing", CauseClass.CONFIG, 19
    NO_PODS = "NoPodsCreated", CauseClass.PLATFORM, 19  # by the controller of the workload
    OWNER_SUSPENDED = "OwnerSuspended", CauseClass.POLICY, 14
    KUBELET_REFUSED = "KubeletRefused", CauseClass.PLATFORM, 20
    PREPARE_FAILED = "DevicesNotPrepared", CauseClass.PLATFORM, 21
    SHARED_REQUEST = "SharedGpuRequestTooLarge", CauseClass.CONFIG, 22
    MIG_STATE = "MigConfigurationFailed", CauseClass.PLATFORM, 23
    MIG_PROFILE = "MigProfileAbsent", CauseClass.CONFIG, 23
    RUNTIME_FAILED = "ContainerRuntimeFailed", CauseClass.PLATFORM, 24
    IMAGE = "ImageNotPulled", CauseClass.PLATFORM, 24
    CUDA = "CudaTooOld", CauseClass.PLATFORM, 24  # the node's driver is older than the image needs
    SCALE_UP = "NoScaleUp", CauseClass.CAPACITY, 25


TABLE_NUMBER: dict[str, int] = {code.value: code.row for code in CauseCode}
