"""What one GPU costs per hour, by type, node pool, spot and node labels, at a time; and the carbon of its power.

Given entries in order: the first that matches a GPU and is valid at the time decides. Amounts are integers in
billionths of the currency, so that sums are exact. A GPU without an entry has no price; it is never free. Never
guesses.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from dovetail.model.accounting import records

NANO: Final = 1_000_000_000  # of the currency


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """Which GPUs an entry is about, and when. Patterns know * and ?; upper and lower case are alike."""

    product: str = "*"
    pool: str = "*"
    spot: bool | None = None  # None: both
    labels: tuple[tuple[str, str], ...] = ()  # of the node: name and pattern
    start: records.Millis | None = None
    end: records.Millis | None = None

    def is_about(self, asset: records.Asset) -> bool:
        """Whether the GPU is meant, at any time."""
        if self.spot is not None and self.spot != asset.is_spot:
            return False
        if not _is_like(asset.product, self.product) or not _is_like(asset.pool, self.pool):
            return False
        return all(
            name in asset.labels and _is_like(asset.labels[name], pattern)
            for name, pattern in self.labels
        )

    def is_valid(self, at: records.Millis) -> bool:
        """Whether the entry counts at that time."""
        has_begun = self.start is None or self.start <= at
        return has_begun and (self.end is None or at < self.end)


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """One entry: what a GPU costs per hour, discount taken off."""

    match: Match
    nano_per_hour: int


class Carbon(msgspec.Struct, frozen=True, kw_only=True):
    """One entry: how much CO2e a kilowatt-hour stands for."""

    match: Match
    milligrams_per_kwh: int


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """What a queue may cost in a calendar month."""

    queue: str  # a name, or a pattern such as research-*
    nano_per_month: int


class PriceList(msgspec.Struct, frozen=True, kw_only=True):
    """All prices of one currency."""

    source: str = ""  # what it was read from, for messages
    currency: str = ""
    prices: tuple[Price, ...] = ()
    carbon: tuple[Carbon, ...] = ()
    budgets: tuple[Budget, ...] = ()
    is_example: bool = False  # placeholders that we ship, not the user's own

    def nano_per_hour(self, asset: records.Asset, at: records.Millis) -> int | None:
        """What one GPU of the asset costs per hour at that time; None if no entry says."""
        for price in self.prices:
            if price.match.is_valid(at) and price.match.is_about(asset):
                return price.nano_per_hour
        return None

    def milligrams_per_kwh(self, asset: records.Asset, at: records.Millis) -> int | None:
        """The carbon of its power; None if no entry says."""
        for carbon in self.carbon:
            if carbon.match.is_valid(at) and carbon.match.is_about(asset):
                return carbon.milligrams_per_kwh
        return None

    def changes(self) -> tuple[records.Millis, ...]:
        """The times at which an entry begins or ends to count, in order."""
        matches = [price.match for price in self.prices]
        matches += [carbon.match for carbon in self.carbon]
        return tuple(sorted(set(_edges(matches))))


# A price of nothing for every GPU: an account then has no remarks about missing prices.
FREE: Final = PriceList(prices=(Price(match=Match(), nano_per_hour=0),))


def _edges(matches: Iterable[Match]) -> Iterator[records.Millis]:
    for match in matches:
        if match.start is not None:
            yield match.start
        if match.end is not None:
            yield match.end


def _is_like(value: str, pattern: str) -> bool:
    return pattern == "*" or fnmatch.fnmatchcase(value.lower(), pattern.lower())
