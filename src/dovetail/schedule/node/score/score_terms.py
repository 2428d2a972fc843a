"""Scores what a placement would cost others: a sum of named terms in thousandths of a GPU.

Lower is better. Every term carries a sentence for the operator. The terms here score the node; what the choice of
devices on it costs comes from the allocator and is added. Further terms, such as scarcity prices of GPU models,
are functions of the same situation added to TERMS. Never forbids anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from dovetail.model import plan, pod_requests, policy

CORES_128: Final = 128_000  # thousandths of a cpu
# Of what full nodes are worth, for slices of GPUs: less than the smallest difference between two places on boards, so
# that lost places decide first, then the fuller GPU, and only then the fuller node.
SLICE_TIE: Final = 1 / 10_000


class Situation(NamedTuple):
    """What scores read of a pod on a node."""

    need: pod_requests.Resources
    free: pod_requests.Resources  # before the pod
    free_milli_gpu: int  # before the pod
    taken_milli_gpu: int
    steps_down: int  # entries of firstAvailable lists passed over
    weights: policy.Weights
    has_slices: bool = False  # the pod takes parts of GPUs that are cut as needed

    @property
    def fullness_scale(self) -> float:
        """How much the fullness of the node counts."""
        return SLICE_TIE if self.has_slices else 1.0

    @property
    def left_milli_gpu(self) -> int:
        """What stays free of the node's GPUs."""
        return max(self.free_milli_gpu - self.taken_milli_gpu, 0)


def node_terms(situation: Situation) -> tuple[plan.Term, ...]:
    """The terms that cost something here, in a fixed order."""
    return tuple(term for evaluator in TERMS if (term := evaluator(situation)).milli_gpu)


def tight_fit(situation: Situation) -> plan.Term:
    """Prefers the fullest node that suits, so that empty nodes stay whole for large jobs."""
    milli_gpu_left = situation.left_milli_gpu if situation.taken_milli_gpu else 0
    cost = situation.weights.tight_fit_per_gpu * milli_gpu_left / 1000 * situation.fullness_scale
    return plan.Term(
        "tight fit",
        cost,
        f"{_gpus(milli_gpu_left)} stay free on the node; a fuller node would cost less",
    )


def stranding(situation: Situation) -> plan.Term:
    """Charges for free GPUs that lose the cpu or memory they would need."""
    stranded = situation.left_milli_gpu * _excess(situation) / 1000
    cost = round(situation.weights.stranding * stranded / 1000, 3)
    return plan.Term(
        "stranding", cost, f"{_gpus(stranded)} stay free without the cpu or memory to use them"
    )


def second_choice(situation: Situation) -> plan.Term:
    """Charges for every alternative of a claim that was passed over."""
    steps = situation.steps_down
    cost = situation.weights.second_choice * steps
    return plan.Term(
        "second choice", cost, f"{steps} better-liked alternatives of the claims are not free here"
    )


def cpu_fit(situation: Situation) -> plan.Term:
    """Prefers nodes with little cpu left; decides near-ties only."""
    milli_cpu_left = situation.free.milli_cpu - situation.need.milli_cpu
    cost = round(situation.weights.cpu_fit_per_128_cores * max(milli_cpu_left, 0) / CORES_128, 3)
    cost *= situation.fullness_scale
    return plan.Term("cpu fit", cost, f"{milli_cpu_left / 1000:g} cpus stay free on the node")


def gpu_node(situation: Situation) -> plan.Term:
    """Keeps pods that use no GPU away from nodes whose GPUs are wanted, where another node does as well."""
    is_guest = not situation.taken_milli_gpu and situation.free_milli_gpu > 0
    cost = situation.weights.gpu_node if is_guest else 0
    return plan.Term(
        "GPU node",
        cost,
        f"{_gpus(situation.free_milli_gpu)} are free on the node, and the pod uses none",
    )


TERMS: Final[tuple[Callable[[Situation], plan.Term], ...]] = (
    second_choice,
    stranding,
    tight_fit,
    gpu_node,
    cpu_fit,
)


def _excess(situation: Situation) -> int:
    """By how many thousandths the pod's part of the free cpu or memory exceeds its part of the free GPUs."""
    need, free = situation.need, situation.free
    other_part = max(
        _part(need.milli_cpu, free.milli_cpu), _part(need.memory_bytes, free.memory_bytes)
    )
    return max(other_part - _part(situation.taken_milli_gpu, situation.free_milli_gpu), 0)


def _part(need: int, free: int) -> int:
    return min(1000 * need // free, 1000) if free > 0 else 0


def _gpus(milli: float) -> str:
    return f"{round(milli / 1000, 2):g} GPUs"
