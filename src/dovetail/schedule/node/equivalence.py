"""Decides which pods and which nodes are alike, so that one answer serves them all.

Pods are alike when scheduling reads the same of them. Nodes are alike for such pods when the same resources are free
and their devices look the same to the claims: unique values, such as uuids, stay out unless a selector
reads them, and of an attribute that a constraint compares only the pattern of equality counts. Exact: nodes with equal
keys give equal answers. Never evaluates a node.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from dovetail import cache
from dovetail.cel import selectors as expressions
from dovetail.cel.effort import UNBOUNDED, Effort
from dovetail.cel.reads import OWN_DOMAIN, Path
from dovetail.errors import ExpressionError
from dovetail.kubetypes import codec
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims, device_classes, slices
from dovetail.model import gpu_annotations
from dovetail.schedule.node import image_fit, node_fit
from dovetail.schedule.node.pod_claims import PodClaims
from dovetail.schedule.node.score import node_preferences
from dovetail.world.devices.device_columns import Column, Devices
from dovetail.world.views.node_view import NodeView, PoolView
from dovetail.world.world import World

Key = Hashable
_SINGLE: Final = ("int_value", "bool_value", "string_value", "version_value")
MAX_LOOKS: Final = 100_000  # of pools, remembered for one kind of claims
MAX_ALL_LOOKS: Final = 200_000  # for all kinds together, when another one comes
MAX_PATTERNS: Final = 20_000
MAX_KINDS: Final = 256  # kinds of claims remembered for one world
EVERYTHING: Final[frozenset[Path]] = frozenset({()})


class Reads(NamedTuple):
    """What claims read of devices: paths of selectors, and full names of attributes compared by constraints."""

    paths: frozenset[Path]
    compared: frozenset[str]


def pod_key(pod: pods.Pod, needs: PodClaims, images: Collection[str] = ()) -> Key:
    """Everything scheduling reads of a pod and its claims, but for their names and what ties it to other pods.

    Of its images those count that any node holds.
    """
    return pod_keys(pod, needs, images)[1]


def pod_keys(pod: pods.Pod, needs: PodClaims, images: Collection[str]) -> tuple[Key, Key]:
    """The key without any image, then the key with those that any node holds; one object where it holds none."""
    spec = pod.spec
    near = (
        tuple(name for name in node_preferences.images_of(pod) if name in images) if images else ()
    )
    containers = tuple(map(_wants, spec.containers))
    claim_keys = tuple(
        pod_claim.key
        if pod_claim.allocation is not None
        else codec.encode_struct(pod_claim.claim.spec)
        for pod_claim in needs.wanted
    )
    features = node_fit.needed_features(spec)
    choice = gpu_annotations.choice_of(pod)
    requirements = image_fit.requirements_of(pod)
    rest = (features, choice, requirements)
    key = (containers, _rarely_said(spec), claim_keys, (), *rest)
    return key, (*key[:3], near, *rest) if near else key


def _wants(container: pods.Container) -> Key:
    """What a container takes of a node. Amounts in another order make another key, which does no harm."""
    resources = container.resources
    amounts = [
        (name, quantity.nanos)
        for quantities in (resources.requests, resources.limits)
        for name, quantity in quantities.items()
    ]
    return len(resources.requests), *amounts, container.restart_policy


def _rarely_said(spec: pods.PodSpec) -> bytes | None:
    """The rest of what scheduling reads, written down; None for most pods."""
    if not (
        spec.node_name
        or spec.init_containers
        or spec.resources is not None
        or spec.overhead
        or spec.node_selector
        or spec.affinity is not None
        or spec.tolerations
    ):
        return None
    wishes = pods.Affinity(node_affinity=spec.affinity.node_affinity) if spec.affinity else None
    read = pods.PodSpec(
        node_name=spec.node_name,
        init_containers=tuple(_resources_only(container) for container in spec.init_containers),
        resources=spec.resources,
        overhead=spec.overhead,
        node_selector=spec.node_selector,
        affinity=wishes,
        tolerations=spec.tolerations,
    )
    return codec.encode_struct(read)


def reads_of(
    pod_claims: Sequence[claims.ResourceClaim],
    classes: Mapping[str, device_classes.DeviceClass],
    effort: Effort = UNBOUNDED,
) -> Reads:
    """What the claims, and the classes they name, read of devices. Raises Unfinished."""
    paths: set[Path] = set()
    compared: set[str] = set()
    for claim in pod_claims:
        for constraint in claim.spec.devices.constraints:
            compared |= {
                name for name in (constraint.match_attribute, constraint.distinct_attribute) if name
            }
        for request in claim.spec.devices.requests:
            for option in (request.exactly, *request.first_available):
                if option is not None:
                    paths |= _paths(option, classes, effort)
    return Reads(frozenset(paths), frozenset(compared))


def classes_named(pod_claims: Sequence[claims.ResourceClaim]) -> set[str]:
    """The device classes the claims name."""
    return {
        option.device_class_name
        for claim in pod_claims
        for request in claim.spec.devices.requests
        for option in (request.exactly, *request.first_available)
        if option is not None
    }


def keys_for(world: World, reads: Reads) -> NodeKeys:
    """The keys for these reads, kept from cycle to cycle for as long as the world lives."""
    return _NODE_KEYS.of(world, reads, lambda: NodeKeys(reads))


class NodeKeys:
    """Keys of nodes for one kind of claims. What does not depend on use is remembered per interned devices."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self._looks: WeakKeyDictionary[Devices, int] = WeakKeyDictionary()  # pools come and go
        self._patterns: dict[tuple[int, ...], tuple[object, Key]] = {}
        self._numbers: dict[Key, int] = {}  # of looks, so that keys are short
        self._next = itertools.count()  # a number is never used twice
        self._counts: dict[
            tuple[str, str], bool
        ] = {}  # by driver and attribute: whether a selector reads it

    @property
    def looks(self) -> int:
        """How many looks of pools are remembered."""
        return len(self._numbers)

    def devices_key(self, view: NodeView) -> Key:
        """Equal where the devices, and what is taken of them, look the same."""
        pools = tuple(self._pool_key(pool) for pool in view.pools)
        return (pools, self._compared(view)) if self._reads.compared else pools

    def _pool_key(self, pool: PoolView) -> Key:
        number = self._looks.get(pool.devices)
        if number is None:
            if len(self._numbers) >= MAX_LOOKS:
                self._looks.clear()
                self._numbers.clear()
            look = self._look(pool.devices)
            if look not in self._numbers:
                self._numbers[look] = next(self._next)
            number = self._looks[pool.devices] = self._numbers[look]
        shared = (
            tuple((i, tuple(sorted(amounts.items()))) for i, amounts in sorted(pool.shared.items()))
            if pool.shared
            else ()
        )
        taints = tuple(sorted(pool.extra_taints.items())) if pool.extra_taints else ()
        name_in_reasons = (
            "" if pool.is_complete and pool.problem is None else pool.name
        )  # reasons name such pools
        return (
            number,
            pool.usable,
            name_in_reasons,
            pool.is_complete,
            pool.problem,
            pool.used,
            pool.barred,
            shared,
            taints,
        )

    def _look(self, devices: Devices) -> Key:
        """What the claims read of the devices. Ids stand for interned objects, which a World keeps forever."""
        read = tuple(
            (name, id(column))
            for name, column in zip(devices.attributes, devices.columns, strict=True)
            if self._is_read(name, devices.driver) or _has_versions(column)
        )
        shape = (id(devices.names), id(devices.templates), id(devices.counter_sets))
        return devices.driver, shape, read, _long_selectors(devices)

    def _compared(self, view: NodeView) -> Key:
        """The patterns of the attributes constraints compare, across all pools: they may tie drivers together."""
        listed = [pool.devices for pool in view.pools]
        key = tuple(map(id, listed))
        entry = self._patterns.get(key)
        if entry is None:
            if len(self._patterns) >= MAX_PATTERNS:  # they hold on to pools that may be gone
                self._patterns.clear()
            patterns = tuple(
                pattern(_columns(listed, name)) for name in sorted(self._reads.compared)
            )
            entry = self._patterns[key] = (listed, patterns)
        return entry[1]

    def _is_read(self, name: str, driver: str) -> bool:
        is_read = self._counts.get((driver, name))
        if is_read is None:
            own, slash, identifier = name.partition("/")
            domain, short = (own, identifier) if slash else (driver, name)
            is_read = any(_covers(path, domain, short, driver) for path in self._reads.paths)
            self._counts[driver, name] = is_read
        return is_read


