"""How much work a search may do: steps, not seconds, so that the same question gets the same answer anywhere."""

from __future__ import annotations

DEFAULT_STEPS = 200_000


class Exhausted(Exception):
    """The steps are used up; the search knows neither yes nor no."""


class Budget:
    """Counts steps down. One budget serves one attempt."""

    __slots__ = ("limit", "steps")

    def __init__(self, limit: int = DEFAULT_STEPS) -> None:
        self.limit = limit
        self.steps = 0

    def spend(self, steps: int = 1) -> None:
        """Takes steps; raises Exhausted when there are none left."""
        self.steps += steps
        if self.steps > self.limit:
            raise Exhausted

    def part(self, share: int) -> Budget:
        """A budget of a part of what is left; what it spends is to be spent here, too."""
        return Budget((self.limit - self.steps) // share)
