"""The shape of the answer of `dovetail stack mig`: proposals per node, acceptance before and after. Plain data.

Amounts of GPUs and GPU-hours have at most three decimals. Lists are sorted, so that the same input gives the same
document.
"""

from __future__ import annotations

import msgspec


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the waiting work starts now, by the scheduler's engine, without evictions."""

    pods: int  # that start
    of: int  # that wait for GPUs
    names: tuple[str, ...]  # of those that start


class BoardChange(msgspec.Struct, frozen=True, kw_only=True):
    """The partitions of one GPU before and after; none: it is whole. Equal where it stays as it is."""

    index: int
    before: tuple[str, ...] | None  # None: nothing says which GPU of the node has which
    after: tuple[str, ...]


class Move(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod that must leave a GPU first, where it goes on, and what that costs."""

    pod: str
    node: str
    to: str
    gpu_hours: float


class Proposal(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The changes of one node, which are carried out together."""

    node: str
    gpu_type: str
    boards: tuple[BoardChange, ...]  # all of the node: a configuration is for a whole node
    moves: tuple[Move, ...]
    gpu_hours: float  # moves, and the GPUs while they are partitioned
    starts: tuple[str, ...]  # waiting pods that start with this and the proposals before it
    config: str  # name of the configuration in the MIG manager's file
    has_manager: bool  # whether a MIG manager serves the node


class Passed(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that are not partitioned, and why."""

    why: str
    nodes: tuple[str, ...]


class PartitionPlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer."""

    before: Acceptance
    after: Acceptance
    demand: dict[
        str, int
    ]  # partitions that waiting pods ask for, by profile; `whole` for whole GPUs
    proposals: tuple[Proposal, ...]
    on_demand: tuple[str, ...]  # nodes whose GPUs are partitioned for each claim: nothing to write
    passed: tuple[Passed, ...]
    gpu_hours: float
    cut_short: int  # nodes that were not tried: the number of trials is bounded