def pattern(column: Sequence[slices.DeviceAttribute | None]) -> Key:
    """Which devices share a value, and its type: all a constraint can distinguish. Lists may overlap and stay whole."""
    places: dict[Hashable, int] = {}
    entries: list[Key] = []
    for value in column:
        if value is None:
            entries.append(None)
        elif _kind(value) == len(_SINGLE):
            return tuple(column)
        else:
            entries.append((_kind(value), places.setdefault(value, len(places))))
    return tuple(entries)


def _columns(listed: Sequence[Devices], attribute: str) -> list[slices.DeviceAttribute | None]:
    """The values of an attribute under its full name, or under its short one with the driver it belongs to."""
    domain, _, short = attribute.partition("/")
    values: list[slices.DeviceAttribute | None] = []
    for devices in listed:
        column = devices.column(attribute)
        brief = devices.column(short) if devices.driver == domain else None
        for index in range(len(devices)):
            value = column[index] if column is not None else None
            values.append(value if value is not None or brief is None else brief[index])
    return values


def _long_selectors(devices: Devices) -> Key:
    """Node selectors with several terms, which allocation refuses, device by device; nothing where there are none."""
    lengths = [
        len(origin.node_selector.node_selector_terms) if origin.node_selector else 0
        for origin in devices.origins
    ]
    return tuple(lengths) if max(lengths, default=0) > 1 else ()


