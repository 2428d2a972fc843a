"""Devices that no claim holds and that are still not to be had: tainted, or reserved by the scheduler.

Given the objects of a cluster. Taints are those of slices and of DeviceTaintRules that keep claims off; reserved is
what intents name: the slot of a pod that moves, and devices that a pod removed by force may still use. Never prints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from dovetail.kubetypes import codec, node_selectors, object_set, registry
from dovetail.kubetypes.custom import intents
from dovetail.kubetypes.resource import taint_rules

NO_EFFECT: Final = "None"  # DeviceTaintEffectNone: says something, keeps no claim off

DeviceId = tuple[str, str, str]  # driver, pool, device
Taints = tuple[node_selectors.DeviceTaint, ...]


class Reserved(NamedTuple):
    """Devices by name; and extended resources, by node and resource."""

    devices: frozenset[DeviceId]
    resources: Mapping[str, Mapping[str, int]]


def keeps_off(taints: Taints) -> bool:
    """Whether a claim needs a toleration."""
    return any(taint.effect != NO_EFFECT for taint in taints)


def taints_of_rules(
    objects: object_set.ObjectSet, ids: Iterable[DeviceId]
) -> Mapping[DeviceId, Taints]:
    """The taints that DeviceTaintRules put on devices."""
    structs = [stored.struct for stored in objects.listed(registry.TAINT_RULE.name)]
    rules = [rule for rule in structs if isinstance(rule, taint_rules.DeviceTaintRule)]
    if not rules:
        return {}
    from dovetail.world.devices import taint_rule_index  # few clusters have rules

    index = taint_rule_index.Rules(rules)
    by_pool: dict[tuple[str, str], list[str]] = {}
    for driver, pool, device in ids:
        by_pool.setdefault((driver, pool), []).append(device)
    taints: dict[DeviceId, Taints] = {}
    for (driver, pool), names in by_pool.items():
        for number, of_device in index.of_devices((driver, pool), tuple(names)).items():
            taints[driver, pool, names[number]] = of_device.taints
    return taints


def reserved_in(objects: object_set.ObjectSet) -> Reserved:
    """What the intents of the scheduler keep for a pod, or out of use."""
    devices: set[DeviceId] = set()
    resources: dict[str, dict[str, int]] = {}
    for stored in objects.listed(registry.INTENT.name):
        intent = codec.typed(stored, intents.Intent)
        if intent is None:
            continue
        for kept in (intent.spec.slot, intent.spec.quarantine):
            if kept is not None:
                devices |= {(each.driver, each.pool, each.device) for each in kept.devices}
        slot = intent.spec.slot
        if slot is not None:
            of_node = resources.setdefault(slot.node, {})
            for name, amount in slot.requests.items():
                of_node[name] = of_node.get(name, 0) + amount.nanos // 10**9
    return Reserved(frozenset(devices), resources)
