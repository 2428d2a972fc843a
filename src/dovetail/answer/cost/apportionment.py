"""Divides a whole number of cents among exact amounts, so that what is printed adds up.

Given exact amounts as integers of a unit, and how many units a cent has. Everyone gets the whole cents of their amount;
the cents that are left go to the largest remainders, the earlier first where two are alike. Never gives a cent to an
amount that has no remainder, never differs from an amount by a cent or more.
"""

from __future__ import annotations

from collections.abc import Sequence


def cents_of(amount: int, units_per_cent: int) -> int:
    """One amount in whole cents; half a cent is rounded up."""
    return (2 * amount + units_per_cent) // (2 * units_per_cent)


def apportioned(total_cents: int, amounts: Sequence[int], units_per_cent: int) -> list[int]:
    """Cents for each amount, which add up to the total: the sum of the amounts, rounded up or down."""
    parts = [divmod(amount, units_per_cent) for amount in amounts]
    cents = [whole for whole, _ in parts]
    left = total_cents - sum(cents)
    by_remainder = sorted(range(len(parts)), key=lambda index: (-parts[index][1], index))
    for index in by_remainder[:left]:
        cents[index] += 1
    return cents