_NODE_KEYS: Final = cache.WeakMemo[World, Reads, NodeKeys](
    MAX_ALL_LOOKS, most_entries=MAX_KINDS, weigh=lambda keys: keys.looks
)


def _kind(value: slices.DeviceAttribute) -> int:
    return next(
        (place for place, name in enumerate(_SINGLE) if getattr(value, name) is not None),
        len(_SINGLE),
    )


def _covers(path: Path, domain: str, short: str, driver: str) -> bool:
    if not path:
        return True
    if path[0] != "attributes":
        return False
    if len(path) > 1 and path[1] != domain and not (path[1] == OWN_DOMAIN and domain == driver):
        return False
    return len(path) < 3 or path[2] == short


def _has_versions(column: Column) -> bool:
    """An unreadable version makes every selector fail on the device, so such columns always count as read."""
    return any(
        v is not None and (v.version_value is not None or v.version_values is not None)
        for v in column
    )


def _paths(
    option: claims.ExactDeviceRequest | claims.DeviceSubRequest,
    classes: Mapping[str, device_classes.DeviceClass],
    effort: Effort,
) -> frozenset[Path]:
    if option.derived_attributes:
        return EVERYTHING
    device_class = classes.get(option.device_class_name)
    paths: set[Path] = set()
    for selector in (*(device_class.spec.selectors if device_class else ()), *option.selectors):
        if selector.cel is None:
            return EVERYTHING
        try:
            paths |= expressions.selector(selector.cel.expression, effort).reads
        except ExpressionError:
            return EVERYTHING
    return frozenset(paths)


def _resources_only(container: pods.Container) -> pods.Container:
    return pods.Container(resources=container.resources, restart_policy=container.restart_policy)
