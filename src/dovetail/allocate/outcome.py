"""The four answers of an allocation attempt: devices, a refusal, a search cut short, or input nobody can serve.

Results, terms and reasons are written out when somebody asks for them: most attempts are only compared.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

from dovetail.model.claims import AllocationResult
from dovetail.model.reasons import Reason


class Term(NamedTuple):
    """One part of what an allocation costs, in thousandths of a GPU, and why."""

    name: str
    milli_gpu: float
    sentence: str


class Allocated:
    """One result per claim, in the order of the claims, and what the choice costs. Lower is better."""

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
        self.preference = preference  # which firstAvailable entry each such request got, 0 the most wanted
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
    """It does not fit on this node, and that is proved."""

    def __init__(
        self, *, reasons: Callable[[], tuple[Reason, ...]], invalid_pools: tuple[str, ...], steps: int
    ) -> None:
        self._reasons = reasons
        self.invalid_pools = invalid_pools  # each "driver/pool: why"; upstream then calls it an error of the node
        self.steps = steps

    @cached_property
    def reasons(self) -> tuple[Reason, ...]:
        """Why, request by request, in numbers."""
        return self._reasons()


class Undecided(NamedTuple):
    """The budget ran out: neither yes nor no."""

    steps: int


class Failed(NamedTuple):
    """The claims cannot be served as they are written."""

    reason: Reason
    is_local: bool = False  # because of this node's pools: other nodes may do

    @property
    def message(self) -> str:
        """What to tell people."""
        return str(self.reason)


Outcome = Allocated | Refused | Undecided | Failed
