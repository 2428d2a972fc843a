"""Rules for a capacity's request policy: the default, the valid values, the valid range with its step.

Given a capacity of a device and its path; arithmetic is exact, fractional ranges are on as in Kubernetes.
Adds a problem for each rule broken. Never computes what a request consumes.
"""

from dovetail.kubetypes import field_errors
from dovetail.kubetypes.field_errors import Problems
from dovetail.kubetypes.resource import capacity, slices
from dovetail.quantity import quantity
from dovetail.quantity.quantity_text import INT64_MAX


def check_capacity(
    problems: Problems, have: capacity.DeviceCapacity, path: str, *, is_shareable: bool
) -> None:
    """A policy is for devices that can be shared, and must be able to serve its own default."""
    policy = have.request_policy
    if policy is None:
        return
    path = f"{path}.requestPolicy"
    if not is_shareable:
        field_errors.forbidden(problems, path, "needs allowMultipleAllocations: true on the device")
    elif policy.valid_values and policy.valid_range is not None:
        field_errors.forbidden(
            problems, path, "has validValues and validRange; only one of them is possible"
        )
    elif policy.valid_values:
        if policy.default is None:
            field_errors.required(problems, f"{path}.default", "needed together with validValues")
        else:
            _check_values(
                problems,
                policy.valid_values,
                policy.default,
                have.value,
                path=f"{path}.validValues",
            )
    elif policy.valid_range is not None:
        if policy.default is None:
            field_errors.required(problems, f"{path}.default", "needed together with validRange")
        else:
            _check_range(
                problems, policy.valid_range, policy.default, have.value, path=f"{path}.validRange"
            )


def _check_values(
    problems: Problems,
    values: tuple[quantity.Quantity, ...],
    default: quantity.Quantity,
    total: quantity.Quantity,
    *,
    path: str,
) -> None:
    for index in range(1, len(values)):
        if values[index - 1] > values[index]:
            field_errors.invalid(
                problems, f"{path}[{index}]", f"{values[index]} must not follow {values[index - 1]}"
            )
    if len(values) > slices.MAX_VALID_VALUES:
        field_errors.too_many(problems, path, len(values), limit=slices.MAX_VALID_VALUES)
        field_errors.invalid(
            problems, path, f"the default {default} is looked for in at most 10 values"
        )
        return
    seen_values: set[quantity.Quantity] = set()
    for index, value in enumerate(values):
        if value > total:
            field_errors.invalid(
                problems, f"{path}[{index}]", f"{value} is more than the capacity, {total}"
            )
        if value in seen_values:
            field_errors.duplicate(problems, f"{path}[{index}]", value)
        seen_values.add(value)
    if default not in seen_values:
        field_errors.invalid(problems, path, f"the default {default} is not among them")


def _check_range(
    problems: Problems,
    allowed: capacity.CapacityRequestPolicyRange,
    default: quantity.Quantity,
    total: quantity.Quantity,
    *,
    path: str,
) -> None:
    low, high, step = allowed.min, allowed.max, allowed.step
    if low is None:
        field_errors.required(problems, f"{path}.min")
        return
    _check_bounds(problems, low, high, default=default, total=total, path=path)
    bounds = (("default", default), ("min", low), ("max", high), ("step", step))
    is_fractional = any(bound is not None and bound.nanos % 10**9 for _, bound in bounds)
    if is_fractional:
        inexact = [
            (name, bound)
            for name, bound in bounds
            if bound is not None and bound.as_exact_milli() is None
        ]
        for name, bound in inexact:
            field_errors.invalid(
                problems, f"{path}.{name}", f"{bound} is not a whole number of thousandths"
            )
        if inexact:
            return
    if step is None:
        return
    if step.sign <= 0:
        field_errors.invalid(problems, f"{path}.step", f"{step} must be greater than zero")
        return
    if low.add(step) > total:
        field_errors.invalid(
            problems, f"{path}.step", f"{low} and one step of {step} exceed the capacity, {total}"
        )
    if not is_fractional and _check_whole_bounds(problems, bounds, path):
        return
    for value in (default, high):
        if value is not None and (value.nanos - low.nanos) % step.nanos:
            field_errors.invalid(
                problems,
                f"{path}.step",
                f"{value} is not {low} and a whole number of steps of {step}",
            )


def _check_bounds(
    problems: Problems,
    low: quantity.Quantity,
    high: quantity.Quantity | None,
    *,
    default: quantity.Quantity,
    total: quantity.Quantity,
    path: str,
) -> None:
    if low > total:
        field_errors.invalid(problems, f"{path}.min", f"{low} is more than the capacity, {total}")
    if default < low:
        field_errors.invalid(problems, f"{path}.default", f"{default} is less than min, {low}")
    if high is None:
        return
    if low > high:
        field_errors.invalid(problems, f"{path}.max", f"min, {low}, is more than max, {high}")
    if high > total:
        field_errors.invalid(problems, f"{path}.max", f"{high} is more than the capacity, {total}")
    if default > high:
        field_errors.invalid(problems, f"{path}.default", f"{default} is more than max, {high}")


def _check_whole_bounds(
    problems: Problems, bounds: tuple[tuple[str, quantity.Quantity | None], ...], path: str
) -> bool:
    before = len(problems)
    for name, bound in bounds:
        if bound is None:
            continue
        if bound.sign < 0:
            field_errors.invalid(problems, f"{path}.{name}", f"{bound} must not be negative")
        elif bound.nanos > INT64_MAX * 10**9:
            field_errors.invalid(
                problems, f"{path}.{name}", f"{bound} must not be larger than {INT64_MAX}"
            )
    return len(problems) > before
