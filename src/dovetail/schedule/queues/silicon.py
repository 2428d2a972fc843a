"""Decides of which type silicon is, as queues name it: product, architecture, partition, class; and what it draws.

Given the names that queues bound; answers with the same names, in one spelling. A board's power is its rated power by
the catalogue; a board the catalogue does not know counts as the hungriest that it does, so that a cap holds. Never
prices, never keeps accounts.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from dovetail.allocate import matching
from dovetail.errors import ExpressionError
from dovetail.model import classes, queueresources
from dovetail.model.gpus import catalogue
from dovetail.model.queueresources import Measure
from dovetail.schedule.queues import amounts
from dovetail.schedule.queues.amounts import Amounts
from dovetail.world import ledger
from dovetail.world.devices import Column, Devices

PRODUCT_LABEL: Final = "nvidia.com/gpu.product"  # these two are written by GPU feature discovery
FAMILY_LABEL: Final = "nvidia.com/gpu.family"
ATTRIBUTES: Final = {Measure.PRODUCT: "productName", Measure.ARCHITECTURE: "architecture", Measure.PROFILE: "profile"}

_PLUGIN_PROFILE: Final = re.compile(r"nvidia\.com/mig-(.+)")
_SHARED_BOARD: Final = re.compile(r"-(?:shared|mig-.*)$")  # what feature discovery adds to a product that is divided

Types = tuple[str, ...]  # names of accounts


class Silicon:
    """The types that matter in one decision."""

    def __init__(self, named: Collection[str], known: Mapping[str, classes.DeviceClass], *, has_power: bool) -> None:
        read = {amounts.named(name): queueresources.read(name) for name in named}
        self._has_power = has_power
        self._classes = known
        self._by_measure = {
            measure: {one.subject: name for name, one in read.items() if one is not None and one.measure is measure}
            for measure in (*ATTRIBUTES, Measure.DEVICE_CLASS)
        }
        self.has_types = any(self._by_measure[measure] for measure in ATTRIBUTES)
        self.has_classes = bool(self._by_measure[Measure.DEVICE_CLASS])
        self.matters = self.has_types or self.has_classes or has_power
        self._listed: dict[tuple[int, ...], tuple[tuple[Types, int], ...]] = {}
        self._sizes: dict[tuple[int, ...], Amounts] = {}
        self._kept: list[object] = []  # what is known by identity has to stay

    def of_device(self, devices: Devices, index: int, cost: int) -> Amounts:
        """What so much of a device is of its types, its class aside."""
        types, watts = self.listed(devices)[index]
        found = dict.fromkeys(types, cost)
        if self._has_power and cost:
            found[amounts.POWER] = drawn(watts, cost)
        return found

    def listed(self, devices: Devices) -> tuple[tuple[Types, int], ...]:
        """The types and the rated power of every device. Kept once for all pools that look alike."""
        columns = [devices.column(name) for name in ATTRIBUTES.values()]
        key = (len(devices), *map(id, columns))
        known = self._listed.get(key)
        if known is None:
            self._kept.extend(columns)
            known = self._listed[key] = tuple(self._read(columns, index) for index in range(len(devices)))
        return known

    def _read(self, columns: list[Column | None], index: int) -> tuple[Types, int]:
        texts = [_text(column, index) for column in columns]
        types = tuple(
            name
            for measure, text in zip(ATTRIBUTES, texts, strict=True)
            if text and (name := self._by_measure[measure].get(queueresources.slug(text))) is not None
        )
        return types, watts_of(queueresources.slug(texts[0])) if self._has_power else 0

    def of_plugin(self, resource: str, labels: Mapping[str, str], cost: int) -> Amounts:
        """What so much of a device plugin's resource is on a node with these labels."""
        product = product_of(labels)
        profile = _PLUGIN_PROFILE.fullmatch(resource)
        subjects = {
            Measure.PRODUCT: product,
            Measure.ARCHITECTURE: queueresources.slug(labels.get(FAMILY_LABEL, "")),
            Measure.PROFILE: queueresources.slug(profile[1]) if profile else "",
        }
        named = (self._by_measure[measure].get(subject) for measure, subject in subjects.items())
        found = dict.fromkeys((name for name in named if name is not None), cost)
        if self._has_power and cost:
            found[amounts.POWER] = drawn(watts_of(product), cost)
        return found

    def class_name(self, device_class: str) -> str | None:
        """The account of what is held through a class."""
        return self._by_measure[Measure.DEVICE_CLASS].get(device_class)

    def capacity(self, devices: Devices, prices: ledger.Ledger) -> Amounts:
        """What a pool has of every type. Worked out once for all pools that look alike."""
        subjects = self._by_measure[Measure.DEVICE_CLASS]
        in_class = {name: self._in_class(devices, subject) for subject, name in subjects.items()}
        is_gpu = ledger.publishes_gpus(devices.driver)
        key = (is_gpu, id(devices.templates), id(devices.counter_sets), id(self.listed(devices)), *in_class.values())
        known = self._sizes.get(key)
        if known is None:
            self._kept += (devices.templates, devices.counter_sets)
            masks = self._masks(devices) | in_class
            known = {name: size_of(devices, mask, prices) for name, mask in masks.items() if mask}
            self._sizes[key] = known
        return known

    def _masks(self, devices: Devices) -> dict[str, int]:
        found: dict[str, int] = {}
        for index, (types, _) in enumerate(self.listed(devices)) if ledger.publishes_gpus(devices.driver) else ():
            for name in types:
                found[name] = found.get(name, 0) | 1 << index
        return found

    def _in_class(self, devices: Devices, name: str) -> int:
        class_ = self._classes.get(name)
        if class_ is None:
            return 0
        texts = tuple(one.cel.expression for one in class_.spec.selectors if one.cel is not None)
        try:
            return matching.selected(devices, texts)
        except ExpressionError:
            return 0


