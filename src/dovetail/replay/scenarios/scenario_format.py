"""The file format of scenarios: one JSON object per line, units in field names, references checked.

Given bytes. Raises InputError with the line and the field. Never builds objects, never decides.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Annotated, Final, Literal

import msgspec

from dovetail import errors
from dovetail.quantity import durations

SCHEMA: Final = "scenario/1"

# Of a node, and of all nodes together: each GPU is a device in memory, and a typo must not exhaust it.
MAX_GPUS: Final = 10_000
MAX_CYCLES: Final = 1_000  # of either kind; every plan is kept
Count = Annotated[int, msgspec.Meta(ge=0)]
Amount = Annotated[float, msgspec.Meta(ge=0)]
Seconds = Annotated[
    float, msgspec.Meta(ge=-durations.LONGEST_SECONDS, le=durations.LONGEST_SECONDS)
]
Runtime = Annotated[float, msgspec.Meta(ge=0, le=durations.LONGEST_SECONDS)]
Strategy = Literal["binpack", "spread", "none"]


class State(StrEnum):
    """The state of a pod."""

    PENDING = "pending"
    GATED = "gated"
    BOUND = "bound"  # decided, starts now
    RUNNING = "running"
    NOMINATED = "nominated"  # has a node, and waits for pods there to end
    TERMINATING = "terminating"
    STUCK = "terminating_stuck"  # holds its node, and may never end
    SUCCEEDED = "succeeded"
    FAILED = "failed"


PLACED: Final = frozenset({State.BOUND, State.RUNNING, State.NOMINATED})
# States of pods that hold resources and devices of their node.
HOLDING: Final = frozenset({State.BOUND, State.RUNNING, State.TERMINATING, State.STUCK})


class Action(StrEnum):
    """The steps a run may consist of."""

    ALLOCATE = "allocate"
    CONSOLIDATION = "consolidation"
    RECLAIM = "reclaim"
    PREEMPT = "preempt"
    STALE = "stale_gang_eviction"


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """How many cycles to run, and with which actions."""

    mode: Literal["single", "cycles"]
    actions: tuple[Action, ...] = tuple(Action)
    cycles_until: Annotated[int, msgspec.Meta(ge=1, le=MAX_CYCLES)] = 1
    cycles_stable: Annotated[int, msgspec.Meta(ge=0, le=MAX_CYCLES)] = 0


class NodeStrategy(msgspec.Struct, frozen=True, kw_only=True):
    """Which nodes are preferred, for pods with and without GPUs."""

    gpu: Strategy = "binpack"
    cpu: Strategy = "binpack"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an operator."""

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
    """A NUMA zone: its capacity, and what is free at the start."""

    id: str
    allocatable: dict[str, Amount] = {}
    available: dict[str, Amount] = {}


class Numa(msgspec.Struct, frozen=True, kw_only=True):
    """The topology manager of a node's kubelet."""

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
    """A device allocated to a claim."""

    pool: str
    device: str


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that pods name: a number of devices of one node."""

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
    """The queue's weight when capacity beyond all quotas is shared out."""

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


class TopologyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The topology levels that pods require or prefer to share."""

    topology: str = ""
    required: str | None = None
    preferred: str | None = None


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a job's tree."""

    name: str
    parent: str | None = None
    kind: Literal["pods", "groups"] = "pods"
    min: Count = 1
    topology: TopologyRequest | None = None


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The resources a pod requests: whole GPUs, parts of GPUs, or MIG slices."""

    cpu: Amount = 0
    memory: Amount = 0
    gpu: Count = 0
    gpu_fraction: Amount | None = None
    gpu_memory_mib: Count | None = None
    gpu_devices: Annotated[int, msgspec.Meta(ge=1)] = 1
    mig: dict[str, Count] = {}

    @property
    def is_share(self) -> bool:
        """Whether it requests parts of GPUs that other pods may share."""
        return self.gpu_fraction is not None or self.gpu_memory_mib is not None


class PodTerm(msgspec.Struct, frozen=True, kw_only=True):
    """Other pods by label, and the topology key that groups nodes."""

    topology_key: str
    match_labels: dict[str, str] = {}


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of a job."""

    name: str
    group: str = "default"
    request: Request = Request()
    state: State
    node: str | None = None
    devices: tuple[str, ...] = ()  # names of the GPUs it shares; a name is local to the node
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
    topology: TopologyRequest | None = None
    pods: tuple[Pod, ...] = ()


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster, its pending jobs, and the settings of the decision. The expected outcome is stored elsewhere."""

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

    @property
    def pods(self) -> tuple[Pod, ...]:
        """The pods of all jobs."""
        return tuple(pod for job in self.jobs for pod in job.pods)


_DECODER: Final = msgspec.json.Decoder(Scenario, strict=False)  # 2.0 is as good as 2
_CHOICES: Final = {"state": tuple(State), "actions": tuple(Action), "mode": ("single", "cycles")}
_FIELD: Final = re.compile(r"\.(?P<name>\w+)(?:\[[^\]]*\])*`$")


def read(line: bytes, *, place: str) -> Scenario:
    """The scenario of a line. Raises InputError with the place and the field."""
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
    """The allowed values of an enum field, if the message is about one."""
    field = _FIELD.search(message)
    choices = _CHOICES.get(field["name"]) if field and "enum value" in message else None
    return f"; expected one of {', '.join(choices)}" if choices else ""


def _problem(scenario: Scenario) -> str | None:
    """The first amount out of range, duplicate name, or reference to something that does not exist."""
    problems = itertools.chain(
        _amount_problems(scenario),
        _name_problems(scenario),
        _job_problems(scenario),
        _device_problems(scenario),
    )
    return next(problems, None)


def _amount_problems(scenario: Scenario) -> Iterator[str]:
    gpu_count = sum(node.gpu.count for node in scenario.nodes)
    if gpu_count > MAX_GPUS:
        yield f"nodes: {gpu_count} GPUs together; at most {MAX_GPUS}"


def _name_problems(scenario: Scenario) -> Iterator[str]:
    for kind in ("nodes", "topologies", "device_classes", "claims", "queues", "jobs"):
        for name in _duplicates(entry.name for entry in getattr(scenario, kind)):
            yield f"{kind}: two are named {name!r}"
    for name in _duplicates(pod.name for pod in scenario.pods):
        yield f"jobs: two pods are named {name!r}"


def _job_problems(scenario: Scenario) -> Iterator[str]:
    node_names = {node.name for node in scenario.nodes}
    for job_index, job in enumerate(scenario.jobs):
        for name in _duplicates(group.name for group in job.groups):
            yield f"jobs[{job_index}].groups: two are named {name!r}"

        group_names = {group.name for group in job.groups}
        for pod_index, pod in enumerate(job.pods):
            field = f"jobs[{job_index}].pods[{pod_index}]"
            if pod.group not in group_names:
                yield f"{field}.group: job {job.name!r} has no group {pod.group!r}"
            if pod.state in HOLDING and pod.node not in node_names:
                yield f"{field}.node: a {pod.state} pod needs a node; there is no {pod.node!r}"


def _device_problems(scenario: Scenario) -> Iterator[str]:
    """Devices that do not exist. Missing claims and classes are allowed: pods that name them stay pending."""
    node_names = {node.name for node in scenario.nodes}
    devices: set[tuple[str, str]] = set()
    for index, device_slice in enumerate(scenario.device_slices):
        if device_slice.node not in node_names:
            yield f"device_slices[{index}].node: there is no node {device_slice.node!r}"
        devices.update((device_slice.pool, device) for device in device_slice.devices)

    for index, claim in enumerate(scenario.claims):
        for allocated in claim.allocated:
            if (allocated.pool, allocated.device) not in devices:
                missing = f"pool {allocated.pool!r} has no device {allocated.device!r}"
                yield f"claims[{index}].allocated: {missing}"


def _duplicates(names: Iterable[str]) -> Iterator[str]:
    seen_names: set[str] = set()
    for name in names:
        if name in seen_names:
            yield name
        seen_names.add(name)
