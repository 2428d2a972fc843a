"""A queue's share of one resource, summed up from another scheduler's numbers.

Given quantities as they were written; adds them up and writes them in the form of a Queue. Never guesses a number.
"""

from __future__ import annotations

import fractions
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from dovetail import errors
from dovetail.quantity import quantity

Tree = dict[str, Any]
THOUSANDTHS: Final = 1000
MAX_WEIGHT: Final = 1_000_000
IN_THOUSANDTHS: Final = "weights are whole numbers: all are counted in thousandths"
ALL_IS_LENT: Final = "unused quota is lent, and reclaimed when its queue needs it"


class Share(msgspec.Struct, kw_only=True):
    """Quota and limit of one resource, while they are being summed up."""

    quota: quantity.Quantity = quantity.ZERO
    limit: quantity.Quantity | None = None

    def add(self, amount: quantity.Quantity) -> None:
        """Adds to the quota, and to the limit if there is one."""
        self.quota = self.quota.add(amount)
        if self.limit is not None:
            self.limit = self.limit.add(amount)

    def tree(self, weight: int | None) -> Tree:
        """The share in the form of a Queue's spec."""
        tree: Tree = {"quota": shown(self.quota)}
        if self.limit is not None:
            tree["limit"] = shown(self.limit)
        if weight is not None:
            tree["weight"] = weight
        return tree


def weight_of(weight: quantity.Quantity | None, scale: int) -> int | None:
    """A weight as a whole number. An absent weight stays absent, unless all weights are scaled up."""
    if weight is None:
        return None if scale == 1 else scale
    exact = fractions.Fraction(weight.nanos * scale, 10**9)  # a float would not hold every quantity
    return min(round(exact), MAX_WEIGHT)


def scale_of(weights: Iterable[quantity.Quantity]) -> int:
    """1 where all weights are whole, else thousandths."""
    return 1 if all(weight.nanos % 10**9 == 0 for weight in weights) else THOUSANDTHS


def read(value: Any) -> quantity.Quantity | None:
    """A quantity that is not negative; None if the value is not one."""
    try:
        amount = quantity.from_wire(value) if value is not None else None
    except errors.QuantityError:
        return None
    if amount is None or amount.nanos < 0:
        return None
    return amount


def shown(amount: quantity.Quantity) -> int | str:
    """Whole numbers as numbers, everything else as text."""
    whole, nanos = divmod(amount.nanos, 10**9)
    return whole if nanos == 0 and str(amount) == str(whole) else amount.text
