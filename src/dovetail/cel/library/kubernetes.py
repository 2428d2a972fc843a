"""Kubernetes' own values in expressions: quantities, semantic versions, an authorizer that never exists.

Given values of the model; returns values or raises CelError. The authorization functions compile, because
upstream declares them, but a device selector has no value to call them on.
"""

from __future__ import annotations

from dovetail import errors
from dovetail.cel.check.declarations import Overload, function, member
from dovetail.cel.evaluate import values
from dovetail.cel.evaluate.values import CelError, Value
from dovetail.quantity import quantity, semver
from dovetail.quantity.quantity import Quantity
from dovetail.quantity.semver import Semver


def to_quantity(text: str) -> Quantity:
    """The quantity in a text; a new value each time, because upstream treats two of them as different map keys."""
    try:
        parsed = quantity.parse(text)
    except errors.QuantityError as error:
        raise CelError(str(error)) from None
    return Quantity(
        parsed.nanos,
        parsed.format,
        exponent=parsed.exponent,
        is_big=parsed.is_big,
        written=parsed.written,
    )


def as_integer(amount: Quantity) -> int:
    """The quantity as an int64, where upstream holds it as one."""
    number = amount.as_int64()
    if number is None:
        raise CelError("cannot convert value to integer")
    return number


def to_semver(text: str, normalize: bool = False) -> Semver:
    """The version in a text; with `normalize`, also `v1.2` and `01.2.3`."""
    try:
        return semver.parse(text, normalize=normalize)
    except errors.SemverError as error:
        raise CelError(str(error)) from None


def is_semver(text: str, normalize: bool = False) -> bool:
    """Whether `to_semver` accepts the text."""
    return semver.is_semver(text, normalize=normalize)


def _add(left: Quantity, right: Quantity | int) -> values.Sum:
    return values.Sum.of(left.add(right))


def _subtract(left: Quantity, right: Quantity | int) -> values.Sum:
    return values.Sum.of(left.sub(right))


def _sign(amount: Quantity) -> int:
    return amount.sign


def _is_less(left: Quantity | Semver, right: Value) -> bool:
    return bool(left < right)


def _is_greater(left: Quantity | Semver, right: Value) -> bool:
    return bool(left > right)


def _major(version: Semver) -> int:
    return _as_int64(version.major)


def _minor(version: Semver) -> int:
    return _as_int64(version.minor)


def _patch(version: Semver) -> int:
    return _as_int64(version.patch)


def _as_int64(number: int) -> int:
    return number - 2**64 if number > values.INT_MAX else number  # upstream lets a uint64 wrap


def _no_authorizer(*_: Value) -> Value:
    raise values.no_such_overload()


_QUANTITIES: tuple[Overload, ...] = (
    function("quantity", "string_to_quantity", "string -> quantity", to_quantity),
    function("isQuantity", "is_quantity_string", "string -> bool", quantity.is_quantity),
    function("sign", "quantity_sign", "quantity -> int", _sign),
    member("isGreaterThan", "quantity_is_greater_than", "quantity, quantity -> bool", _is_greater),
    member("isLessThan", "quantity_is_less_than", "quantity, quantity -> bool", _is_less),
    member("compareTo", "quantity_compare_to", "quantity, quantity -> int", Quantity.compare),
    member("asApproximateFloat", "quantity_get_float", "quantity -> double", Quantity.approx_float),
    member("asInteger", "quantity_get_int", "quantity -> int", as_integer),
    member("isInteger", "quantity_is_integer", "quantity -> bool", Quantity.is_integer),
    member("add", "quantity_add", "quantity, quantity -> quantity", _add),
    member("add", "quantity_add_int", "quantity, int -> quantity", _add),
    member("sub", "quantity_sub", "quantity, quantity -> quantity", _subtract),
    member("sub", "quantity_sub_int", "quantity, int -> quantity", _subtract),
)
_VERSIONS: tuple[Overload, ...] = (
    function("semver", "string_to_semver", "string -> semver", to_semver),
    function("semver", "string_bool_to_semver", "string, bool -> semver", to_semver),
    function("isSemver", "is_semver_string", "string -> bool", is_semver),
    function("isSemver", "is_semver_string_bool", "string, bool -> bool", is_semver),
    member("isGreaterThan", "semver_is_greater_than", "semver, semver -> bool", _is_greater),
    member("isLessThan", "semver_is_less_than", "semver, semver -> bool", _is_less),
    member("compareTo", "semver_compare_to", "semver, semver -> int", Semver.compare),
    member("major", "semver_major", "semver -> int", _major),
    member("minor", "semver_minor", "semver -> int", _minor),
    member("patch", "semver_patch", "semver -> int", _patch),
)

_AUTHORIZER, _PATH, _GROUP, _RESOURCE, _DECISION = (
    f"kubernetes.authorization.{name}"
    for name in ("Authorizer", "PathCheck", "GroupCheck", "ResourceCheck", "Decision")
)
_AUTHORIZATION: tuple[Overload, ...] = tuple(
    member(name, id, signature, _no_authorizer)
    for name, id, signature in (
        ("path", "authorizer_path", f"{_AUTHORIZER}, string -> {_PATH}"),
        ("group", "authorizer_group", f"{_AUTHORIZER}, string -> {_GROUP}"),
        (
            "serviceAccount",
            "authorizer_serviceaccount",
            f"{_AUTHORIZER}, string, string -> {_AUTHORIZER}",
        ),
        ("resource", "groupcheck_resource", f"{_GROUP}, string -> {_RESOURCE}"),
        ("subresource", "resourcecheck_subresource", f"{_RESOURCE}, string -> {_RESOURCE}"),
        ("namespace", "resourcecheck_namespace", f"{_RESOURCE}, string -> {_RESOURCE}"),
        ("name", "resourcecheck_name", f"{_RESOURCE}, string -> {_RESOURCE}"),
        ("check", "pathcheck_check", f"{_PATH}, string -> {_DECISION}"),
        ("check", "resourcecheck_check", f"{_RESOURCE}, string -> {_DECISION}"),
        ("errored", "decision_errored", f"{_DECISION} -> bool"),
        ("error", "decision_error", f"{_DECISION} -> string"),
        ("allowed", "decision_allowed", f"{_DECISION} -> bool"),
        ("reason", "decision_reason", f"{_DECISION} -> string"),
        ("fieldSelector", "authorizer_fieldselector", f"{_RESOURCE}, string -> {_RESOURCE}"),
        ("labelSelector", "authorizer_labelselector", f"{_RESOURCE}, string -> {_RESOURCE}"),
    )
)
OVERLOADS: tuple[Overload, ...] = (*_QUANTITIES, *_VERSIONS, *_AUTHORIZATION)
