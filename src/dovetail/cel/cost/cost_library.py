"""Prices of the Kubernetes library, by function name, and which of its functions share a price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dovetail.cel.cost import cost_range
from dovetail.cel.cost.cost_range import CALL_COST
from dovetail.cel.cost.cost_sizes import Price, regex, size, traversal, walk
from dovetail.cel.cost.cost_standard import shorter
from dovetail.cel.evaluate import values
from dovetail.cel.evaluate.values import Value
from dovetail.quantity.quantity import Quantity
from dovetail.quantity.semver import Semver

ELEMENT_WALKS: Final = ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes")
PARSERS: Final = ("quantity", "isQuantity", "semver", "isSemver", "cidr", "isIP", "isCIDR")
SIZED_PARSERS: Final = (
    "url",
    "jsonpatch.escapeKey",
)  # the estimate takes the result for as long as the text
TEXT_WALKS: Final = ("lowerAscii", "upperAscii", "substring", "trim")
SELECTORS: Final = ("fieldSelector", "labelSelector")
FINDS: Final = ("find", "findAll")
UNIT_FUNCTIONS: Final = (
    # building an authorization check and reading its decision
    *("serviceAccount", "path", "group", "resource", "subresource", "namespace", "name"),
    *("allowed", "reason", "error", "errored"),
    # reading addresses
    *("masked", "prefixLength", "family", "isUnspecified", "isLoopback"),
    *("isLinkLocalMulticast", "isLinkLocalUnicast", "isGlobalUnicast"),
    # quantities and versions
    *(
        "sign",
        "asInteger",
        "isInteger",
        "asApproximateFloat",
        "isGreaterThan",
        "isLessThan",
        "compareTo",
    ),
    *("add", "sub", "major", "minor", "patch"),
    # reading URLs
    *("getScheme", "getHostname", "getHost", "getPort", "getEscapedPath", "getQuery"),
    "format.named",
)


def _elements(args: Sequence[Value], result: Value) -> int:
    return traversal(args[0])


def _one_walk(args: Sequence[Value], result: Value) -> int:
    return walk(size(args[0]))


def _two_walks(args: Sequence[Value], result: Value) -> int:
    return walk(2 * size(args[0]))


def _join(args: Sequence[Value], result: Value) -> int:
    return walk(2 * size(result))


def _find(args: Sequence[Value], result: Value) -> int:
    return regex(size(args[0]), size(args[1]))


def _validate(args: Sequence[Value], result: Value) -> int:
    if not isinstance(args[0], values.Format):
        return CALL_COST
    return regex(size(args[1]), args[0].regex_size)


def _selector(args: Sequence[Value], result: Value) -> int:
    return cost_range.selector_cost(cost_range.exactly(size(args[1]))).max


def _contains_ip(args: Sequence[Value], result: Value) -> int:
    return walk(2 * size(args[0]))


def _contains_ip_text(args: Sequence[Value], result: Value) -> int:
    return _contains_ip(args, result) + walk(size(args[1]))


def _contains_cidr(args: Sequence[Value], result: Value) -> int:
    return walk(2 * size(args[0])) + walk(size(args[0])) + 1


def _contains_cidr_text(args: Sequence[Value], result: Value) -> int:
    return _contains_cidr(args, result) + walk(size(args[1]))


def _equal(args: Sequence[Value], result: Value) -> int:
    return 1 if args[0].__class__ in _OBJECTS else shorter(args, result)


_OBJECTS: Final = frozenset((Quantity, Semver, values.Ip, values.Cidr, values.Format, values.Url))

PRICES_BY_OVERLOAD: Final[Mapping[str, int | Price]] = {
    "cidr_ip": 1,  # reads a field; all other forms of ip parse
    "cidr_contains_ip_string": _contains_ip_text,
    "cidr_contains_cidr_string": _contains_cidr_text,
}
PRICES: Final[Mapping[str, int | Price]] = {
    **dict.fromkeys(UNIT_FUNCTIONS, 1),
    "check": cost_range.AUTHORIZATION_COST,
    **dict.fromkeys(ELEMENT_WALKS, _elements),
    **dict.fromkeys((*PARSERS, *SIZED_PARSERS, *TEXT_WALKS, "ip"), _one_walk),
    **dict.fromkeys(("replace", "split", "ip.isCanonical"), _two_walks),
    **dict.fromkeys(FINDS, _find),
    **dict.fromkeys(SELECTORS, _selector),
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "join": _join,
    "validate": _validate,
    "_==_": _equal,
}
