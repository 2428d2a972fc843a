"""How much of a GPU's compute and memory bandwidth work needs.

Given what was measured. A high quantile of busy time decides, a higher one where the window is short; work that keeps
the tensor pipe or the memory interface busy is bound by them and gets no less than it has. Never guesses: what was not
measured is None.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dovetail.answer.right_size import measured, memory_need
from dovetail.model.accounting.records import MICRO_GPU

LONG_QUANTILE: Final = 0.95  # of a week or more
SHORT_QUANTILE: Final = 0.99
BOUND: Final = (
    600_000  # millionths of the time: above it the tensor pipe or the memory decides the speed
)


class ComputeNeed(NamedTuple):
    """Micro-GPUs, as the ledger counts compute and bandwidth."""

    micro_gpu: int  # of compute
    bandwidth_micro_gpu: int
    busy_micro: int  # the quantile, of what is allocated
    quantile: float
    bound_by: str = ""  # empty, or what the work is bound by


def need(seen: measured.Measured, allocated_micro_gpu: int) -> ComputeNeed | None:
    """What the work needs; None where busy time was not measured."""
    if not seen.busy:
        return None
    share = LONG_QUANTILE if seen.days >= memory_need.WEEK_DAYS else SHORT_QUANTILE
    busy = measured.quantile(seen.busy, share)
    compute = -(-busy * allocated_micro_gpu // MICRO_GPU)
    bandwidth, bound_by = 0, ""
    if seen.dram:
        dram = measured.quantile(seen.dram, share)
        bandwidth = -(-dram * allocated_micro_gpu // MICRO_GPU)
        if measured.quantile(seen.dram, LONG_QUANTILE) > BOUND:
            bound_by = "memory bandwidth"
    if seen.tensor and measured.quantile(seen.tensor, LONG_QUANTILE) > BOUND:
        bound_by = "the tensor pipe"
    if bound_by:
        compute = bandwidth = allocated_micro_gpu
    return ComputeNeed(compute, bandwidth, busy, share, bound_by)
