"""What a choice of devices costs, in thousandths of a GPU: the value of what is left of a shareable device.

Every term is a difference of a value before and after, so costs of devices that share nothing simply add up.
Never decides whether something fits.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.model.policy import AllocationPolicy

UNIT = 1_000_000  # costs are whole numbers inside: so many to a thousandth of a GPU


def share_value(left: Sequence[int], total: Sequence[int], policy: AllocationPolicy) -> int:
    """The value of what is left of a shareable device: the square of its scarcest free fraction.

    Convex on purpose: a share costs less on a device that is fuller already.
    """
    scarcest = 1_000_000
    for have, whole in zip(left, total, strict=True):
        if whole > 0:
            scarcest = min(scarcest, max(have, 0) * 1_000_000 // whole)
    return policy.whole * UNIT * scarcest * scarcest // 10**12
