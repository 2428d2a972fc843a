"""Estimates for the Kubernetes library, by function name. None means that the language's own estimate applies.

The formulas are those of Kubernetes 1.37; changing one changes which expressions a cluster accepts.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Final

from dovetail.cel.check import types
from dovetail.cel.cost import cost_library, cost_range
from dovetail.cel.cost.cost_range import MAX, ONE, REGEX, TRAVERSAL, ZERO, Range, exactly
from dovetail.cel.cost.estimate_call import Estimate, Operand, Site
from dovetail.cel.cost.estimate_sizes import ITEMS, NOWHERE

Estimator = Callable[[Site], Estimate | None]

FORMAT_NAME_LENGTH: Final = 64  # apiserver, pkg/cel/limits.go
FORMAT_REGEX_LENGTH: Final = 128  # the same
ADDRESS_BYTES: Final = Range(4, 16)  # IPv4 and IPv6


def _fixed(amount: int, site: Site) -> Estimate:
    return Estimate(exactly(amount))


def _selector(site: Site) -> Estimate | None:
    if len(site.args) != 1:
        return None
    return Estimate(cost_range.selector_cost(site.size(site.args[0])))


def _elements(site: Site) -> Estimate | None:
    """Each element once; strings and bytes also by their length. A text is traversed once."""
    target = site.target
    if target is None:
        return None
    size = site.size(target)
    element = _element(target)
    if element is None:
        return Estimate(size if site.function == "includes" else size.scaled(TRAVERSAL))
    each = ONE
    if element.type.kind in (types.Kind.STRING, types.Kind.BYTES):
        each = each.plus(site.size(element).scaled(TRAVERSAL))
    return Estimate(size.times(each))


def _parse_sized(site: Site) -> Estimate | None:
    if len(site.args) != 1:
        return None
    size = site.size(site.args[0])
    return Estimate(size.scaled(TRAVERSAL), size)


def _transform(site: Site) -> Estimate | None:
    size = site.receiver_size()
    return None if size is None else Estimate(size.scaled(TRAVERSAL), size)


def _replace(site: Site) -> Estimate | None:
    size = site.receiver_size()
    if size is None or len(site.args) < 2:
        return None
    old, new = site.size(site.args[0]), site.size(site.args[1])
    longest = _replaced(size.max, old.min, new.max, keeps=new.max <= old.min)
    shortest = _replaced(size.min, old.max, new.min, keeps=old.max <= new.min)
    return Estimate(size.scaled(2 * TRAVERSAL), Range(shortest, longest))


def _replaced(size: int, old: int, new: int, *, keeps: bool) -> int:
    """The length of a text of `size` after replacing every `old` characters with `new`."""
    if old == 0:  # an empty pattern puts the replacement around every character
        return min(min(size + 1, MAX) * new + size, MAX)
    if keeps:
        return size
    return min(cost_range.to_unsigned(math.ceil(float(size) / float(old))) * new, MAX)


def _split(site: Site) -> Estimate | None:
    size = site.receiver_size()
    if size is None:
        return None
    limit = site.args[1].literal_int() if len(site.args) > 1 else None
    most = size.max if limit is None else cost_range.wrapped(limit)
    return Estimate(size.scaled(2 * TRAVERSAL), Range(0, most))


def _join(site: Site) -> Estimate | None:
    if site.target is None:
        return None
    count = site.size(site.target)
    element = _element(site.target)
    size = ZERO if element is None else count.times(site.size(element))
    if site.args:
        gaps = Range(max(count.min - 1, 0), max(count.max - 1, 0))
        size = size.plus(site.size(site.args[0]).times(gaps))
    return Estimate(size.scaled(TRAVERSAL), size)


def _find(site: Site) -> Estimate | None:
    size = site.receiver_size()
    if size is None or not site.args:
        return None
    # One character more than the text has, so that an empty text still pays for its pattern.
    pattern = site.size(site.args[0]).scaled(REGEX)
    return Estimate(size.plus(ONE).scaled(TRAVERSAL).times(pattern), Range(0, size.max))


def _parse(factor: float, site: Site) -> Estimate | None:
    return Estimate(site.size(site.args[0]).scaled(factor)) if site.args else None


def _ip(site: Site) -> Estimate | None:
    return Estimate(ONE) if site.overload == "cidr_ip" else _parse(TRAVERSAL, site)


def _contains_ip(site: Site) -> Estimate | None:
    if not site.args:
        return None
    compare = ADDRESS_BYTES.plus(ADDRESS_BYTES).scaled(TRAVERSAL)
    return Estimate(_with_parsing(site, compare, "cidr_contains_ip_string"))


def _contains_cidr(site: Site) -> Estimate | None:
    if not site.args:
        return None
    compare = ADDRESS_BYTES.plus(ADDRESS_BYTES).scaled(TRAVERSAL)
    mask = ADDRESS_BYTES.scaled(TRAVERSAL).plus(ONE)
    return Estimate(_with_parsing(site, compare.plus(mask), "cidr_contains_cidr_string"))


def _with_parsing(site: Site, compare: Range, text_overload: str) -> Range:
    if site.overload != text_overload:
        return compare
    return compare.plus(site.size(site.args[0]).scaled(TRAVERSAL))


def _validate(site: Site) -> Estimate | None:
    if not site.args:
        return None
    walk = site.size(site.args[0]).scaled(TRAVERSAL)
    return Estimate(walk.scaled(FORMAT_REGEX_LENGTH * REGEX))


def _equal(site: Site) -> Estimate | None:
    """Two values of the same Kubernetes type have their own comparison price."""
    left, right = site.args
    if left.type.name != right.type.name:
        return None
    if left.type in (types.IP, types.CIDR) or left.type in _UNIT_EQUALITY:
        return Estimate(ONE)
    if left.type == types.FORMAT:
        return Estimate(Range(1, FORMAT_NAME_LENGTH).scaled(TRAVERSAL))
    if left.type == types.URL:
        # Only the right side counts: upstream measures it twice.
        return Estimate(Range(1, (right.size or ONE).max).scaled(TRAVERSAL))
    return None


_UNIT_EQUALITY: Final = frozenset(
    (
        types.QUANTITY,
        types.SEMVER,
        *(
            types.Type(types.Kind.STRUCT, f"kubernetes.authorization.{name}")
            for name in ("Authorizer", "PathCheck", "GroupCheck", "ResourceCheck", "Decision")
        ),
    )
)


def _element(container: Operand) -> Operand | None:
    """The element type of a list (of a map: its key type); None for other types."""
    if not container.type.params:
        return None
    path = container.path.fork(ITEMS) if container.path else NOWHERE
    return Operand(container.type.params[0], path, None, None)


ESTIMATORS: Final[Mapping[str, Estimator]] = {
    **dict.fromkeys(cost_library.UNIT_FUNCTIONS, functools.partial(_fixed, 1)),
    "check": functools.partial(_fixed, cost_range.AUTHORIZATION_COST),
    **dict.fromkeys(cost_library.SELECTORS, _selector),
    **dict.fromkeys(cost_library.ELEMENT_WALKS, _elements),
    **dict.fromkeys(cost_library.SIZED_PARSERS, _parse_sized),
    **dict.fromkeys(cost_library.TEXT_WALKS, _transform),
    **dict.fromkeys(cost_library.PARSERS, functools.partial(_parse, TRAVERSAL)),
    **dict.fromkeys(cost_library.FINDS, _find),
    "ip": _ip,
    "ip.isCanonical": functools.partial(_parse, 2 * TRAVERSAL),
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "replace": _replace,
    "split": _split,
    "join": _join,
    "validate": _validate,
    "_==_": _equal,
}
