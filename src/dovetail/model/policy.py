"""How to decide, and how long to think: weights of the score, memory on or off, steps allowed. Data only.

A budget counts steps, never seconds, so that the same input gives the same plan on any machine.
"""

from __future__ import annotations

from typing import Final

import msgspec

DEFAULT_SEARCH_STEPS: Final = 200_000


class Weights(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How much each term of a node's score counts. Thousandths of a GPU, as the score itself."""

    tight_fit_per_gpu: int = 10  # for each whole GPU that stays free on the chosen node
    stranding: int = 1000  # for each GPU that stays free but lost the cpu or memory it would need
    second_choice: int = 100_000  # for each step down a firstAvailable list: what people ordered outranks packing
    cpu_fit_per_128_cores: int = 10  # research: decides near-ties only, prefers nodes with little cpu left


class AllocationPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How much each kind of harm weighs, in thousandths of a GPU."""

    partition: int = 1000  # a place for a partition as large as its whole counter set that can no longer be used
    sibling_ratio: int = 2  # a partition is not counted if another of its extent has so many times its places
    whole: int = 1000  # a shareable device nobody has touched yet
    oversize: int = 100  # a device as large as the largest that would do
    binding: int = 10  # a device that must be prepared before it can be used
    exact_states: int = 20_000  # beyond so many combinations the first fit in order of cost is taken


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator can set about decisions."""

    weights: Weights = Weights()  # between nodes
    allocation: AllocationPolicy = AllocationPolicy()  # between the devices of a node
    scheduler_names: tuple[str, ...] = ()  # pods that name one of these; every pod where the list is empty
    memo: bool = True  # off: every node is judged anew for every pod, with the identical plan


class Budget(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Steps that may be spent. What it cuts short is undecided, counted and shown, never a silent no."""

    search_steps: int = DEFAULT_SEARCH_STEPS  # per pod and node, in the search for devices
    pods: int | None = None  # pods looked at in one cycle


DEFAULT_ALLOCATION: Final = AllocationPolicy()
DEFAULT: Final = Policy()
UNLIMITED: Final = Budget()
