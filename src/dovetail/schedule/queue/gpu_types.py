"""Decides the type of a GPU as queues name it: product, architecture, partition, class; and the power it draws.

Given the names that queues bound; returns the same names, in their canonical spelling. A board's power is its rated
power by the catalogue; an unknown board counts as the hungriest known one, so that a cap holds. Never prices, never
keeps accounts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from dovetail import cache
from dovetail.allocate.index import pool_index, selector_matches
from dovetail.errors import ExpressionError
from dovetail.gpus import catalogue
from dovetail.kubetypes.resource import device_classes
from dovetail.model.queue import queue_resources
from dovetail.model.queue.queue_resources import Measure
from dovetail.schedule.queue import amounts
from dovetail.schedule.queue.amounts import Amounts
from dovetail.world.devices import gpu_ledger
from dovetail.world.devices.device_columns import Column, Devices

PRODUCT_LABEL: Final = "nvidia.com/gpu.product"  # these two are written by GPU feature discovery
FAMILY_LABEL: Final = "nvidia.com/gpu.family"
ATTRIBUTES: Final = {
    Measure.PRODUCT: "productName",
    Measure.ARCHITECTURE: "architecture",
    Measure.PROFILE: "profile",
}

_PLUGIN_PROFILE: Final = re.compile(r"nvidia\.com/mig-(.+)")
# The suffix that feature discovery adds to the product of a board that is shared or partitioned.
_SHARED_BOARD: Final = re.compile(r"-(?:shared|mig-.*)$")

Types = tuple[str, ...]  # names of accounts


class GpuTypes:
    """The types that matter in one decision."""

    def __init__(
        self,
        resource_names: Collection[str],
        classes: Mapping[str, device_classes.DeviceClass],
        *,
        has_power: bool,
    ) -> None:
        self._has_power = has_power
        self._classes = classes
        # By measure and subject, the name of the account.
        self._by_measure: dict[Measure, dict[str, str]] = {
            measure: {} for measure in (*ATTRIBUTES, Measure.DEVICE_CLASS)
        }
        for spelled in resource_names:
            resource = queue_resources.read(spelled)
            if resource is not None and resource.measure in self._by_measure:
                by_subject = self._by_measure[resource.measure]
                by_subject[resource.subject] = amounts.canonical_name(spelled)
        self.has_types = any(self._by_measure[measure] for measure in ATTRIBUTES)
        self.has_classes = bool(self._by_measure[Measure.DEVICE_CLASS])
        self.matters = self.has_types or self.has_classes or has_power
        self._listed: dict[tuple[int, ...], tuple[tuple[Types, int], ...]] = {}
        self._sizes: dict[tuple[int, ...], Amounts] = {}
        self._alive: list[object] = []  # keys are identities, so these objects must stay alive

    def of_device(self, devices: Devices, index: int, cost: int) -> Amounts:
        """What so much of a device counts towards its types, without its class."""
        types, watts = self.listed(devices)[index]
        amounts_by_type = dict.fromkeys(types, cost)
        if self._has_power and cost:
            amounts_by_type[amounts.POWER] = power_of(watts, cost)
        return amounts_by_type

    def listed(self, devices: Devices) -> tuple[tuple[Types, int], ...]:
        """The types and the rated power of every device. Cached once for all equal pools."""
        columns = [devices.column(name) for name in ATTRIBUTES.values()]
        key = (len(devices), *map(id, columns))
        listed = self._listed.get(key)
        if listed is None:
            self._alive.extend(columns)
            listed = tuple(self._types_at(columns, index) for index in range(len(devices)))
            self._listed[key] = listed
        return listed

    def _types_at(self, columns: list[Column | None], index: int) -> tuple[Types, int]:
        texts = [_text(column, index) for column in columns]
        types: list[str] = []
        for measure, text in zip(ATTRIBUTES, texts, strict=True):
            name = self._by_measure[measure].get(queue_resources.slug(text)) if text else None
            if name is not None:
                types.append(name)
        watts = watts_of(queue_resources.slug(texts[0])) if self._has_power else 0
        return tuple(types), watts

    def of_plugin(self, resource: str, labels: Mapping[str, str], cost: int) -> Amounts:
        """What so much of a device plugin's resource counts towards its types, on a node with these labels."""
        product = product_of(labels)
        profile = _PLUGIN_PROFILE.fullmatch(resource)
        subjects = {
            Measure.PRODUCT: product,
            Measure.ARCHITECTURE: queue_resources.slug(labels.get(FAMILY_LABEL, "")),
            Measure.PROFILE: queue_resources.slug(profile[1]) if profile else "",
        }
        amounts_by_type: Amounts = {}
        for measure, subject in subjects.items():
            name = self._by_measure[measure].get(subject)
            if name is not None:
                amounts_by_type[name] = cost
        if self._has_power and cost:
            amounts_by_type[amounts.POWER] = power_of(watts_of(product), cost)
        return amounts_by_type

    def class_name(self, device_class: str) -> str | None:
        """The account of what is held through a class."""
        return self._by_measure[Measure.DEVICE_CLASS].get(device_class)

    def capacity(self, devices: Devices, prices: gpu_ledger.Ledger) -> Amounts:
        """What a pool has of every type. Computed once for all equal pools."""
        subjects = self._by_measure[Measure.DEVICE_CLASS]
        in_class = {name: self._in_class(devices, subject) for subject, name in subjects.items()}
        is_gpu = gpu_ledger.publishes_gpus(devices.driver)
        key = (
            is_gpu,
            id(devices.templates),
            id(devices.counter_sets),
            id(self.listed(devices)),
            *in_class.values(),
        )
        sizes = self._sizes.get(key)
        if sizes is None:
            self._alive += (devices.templates, devices.counter_sets)
            masks = self._masks(devices) | in_class
            sizes = {name: size_of(devices, mask, prices) for name, mask in masks.items() if mask}
            self._sizes[key] = sizes
        return sizes

    def _masks(self, devices: Devices) -> dict[str, int]:
        """By type, the devices of a pool as bits."""
        masks: dict[str, int] = {}
        if not gpu_ledger.publishes_gpus(devices.driver):
            return masks
        for index, (types, _) in enumerate(self.listed(devices)):
            for name in types:
                masks[name] = masks.get(name, 0) | 1 << index
        return masks

    def _in_class(self, devices: Devices, name: str) -> int:
        class_ = self._classes.get(name)
        if class_ is None:
            return 0
        expressions = tuple(
            selector.cel.expression
            for selector in class_.spec.selectors
            if selector.cel is not None
        )
        try:
            return selector_matches.selected(devices, expressions)
        except ExpressionError:
            return 0


