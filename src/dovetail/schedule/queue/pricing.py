"""Decides what a pod costs its queue: cpu, memory, extended resources, and GPUs on the common ledger.

A placed pod is charged for what it holds: GPUs to `gpu`, and the same GPUs to their product, architecture,
partition profile and device class where a queue bounds those. A pending pod is charged for what it would hold.
Where several devices would do, that is the dearest when queues are compared and the cheapest when something is
refused; a type that it could do without is not counted. Never keeps accounts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

from dovetail.allocate.index import pool_index, selector_matches
from dovetail.cel.effort import UNBOUNDED
from dovetail.errors import ExpressionError
from dovetail.kubetypes import codec
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims, slices
from dovetail.model import pod_requests, policy
from dovetail.quantity import quantity
from dovetail.schedule.node import extended_resources
from dovetail.schedule.node.pod_claims import ClaimLookup, PodClaim, PodClaims
from dovetail.schedule.queue import amounts, gpu_types
from dovetail.schedule.queue.amounts import Amounts
from dovetail.world import events
from dovetail.world.devices import gpu_ledger
from dovetail.world.devices.device_columns import Devices
from dovetail.world.events import ObjectKey
from dovetail.world.world import World

_PRICED_BY: Final = (
    gpu_ledger.REPLICAS_LABEL,
    gpu_ledger.MEMORY_LABEL,
    gpu_types.PRODUCT_LABEL,
    gpu_types.FAMILY_LABEL,
)
_OPTION = claims.ExactDeviceRequest | claims.DeviceSubRequest


class Price(NamedTuple):
    """The least and the most something may cost."""

    least: Amounts
    most: Amounts


FREE: Final = Price({}, {})


class Pricing:
    """Prices pods in one world."""

    def __init__(
        self,
        world: World,
        batch: policy.Batch,
        resource_names: Collection[str],
        *,
        has_power: bool = False,
    ) -> None:
        self._world = world
        self._batch = batch
        # What prices depend on besides the policy and the World.
        self.basis = (frozenset(resource_names), has_power)
        self._ledger = gpu_ledger.Ledger()
        self._gpu_types = gpu_types.GpuTypes(resource_names, world.classes, has_power=has_power)
        self._claim_lookup = ClaimLookup(world)
        self._requests: dict[str, pod_requests.Resources] = {}  # by pod
        self._alike_pods: dict[tuple[object, ...], Price] = {}  # of pods with equal requests
        self._new_claims: dict[ObjectKey, claims.ResourceClaim] = {}  # about to be created
        self._texts: dict[ObjectKey, bytes] = {}  # of claims without devices, their spec
        self._specs: dict[bytes, Price] = {}
        self._scalars: dict[tuple[str, int], Price] = {}
        self._offering: dict[str, tuple[Mapping[str, str], ...]] | None = None
        self._behind: dict[str, str] | None = None
        self._alike: dict[str, frozenset[str]] | None = None
        self._rooms: dict[pod_requests.Resources, Amounts] = {}
        self.effort = UNBOUNDED  # what may be spent on the selectors of the current pod
        self._last: tuple[ObjectKey, claims.AllocationResult, Amounts] | None = None

    # Pending pods

    def waiting(self, pod: pods.Pod) -> Price:
        """The least and the most a pod without a node may cost. Must not be modified: equal pods share it.

        Raises Unfinished or TooExpensive where its selectors cost too much.
        """
        request = self._request(pod)
        needs = self._claim_lookup.needs(pod) if pod.spec.resource_claims else None
        pod_claims = needs.wanted if isinstance(needs, PodClaims) else ()
        if any(claim.allocation is not None for claim in pod_claims):
            return self._of_pending(request, pod_claims)

        key = (request, *[self._text(claim) for claim in pod_claims])
        price = self._alike_pods.get(key)
        if price is None:
            price = self._alike_pods[key] = self._of_pending(request, pod_claims)
        return price

    def _of_pending(self, request: pod_requests.Resources, pod_claims: Sequence[PodClaim]) -> Price:
        least = {amounts.CPU: request.milli_cpu, amounts.MEMORY: request.memory_bytes}
        most = dict(least)
        for name, count in request.scalars:
            _add(least, most, self._of_scalar(name, count))
        for claim in pod_claims:
            if claim.allocation is not None:
                cost = self.cost_of_claim(claim.key, claim.allocation)
                _add(least, most, Price(cost, cost))
            else:
                _add(least, most, self._of_spec(claim))
        return Price(least, most)

    def know_request(self, pod_id: str, request: pod_requests.Resources) -> None:
        """Says what a pending pod requests, which is not worked out again then."""
        self._requests[pod_id] = request

    def _request(self, pod: pods.Pod) -> pod_requests.Resources:
        pod_id = events.pod_id(pod)
        request = self._requests.get(pod_id)
        if request is None:
            # The World has it for running pods, but without what a claim serves.
            running = self._world.running().get(pod_id)
            is_served = pod.status.extended_resource_claim_status is not None
            if running is None or is_served:
                request = pod_requests.pod_request(pod)
            else:
                request = running[1]
            self._requests[pod_id] = request
        return request

    def _of_scalar(self, name: str, count: int) -> Price:
        """What an extended resource may cost, on whichever node offers it or whichever devices serve it."""
        price = self._scalars.get((name, count))
        if price is not None:
            return price

        costs = [self._of_plugin(name, count, labels) for labels in self._labels_offering(name)]
        prices = [Price(cost, cost) for cost in costs]
        class_name = self._classes_behind().get(name)
        if class_name is not None:
            option = claims.ExactDeviceRequest(device_class_name=class_name, count=count)
            by_devices = self._of_option(option)
            if by_devices.most:
                prices.append(by_devices)
        if not prices:
            cost = self._of_plugin(name, count, {})
            prices = [Price(cost, cost)]
        price = self._scalars[name, count] = _between(prices)
        for bound in price:
            bound[name] = count
        return price

    def _labels_offering(self, name: str) -> tuple[Mapping[str, str], ...]:
        """The labels that prices depend on, of the nodes that offer a resource, each combination once."""
        if self._offering is None:
            combinations: dict[str, dict[tuple[str | None, ...], None]] = {}
            for node in self._world.nodes.values():
                labels = node.metadata.labels
                key = tuple(labels.get(label) for label in _PRICED_BY)
                for offered, count in self._world.offered(node.metadata.name).scalars:
                    if count > 0:
                        combinations.setdefault(offered, {})[key] = None
            self._offering = {
                offered: tuple(map(_labels, keys)) for offered, keys in combinations.items()
            }
        return self._offering.get(name, ())

    def _classes_behind(self) -> dict[str, str]:
        if self._behind is None:
            self._behind = extended_resources.classes_by_resource(self._world.classes)
        return self._behind

    # Placed pods

    def cost_on_node(self, pod: pods.Pod, node: str) -> Amounts:
        """What a pod on a node costs without its claims: a claim serves what the node does not offer itself.

        Must not be modified: equal pods share it.
        """
        request = self._request(pod)
        if not request.scalars:
            shared = self._rooms.get(request)
            if shared is None:
                shared = self._rooms[request] = _cpu_and_memory(request)
            return shared

        cost = _cpu_and_memory(request)
        node_object = self._world.nodes.get(node)
        labels = node_object.metadata.labels if node_object is not None else {}
        offered = self._world.offered(node) if node_object is not None else None
        for name, count in request.scalars:
            cost[name] = cost.get(name, 0) + count
            if offered is None or offered.scalar(name) > 0 or name not in self._classes_behind():
                amounts.add(cost, self._of_plugin(name, count, labels))
        return cost

    def cost_of_claim(self, key: ObjectKey, allocation: claims.AllocationResult) -> Amounts:
        """What a claim's devices cost. Must not be modified."""
        if self._last is not None and self._last[1] is allocation and self._last[0] == key:
            return self._last[2]  # needed before a pod is placed, and again to charge it
        cost = self._of_results(key, allocation)
        self._last = (key, allocation, cost)
        return cost

    def _of_results(self, key: ObjectKey, allocation: claims.AllocationResult) -> Amounts:
        total: Amounts = {}
        for result in allocation.devices.results:
            if result.admin_access:
                continue
            devices = self._world.devices_in((result.driver, result.pool))
            cost = self._ledger.result_cost(result, devices)
            total[amounts.GPU] = total.get(amounts.GPU, 0) + cost
            if self._gpu_types.matters:
                amounts.add(total, self._typed(key, result, devices, cost))
        return total

    def add_new_claim(self, keys: Iterable[ObjectKey], claim: claims.ResourceClaim) -> None:
        """Adds a claim that is about to be created, under those of these keys that do not exist yet."""
        self._new_claims.update((key, claim) for key in keys if key not in self._world.claims)

    def gpus_of(self, free: pod_requests.Resources, labels: Mapping[str, str]) -> int:
        """What the extended resources of device plugins count, in thousandths of GPUs."""
        return sum(
            self._of_plugin(name, count, labels).get(amounts.GPU, 0) for name, count in free.scalars
        )

    def capacity(self) -> Amounts:
        """The capacity of the cluster."""
        world = self._world
        total: Amounts = {}
        for node in world.nodes.values():
            offered = world.offered(node.metadata.name)
            amounts.add(total, _cpu_and_memory(offered))
            for name, count in offered.scalars:
                amounts.add(total, {name: count})
                amounts.add(total, self._of_plugin(name, count, node.metadata.labels))

        has_types = self._gpu_types.has_types or self._gpu_types.has_classes
        for devices in world.published():
            gpus = self._ledger.whole_milli_gpu(devices)
            total[amounts.GPU] = total.get(amounts.GPU, 0) + gpus
            if has_types:
                amounts.add(total, self._gpu_types.capacity(devices, self._ledger))
        return total

    def equal_nodes(self, node: str) -> frozenset[str]:
        """The nodes on which everything costs what it costs on this one, itself included."""
        if self._alike is None:
            by_kind: dict[tuple[object, ...], set[str]] = {}
            for name in self._world.nodes:
                by_kind.setdefault(self._kind(name), set()).add(name)
            self._alike = {}
            for names in by_kind.values():
                self._alike.update(dict.fromkeys(names, frozenset(names)))
        return self._alike.get(node, frozenset({node}))

    def _kind(self, node: str) -> tuple[object, ...]:
        """What prices on a node depend on. A node with devices of several prices equals no other node."""
        labels = self._world.nodes[node].metadata.labels
        facts: list[object] = [labels.get(label) for label in _PRICED_BY]
        for pool in self._world.view(node).pools:
            devices = pool.devices
            prices = {self._ledger.device_cost(devices, index) for index in range(len(devices))}
            types = set(self._gpu_types.listed(devices)) if self._gpu_types.matters else set()
            if len(prices) > 1 or len(types) > 1:
                return (node,)
            sizes = {_capacity_key(template) for template in devices.templates}
            facts.append((devices.driver, *prices, *types, *sizes))
        return tuple(facts)

    def _of_plugin(self, name: str, count: int, labels: Mapping[str, str]) -> Amounts:
        price = self._batch.gpu_prices.get(name)
        gpus = price * count if price is not None else gpu_ledger.plugin_cost(name, count, labels)
        if not gpus:
            return {}
        typed = self._gpu_types.of_plugin(name, labels, gpus) if self._gpu_types.matters else {}
        return {amounts.GPU: gpus, **typed}

    def _typed(
        self,
        key: ObjectKey,
        result: claims.DeviceRequestAllocationResult,
        devices: Devices | None,
        cost: int,
    ) -> Amounts:
        """What a device that a claim holds counts towards its types and its class."""
        counts: Amounts = {}
        if devices is not None and result.device in devices.names:
            counts = self._gpu_types.of_device(devices, devices.names.index(result.device), cost)
        elif cost:
            counts = self._gpu_types.of_plugin(
                "", {}, cost
            )  # of a board that is gone: its power only

        claim = self._world.claims.get(key) or self._new_claims.get(key)
        if claim is None or not self._gpu_types.has_classes:
            return counts
        for request in claim.spec.devices.requests:
            for option in _options(request):
                if result.request not in (request.name, f"{request.name}/{_name(option)}"):
                    continue
                name = self._gpu_types.class_name(option.device_class_name)
                if name is not None:
                    counts[name] = _cost_in_class(result.driver, cost)
        return counts

    # Claims without devices

    def _of_spec(self, claim: PodClaim) -> Price:
        """Computed once for all claims with the same spec."""
        text = self._text(claim)
        price = self._specs.get(text)
        if price is None:
            price = self._specs[text] = self._of_requests(claim.claim.spec.devices.requests)
        return price

    def _text(self, claim: PodClaim) -> bytes:
        text = self._texts.get(claim.key)
        if text is None:
            text = self._texts[claim.key] = codec.encode_struct(claim.claim.spec)
        return text

    def _of_requests(self, requests: Iterable[claims.DeviceRequest]) -> Price:
        least: Amounts = {}
        most: Amounts = {}
        for request in requests:
            prices = [
                self._of_option(option)
                for option in _options(request)
                if not getattr(option, "admin_access", None)
            ]
            _add(least, most, _between(prices))
        return Price(least, most)

    def _of_option(self, option: _OPTION) -> Price:
        """The cheapest and the dearest devices that would do, as many as are requested."""
        if option.allocation_mode == "All":
            return _between([Price(cost, cost) for cost in self._whole_pools(option)])
        count = max(option.count or 1, 1)
        least, most = _between([Price(cost, cost) for cost in self._fitting(option)])
        return Price(
            {name: amount * count for name, amount in least.items()},
            {name: amount * count for name, amount in most.items()},
        )

    def _whole_pools(self, option: _OPTION) -> Iterator[Amounts]:
        for devices, mask in self._matching(option):
            total: Amounts = {}
            for index in pool_index.bits(mask):
                amounts.add(total, self._of_device(option, devices, index, Fraction(1)))
            yield total

    def _fitting(self, option: _OPTION) -> Iterator[Amounts]:
        requested = option.capacity.requests if option.capacity is not None else {}
        for devices, mask in self._matching(option):
            for index in pool_index.bits(mask):
                part = _part(devices.templates[index], requested)
                if part is not None:
                    yield self._of_device(option, devices, index, part)

    def _of_device(self, option: _OPTION, devices: Devices, index: int, part: Fraction) -> Amounts:
        cost = round(self._ledger.device_cost(devices, index) * part)
        counts = {amounts.GPU: cost}
        if not self._gpu_types.matters:
            return counts
        if cost:
            counts |= self._gpu_types.of_device(devices, index, cost)
        name = self._gpu_types.class_name(option.device_class_name)
        if name is not None:
            counts[name] = _cost_in_class(devices.driver, cost)
        return counts

    def _matching(self, option: _OPTION) -> Iterator[tuple[Devices, int]]:
        """Pools with the devices an option selects, as bits; each kind of pool once."""
        class_ = self._world.classes.get(option.device_class_name)
        if class_ is None:
            return
        expressions = tuple(
            selector.cel.expression
            for selector in (*class_.spec.selectors, *option.selectors)
            if selector.cel is not None
        )
        is_named = self._gpu_types.class_name(option.device_class_name) is not None
        kinds: set[tuple[int, ...]] = set()
        for devices in self._world.published():
            is_gpu = gpu_ledger.publishes_gpus(devices.driver)
            if not is_gpu and not is_named:
                continue
            try:
                mask = selector_matches.selected(devices, expressions, self.effort)
            except ExpressionError:
                return
            listed = id(self._gpu_types.listed(devices)) if self._gpu_types.matters else 0
            kind = (is_gpu, id(devices.templates), mask, listed)
            if mask and kind not in kinds:
                kinds.add(kind)
                yield devices, mask


