"""What a share of a device consumes: rule 8 of the validity rules, in exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from tests.allocate.checker_pools import amount

Tree = dict[str, Any]
_MILLI_LIMIT = 2**63 - 1  # thousandths that upstream can hold


def consumed(device: Tree, wanted: Tree) -> dict[str, Fraction] | None:
    """The amount per capacity of the device; None where the request excludes the device by itself."""
    published = device.get("capacity") or {}
    if any(name not in published for name in wanted):
        return None
    shares = {name: _share(one, wanted.get(name)) for name, one in published.items()}
    for name, item in published.items():
        share = shares[name]
        if (
            share is None
            or share < 0
            or share > amount(item["value"])
            or _breaks_policy(share, item)
        ):
            return None
    return {name: share for name, share in shares.items() if share is not None}


def _share(capacity: Tree, wanted: str | None) -> Fraction | None:
    policy = capacity.get("requestPolicy") or {}
    if wanted is None:
        return amount(policy.get("default", capacity["value"]))
    asked = amount(wanted)
    bounds = policy.get("validRange") or {}
    if bounds.get("min") is not None:
        return _in_range(asked, bounds)
    if policy.get("validValues") is not None:
        return next(
            (value for value in map(amount, policy["validValues"]) if asked <= value), asked
        )
    return asked


def _in_range(asked: Fraction, bounds: Tree) -> Fraction | None:
    lowest = amount(bounds["min"])
    if asked < lowest:
        return lowest
    if bounds.get("step") is None:
        return asked
    unit = _unit(bounds)
    if unit != 1 and not _fits(asked, unit):
        return None  # upstream gives up altogether
    units = [math.ceil(value / unit) for value in (asked, lowest, amount(bounds["step"]))]
    steps = -((units[0] - units[1]) // -units[2])
    reached = units[1] + steps * units[2]
    return reached * unit if reached <= _MILLI_LIMIT else None


def _breaks_policy(share: Fraction, capacity: Tree) -> bool:
    policy = capacity.get("requestPolicy") or {}
    if policy.get("default") is not None and share == amount(policy["default"]):
        return False
    bounds = policy.get("validRange")
    if bounds is not None:
        if bounds.get("max") is not None and share > amount(bounds["max"]):
            return True
        if bounds.get("step") is None:
            return False
        unit = _unit(bounds)
        over = math.ceil(share / unit) - math.ceil(amount(bounds["min"]) / unit)
        return over % math.ceil(amount(bounds["step"]) / unit) != 0
    values = policy.get("validValues")
    return bool(values) and share not in map(amount, values)


def _unit(bounds: Tree) -> Fraction:
    """Thousandths where all of the range can be expressed in them, else ones."""
    milli = Fraction(1, 1000)
    amounts = [
        amount(bounds[name]) for name in ("min", "max", "step") if bounds.get(name) is not None
    ]
    return milli if all(_fits(value, milli) for value in amounts) else Fraction(1)


def _fits(value: Fraction, unit: Fraction) -> bool:
    return (value / unit).denominator == 1 and abs(value / unit) <= _MILLI_LIMIT
