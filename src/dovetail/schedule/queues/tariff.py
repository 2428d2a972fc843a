"""Decides what a pod costs its queue: cpu, memory, extended resources, and GPUs on the one ledger.

A placed pod is charged for what it holds: silicon to `gpu`, and the same silicon to its product, architecture,
partition profile and device class where a queue bounds those. A waiting pod is charged for what it would hold: of
several devices that would do the dearest where queues are compared, the cheapest where something is refused; a type it
could do without is not counted. Never keeps accounts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

from dovetail.allocate import matching
from dovetail.cel.effort import UNBOUNDED
from dovetail.errors import ExpressionError
from dovetail.model import claims, objects, pods, policy, quantity, requests, slices
from dovetail.schedule import extended
from dovetail.schedule.claims import Books, Needs, Wanted
from dovetail.schedule.queues import amounts, silicon
from dovetail.schedule.queues.amounts import Amounts
from dovetail.world import ledger
from dovetail.world.devices import Devices
from dovetail.world.events import ObjectKey, pod_id
from dovetail.world.world import World

_PRICED_BY: Final = (ledger.REPLICAS_LABEL, ledger.MEMORY_LABEL, silicon.PRODUCT_LABEL, silicon.FAMILY_LABEL)
_OPTION = claims.ExactDeviceRequest | claims.DeviceSubRequest


class Price(NamedTuple):
    """The least and the most something may cost."""

    least: Amounts
    most: Amounts


FREE: Final = Price({}, {})


class Tariff:
    """Prices pods in one world."""

    def __init__(self, world: World, batch: policy.Batch, named: Collection[str], *, has_power: bool = False) -> None:
        self._world = world
        self._batch = batch
        self.basis = (frozenset(named), has_power)  # what prices depend on, the policy and the world aside
        self._ledger = ledger.Ledger()
        self._silicon = silicon.Silicon(named, world.classes, has_power=has_power)
        self._books = Books(world)
        self._requests: dict[str, requests.Resources] = {}  # by pod
        self._alike_pods: dict[tuple[object, ...], Price] = {}  # of pods that ask for the same
        self._made: dict[ObjectKey, claims.ResourceClaim] = {}
        self._texts: dict[ObjectKey, bytes] = {}  # of claims without devices, what they ask for
        self._specs: dict[bytes, Price] = {}
        self._scalars: dict[tuple[str, int], Price] = {}
        self._offering: dict[str, tuple[Mapping[str, str], ...]] | None = None
        self._behind: dict[str, str] | None = None
        self._alike: dict[str, frozenset[str]] | None = None
        self._rooms: dict[requests.Resources, Amounts] = {}
        self.effort = UNBOUNDED  # what may be spent on selectors of the pod asked about
        self._last: tuple[ObjectKey, claims.AllocationResult, Amounts] | None = None

    # Waiting

    def waiting(self, pod: pods.Pod) -> Price:
        """The least and the most a pod without a node may cost. Not to be changed: pods that ask alike share it.

        Raises Unfinished or TooExpensive where its selectors take too much.
        """
        asked = self._request(pod)
        needs = self._books.needs(pod) if pod.spec.resource_claims else None
        wanted = needs.wanted if isinstance(needs, Needs) else ()
        if any(one.allocation is not None for one in wanted):
            return self._of_wanted(asked, wanted)
        key = (asked, *[self._text(one) for one in wanted])
        known = self._alike_pods.get(key)
        if known is None:
            known = self._alike_pods[key] = self._of_wanted(asked, wanted)
        return known

    def _of_wanted(self, asked: requests.Resources, wanted: Sequence[Wanted]) -> Price:
        least = {amounts.CPU: asked.milli_cpu, amounts.MEMORY: asked.memory_bytes}
        most = dict(least)
        for name, count in asked.scalars:
            _add(least, most, self._of_scalar(name, count))
        for one in wanted:
            if one.allocation is not None:
                found = self.of_claim(one.key, one.allocation)
                _add(least, most, Price(found, found))
            else:
                _add(least, most, self._of_spec(one))
        return Price(least, most)

    def _request(self, pod: pods.Pod) -> requests.Resources:
        id_ = pod_id(pod)
        known = self._requests.get(id_)
        if known is None:
            held = self._world.running().get(id_)  # counted once already, unless a claim serves part of it
            is_served = pod.status.extended_resource_claim_status is not None
            known = requests.pod_request(pod) if held is None or is_served else held[1]
            self._requests[id_] = known
        return known

    def _of_scalar(self, name: str, count: int) -> Price:
        """What an extended resource may cost, on whichever node offers it or whichever devices serve it."""
        known = self._scalars.get((name, count))
        if known is None:
            priced = [self._of_plugin(name, count, labels) for labels in self._labels_offering(name)]
            found = [Price(one, one) for one in priced]
            if (class_ := self._classes_behind().get(name)) is not None:
                served = self._of_option(claims.ExactDeviceRequest(device_class_name=class_, count=count))
                found.extend(one for one in (served,) if one.most)
            if not found:
                found = [Price(*2 * (self._of_plugin(name, count, {}),))]
            known = self._scalars[name, count] = _between(found)
            for bound in known:
                bound[name] = count
        return known

    def _labels_offering(self, name: str) -> tuple[Mapping[str, str], ...]:
        """The labels that prices depend on, of the nodes that offer a resource, each combination once."""
        if self._offering is None:
            found: dict[str, dict[tuple[str | None, ...], None]] = {}
            for node in self._world.nodes.values():
                labels = node.metadata.labels
                key = tuple(labels.get(label) for label in _PRICED_BY)
                for offered, count in self._world.offered(node.metadata.name).scalars:
                    if count > 0:
                        found.setdefault(offered, {})[key] = None
            self._offering = {offered: tuple(map(_labels, keys)) for offered, keys in found.items()}
        return self._offering.get(name, ())

    def _classes_behind(self) -> dict[str, str]:
        if self._behind is None:
            self._behind = extended.classes_by_resource(self._world.classes)
        return self._behind

    # Placed

    def of_room(self, pod: pods.Pod, node: str) -> Amounts:
        """What a pod on a node costs, its claims aside: what the node does not offer itself is served by a claim.

        Not to be changed: others may have been given the same.
        """
        asked = self._request(pod)
        if not asked.scalars:
            plain = self._rooms.get(asked)
            if plain is None:
                plain = self._rooms[asked] = {amounts.CPU: asked.milli_cpu, amounts.MEMORY: asked.memory_bytes}
            return plain
        found = {amounts.CPU: asked.milli_cpu, amounts.MEMORY: asked.memory_bytes}
        known = self._world.nodes.get(node)
        labels = known.metadata.labels if known is not None else {}
        offered = self._world.offered(node) if known is not None else None
        for name, count in asked.scalars:
            found[name] = found.get(name, 0) + count
            if offered is None or offered.scalar(name) > 0 or name not in self._classes_behind():
                amounts.add(found, self._of_plugin(name, count, labels))
        return found

    def of_claim(self, key: ObjectKey, allocation: claims.AllocationResult) -> Amounts:
        """What a claim's devices cost. Not to be changed."""
        if self._last is not None and self._last[1] is allocation and self._last[0] == key:
            return self._last[2]  # asked before a pod is placed, and again to charge it
        found = self._of_results(key, allocation)
        self._last = (key, allocation, found)
        return found

    def _of_results(self, key: ObjectKey, allocation: claims.AllocationResult) -> Amounts:
        found: Amounts = {}
        for result in allocation.devices.results:
            if result.admin_access:
                continue
            devices = self._world.devices_in((result.driver, result.pool))
            cost = self._ledger.result_cost(result, devices)
            found[amounts.GPU] = found.get(amounts.GPU, 0) + cost
            if self._silicon.matters:
                amounts.add(found, self._typed(key, result, devices, cost))
        return found

    def introduce(self, keys: Iterable[ObjectKey], claim: claims.ResourceClaim) -> None:
        """A claim that is about to be made, under whichever of these keys is not known yet."""
        self._made.update((key, claim) for key in keys if key not in self._world.claims)

    def gpus_of(self, free: requests.Resources, labels: Mapping[str, str]) -> int:
        """What extended resources of a device plugin are on the ledger."""
        return sum(self._of_plugin(name, count, labels).get(amounts.GPU, 0) for name, count in free.scalars)

    def capacity(self) -> Amounts:
        """All there is in the cluster."""
        world = self._world
        found: Amounts = {}
        for node in world.nodes.values():
            offered = world.offered(node.metadata.name)
            amounts.add(found, {amounts.CPU: offered.milli_cpu, amounts.MEMORY: offered.memory_bytes})
            for name, count in offered.scalars:
                amounts.add(found, {name: count})
                amounts.add(found, self._of_plugin(name, count, node.metadata.labels))
        has_types = self._silicon.has_types or self._silicon.has_classes
        for devices in world.published():
            gpus = self._ledger.whole_milli_gpu(devices)
            found[amounts.GPU] = found.get(amounts.GPU, 0) + gpus
            if has_types:
                amounts.add(found, self._silicon.capacity(devices, self._ledger))
        return found

    def alike(self, node: str) -> frozenset[str]:
        """The nodes on which everything costs what it costs on this one, itself included."""
        if self._alike is None:
            found: dict[tuple[object, ...], set[str]] = {}
            for name in self._world.nodes:
                found.setdefault(self._kind(name), set()).add(name)
            self._alike = {name: one for group in found.values() for one in (frozenset(group),) for name in group}
        return self._alike.get(node, frozenset({node}))

    def _kind(self, node: str) -> tuple[object, ...]:
        """What prices on a node depend on. One with devices of several prices is like no other: some may be taken."""
        labels = self._world.nodes[node].metadata.labels
        told: list[object] = [labels.get(label) for label in _PRICED_BY]
        for pool in self._world.view(node).pools:
            devices = pool.devices
            prices = {self._ledger.device_cost(devices, index) for index in range(len(devices))}
            types = set(self._silicon.listed(devices)) if self._silicon.matters else set()
            if len(prices) > 1 or len(types) > 1:
                return (node,)
            sizes = {tuple(sorted((k, v.value.nanos) for k, v in one.capacity.items())) for one in devices.templates}
            told.append((devices.driver, *prices, *types, *sizes))
        return tuple(told)

    def _of_plugin(self, name: str, count: int, labels: Mapping[str, str]) -> Amounts:
        price = self._batch.gpu_prices.get(name)
        gpus = price * count if price is not None else ledger.plugin_cost(name, count, labels)
        if not gpus:
            return {}
        typed = self._silicon.of_plugin(name, labels, gpus) if self._silicon.matters else {}
        return {amounts.GPU: gpus, **typed}

    def _typed(
        self, key: ObjectKey, result: claims.DeviceRequestAllocationResult, devices: Devices | None, cost: int
    ) -> Amounts:
        found: Amounts = {}
        if devices is not None and result.device in devices.names:
            found = self._silicon.of_device(devices, devices.names.index(result.device), cost)
        elif cost:
            found = self._silicon.of_plugin("", {}, cost)  # of a board that is gone nobody knows more than its power
        claim = self._world.claims.get(key) or self._made.get(key)
        for request in claim.spec.devices.requests if claim is not None and self._silicon.has_classes else ():
            for option in _options(request):
                is_it = result.request in (request.name, f"{request.name}/{_name(option)}")
                name = self._silicon.class_name(option.device_class_name) if is_it else None
                if name is not None:
                    found[name] = cost if ledger.publishes_gpus(result.driver) else ledger.WHOLE
        return found

    # Claims without devices

    def _of_spec(self, wanted: Wanted) -> Price:
        """Worked out once for all claims that ask for the same."""
        text = self._text(wanted)
        known = self._specs.get(text)
        if known is None:
            known = self._specs[text] = self._of_requests(wanted.claim.spec.devices.requests)
        return known

    def _text(self, wanted: Wanted) -> bytes:
        known = self._texts.get(wanted.key)
        if known is None:
            known = self._texts[wanted.key] = objects.encode_struct(wanted.claim.spec)
        return known

    def _of_requests(self, asked: Iterable[claims.DeviceRequest]) -> Price:
        least: Amounts = {}
        most: Amounts = {}
        for request in asked:
            options = [self._of_option(one) for one in _options(request) if not getattr(one, "admin_access", None)]
            _add(least, most, _between(options))
        return Price(least, most)

    def _of_option(self, option: _OPTION) -> Price:
        """The cheapest and the dearest devices that would do, as many as are asked for."""
        if option.allocation_mode == "All":
            return _between([Price(one, one) for one in self._whole_pools(option)])
        count = max(option.count or 1, 1)
        price = _between([Price(one, one) for one in self._fitting(option)])
        return Price(*({name: each * count for name, each in bound.items()} for bound in price))

    def _whole_pools(self, option: _OPTION) -> Iterator[Amounts]:
        for devices, mask in self._matching(option):
            found: Amounts = {}
            for index in silicon.indexes(mask):
                amounts.add(found, self._of_one(option, devices, index, Fraction(1)))
            yield found

    def _fitting(self, option: _OPTION) -> Iterator[Amounts]:
        asked = option.capacity.requests if option.capacity is not None else {}
        for devices, mask in self._matching(option):
            for index in silicon.indexes(mask):
                part = _part(devices.templates[index], asked)
                if part is not None:
                    yield self._of_one(option, devices, index, part)

    def _of_one(self, option: _OPTION, devices: Devices, index: int, part: Fraction) -> Amounts:
        cost = round(self._ledger.device_cost(devices, index) * part)
        found = {amounts.GPU: cost}
        if self._silicon.matters:
            found |= self._silicon.of_device(devices, index, cost) if cost else {}
            name = self._silicon.class_name(option.device_class_name)
            if name is not None:
                found[name] = cost if ledger.publishes_gpus(devices.driver) else ledger.WHOLE
        return found

    def _matching(self, option: _OPTION) -> Iterator[tuple[Devices, int]]:
        """Pools with the devices an option selects, each kind of pool once."""
        class_ = self._world.classes.get(option.device_class_name)
        if class_ is None:
            return
        texts = tuple(one.cel.expression for one in (*class_.spec.selectors, *option.selectors) if one.cel is not None)
        is_named = self._silicon.class_name(option.device_class_name) is not None
        seen: set[tuple[int, ...]] = set()
        for devices in self._world.published():
            if not ledger.publishes_gpus(devices.driver) and not is_named:
                continue
            try:
                mask = matching.selected(devices, texts, self.effort)
            except ExpressionError:
                return
            listed = id(self._silicon.listed(devices)) if self._silicon.matters else 0
            key = (ledger.publishes_gpus(devices.driver), id(devices.templates), mask, listed)
            if mask and key not in seen:
                seen.add(key)
                yield devices, mask


def _add(least: Amounts, most: Amounts, price: Price) -> None:
    amounts.add(least, price.least)
    amounts.add(most, price.most)


def _between(listed: Sequence[Price]) -> Price:
    """One of these, nobody knows which. What some of them do without is no part of it, but for GPUs altogether."""
    if len(listed) <= 1:
        return Price(*map(dict, listed[0])) if listed else Price({}, {})
    names = dict.fromkeys(name for one in listed for name in one.most)
    least = {name: low for name in names if (low := min(one.least.get(name, 0) for one in listed))}
    most = {
        name: max(one.most.get(name, 0) for one in listed) for name in names if name in least or name == amounts.GPU
    }
    return Price(least, most)


def _labels(values: Iterable[str | None]) -> dict[str, str]:
    return {label: value for label, value in zip(_PRICED_BY, values, strict=True) if value is not None}


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