def size_of(devices: Devices, mask: int, prices: gpu_ledger.Ledger) -> int:
    """What some devices of a pool count together at most: those of one counter set never more than a whole board."""
    without_counters = 0
    by_counter_set: dict[str, int] = {}
    for index in pool_index.bits(mask):
        cost = unit_cost(devices, index, prices)
        consumptions = devices.templates[index].consumes_counters
        if not consumptions:
            without_counters += cost
            continue
        share = cost // len(consumptions)
        for consumption in consumptions:
            counter_set = consumption.counter_set
            by_counter_set[counter_set] = by_counter_set.get(counter_set, 0) + share
    return without_counters + sum(min(size, gpu_ledger.WHOLE) for size in by_counter_set.values())


def unit_cost(devices: Devices, index: int, prices: gpu_ledger.Ledger) -> int:
    """What a device counts in its class: its part of a GPU, or one where it is no GPU."""
    return (
        prices.device_cost(devices, index)
        if gpu_ledger.publishes_gpus(devices.driver)
        else gpu_ledger.WHOLE
    )


def product_of(labels: Mapping[str, str]) -> str:
    """The product in node labels, as queues name it."""
    return _SHARED_BOARD.sub("", queue_resources.slug(labels.get(PRODUCT_LABEL, "")))


def power_of(watts: int, cost: int) -> int:
    """The part of a board's power that so much of it is charged with; rounded up."""
    return -(-watts * cost // gpu_ledger.WHOLE)


def watts_of(product: str) -> int:
    """The rated power of a board by its product, as queues name it."""
    watts_by_product = _rated()
    return watts_by_product.get(product, max(watts_by_product.values()))


@cache.remembered()
def _rated() -> dict[str, int]:
    """By product, the rated power in the catalogue."""
    watts_by_product: dict[str, int] = {}
    for gpu in catalogue.all_gpus():
        if gpu.tdp_watts is None:
            continue
        further_products = gpu.other_products.value if gpu.other_products is not None else ()
        for product in (gpu.product.value, *further_products):
            watts_by_product[queue_resources.slug(product)] = gpu.tdp_watts.value
    return watts_by_product


def _text(column: Column | None, index: int) -> str:
    value = column[index] if column is not None else None
    if value is None:
        return ""
    return value.string_value or ""