def size_of(devices: Devices, mask: int, prices: ledger.Ledger) -> int:
    """What some devices of a pool are together at most: of one set of counters never more than the whole board."""
    loose = 0
    in_set: dict[str, int] = {}
    for index in indexes(mask):
        consumed = devices.templates[index].consumes_counters
        if not consumed:
            loose += unit_cost(devices, index, prices)
        else:
            share = unit_cost(devices, index, prices) // len(consumed)
            for one in consumed:
                in_set[one.counter_set] = in_set.get(one.counter_set, 0) + share
    return loose + sum(min(size, ledger.WHOLE) for size in in_set.values())


def unit_cost(devices: Devices, index: int, prices: ledger.Ledger) -> int:
    """What a device counts in its class: silicon, or, where it is no GPU, one."""
    return prices.device_cost(devices, index) if ledger.publishes_gpus(devices.driver) else ledger.WHOLE


def indexes(mask: int) -> Iterator[int]:
    """The places of the bits that are set."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def product_of(labels: Mapping[str, str]) -> str:
    """The product that node labels tell, as queues name it."""
    return _SHARED_BOARD.sub("", queueresources.slug(labels.get(PRODUCT_LABEL, "")))


def drawn(watts: int, cost: int) -> int:
    """The part of a board's power that so much of its silicon is charged with."""
    return -(-watts * cost // ledger.WHOLE)


def watts_of(product: str) -> int:
    """The rated power of a board by its product, as queues name it."""
    known = _rated()
    return known.get(product, max(known.values()))


@functools.cache
def _rated() -> dict[str, int]:
    found: dict[str, int] = {}
    for gpu in catalogue.all_gpus():
        others = gpu.other_products.value if gpu.other_products is not None else ()
        for product in (gpu.product.value, *others) if gpu.tdp_watts is not None else ():
            assert gpu.tdp_watts is not None
            found[queueresources.slug(product)] = gpu.tdp_watts.value
    return found


def _text(column: Column | None, index: int) -> str:
    value = column[index] if column is not None else None
    return value.string_value or "" if value is not None else ""
