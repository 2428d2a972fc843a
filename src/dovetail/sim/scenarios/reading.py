"""Scenarios as they are written: one JSON object a line, each field with its unit, checked as far as others need it.

Given bytes. Raises InputError with the place and the field. Never makes objects, never decides.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Final, Literal

import msgspec

from dovetail import errors
from dovetail.model import durations

SCHEMA: Final = "scenario/1"

# Of a node, and of all together: each is a device in memory, so a slip of the pen must not take all of it.
MAX_GPUS: Final = 10_000
MAX_CYCLES: Final = 1_000  # of either kind; each is decided whole, and kept
Count = Annotated[int, msgspec.Meta(ge=0)]
Amount = Annotated[float, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=-durations.LONGEST_SECONDS, le=durations.LONGEST_SECONDS)]
Runtime = Annotated[float, msgspec.Meta(ge=0, le=durations.LONGEST_SECONDS)]
Strategy = Literal["binpack", "spread", "none"]


class State(StrEnum):
    """Where a pod stands."""

    PENDING = "pending"
    GATED = "gated"
    BOUND = "bound"  # decided, starts now
    RUNNING = "running"
    NOMINATED = "nominated"  # has a node to come, and waits for pods there to end
    TERMINATING = "terminating"
    STUCK = "terminating_stuck"  # holds its node, and nobody may count on its end
    SUCCEEDED = "succeeded"
    FAILED = "failed"


PLACED: Final = frozenset({State.BOUND, State.RUNNING, State.NOMINATED})
HOLDING: Final = frozenset({State.BOUND, State.RUNNING, State.TERMINATING, State.STUCK})  # a node's room and devices


class Action(StrEnum):
    """The steps a run may consist of."""

    ALLOCATE = "allocate"
    CONSOLIDATION = "consolidation"
    RECLAIM = "reclaim"
    PREEMPT = "preempt"
    STALE = "stale_gang_eviction"


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """How often to decide, and by which steps."""

    mode: Literal["single", "cycles"]
    actions: tuple[Action, ...] = tuple(Action)
    cycles_until: Annotated[int, msgspec.Meta(ge=1, le=MAX_CYCLES)] = 1
    cycles_stable: Annotated[int, msgspec.Meta(ge=0, le=MAX_CYCLES)] = 0


class NodeStrategy(msgspec.Struct, frozen=True, kw_only=True):
    """Which nodes are liked better, for pods with and without GPUs."""

    gpu: Strategy = "binpack"
    cpu: Strategy = "binpack"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator would set."""

    node_strategy: NodeStrategy = NodeStrategy()
    device_strategy: Strategy = "binpack"
    consolidation_max_victims: Count | None = None
    reclaim_may_move_victims: bool = True
    reclaim_saturation_multiplier: Amount = 1.0
    usage_weight_k: Amount = 1.0
    stale_grace_s: Seconds = 0
    quota_enforced: bool = True


