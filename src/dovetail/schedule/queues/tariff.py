"""Decides what a pod costs its queue: cpu, memory, extended resources, and GPUs on the one ledger.

A placed pod is charged for what it holds, a waiting one for what it would: of several devices that would do the dearest
where queues are compared, the cheapest where something is refused. Never keeps accounts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from fractions import Fraction

from dovetail.allocate import matching
from dovetail.errors import ExpressionError
from dovetail.model import claims, objects, pods, policy, quantity, requests, slices
from dovetail.schedule.claims import Books, Needs
from dovetail.schedule.queues import amounts
from dovetail.schedule.queues.amounts import Amounts
from dovetail.world import ledger
from dovetail.world.devices import Devices
from dovetail.world.events import ObjectKey
from dovetail.world.world import World

PRODUCT_LABEL = "nvidia.com/gpu.product"
FAMILY_LABEL = "nvidia.com/gpu.family"
CLASS_SUFFIX = ".deviceclass.resource.k8s.io/devices"
_OPTION = claims.ExactDeviceRequest | claims.DeviceSubRequest


class Tariff:
    """Prices pods in one world."""

    def __init__(self, world: World, batch: policy.Batch, named: Collection[str]) -> None:
        self._world = world
        self._batch = batch
        self._ledger = ledger.Ledger()
        self._types = frozenset(name for name in named if name.startswith("gpu/") or name.endswith(CLASS_SUFFIX))
        self._books = Books(world)
        self._asked: dict[bytes, tuple[Amounts, Amounts]] = {}

    def waiting(self, pod: pods.Pod) -> tuple[Amounts, Amounts]:
        """The least and the most a pod without a node may cost."""
        room = self._of_room(requests.pod_request(pod), {})
        needs = self._books.needs(pod)
        if not isinstance(needs, Needs) or not needs.wanted:
            return room, room
        least, most = dict(room), dict(room)
        for one in needs.wanted:
            if one.allocation is not None:
                found = self.of_claim(one.key, one.allocation)
                low = high = found
            else:
                low, high = self._of_spec(one.claim)
            amounts.add(least, low)
            amounts.add(most, high)
        return least, most

    def of_room(self, pod: pods.Pod, node: str) -> Amounts:
        """What a pod on a node costs, its claims aside."""
        known = self._world.nodes.get(node)
        return self._of_room(requests.pod_request(pod), known.metadata.labels if known is not None else {})

    def of_claim(self, key: ObjectKey, allocation: claims.AllocationResult) -> Amounts:
        """What a claim's devices cost."""
        found: Amounts = {}
        for result in allocation.devices.results:
            if result.admin_access:
                continue
            devices = self._world.devices_in((result.driver, result.pool))
            cost = self._ledger.result_cost(result, devices)
            found[amounts.GPU] = found.get(amounts.GPU, 0) + cost
            if self._types:
                amounts.add(found, self._typed(key, result, devices, cost))
        return found

    def gpus_of(self, free: requests.Resources, labels: Mapping[str, str]) -> int:
        """What extended resources of a device plugin are on the ledger."""
        return self._of_room(free, labels).get(amounts.GPU, 0) if free.scalars else 0

    def capacity(self) -> Amounts:
        """All there is in the cluster."""
        world = self._world
        found: Amounts = {}
        for node in world.nodes.values():
            offered = world.offered(node.metadata.name)
            amounts.add(found, self._of_room(offered, node.metadata.labels))
        for devices in world.published():
            gpus = self._ledger.whole_milli_gpu(devices)
            found[amounts.GPU] = found.get(amounts.GPU, 0) + gpus
            for index in range(len(devices)) if self._types else ():
                amounts.add(found, self._of_type(devices, index, self._ledger.device_cost(devices, index)))
        return found

    def _of_room(self, asked: requests.Resources, labels: Mapping[str, str]) -> Amounts:
        found = {amounts.CPU: asked.milli_cpu, amounts.MEMORY: asked.memory_bytes}
        for name, count in asked.scalars:
            price = self._batch.gpu_prices.get(name)
            gpus = price * count if price is not None else ledger.plugin_cost(name, count, labels)
            found[name] = count
            if gpus:
                found[amounts.GPU] = found.get(amounts.GPU, 0) + gpus
                if self._types:
                    amounts.add(found, self._labelled(labels, gpus))
        return found

    def _labelled(self, labels: Mapping[str, str], gpus: int) -> Amounts:
        named = (f"gpu/product.{labels.get(PRODUCT_LABEL)}", f"gpu/architecture.{labels.get(FAMILY_LABEL)}")
        return {name: gpus for name in named if name in self._types}

    def _typed(
        self, key: ObjectKey, result: claims.DeviceRequestAllocationResult, devices: Devices | None, cost: int
    ) -> Amounts:
        found: Amounts = {}
        if devices is not None and result.device in devices.names:
            found = self._of_type(devices, devices.names.index(result.device), cost)
        claim = self._world.claims.get(key)
        for request in claim.spec.devices.requests if claim is not None else ():
            for option in _options(request):
                name = option.device_class_name + CLASS_SUFFIX
                if name in self._types and result.request in (request.name, f"{request.name}/{_name(option)}"):
                    found[name] = found.get(name, 0) + 1
        return found

    def _of_type(self, devices: Devices, index: int, cost: int) -> Amounts:
        """What a device costs of its product, architecture and partition profile."""
        found: Amounts = {}
        for prefix, attribute in (("product", "productName"), ("architecture", "architecture"), ("mig", "profile")):
            column = devices.column(attribute)
            value = column[index] if column is not None else None
            if value is not None and value.string_value is not None:
                name = f"gpu/{prefix}.{value.string_value.replace(' ', '-')}"
                if name in self._types:
                    found[name] = cost
        return found

    def _of_spec(self, claim: claims.ResourceClaim) -> tuple[Amounts, Amounts]:
        text = objects.encode_struct(claim.spec)
        known = self._asked.get(text)
        if known is None:
            least: Amounts = {}
            most: Amounts = {}
            for request in claim.spec.devices.requests:
                option = next(_options(request), None)
                if option is None or getattr(option, "admin_access", None):
                    continue
                low, high = self._of_option(option)
                amounts.add(least, low)
                amounts.add(most, high)
            known = self._asked[text] = (least, most)
        return known

    def _of_option(self, option: _OPTION) -> tuple[Amounts, Amounts]:
        """The cheapest and the dearest devices that would do, as many as are asked for."""
        count = max(option.count, 1)
        found = [(cost, typed) for cost, typed in self._fitting(option)]
        classed = {option.device_class_name + CLASS_SUFFIX: count}
        counted = {name: many for name, many in classed.items() if name in self._types}
        if not found:
            return counted, counted
        bounds = []
        for cost, typed in (min(found, key=lambda one: one[0]), max(found, key=lambda one: one[0])):
            bounds.append(
                {amounts.GPU: cost * count, **{name: each * count for name, each in typed.items()}, **counted}
            )
        return bounds[0], bounds[1]

    def _fitting(self, option: _OPTION) -> Iterator[tuple[int, Amounts]]:
        class_ = self._world.classes.get(option.device_class_name)
        if class_ is None:
            return
        texts = [one.cel.expression for one in (*class_.spec.selectors, *option.selectors) if one.cel is not None]
        asked = option.capacity.requests if option.capacity is not None else {}
        seen: set[tuple[int, int, int]] = set()
        for devices in self._world.published():
            if not ledger.publishes_gpus(devices.driver):
                continue
            try:
                mask = matching.selected(devices, tuple(texts))
            except ExpressionError:
                return
            key = (id(devices.templates), mask, 0 if not self._types else id(devices.columns))
            if not mask or key in seen:
                continue
            seen.add(key)
            for index in range(len(devices)):
                if mask >> index & 1:
                    part = _part(devices.templates[index], asked)
                    if part is not None:
                        cost = round(self._ledger.device_cost(devices, index) * part)
                        yield cost, self._of_type(devices, index, cost) if self._types else {}


def _options(request: claims.DeviceRequest) -> Iterator[_OPTION]:
    if request.exactly is not None:
        yield request.exactly
    yield from request.first_available


def _name(option: _OPTION) -> str:
    return option.name if isinstance(option, claims.DeviceSubRequest) else ""


def _part(template: slices.Device, asked: Mapping[str, quantity.Quantity]) -> Fraction | None:
    """The largest part of its capacities that is asked for; all of it where nothing is; None if it has too little."""
    if not asked or not template.allow_multiple_allocations:
        return Fraction(1)
    parts = [
        Fraction(wanted.nanos, template.capacity[name].value.nanos)
        for name, wanted in asked.items()
        if name in template.capacity and template.capacity[name].value.nanos
    ]
    part = max(parts, default=Fraction(1))
    return part if part <= 1 else None