def _cpu_and_memory(resources: pod_requests.Resources) -> Amounts:
    return {amounts.CPU: resources.milli_cpu, amounts.MEMORY: resources.memory_bytes}


def _cost_in_class(driver: str, cost: int) -> int:
    """What a device counts in its class: its part of a GPU, or one where it is no GPU."""
    return cost if gpu_ledger.publishes_gpus(driver) else gpu_ledger.WHOLE


def _capacity_key(template: slices.Device) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, entry.value.nanos) for name, entry in template.capacity.items()))


def _add(least: Amounts, most: Amounts, price: Price) -> None:
    amounts.add(least, price.least)
    amounts.add(most, price.most)


def _between(listed: Sequence[Price]) -> Price:
    """The price of one of these, whichever it will be. A type that one of them does without is not counted."""
    if not listed:
        return Price({}, {})
    if len(listed) == 1:
        return Price(dict(listed[0].least), dict(listed[0].most))

    least: Amounts = {}
    most: Amounts = {}
    for price in listed:
        most.update(dict.fromkeys(price.most, 0))
    for name in list(most):
        lowest = min(price.least.get(name, 0) for price in listed)
        if lowest:
            least[name] = lowest
        if lowest or name == amounts.GPU:  # GPUs in total always count
            most[name] = max(price.most.get(name, 0) for price in listed)
        else:
            del most[name]
    return Price(least, most)


def _labels(values: Iterable[str | None]) -> dict[str, str]:
    return {
        label: value for label, value in zip(_PRICED_BY, values, strict=True) if value is not None
    }


def _options(request: claims.DeviceRequest) -> Iterator[_OPTION]:
    if request.exactly is not None:
        yield request.exactly
    yield from request.first_available


def _name(option: _OPTION) -> str:
    return option.name if isinstance(option, claims.DeviceSubRequest) else ""


def _part(template: slices.Device, requested: Mapping[str, quantity.Quantity]) -> Fraction | None:
    """The largest part of its capacities that is requested, all of it where none is; None if it has too little."""
    if not requested or not template.allow_multiple_allocations:
        return Fraction(1)
    parts = [
        Fraction(amount.nanos, template.capacity[name].value.nanos)
        for name, amount in requested.items()
        if name in template.capacity and template.capacity[name].value.nanos
    ]
    part = max(parts, default=Fraction(1))
    return part if part <= 1 else None