class Gpus(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs of a node, all alike."""

    count: Annotated[int, msgspec.Meta(ge=0, le=MAX_GPUS)] = 0
    memory_mib: Annotated[int, msgspec.Meta(ge=1)] = 100  # of each
    mig: Literal["none", "single", "mixed"] = "none"


class Zone(msgspec.Struct, frozen=True, kw_only=True):
    """A NUMA zone: what it has, and what is free of it as the scenario begins."""

    id: str
    allocatable: dict[str, Amount] = {}
    available: dict[str, Amount] = {}


class Numa(msgspec.Struct, frozen=True, kw_only=True):
    """How a node's kubelet aligns."""

    policy: str = "none"
    scope: str = "container"
    zones: tuple[Zone, ...] = ()


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A machine: cpu in cores, memory in bytes, everything else in pieces."""

    name: str
    labels: dict[str, str] = {}
    allocatable: dict[str, Amount] = {}
    gpu: Gpus = Gpus()
    numa: Numa | None = None


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """Label keys from the widest level to the narrowest."""

    name: str
    levels: tuple[str, ...] = ()


class DeviceClass(msgspec.Struct, frozen=True, kw_only=True):
    """A class of devices; every one selects any device."""

    name: str
    gpu: bool = False


class DeviceSlice(msgspec.Struct, frozen=True, kw_only=True):
    """Devices a driver publishes for a node."""

    name: str
    node: str
    pool: str
    gpu: bool = False
    devices: tuple[str, ...] = ()


class HeldDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device a claim holds."""

    pool: str
    device: str


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim pods name: so many devices of one node."""

    name: str
    device_class: str
    count: Annotated[int, msgspec.Meta(ge=1)] = 1
    gpu: bool = False
    queue: str | None = None
    allocated: tuple[HeldDevice, ...] = ()
    reserved_for: tuple[str, ...] = ()
    other_consumers: Count = 0


class PerResource(msgspec.Struct, frozen=True, kw_only=True):
    """An amount of each resource; null is unlimited."""

    gpu: Amount | None = None
    cpu: Amount | None = None
    memory: Amount | None = None


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """How much a queue counts when what nobody is due is shared out."""

    gpu: Amount = 1
    cpu: Amount = 1
    memory: Amount = 1


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A share of the cluster. GPUs in GPUs, cpu in cores, memory in bytes."""

    name: str
    parent: str | None = None
    priority: int = 0
    creation_order: Count = 0
    quota: PerResource = PerResource()
    limit: PerResource = PerResource()
    over_quota_weight: Weights = Weights()
    reclaim_min_runtime_s: Runtime = 0
    preempt_min_runtime_s: Runtime = 0


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """Where pods want to be together."""

    topology: str = ""
    required: str | None = None
    preferred: str | None = None


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a job's tree."""

    name: str
    parent: str | None = None
    kind: Literal["pods", "groups"] = "pods"
    min: Count = 1
    topology: Wish | None = None


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod asks of a node: whole GPUs, or a part of some, or slices."""

    cpu: Amount = 0
    memory: Amount = 0
    gpu: Count = 0
    gpu_fraction: Amount | None = None
    gpu_memory_mib: Count | None = None
    gpu_devices: Annotated[int, msgspec.Meta(ge=1)] = 1
    mig: dict[str, Count] = {}

    @property
    def is_share(self) -> bool:
        """Whether it wants a part of GPUs others may use as well."""
        return self.gpu_fraction is not None or self.gpu_memory_mib is not None


class PodTerm(msgspec.Struct, frozen=True, kw_only=True):
    """Other pods by label, and what counts as together."""

    topology_key: str
    match_labels: dict[str, str] = {}


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of a job."""

    name: str
    group: str = "default"
    request: Request = Request()
    state: State
    node: str | None = None
    devices: tuple[str, ...] = ()  # of GPUs it shares: names that mean something on its node only
    labels: dict[str, str] = {}
    claims: tuple[str, ...] = ()
    allowed_nodes: tuple[str, ...] | None = None
    affinity: PodTerm | None = None
    anti_affinity: PodTerm | None = None
    order_priority: int | None = None
    qos: str = ""
    legacy_mig: bool = False
    missing_volume_claims: bool | int | tuple[str, ...] = False
    numa_placement: dict[str, dict[str, Amount]] = {}


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that start together or not at all. Times in seconds before the scenario begins."""

    name: str
    queue: str = ""
    priority: int = 0
    preemptible: bool = True
    age_s: Seconds = 0
    started_s_ago: Seconds | None = None
    may_evict_after_s: Runtime = 0
    stale_for_s: Runtime | None = None
    stale_grace_s: Seconds | None = None  # negative: never
    after_eviction: Literal["requeued", "stays_terminating"] = "requeued"
    min_groups: Count = 1
    groups: tuple[Group, ...] = (Group(name="default"),)
    topology: Wish | None = None
    pods: tuple[Pod, ...] = ()


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster, what waits in it, and how to decide about it. What is expected of it is no part of it."""

    id: str
    schema: str = SCHEMA
    area: str = ""
    tags: tuple[str, ...] = ()
    run: Run
    settings: Settings = Settings()
    nodes: tuple[Node, ...] = ()
    topologies: tuple[Topology, ...] = ()
    device_classes: tuple[DeviceClass, ...] = ()
    device_slices: tuple[DeviceSlice, ...] = ()
    claims: tuple[Claim, ...] = ()
    queues: tuple[Queue, ...] = ()
    jobs: tuple[Job, ...] = ()


_DECODER: Final = msgspec.json.Decoder(Scenario, strict=False)  # 2.0 is as good as 2
_CHOICES: Final = {"state": tuple(State), "actions": tuple(Action), "mode": ("single", "cycles")}
_FIELD: Final = re.compile(r"\.(?P<name>\w+)(?:\[[^\]]*\])*`$")


def read(line: bytes, *, place: str) -> Scenario:
    """The scenario a line holds. Raises InputError naming the place and the field."""
    try:
        scenario = _DECODER.decode(line)
    except msgspec.ValidationError as error:
        raise errors.InputError(f"{place}: {error}{_choices(str(error))}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise errors.InputError(f"{place}: not JSON: {error}") from None
    if scenario.schema != SCHEMA:
        raise errors.InputError(f"{place}: schema: expected {SCHEMA!r}, got {scenario.schema!r}")
    if problem := _problem(scenario):
        raise errors.InputError(f"{place}: {problem}")
    return scenario


def _choices(message: str) -> str:
    """The words a field may have, where the message complains of another."""
    field = _FIELD.search(message)
    known = _CHOICES.get(field["name"]) if field and "enum value" in message else None
    return f"; expected one of {', '.join(known)}" if known else ""


def _problem(scenario: Scenario) -> str | None:
    """The first reference that leads nowhere, name that stands for two, or amount nobody meant."""
    nodes = {node.name for node in scenario.nodes}
    if (gpus := sum(node.gpu.count for node in scenario.nodes)) > MAX_GPUS:
        return f"nodes: {gpus} GPUs together; at most {MAX_GPUS}"
    for kind in ("nodes", "topologies", "device_classes", "claims", "queues", "jobs"):
        if twice := _twice([one.name for one in getattr(scenario, kind)]):
            return f"{kind}: two are named {twice!r}"
    if twice := _twice([pod.name for job in scenario.jobs for pod in job.pods]):
        return f"jobs: two pods are named {twice!r}"
    for at, job in enumerate(scenario.jobs):
        groups = {group.name for group in job.groups}
        if twice := _twice([group.name for group in job.groups]):
            return f"jobs[{at}].groups: two are named {twice!r}"
        for index, pod in enumerate(job.pods):
            field = f"jobs[{at}].pods[{index}]"
            if pod.group not in groups:
                return f"{field}.group: job {job.name!r} has no group {pod.group!r}"
            if pod.state in HOLDING and pod.node not in nodes:
                return f"{field}.node: a {pod.state} pod needs a node; there is no {pod.node!r}"
    return _device_problem(scenario, nodes)


def _device_problem(scenario: Scenario, nodes: set[str]) -> str | None:
    """Devices that are nowhere. Claims and classes that are not there are no problem: whoever names them waits."""
    devices = {(one.pool, device) for one in scenario.device_slices for device in one.devices}
    for at, one in enumerate(scenario.device_slices):
        if one.node not in nodes:
            return f"device_slices[{at}].node: there is no node {one.node!r}"
    for at, claim in enumerate(scenario.claims):
        for held in claim.allocated:
            if (held.pool, held.device) not in devices:
                return f"claims[{at}].allocated: pool {held.pool!r} has no device {held.device!r}"
    return None


def _twice(names: list[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
