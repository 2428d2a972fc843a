"""What a choice of devices costs, in thousandths of a GPU: the weights, and the value of what is left of a device.

Every term is a difference of a value before and after, so costs of devices that share nothing simply add up.
Never decides whether something fits.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

UNIT = 1_000_000  # costs are whole numbers inside: so many to a thousandth of a GPU


class AllocationPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How much each kind of harm weighs, in thousandths of a GPU."""

    partition: int = 1000  # a place for a partition as large as its whole counter set that can no longer be used
    sibling_ratio: int = 2  # a partition is not counted if another of its extent has so many times its places
    whole: int = 1000  # a shareable device nobody has touched yet
    oversize: int = 100  # a device as large as the largest that would do
    binding: int = 10  # a device that must be prepared before it can be used
    exact_states: int = 20_000  # beyond so many combinations the first fit in order of cost is taken


DEFAULT = AllocationPolicy()


def share_value(left: Sequence[int], total: Sequence[int], policy: AllocationPolicy) -> int:
    """The value of what is left of a shareable device: the square of its scarcest free fraction.

    Convex on purpose: a share costs less on a device that is fuller already.
    """
    scarcest = 1_000_000
    for have, whole in zip(left, total, strict=True):
        if whole > 0:
            scarcest = min(scarcest, max(have, 0) * 1_000_000 // whole)
    return policy.whole * UNIT * scarcest * scarcest // 10**12
