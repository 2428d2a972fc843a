"""Index of DeviceTaintRules: which rules taint the devices of a pool. Filed by pool: there may be a rule for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dovetail.kubetypes.node_selectors import DeviceTaint
from dovetail.kubetypes.resource import taint_rules
from dovetail.world.devices.device_pools import PoolKey

Rule = taint_rules.DeviceTaintRule


class RulesOfDevice(NamedTuple):
    """The rules that taint one device."""

    names: tuple[str, ...]  # of the rules, sorted
    taints: tuple[DeviceTaint, ...]  # one for each rule


class Rules:
    """The rules by the pool they name; rules without a pool apply to every pool."""

    __slots__ = ("_by_pool",)

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self._by_pool: dict[str | None, list[tuple[taint_rules.DeviceTaintSelector, Rule]]] = {}
        for rule in sorted(rules, key=_name):
            selector = rule.spec.device_selector
            if selector is not None:
                self._by_pool.setdefault(selector.pool, []).append((selector, rule))

    def __bool__(self) -> bool:
        return bool(self._by_pool)

    def of_devices(self, key: PoolKey, names: tuple[str, ...]) -> Mapping[int, RulesOfDevice]:
        """By position, the devices that any rule taints."""
        driver, pool = key
        applicable = [*self._by_pool.get(None, ()), *self._by_pool.get(pool, ())]
        applicable.sort(key=lambda entry: _name(entry[1]))
        tainted: dict[int, RulesOfDevice] = {}
        for selector, rule in applicable:
            if selector.driver not in (None, driver):
                continue
            for index, name in enumerate(names):
                if selector.device in (None, name):
                    rules, taints = tainted.get(index, _NOTHING)
                    tainted[index] = RulesOfDevice(
                        (*rules, rule.metadata.name), (*taints, rule.spec.taint)
                    )
        return tainted


_NOTHING = RulesOfDevice((), ())


def _name(rule: Rule) -> str:
    return rule.metadata.name
