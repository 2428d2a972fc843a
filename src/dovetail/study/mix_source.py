"""The mix of pods that a policy expects: known from the start, or counted from what has arrived so far.

Given arrivals. A learned mix is empty for the first 5 arrivals, then counted again at growing distances, because a
policy computes its tables again for each. Never looks ahead.
"""

from __future__ import annotations

from collections import Counter

from dovetail.model import pod_mix


class MixSource:
    """The mix as of now; a new object whenever it changes."""

    def __init__(self, mix: pod_mix.Mix, *, is_learning: bool) -> None:
        """Starts with this mix."""
        self.current = mix
        self._is_learning = is_learning
        self._arrived: Counter[pod_mix.Shape] = Counter()
        self._count_next = pod_mix.FIRST_COUNT

    def arrived(self, shape: pod_mix.Shape) -> None:
        """Counts an arrival, placed or not."""
        if not self._is_learning:
            return
        self._arrived[shape] += 1
        if self._arrived.total() == self._count_next:
            self._count_next = pod_mix.next_count(self._count_next)
            self.current = pod_mix.mix_of_counts(self._arrived)


def known(mix: pod_mix.Mix) -> MixSource:
    """A mix that stays as it is."""
    return MixSource(mix, is_learning=False)


def learned() -> MixSource:
    """Nothing known; every arrival counts."""
    return MixSource(pod_mix.Mix(counts=()), is_learning=True)
