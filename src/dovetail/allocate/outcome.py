"""The contract of an allocation attempt: a budget of steps in, one of four outcomes out.

The outcomes are devices, a proven refusal, a search cut short, or claims that cannot be served as written. Results,
cost terms and reasons are worked out on first access: most attempts are only compared with each other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

from dovetail.kubetypes.resource.claims import AllocationResult
from dovetail.model.reasons import Reason

DEFAULT_STEPS = 200_000


class Exhausted(Exception):
    """The steps are used up; the search has proved neither yes nor no."""


class Budget:
    """Counts the steps of one attempt. Steps, not seconds: the same question gets the same answer on any machine."""

    __slots__ = ("limit", "steps")

    def __init__(self, limit: int = DEFAULT_STEPS) -> None:
        self.limit = limit
        self.steps = 0

    def spend(self, steps: int = 1) -> None:
        """Spends steps; raises Exhausted once the limit is exceeded."""
        self.steps += steps
        if self.steps > self.limit:
            raise Exhausted

    def part(self, share: int) -> Budget:
        """A budget of one `share`-th of the remaining steps. The caller charges here what the part has spent."""
        return Budget((self.limit - self.steps) // share)


class Term(NamedTuple):
    """One part of the cost of an allocation, in thousandths of a GPU, and what it is for."""

    name: str
    milli_gpu: float
    sentence: str


class Allocated:
    """One result per claim, in the order of the claims, and the cost of the choice. Lower is better."""

    def __init__(
        self,
        *,
        results: Callable[[], tuple[AllocationResult, ...]],
        terms: Callable[[], tuple[Term, ...]],
        milli_gpu: float,
        preference: tuple[int, ...],
        steps: int,
    ) -> None:
        self._results = results
        self._terms = terms
        self.milli_gpu = milli_gpu
        # The firstAvailable entry that each such request got, 0 being the most preferred.
        self.preference = preference
        self.steps = steps

    @cached_property
    def results(self) -> tuple[AllocationResult, ...]:
        """What to write into the claims' status."""
        return self._results()

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """The cost in parts that add up to `milli_gpu`."""
        return self._terms()


class Refused:
    """The claims do not fit on this node, and that is proven."""

    def __init__(
        self,
        *,
        reasons: Callable[[], tuple[Reason, ...]],
        invalid_pools: tuple[str, ...],
        steps: int,
    ) -> None:
        self._reasons = reasons
        # Each "driver/pool: problem". If there are any, kube-scheduler reports an error of the node instead.
        self.invalid_pools = invalid_pools
        self.steps = steps

    @cached_property
    def reasons(self) -> tuple[Reason, ...]:
        """Why, request by request, in numbers."""
        return self._reasons()


class Undecided(NamedTuple):
    """The budget ran out: neither yes nor no."""

    steps: int


class Failed(NamedTuple):
    """The claims cannot be served as written."""

    reason: Reason
    is_local: bool = False  # because of this node's pools: another node may serve them

    @property
    def message(self) -> str:
        """The reason as text."""
        return str(self.reason)


Outcome = Allocated | Refused | Undecided | Failed
