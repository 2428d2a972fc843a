"""Estimates for the list extension (version 3) and the set extension, by overload. Pure arithmetic."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from dovetail.cel.cost.cost_lists import PLAIN_KINDS, TEXT_KINDS
from dovetail.cel.cost.cost_range import (
    CALL_COST,
    LIST_COST,
    MAX,
    TRAVERSAL,
    Range,
    exactly,
    wrapped,
)
from dovetail.cel.cost.estimate_call import Estimate, Site

Estimator = Callable[[Site], Estimate | None]


def _list_call(factor: float, size: Range) -> Estimate:
    return Estimate(size.scaled(factor).plus(exactly(CALL_COST)).plus(exactly(LIST_COST)), size)


def _slice(site: Site) -> Estimate | None:
    size = site.receiver_size()
    if size is None or len(site.args) != 2:
        return None
    start, end = _literal(site, 0, otherwise=0), _literal(site, 1, otherwise=size.max)
    return _list_call(1.0, exactly(wrapped(end - start)))


def _range(site: Site) -> Estimate | None:
    if site.target is not None or len(site.args) != 1:
        return None
    return _list_call(1.0, exactly(_literal(site, 0, otherwise=MAX)))


def _reverse(site: Site) -> Estimate | None:
    size = site.receiver_size()
    return None if size is None or site.args else _list_call(1.0, size)


def _flatten(site: Site) -> Estimate | None:
    size = site.receiver_size()
    if size is None or len(site.args) > 1:
        return None
    depth = _literal(site, 0, otherwise=MAX) if site.args else 1
    return _list_call(float(depth), size)


def _compare_list(factor: float, site: Site) -> Estimate | None:
    size = site.receiver_size()
    return None if size is None or site.args else _list_call(factor, size.times(size))


def _compare_keys(factor: float, site: Site) -> Estimate | None:
    if site.target is None or len(site.args) != 1:
        return None
    size = site.size(site.args[0])
    return _list_call(factor, size.times(size))


def _set_call(rounds: float, site: Site) -> Estimate | None:
    if len(site.args) != 2:
        return None
    pairs = site.size(site.args[0]).times(site.size(site.args[1]))
    return Estimate(pairs.scaled(rounds).plus(exactly(CALL_COST)))


def _literal(site: Site, index: int, *, otherwise: int) -> int:
    value = site.args[index].literal_int()
    return otherwise if value is None else max(0, value)


def _sorts(kinds: Iterable[str], factor: float) -> dict[str, Estimator]:
    by_list, by_keys = (
        functools.partial(_compare_list, factor),
        functools.partial(_compare_keys, factor),
    )
    return {
        **{f"list_{kind}_sort": by_list for kind in kinds},
        **{f"list_{kind}_sortByAssociatedKeys": by_keys for kind in kinds},
    }


ESTIMATORS: Final[Mapping[str, Estimator]] = {
    "list_slice": _slice,
    "lists_range": _range,
    "list_reverse": _reverse,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "list_distinct": functools.partial(_compare_list, 2.0),
    **_sorts(PLAIN_KINDS, 2.0),
    **_sorts(TEXT_KINDS, 2.0 + TRAVERSAL),
    "list_sets_contains_list": functools.partial(_set_call, 1.0),
    "list_sets_intersects_list": functools.partial(_set_call, 1.0),
    "list_sets_equivalent_list": functools.partial(_set_call, 2.0),
}
