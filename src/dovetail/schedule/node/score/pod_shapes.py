"""What shape a pod has: the CPU, memory and GPUs that it asks for, and the models of GPU that will do.

Given a pod and the World. GPUs are counted by extended resources and by claims, by the first alternative of each
request. Models are those whose devices match the selectors of its claims, or that its node selector, required node
affinity and annotations accept by the product label. An estimate for the mix: a selector that no published device
matches asks for nothing. Never decides where a pod may run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from dovetail.allocate.index import selector_matches
from dovetail.errors import ExpressionError
from dovetail.kubetypes import codec, node_selectors
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.model import gpu_annotations, pod_mix, pod_requests, reservations
from dovetail.model.queue import queue_resources
from dovetail.schedule.node import extended_resources
from dovetail.schedule.node.score import gpu_states
from dovetail.world.devices import gpu_ledger
from dovetail.world.devices.device_columns import Devices
from dovetail.world.world import World

ALL_DEVICES: Final = "All"
PRODUCT: Final = gpu_annotations.PRODUCT_LABEL
_OPTION = claims.ExactDeviceRequest | claims.DeviceSubRequest


class Gpus(NamedTuple):
    """GPUs that a part of a pod asks for. No models: any will do."""

    gpus: int = 0
    milli: int = 0  # of each
    models: frozenset[str] | None = None


class ShapeReader:
    """Shapes of pods in one World as it is now."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ledger = gpu_ledger.Ledger()
        self._class_of_resource = extended_resources.classes_by_resource(world.classes)
        self._pools = _distinct(world.published())
        products = {node.metadata.labels.get(PRODUCT, "") for node in world.nodes.values()}
        self._products = sorted(filter(None, products))
        published = {_product(devices) for devices in self._pools}
        labelled = set(map(queue_resources.slug, self._products))
        self._models = frozenset(filter(None, published | labelled))
        self._by_spec: dict[bytes, tuple[Gpus, ...]] = {}

    def of(self, pod: pods.Pod) -> pod_mix.Shape:
        """The shape of a pod."""
        request = pod_requests.pod_request(pod)
        parts = [*self._of_scalars(request), *self._of_claims(pod)]
        gpus, milli = _together(parts)
        return pod_mix.Shape(
            cpu_milli=request.milli_cpu,
            gpu_milli=milli,
            gpus=gpus,
            models=self._accepted(pod, parts) if gpus else (),
            memory_mib=-(-request.memory_bytes // gpu_states.MIB),
        )

    def _accepted(self, pod: pods.Pod, parts: Iterable[Gpus]) -> tuple[str, ...]:
        models = self._models
        for part in parts:
            if part.models is not None:
                models &= part.models
        unlabelled = models - set(map(queue_resources.slug, self._products))
        labelled = {
            queue_resources.slug(product) for product in self._products if _accepts(pod, product)
        }
        models &= labelled | unlabelled
        return tuple(sorted(models)) if models != self._models else ()

    def _of_scalars(self, request: pod_requests.Resources) -> Iterator[Gpus]:
        for name, count in request.scalars:
            class_name = self._class_of_resource.get(name, "")
            option = claims.ExactDeviceRequest(device_class_name=class_name, count=count)
            by_devices = self._of_option(option)
            if by_devices.gpus:
                yield by_devices
                continue
            milli = min(gpu_ledger.plugin_cost(name, 1, {}), pod_mix.MILLI)
            yield Gpus(count if milli else 0, milli)

    def _of_claims(self, pod: pods.Pod) -> Iterator[Gpus]:
        for entry in pod.spec.resource_claims:
            spec = self._spec(pod, entry)
            if spec is None:
                continue
            text = codec.encode_struct(spec)
            if text not in self._by_spec:
                options = [_first_option(request) for request in spec.devices.requests]
                self._by_spec[text] = tuple(
                    self._of_option(option) for option in options if option is not None
                )
            yield from self._by_spec[text]

    def _spec(self, pod: pods.Pod, entry: pods.PodResourceClaim) -> claims.ResourceClaimSpec | None:
        namespace = pod.metadata.namespace
        name = reservations.claim_name(pod, entry)
        claim = self._world.claims.get((namespace, name)) if name is not None else None
        if claim is not None:
            return claim.spec
        template_name = entry.resource_claim_template_name
        template = self._world.templates.get((namespace, template_name or ""))
        return None if template is None else template.spec.spec

    def _of_option(self, option: _OPTION) -> Gpus:
        class_ = self._world.classes.get(option.device_class_name)
        if class_ is None:
            return Gpus()
        selectors = (*class_.spec.selectors, *option.selectors)
        expressions = tuple(
            selector.cel.expression for selector in selectors if selector.cel is not None
        )
        milli, most, models = 0, 0, set()
        for devices in self._pools:
            matching = _matching(devices, expressions)
            if not matching:
                continue
            index = (matching & -matching).bit_length() - 1
            milli = max(milli, self._milli(devices, index, option))
            most = max(most, matching.bit_count())
            models.add(_product(devices))
        count = most if option.allocation_mode == ALL_DEVICES else option.count or 1
        return Gpus(count, milli, frozenset(models)) if milli else Gpus()

    def _milli(self, devices: Devices, index: int, option: _OPTION) -> int:
        cost = self._ledger.device_cost(devices, index)
        template = devices.templates[index]
        if option.capacity is None or not template.allow_multiple_allocations:
            return cost
        parts = [
            cost * amount.nanos // template.capacity[name].value.nanos
            for name, amount in option.capacity.requests.items()
            if name in template.capacity and template.capacity[name].value.nanos
        ]
        return min(max(parts, default=cost), cost)


def _together(parts: Iterable[Gpus]) -> tuple[int, int]:
    """GPUs of a pod and milli-GPU of each: one share stays a share, anything else counts in whole GPUs."""
    asked = [part for part in parts if part.gpus and part.milli]
    if len(asked) == 1 and asked[0].gpus == 1:
        return 1, asked[0].milli
    total = sum(part.gpus * part.milli for part in asked)
    gpus = -(-total // pod_mix.MILLI)
    return gpus, pod_mix.MILLI if gpus else 0


def _first_option(request: claims.DeviceRequest) -> _OPTION | None:
    option: _OPTION | None = request.exactly or next(iter(request.first_available), None)
    return None if option is None or getattr(option, "admin_access", None) else option


def _matching(devices: Devices, expressions: tuple[str, ...]) -> int:
    try:
        return selector_matches.selected(devices, expressions)
    except ExpressionError:
        return 0


def _distinct(published: Iterable[Devices]) -> list[Devices]:
    """One pool of GPUs of each kind: the same devices of the same product."""
    pools: dict[tuple[object, ...], Devices] = {}
    for devices in published:
        if gpu_ledger.publishes_gpus(devices.driver):
            key = (id(devices.templates), id(devices.counter_sets), _product(devices))
            pools.setdefault(key, devices)
    return list(pools.values())


def _product(devices: Devices) -> str:
    column = devices.column(gpu_states.PRODUCT_ATTRIBUTE)
    value = next((value for value in column or () if value is not None), None)
    return queue_resources.slug(value.string_value or "") if value is not None else ""


def _accepts(pod: pods.Pod, product: str) -> bool:
    """Whether a pod accepts nodes with this product label, whatever else it asks of them."""
    labels = {PRODUCT: product}
    if pod.spec.node_selector.get(PRODUCT, product) != product:
        return False
    if gpu_annotations.plugin_mismatch(gpu_annotations.choice_of(pod), labels) is not None:
        return False
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if required is None:
        return True
    return any(_term_accepts(term, labels) for term in required.node_selector_terms)


def _term_accepts(term: node_selectors.NodeSelectorTerm, labels: Mapping[str, str]) -> bool:
    """Only what the term says about the product."""
    about_product = tuple(test for test in term.match_expressions if test.key == PRODUCT)
    if not about_product:
        return True
    product_term = node_selectors.NodeSelectorTerm(match_expressions=about_product)
    selector = node_selectors.NodeSelector(node_selector_terms=(product_term,))
    try:
        return node_selectors.picks_node(selector, labels, node_name="")
    except node_selectors.SelectorError:
        return False
