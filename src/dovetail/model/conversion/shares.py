"""What a queue is due while it is being put together from another scheduler's numbers.

Given quantities as they were written; sums them up, and writes them as a Queue has them. Never guesses a number.
"""

from __future__ import annotations

import fractions
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from dovetail import errors
from dovetail.model import quantity

Tree = dict[str, Any]
THOUSANDTHS: Final = 1000
MAX_WEIGHT: Final = 1_000_000


class Share(msgspec.Struct, kw_only=True):
    """A share that grows."""

    quota: quantity.Quantity = quantity.ZERO
    limit: quantity.Quantity | None = None

    def add(self, amount: quantity.Quantity) -> None:
        """So much more is due, and allowed where there is a bound."""
        self.quota = self.quota.add(amount)
        if self.limit is not None:
            self.limit = self.limit.add(amount)

    def tree(self, weight: int | None) -> Tree:
        """As a Queue writes it."""
        made: Tree = {"quota": shown(self.quota)}
        if self.limit is not None:
            made["limit"] = shown(self.limit)
        if weight is not None:
            made["weight"] = weight
        return made


def weight_of(weight: quantity.Quantity | None, scale: int) -> int | None:
    """The whole number a weight becomes; without one nothing needs saying, unless all are counted in another scale."""
    if weight is None:
        return None if scale == 1 else scale
    exact = fractions.Fraction(weight.nanos * scale, 10**9)  # a float would not hold every quantity
    return min(round(exact), MAX_WEIGHT)


def scale_of(weights: Iterable[quantity.Quantity]) -> int:
    """1 where all weights are whole, else thousandths."""
    return 1 if all(one.nanos % 10**9 == 0 for one in weights) else THOUSANDTHS


def read(value: Any) -> quantity.Quantity | None:
    """A quantity that is not negative; None where nobody can read one."""
    try:
        found = quantity.from_wire(value) if value is not None else None
    except errors.QuantityError:
        return None
    return found if found is not None and found.nanos >= 0 else None


def shown(amount: quantity.Quantity) -> int | str:
    """Plain numbers as such, everything else as text."""
    whole, rest = divmod(amount.nanos, 10**9)
    return whole if rest == 0 and str(amount) == str(whole) else amount.text
