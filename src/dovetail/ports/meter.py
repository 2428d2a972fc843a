"""How the scheduler reports metrics. Names and labels are those of the metrics reference."""

from __future__ import annotations

from typing import Protocol


class Meter(Protocol):
    """Never raises, never blocks."""

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Adds to a counter."""
        ...

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Adds a value to a histogram."""
        ...

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Sets the present value."""
        ...


class NoMeter:
    """Discards everything."""

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Does nothing."""

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Does nothing."""

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Does nothing."""
