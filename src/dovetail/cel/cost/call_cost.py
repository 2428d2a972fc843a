"""Prices one function call at run time, from its arguments and its result, exactly as Kubernetes 1.37 does.

The order of lookup: the list and set extensions by overload, the Kubernetes library by function, the
language's own operations by overload, and 1 for the rest. Never sums costs, never checks a limit.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail import cache
from dovetail.cel.cost import cost_library, cost_lists, cost_standard
from dovetail.cel.cost.cost_lists import FRAGILE
from dovetail.cel.cost.cost_range import CALL_COST
from dovetail.cel.cost.cost_sizes import Price, TrackerFailure
from dovetail.cel.evaluate.values import CelError, Value

__all__ = ["FRAGILE", "Price", "TrackerFailure", "call_cost", "price"]


def call_cost(function: str, overload: str, args: Sequence[Value], result: Value | CelError) -> int:
    """The cost of one call. `overload` is "" if several are possible; values may be errors."""
    pricing = price(function, overload)
    return pricing if isinstance(pricing, int) else pricing(args, result)


@cache.remembered()
def price(function: str, overload: str) -> int | Price:
    """The cost of calls of this function: a fixed number, or a function that computes it. For the compiler."""
    for by_overload in (cost_lists.PRICES, cost_library.PRICES_BY_OVERLOAD):
        if overload in by_overload:
            return by_overload[overload]
    if function in cost_library.PRICES:
        return cost_library.PRICES[function]
    return cost_standard.PRICES.get(overload, CALL_COST)
