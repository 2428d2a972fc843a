"""Decides what one share of a device consumes of each capacity, and whether the device has that much left.

Given the device's capacities, what is asked for and what others already hold; amounts are rounded up by the
capacity's request policy as kube-scheduler does. Never records anything.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dovetail import errors
from dovetail.quantity import quantity
from dovetail.quantity.quantity_text import INT64_MAX

_NOTHING: Mapping[str, quantity.Quantity] = {}


class CapacityRequestPolicyRange(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Amounts from min to max, in steps counted from min."""

    min: quantity.Quantity | None = None
    max: quantity.Quantity | None = None
    step: quantity.Quantity | None = None


class CapacityRequestPolicy(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Which amounts of a capacity can be asked for, and what is taken when nothing is asked."""

    default: quantity.Quantity | None = None
    valid_values: tuple[quantity.Quantity, ...] = ()
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """How much of something a device has."""

    value: quantity.Quantity = quantity.ZERO
    request_policy: CapacityRequestPolicy | None = None


class CapacityError(errors.InputError):
    """A request or policy the arithmetic cannot represent. Ends the whole attempt: no other device helps."""


def share_of(
    capacities: Mapping[str, DeviceCapacity],
    requests: Mapping[str, quantity.Quantity],
    *,
    in_use: Mapping[str, quantity.Quantity] = _NOTHING,
    fractional: bool,
) -> dict[str, quantity.Quantity] | None:
    """What one more share takes of every capacity; None when a policy or the room left forbids it.

    `fractional` is the DRAFractionalCapacityRange gate: ranges count in thousandths where they can.
    Raises CapacityError, whatever the other capacities say.
    """
    if any(name not in capacities for name in requests):
        return None
    consumption = {
        name: consumed(have, requests.get(name), fractional=fractional)
        for name, have in capacities.items()
    }
    for name, amount in consumption.items():
        if amount.sign < 0:
            raise CapacityError(f"capacity {name!r}: {amount} is negative")
    for name, have in capacities.items():
        if not is_allowed(consumption[name], have.request_policy, fractional=fractional):
            return None
        used = in_use.get(name)
        if consumption[name].nanos + (used.nanos if used else 0) > have.value.nanos:
            return None
    return consumption


def consumed(
    capacity: DeviceCapacity, requested: quantity.Quantity | None, *, fractional: bool
) -> quantity.Quantity:
    """The amount a share takes for a request, rounded up by the policy; not yet checked against it."""
    policy = capacity.request_policy
    default = None if policy is None else policy.default
    if requested is None:
        return capacity.value if default is None else default
    if policy is None:
        return requested
    valid_range = policy.valid_range
    if valid_range is not None and valid_range.min is not None:
        return _rounded_into(valid_range, requested, fractional=fractional)
    return next((value for value in policy.valid_values if requested <= value), requested)


def is_allowed(
    amount: quantity.Quantity, policy: CapacityRequestPolicy | None, *, fractional: bool
) -> bool:
    """Whether the policy lets a share take this amount. The default, spelled as such, always may be taken."""
    if policy is None or (policy.default is not None and amount.is_spelled_like(policy.default)):
        return True
    if policy.valid_range is not None:
        return _is_in_range(amount, policy.valid_range, fractional=fractional)
    return not policy.valid_values or amount in policy.valid_values


def _rounded_into(
    valid: CapacityRequestPolicyRange, requested: quantity.Quantity, *, fractional: bool
) -> quantity.Quantity:
    lowest = valid.min or quantity.ZERO
    if requested < lowest:
        return lowest
    if valid.step is None:
        return requested
    if _counts_in_thousandths(valid, fractional=fractional):
        thousandths = requested.as_exact_milli()
        if thousandths is None:
            raise CapacityError(
                f"request {requested} is not a 64-bit number of thousandths, as its range needs"
            )
        rounded = _next_step(
            thousandths, lowest=lowest.milli_value(), step=_usable(valid.step.milli_value())
        )
        if rounded % 1000:
            return quantity.Quantity.from_milli(rounded, valid.step.format)
        return quantity.Quantity.from_int(rounded // 1000, valid.step.format)
    if requested.nanos > INT64_MAX * 10**9:
        raise CapacityError(
            f"request {requested} is more than the 64-bit integers its range is counted in"
        )
    units = _next_step(requested.value(), lowest=lowest.value(), step=_usable(valid.step.value()))
    return quantity.Quantity.from_int(units, valid.step.format)


def _is_in_range(
    amount: quantity.Quantity, valid: CapacityRequestPolicyRange, *, fractional: bool
) -> bool:
    if valid.max is not None and amount > valid.max:
        return False
    if valid.step is None:
        return True
    lowest = valid.min or quantity.ZERO
    if _counts_in_thousandths(valid, fractional=fractional):
        thousandths = amount.as_exact_milli()
        step = _usable(valid.step.milli_value())
        return thousandths is not None and (thousandths - lowest.milli_value()) % step == 0
    return (amount.value() - lowest.value()) % _usable(valid.step.value()) == 0


def _counts_in_thousandths(valid: CapacityRequestPolicyRange, *, fractional: bool) -> bool:
    """Needs the gate, every bound an exact number of thousandths, and a step of at least one of them."""
    if not fractional:
        return False
    bounds = (valid.min, valid.max, valid.step)
    if any(bound is not None and bound.as_exact_milli() is None for bound in bounds):
        return False
    return valid.step is None or valid.step.milli_value() >= 1


def _next_step(requested: int, *, lowest: int, step: int) -> int:
    rounded = lowest + -(-(requested - lowest) // step) * step
    if rounded > INT64_MAX:
        raise CapacityError("the request rounded up to the next step is more than a 64-bit integer")
    return rounded


def _usable(step: int) -> int:
    if step <= 0:
        raise CapacityError("the range's step is not positive, so nothing can be rounded up to it")
    return step
