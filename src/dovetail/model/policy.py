"""How to decide, and how long to think: weights of the score, memory on or off, steps allowed. Data only.

A budget counts steps, never seconds, so that the same input gives the same plan on any machine.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

DEFAULT_SEARCH_STEPS: Final = 200_000
# Measured on 600 worlds made to be hard, two busy cores: 2,000 steps take 50 ms at most, 20,000 take 280 ms and decide
# five more of them. A step costs 7 microseconds as a rule, 25 at worst.
LIVE_SEARCH_STEPS: Final = 2_000
LIVE_KIND_STEPS: Final = 30_000
# A cycle with queues holds the event loop. Measured: a pod that starts takes 120 to 165 microseconds, and the hardest
# mixes of pending, running and evicted work 10 microseconds a step; a quarter of a second for either of these.
LIVE_PODS: Final = 1_500
LIVE_STEPS: Final = 20_000
# Units of what selectors cost: 0.9 to 1.2 microseconds each, measured on a busy core. A decision ends with the pod that
# spends the last of them, so that it takes a quarter of a second at most, and a tenth as a rule.
LIVE_CEL_COST: Final = 100_000
LIVE_CEL_COST_TOTAL: Final = 200_000
LIVE_CEL_COST_EVER: Final = (
    20_000_000  # a short selector that reads another value on each of a million devices
)

MAX_WEIGHT: Final = 1_000_000_000
_WEIGHT: Final = Meta(ge=0, le=MAX_WEIGHT)


class Weights(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """The weights of a node's score terms, in thousandths of a GPU; the lowest score wins."""

    # Thousandths of a GPU, as the score itself. The docstring and the descriptions are part of the chart's schema.
    tight_fit_per_gpu: Annotated[
        int, _WEIGHT, Meta(description="cost of each whole GPU left free on the chosen node")
    ] = 10
    stranding: Annotated[
        int,
        _WEIGHT,
        Meta(description="cost of each GPU left free without the CPU or memory to use it"),
    ] = 1000
    # What people ordered outranks packing.
    second_choice: Annotated[
        int, _WEIGHT, Meta(description="cost of each step down a `firstAvailable` list")
    ] = 100_000
    gpu_node: Annotated[
        int, _WEIGHT, Meta(description="cost of a node with free GPUs for a pod that uses none")
    ] = 300
    # Research: decides near-ties only, prefers nodes with little cpu left.
    cpu_fit_per_128_cores: Annotated[
        int,
        _WEIGHT,
        Meta(description="cost of 128 cores left free, so that near-ties go to fuller nodes"),
    ] = 10
    preference: Annotated[
        int,
        _WEIGHT,
        Meta(description="cost per point of weight of each unmet node or pod affinity preference"),
    ] = 100
    soft_taint: Annotated[
        int,
        _WEIGHT,
        Meta(description="cost of each `PreferNoSchedule` taint that the pod does not tolerate"),
    ] = 5000
    soft_spread: Annotated[
        int,
        _WEIGHT,
        Meta(
            description="cost of the node that spreads a `ScheduleAnyway` constraint least evenly; "
            "the most even node costs nothing"
        ),
    ] = 5000
    image: Annotated[
        int, _WEIGHT, Meta(description="discount for a node that has every image of the pod")
    ] = 500

    unusable: Annotated[
        int,
        _WEIGHT,
        Meta(
            description="with `placement: expected-loss`, cost of each GPU that the work to expect "
            "can no longer use"
        ),
    ] = 1000
    repeated_fill_percent: Annotated[
        int,
        Meta(
            ge=0,
            le=100,
            description="part of that which assumes that one shape of pod is repeated until it no "
            "longer fits",
        ),
    ] = 5
    lost_pattern: Annotated[
        int,
        _WEIGHT,
        Meta(
            description="with `placement: expected-loss`, cost of each GPU of a good combination "
            "of shares that is spoilt"
        ),
    ] = 6000
    scarce_model: Annotated[
        int,
        _WEIGHT,
        Meta(
            description="with `placement: expected-loss`, cost of each GPU of a model that is "
            "needed wholly by pods which insist on it"
        ),
    ] = 1000
    scarce_place: Annotated[
        int,
        _WEIGHT,
        Meta(
            description="with `placement: expected-loss`, cost of each GPU of a lost place for a "
            "pod with several GPUs, if all such places are needed"
        ),
    ] = 100


class Placement(StrEnum):
    """What decides between nodes, besides preferences."""

    TIGHT_FIT = "tight-fit"  # the fullest node that suits
    EXPECTED_LOSS = "expected-loss"  # the least capacity lost to the work that is to be expected


class AllocationPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How much each kind of harm weighs, in thousandths of a GPU."""

    partition: int = (
        1000  # a place for a partition as large as its whole counter set that can no longer be used
    )
    sibling_ratio: int = (
        2  # a partition is not counted if another of its extent has so many times its places
    )
    whole: int = 1000  # a shareable device that is not in use yet
    oversize: int = 100  # a device as large as the largest that would do
    binding: int = 10  # a device that must be prepared before it can be used
    exact_states: int = (
        20_000  # beyond so many combinations the first fit in order of cost is taken
    )


class Ownership(msgspec.Struct, frozen=True, kw_only=True):
    """What is ours where other schedulers run, too: nothing else keeps two of them off the same devices."""

    node_labels: dict[str, str] = {}  # nodes that carry all of these
    node_taint: str = ""  # nodes with a taint of this key; pods must still tolerate it
    device_rules: tuple[
        str, ...
    ] = ()  # DeviceTaintRules that mark our devices: for us alone they are no taints


class Step(StrEnum):
    """The steps of a decision, in their order."""

    ALLOCATE = "allocate"  # start gangs in free room
    CONSOLIDATE = "consolidation"  # start gangs by moving others
    RECLAIM = "reclaim"  # start gangs by evicting work of queues above their share
    PREEMPT = "preempt"  # start gangs by evicting less important work of their queue
    STALE = "stale_gang_eviction"  # which gangs fell below their minimum for too long
    OVERTIME = "overtime"  # which gangs ran for longer than they may


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """How queues share, and which work is evicted for which.

    `configuration.Queues` offers a part of it to operators and takes its defaults from here.
    """

    enforces_quota: bool = True  # off: quota, limit and fair share are ignored
    # Gangs of a lower priority are preemptible, unless their workload sets it.
    preemptible_below: int = 2_000_000_000
    consolidation_victims: int | None = 16  # pods moved for one gang
    reclaim_may_move: bool = True  # a victim that fits elsewhere is moved instead of ended
    reclaim_multiplier: float = (
        1.0  # at least 1: how far below a sibling's saturation a reclaimer has to stay
    )
    usage_weight: float = (
        0.0  # how much past use lowers a queue's weight; 0: not at all, and none is kept
    )
    usage_half_life_seconds: int = 7 * 24 * 3600
    age_saturation_seconds: int = (
        7 * 24 * 3600
    )  # older gangs are equally old; as Slurm's PriorityMaxAge; 0: no such end
    stale_grace_seconds: int = 60
    claims_need_queue: bool = (
        False  # a shared claim for GPUs is usable only by the queue it is labelled for
    )
    gpu_prices: dict[
        str, int
    ] = {}  # thousandths of a GPU per unit of an extended resource, instead of the ledger's
    promises: int = 4  # gangs without room, first in line, that are promised a start; 0: none
    lost_work_cap_seconds: int = (
        24 * 3600
    )  # of work since the last checkpoint that an eviction is charged with


class ImageRequirements(StrEnum):
    """What becomes of a pod whose NVIDIA_REQUIRE_* variables a node's driver does not meet."""

    OFF = "off"  # they are not read
    WARN = "warn"  # it may start there, and an event says so
    REFUSE = "refuse"  # it does not start there


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator can set about decisions."""

    placement: Placement = Placement.TIGHT_FIT  # which terms decide between nodes
    weights: Weights = Weights()  # between nodes
    allocation: AllocationPolicy = AllocationPolicy()  # between the devices of a node
    ownership: Ownership = Ownership()  # without any rule everything is ours
    steps: tuple[Step, ...] = tuple(Step)  # those of a decision that are taken
    batch: Batch = Batch()  # between queues
    # Minor-version compatibility often carries what a requirement rules out, so the default only warns.
    image_requirements: ImageRequirements = ImageRequirements.WARN
    scheduler_names: tuple[
        str, ...
    ] = ()  # pods that name one of these; every pod where the list is empty
    memo: bool = True  # off: every node is evaluated again for every pod; the plan is the same


class Budget(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Steps that may be spent. What it cuts short is undecided, counted and shown, never a silent no.

    UNLIMITED is for offline questions; LIVE keeps decisions short, so that events are handled in time.
    """

    search_steps: int = DEFAULT_SEARCH_STEPS  # per pod and node, in the search for devices
    kind_steps: int | None = (
        None  # per pod, on all nodes together; the next cycle goes on where it ended
    )
    pods: int | None = None  # pods started in one cycle; what a gang needs at least is not divided
    steps: int | None = (
        None  # of every kind, in one cycle with queues or gangs; the next goes on where it ended
    )
    cel_cost: int | None = (
        None  # per pod, units of what its selectors cost; the next cycle goes on where it ended
    )
    cel_cost_total: int | None = None  # of all pods together
    cel_cost_ever: int | None = (
        None  # per pod, over all cycles until it has an answer; beyond it is refused
    )


DEFAULT_ALLOCATION: Final = AllocationPolicy()
DEFAULT: Final = Policy()
UNLIMITED: Final = Budget()
LIVE: Final = Budget(
    search_steps=LIVE_SEARCH_STEPS,
    kind_steps=LIVE_KIND_STEPS,
    pods=LIVE_PODS,
    steps=LIVE_STEPS,
    cel_cost=LIVE_CEL_COST,
    cel_cost_total=LIVE_CEL_COST_TOTAL,
    cel_cost_ever=LIVE_CEL_COST_EVER,
)
