"""The records of GPU accounting, as history stores them and as cost, right-sizing and the pages read them.

Times are integer milliseconds since 1970 in UTC; `end` is exclusive, and None while a record is still open. Shares are
integer millionths of one GPU (micro-GPU), so that sums are exact. Plain data: never reads a clock, never stores.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

MICRO_GPU: Final = 1_000_000  # one whole GPU
MILLISECONDS_PER_HOUR: Final = 3_600_000

Millis: TypeAlias = int


class Form(StrEnum):
    """In which form a GPU is allocated."""

    WHOLE = "whole"
    MIG = "mig"
    SHARE = "share"  # of consumable capacity, or by memory
    REPLICA = "replica"  # time-slicing or MPS
    COUNTED = "counted"  # nvidia.com/gpu and its relatives: the API does not say which device


class GapSource(StrEnum):
    """Which source of records was silent."""

    API = "api"  # nothing watched the cluster
    METRICS = "metrics"  # no samples


class Owner(msgspec.Struct, frozen=True, gc=False):
    """The work that holds or waits for GPUs, as costs are grouped by. Labels are those of the pod."""

    namespace: str
    pod: str
    pod_uid: str
    controller_kind: str = ""
    controller: str = ""
    queue: str = ""
    labels: dict[str, str] = {}


class Asset(msgspec.Struct, frozen=True, gc=False):
    """One GPU while it was there; or all GPUs of a node that only counts them, with their number."""

    asset: str  # the GPU's uuid, else driver/pool/device; node/resource where GPUs are only counted
    node: str
    product: str  # as published: "NVIDIA H100 80GB HBM3"
    start: Millis
    end: Millis | None = None
    count: int = 1
    memory_bytes: int = 0
    pool: str = ""  # of nodes
    is_spot: bool = False
    labels: dict[
        str, str
    ] = {}  # of the node, those that prices may name: instance type, region, zone


class Allocation(msgspec.Struct, frozen=True, gc=False):
    """A part of an asset while one pod held it. A claim that several pods share is split between them."""

    allocation: str  # unique: claim uid, request, device and pod uid; or pod uid and resource
    asset: str
    node: str
    micro_gpu: int
    form: Form
    owner: Owner
    start: Millis
    end: Millis | None = None
    profile: str = ""  # of a MIG slice: "1g.10gb"
    claim: str = ""  # name; its namespace is the owner's
    memory_bytes: int = 0  # that the allocation may use; 0 if unknown


class Usage(msgspec.Struct, frozen=True, gc=False):
    """What was measured of one allocation, or of a whole asset, over a short time."""

    asset: str
    allocation: str  # empty: of the asset as a whole
    start: Millis
    end: Millis
    # The mean share of the time, or of the cores, in use: in millionths of what is allocated.
    busy_micro: int | None = None
    memory_bytes: int | None = None  # the largest seen
    energy_millijoules: int | None = None
    samples: int = 1
    tensor_micro: int | None = None  # mean activity of the tensor pipe, as busy_micro
    dram_micro: int | None = None  # mean activity of the memory interface, as busy_micro
    # The exact sums of the same times milliseconds, where rolled-up samples have a mean that is no integer.
    busy_micro_ms: int | None = None
    tensor_micro_ms: int | None = None
    dram_micro_ms: int | None = None


class Waiting(msgspec.Struct, frozen=True, gc=False):
    """A pod that waited for GPUs."""

    owner: Owner
    micro_gpu: int
    start: Millis
    end: Millis | None = None
    reason: str = ""


class Unusable(msgspec.Struct, frozen=True, gc=False):
    """A free part of an asset that no work of the observed mix could use: fragmented, tainted or unhealthy."""

    asset: str
    node: str
    micro_gpu: int
    start: Millis
    end: Millis | None = None
    why: str = "fragmented"


class Promise(msgspec.Struct, frozen=True, gc=False):
    """The start that the scheduler had promised to a gang, while that promise was in force.

    A promise that moved is followed by one with the start that was promised before. Without a start the earlier one was
    lost, and no other is known.
    """

    gang: str  # namespace/name
    owner: Owner  # of the first pod that was promised a place
    start: Millis
    end: Millis | None = None
    promised_start: Millis | None = None
    moved_from: Millis | None = None  # the start promised before, if that was earlier
    cause: str = ""  # why it moved
    nodes: tuple[str, ...] = ()


class Decision(msgspec.Struct, frozen=True, gc=False):
    """Something the scheduler did with a pod: started it, or made it yield, to whom and by which rule."""

    at: Millis
    kind: str
    owner: Owner
    node: str = ""
    rule: str = ""
    in_favour_of: str = ""
    detail: str = ""


class Gap(msgspec.Struct, frozen=True, gc=False):
    """A time about which a source knows nothing; figures that touch it are partial."""

    source: GapSource
    start: Millis
    end: Millis | None = None
    why: str = ""
    subject: str = ""  # a node or an asset; empty: all


class OutOfMemory(msgspec.Struct, frozen=True, gc=False):
    """A program that did not get the GPU memory it asked for, as its pod reported it."""

    at: Millis
    owner: Owner


class PriceList(msgspec.Struct, frozen=True, gc=False):
    """The prices that were in force: the document as the administrator wrote it, under its name."""

    name: str
    document: str
    start: Millis
    end: Millis | None = None


class Records(msgspec.Struct, frozen=True):
    """Everything about one window, as a reader of history returns it. Records reach beyond the window's edges."""

    assets: tuple[Asset, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    usage: tuple[Usage, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    unusable: tuple[Unusable, ...] = ()
    promises: tuple[Promise, ...] = ()
    decisions: tuple[Decision, ...] = ()
    gaps: tuple[Gap, ...] = ()
    out_of_memory: tuple[OutOfMemory, ...] = ()
    prices: tuple[PriceList, ...] = ()
