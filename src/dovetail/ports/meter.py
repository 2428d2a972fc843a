"""Numbers about ourselves, as loops report them. Names and labels are those of the metrics page."""

from __future__ import annotations

from typing import Protocol


class Meter(Protocol):
    """Never fails, never blocks."""

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Adds to a counter."""
        ...

    def observe(self, name: str, value: float, **labels: str) -> None:
        """One more value of a distribution."""
        ...

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Sets what something is now."""
        ...


class NoMeter:
    """Counts nothing."""

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Nothing."""

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Nothing."""

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Nothing."""
