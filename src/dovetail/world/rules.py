"""Which DeviceTaintRules reach the devices of a pool. Given the rules; filed by pool, for there may be one for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dovetail.model import taintrules
from dovetail.model.selectors import DeviceTaint
from dovetail.world.pools import PoolKey

Rule = taintrules.DeviceTaintRule


class Ruled(NamedTuple):
    """What rules say about one device."""

    names: tuple[str, ...]  # of the rules, sorted
    taints: tuple[DeviceTaint, ...]  # one for each rule


class Rules:
    """The rules by the pool they name; those that name none reach every pool."""

    __slots__ = ("_by_pool",)

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self._by_pool: dict[str | None, list[tuple[taintrules.DeviceTaintSelector, Rule]]] = {}
        for rule in sorted(rules, key=_name):
            if (wanted := rule.spec.device_selector) is not None:
                self._by_pool.setdefault(wanted.pool, []).append((wanted, rule))

    def __bool__(self) -> bool:
        return bool(self._by_pool)

    def of_devices(self, key: PoolKey, names: tuple[str, ...]) -> Mapping[int, Ruled]:
        """By position, the devices that any rule reaches."""
        found: dict[int, Ruled] = {}
        near = [*self._by_pool.get(None, ()), *self._by_pool.get(key[1], ())]
        for wanted, rule in sorted(near, key=lambda one: _name(one[1])):
            if wanted.driver not in (None, key[0]):
                continue
            for index, name in enumerate(names):
                if wanted.device in (None, name):
                    known = found.get(index, _NOTHING)
                    found[index] = Ruled((*known.names, rule.metadata.name), (*known.taints, rule.spec.taint))
        return found


_NOTHING = Ruled((), ())


def _name(rule: Rule) -> str:
    return rule.metadata.name
