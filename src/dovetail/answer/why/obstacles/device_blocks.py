"""What keeps the devices of a node from serving the claims of a pod, and what would lift it.

Given the evaluator of a World and the kind of the pod. The allocator is asked about the devices as they are, unused,
healthy, and with one rule of the claims less. Nodes whose devices look alike to the claims share one answer. Never
changes a claim.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Mapping
from typing import Final, NamedTuple, TypeVar

import msgspec

from dovetail.allocate import allocator, outcome
from dovetail.allocate.index import selector_matches
from dovetail.answer.why import selector_conjuncts
from dovetail.answer.why.cause_codes import CauseCode
from dovetail.answer.why.obstacles.blocks import Block, Blocks, Layer, Step
from dovetail.kubetypes import node_selectors
from dovetail.kubetypes.resource import claims, device_classes, slices
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule.node import equivalence
from dovetail.schedule.node.evaluate_node import NodeEvaluator, PodKind
from dovetail.world.views.node_view import NodeView, PoolView

S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")
Claims = tuple[claims.ResourceClaim, ...]
Classes = Mapping[str, device_classes.DeviceClass]
_TOLERATES_ALL: Final = node_selectors.DeviceToleration(operator="Exists")

MOST_TRIED: Final = 64  # rules of the claims of one pod, each left out alone
_NEAR_WEIGHT: Final = 0.5  # a value that nearly equals one that exists
_SELECTOR_WEIGHT: Final = 1.0
_CAPACITY_WEIGHT: Final = 1.5
_CONSTRAINT_WEIGHT: Final = 1.5
_COUNT_WEIGHT: Final = 2.0
_SELECTED_WEIGHT: Final = 2.2  # a condition that some devices of the node meet
_CLASS_WEIGHT: Final = 4.0
_NO_DEVICES_WEIGHT: Final = 6.0


class Relaxed(NamedTuple):
    """Claims with one rule less."""

    block: Block
    claims: Claims
    classes: Classes


class DeviceBlocks:
    """The answers about devices, by how they look."""

    def __init__(self, evaluator: NodeEvaluator, kind: PodKind) -> None:
        self._evaluator = evaluator
        self._kind = kind
        self._world = evaluator.world
        self._claims: dict[tuple[str, ...], Claims] = {}
        self._keys: dict[tuple[str, ...], equivalence.NodeKeys] = {}
        self._answers: dict[Hashable, Blocks] = {}
        self._relaxed: dict[Hashable, Blocks] = {}  # by the look of unused, healthy devices
        self._counters: dict[int, dict[str, dict[str, int]]] = {}

    def claims_for(self, served: tuple[str, ...]) -> Claims:
        """The claims to allocate where devices serve these extended resources."""
        if served not in self._claims:
            self._claims[served] = self._kind.claims_for(served)
        return self._claims[served]

    def of(self, node: str, served: tuple[str, ...]) -> Blocks:
        """What keeps the devices of the node from serving the pod."""
        wanted = self.claims_for(served)
        if not wanted:
            return ()
        view = self._evaluator.view(node)
        key = (served, self._look(view, served))
        blocks = self._answers.get(key)
        if blocks is None:
            blocks = self._answers[key] = self._blocks(view, wanted, served)
        return blocks

    def emptied(self, view: NodeView) -> NodeView:
        """The devices as if none of them were in use."""
        return view._replace(pools=tuple(map(self._emptied, view.pools)))

    def _look(self, view: NodeView, served: tuple[str, ...]) -> Hashable:
        if served not in self._keys:
            reads = equivalence.reads_of(self.claims_for(served), self._world.classes)
            self._keys[served] = equivalence.keys_for(self._world, reads)
        return self._keys[served].devices_key(view)

    def _emptied(self, pool: PoolView) -> PoolView:
        return pool._replace(used=0, shared={}, counters_left=self._full(pool))

    def _full(self, pool: PoolView) -> dict[str, dict[str, int]]:
        sets: tuple[slices.CounterSet, ...] = pool.devices.counter_sets
        if id(sets) not in self._counters:
            self._counters[id(sets)] = {
                set_.name: {name: counter.value.nanos for name, counter in set_.counters.items()}
                for set_ in sets
            }
        return self._counters[id(sets)]

    def _blocks(self, view: NodeView, wanted: Claims, served: tuple[str, ...]) -> Blocks:
        now = self._allocate(wanted, view)
        if isinstance(now, outcome.Allocated):
            return ()
        if isinstance(now, outcome.Undecided):
            code = CauseCode.SEARCH_UNFINISHED
            return (Block(Layer.PLATFORM, Step.DEVICES, code, have=now.steps),)
        emptied = self.emptied(view)
        if self._fits(wanted, emptied):
            return (self._in_use(wanted, view, _first_reason(now)),)

        healthy_claims = tuple(map(_tolerating, wanted))
        healthy = _healthy(emptied)
        if self._fits(healthy_claims, healthy):
            is_in_use = not self._fits(healthy_claims, _healthy(view))
            reason = _first_reason(now)
            in_use = (self._in_use(wanted, view, reason),) if is_in_use else ()
            return (*in_use, _unhealthy(view, reason))
        ours = _unbarred(healthy)
        if self._fits(healthy_claims, ours):
            subject = _first_reason(now).subject
            return (Block(Layer.OWNER, Step.DEVICES, CauseCode.POOL, subject),)
        key = (served, self._look(ours, served))
        if key not in self._relaxed:
            self._relaxed[key] = self._relaxed_blocks(healthy_claims, ours)
        return self._relaxed[key]

    # Which rule of the claims it is

    def _relaxed_blocks(self, wanted: Claims, view: NodeView) -> Blocks:
        """The rule whose removal alone lets the unused devices serve the claims; of several the lightest."""
        refused = self._allocate(wanted, view)
        reason = _first_reason(refused)
        if isinstance(refused, outcome.Failed) and reason.code is ReasonCode.INPUT:
            code = CauseCode.CLAIM_INVALID
            return (Block(Layer.CONFIG, Step.DEVICES, code, reason.subject, detail=reason.detail),)
        groups = [selector_conjuncts.Group(pool.devices, pool.usable) for pool in view.pools]
        if not any(group.mask for group in groups):
            return (_no_devices(wanted, reason),)
        relaxations = itertools.islice(self._relaxations(wanted, view), MOST_TRIED)
        tried = sorted(relaxations, key=lambda relaxed: relaxed.block.weight)
        for relaxed in tried:
            if self._fits(relaxed.claims, view, relaxed.classes):
                return (self._with_amounts(relaxed.block, wanted, view, reason),)
        return (_no_devices(wanted, reason),)

    def _in_use(self, wanted: Claims, view: NodeView, reason: Reason) -> Block:
        block = Block(Layer.OTHERS, Step.DEVICES, CauseCode.DEVICES_BUSY, reason.subject)
        block = block._replace(detail=reason.detail)
        return self._with_amounts(block, wanted, view, reason)

    def _with_amounts(self, block: Block, wanted: Claims, view: NodeView, reason: Reason) -> Block:
        """The block with how many devices are needed, and how many could be had together."""
        need, have = reason.need or 0, reason.have or 0
        if have >= need > 1:  # enough one by one, but not together
            have = self._most_together(wanted, view, reason.subject)
        return block._replace(need=need, have=have)

    def _most_together(self, wanted: Claims, view: NodeView, subject: str) -> int:
        """The most devices that the view could give to a request which asks for more."""
        for number, claim in enumerate(wanted):
            for place, request in enumerate(claim.spec.devices.requests):
                if subject != f"claim {claim.metadata.name}: request {request.name}":
                    continue
                option = _options(request)[0]
                most = min(option.count - 1, claims.MAX_RESULTS)
                for count in range(most, 0, -1):
                    fewer = msgspec.structs.replace(option, count=count)
                    if self._fits(_with_option(wanted, (number, place), option, fewer), view):
                        return count
        return 0

    def _relaxations(self, wanted: Claims, view: NodeView) -> Iterator[Relaxed]:
        classes = self._world.classes
        for number, claim in enumerate(wanted):
            for place, request in enumerate(claim.spec.devices.requests):
                subject = f"claim {claim.metadata.name}: request {request.name}"
                for option in _options(request):
                    yield from self._of_option(wanted, (number, place), option, subject, view)
            for place, constraint in enumerate(claim.spec.devices.constraints):
                rest = _without(claim.spec.devices.constraints, place)
                block = Block(
                    Layer.CONFIG,
                    Step.DEVICES,
                    CauseCode.CONSTRAINT,
                    f"claim {claim.metadata.name}",
                    detail=_constraint_text(constraint),
                    weight=_CONSTRAINT_WEIGHT,
                )
                devices = msgspec.structs.replace(claim.spec.devices, constraints=rest)
                yield Relaxed(block, _with_devices(wanted, number, devices), classes)

    def _of_option(
        self,
        wanted: Claims,
        position: tuple[int, int],
        option: claims.ExactDeviceRequest | claims.DeviceSubRequest,
        subject: str,
        view: NodeView,
    ) -> Iterator[Relaxed]:
        classes = self._world.classes
        base = Block(Layer.CONFIG, Step.DEVICES, CauseCode.SELECTOR, subject)
        for place, selector in enumerate(option.selectors):
            if selector.cel is None:
                continue
            parts = selector_conjuncts.conjuncts(selector.cel.expression)
            for index, part in enumerate(parts):
                left = selector_conjuncts.joined(_without(parts, index))
                fewer = _replaced(option.selectors, place, _selector(left))
                weight = self._conjunct_weight(part, option, view)
                block = base._replace(detail=part, weight=weight)
                changed = msgspec.structs.replace(option, selectors=fewer)
                yield Relaxed(block, _with_option(wanted, position, option, changed), classes)
        if len(option.selectors) > 0:
            changed = msgspec.structs.replace(option, selectors=())
            texts = [item.cel.expression for item in option.selectors if item.cel is not None]
            block = base._replace(detail=" && ".join(texts), weight=_SELECTED_WEIGHT + 0.5)
            yield Relaxed(block, _with_option(wanted, position, option, changed), classes)
        if option.count > 1:
            changed = msgspec.structs.replace(option, count=1)
            block = base._replace(code=CauseCode.TOO_MANY_DEVICES, weight=_COUNT_WEIGHT)
            yield Relaxed(block, _with_option(wanted, position, option, changed), classes)
        if option.capacity is not None:
            changed = msgspec.structs.replace(option, capacity=None)
            amounts = ", ".join(
                f"{name} {amount}" for name, amount in option.capacity.requests.items()
            )
            code = CauseCode.CAPACITY_NOT_OFFERED
            block = base._replace(code=code, detail=amounts, weight=_CAPACITY_WEIGHT)
            yield Relaxed(block, _with_option(wanted, position, option, changed), classes)
        name = option.device_class_name
        if name in classes and classes[name].spec.selectors:
            spec = msgspec.structs.replace(classes[name].spec, selectors=())
            without = {**classes, name: msgspec.structs.replace(classes[name], spec=spec)}
            code = CauseCode.CLASS_MATCHES_NONE
            block = base._replace(code=code, detail=name, weight=_CLASS_WEIGHT)
            yield Relaxed(block, wanted, without)

    def _conjunct_weight(
        self,
        part: str,
        option: claims.ExactDeviceRequest | claims.DeviceSubRequest,
        view: NodeView,
    ) -> float:
        groups = self.of_class(option.device_class_name, view)
        for group in groups:
            if selector_matches.verdict(group.devices, part).matching & group.mask:
                return _SELECTED_WEIGHT
        if selector_conjuncts.near_value(part, groups):
            return _NEAR_WEIGHT
        return _SELECTOR_WEIGHT

    def of_class(self, name: str, view: NodeView) -> list[selector_conjuncts.Group]:
        """The devices of a node that a class selects."""
        device_class = self._world.classes.get(name)
        selectors = device_class.spec.selectors if device_class is not None else ()
        expressions = tuple(item.cel.expression for item in selectors if item.cel is not None)
        return [
            selector_conjuncts.Group(
                pool.devices, selector_matches.selected(pool.devices, expressions) & pool.usable
            )
            for pool in view.pools
        ]

    # The allocator

    def _fits(self, wanted: Claims, view: NodeView, classes: Classes | None = None) -> bool:
        return isinstance(self._allocate(wanted, view, classes), outcome.Allocated)

    def _allocate(
        self, wanted: Claims, view: NodeView, classes: Classes | None = None
    ) -> outcome.Outcome:
        return allocator.allocate(view, wanted, self._world.classes if classes is None else classes)


def _unhealthy(view: NodeView, reason: Reason) -> Block:
    """What of the platform is in the way: pools that cannot be used, else taints."""
    for pool in view.pools:
        name = f"{pool.driver}/{pool.name}"
        if not pool.is_complete:
            return Block(Layer.PLATFORM, Step.DEVICES, CauseCode.POOL_INCOMPLETE, name)
        if pool.problem is not None:
            code = CauseCode.POOL_INVALID
            return Block(Layer.PLATFORM, Step.DEVICES, code, name, detail=pool.problem)
    code, need, have = CauseCode.DEVICES_TAINTED, reason.need or 0, reason.have or 0
    return Block(
        Layer.PLATFORM, Step.DEVICES, code, reason.subject, need, have, detail=_taints(view)
    )


def _taints(view: NodeView) -> str:
    """The taints of the node's devices, with the rules that set them."""
    texts: dict[str, None] = {}
    for pool in view.pools:
        for index, taints in pool.extra_taints.items():
            names = pool.rules.get(index, ())
            for place, taint in enumerate(taints):
                rule = f" by DeviceTaintRule {names[place]}" if place < len(names) else ""
                texts[f"{_taint_text(taint)}{rule}"] = None
        for template in pool.devices.templates:
            for taint in template.taints:
                texts[_taint_text(taint)] = None
    return ", ".join(list(texts)[:3])


def _taint_text(taint: node_selectors.DeviceTaint) -> str:
    return (
        f"{taint.key}={taint.value}:{taint.effect}"
        if taint.value
        else f"{taint.key}:{taint.effect}"
    )


def _no_devices(wanted: Claims, reason: Reason) -> Block:
    code = CauseCode.NO_DEVICES
    need, have = reason.need or 0, reason.have or 0
    return Block(
        Layer.CONFIG,
        Step.DEVICES,
        code,
        reason.subject,
        need,
        have,
        detail=reason.detail,
        weight=_NO_DEVICES_WEIGHT,
    )


def _first_reason(refused: outcome.Outcome) -> Reason:
    match refused:
        case outcome.Refused():
            reasons = [
                reason for reason in refused.reasons if reason.code is not ReasonCode.CEL_ERROR
            ]
            return reasons[0] if reasons else Reason(code=ReasonCode.NO_DEVICES)
        case outcome.Failed():
            return refused.reason
        case _:
            return Reason(code=ReasonCode.BUDGET)


def _healthy(view: NodeView) -> NodeView:
    """The devices without taints by rules, every pool complete and valid."""
    return view._replace(pools=tuple(map(_healthy_pool, view.pools)))


def _healthy_pool(pool: PoolView) -> PoolView:
    if pool.is_complete and pool.problem is None:
        return pool._replace(extra_taints={}, rules={})
    usable = (1 << len(pool.devices)) - 1
    return pool._replace(extra_taints={}, rules={}, is_complete=True, problem=None, usable=usable)


def _unbarred(view: NodeView) -> NodeView:
    return view._replace(pools=tuple(pool._replace(barred=0) for pool in view.pools))


def _tolerating(claim: claims.ResourceClaim) -> claims.ResourceClaim:
    """The claim with requests that tolerate every taint."""
    devices = claim.spec.devices
    requests = tuple(
        msgspec.structs.replace(
            request,
            exactly=None if request.exactly is None else _tolerating_option(request.exactly),
            first_available=tuple(map(_tolerating_option, request.first_available)),
        )
        for request in devices.requests
    )
    spec = claims.ResourceClaimSpec(devices=msgspec.structs.replace(devices, requests=requests))
    return msgspec.structs.replace(claim, spec=spec)


def _tolerating_option(option: S) -> S:
    return msgspec.structs.replace(option, tolerations=(_TOLERATES_ALL,))


def _options(
    request: claims.DeviceRequest,
) -> tuple[claims.ExactDeviceRequest | claims.DeviceSubRequest, ...]:
    if request.exactly is not None:
        return (request.exactly,)
    return request.first_available


def _with_devices(wanted: Claims, number: int, devices: claims.DeviceClaim) -> Claims:
    spec = claims.ResourceClaimSpec(devices=devices)
    return _replaced(wanted, number, msgspec.structs.replace(wanted[number], spec=spec))


def _with_option(wanted: Claims, position: tuple[int, int], old: object, new: object) -> Claims:
    number, place = position
    devices = wanted[number].spec.devices
    request = devices.requests[place]
    if request.exactly is old:
        changed = msgspec.structs.replace(request, exactly=new)
    else:
        options = tuple(new if option is old else option for option in request.first_available)
        changed = msgspec.structs.replace(request, first_available=options)
    requests = _replaced(devices.requests, place, changed)
    return _with_devices(wanted, number, msgspec.structs.replace(devices, requests=requests))


def _selector(expression: str) -> device_classes.DeviceSelector:
    return device_classes.DeviceSelector(
        cel=device_classes.CELDeviceSelector(expression=expression)
    )


def _constraint_text(constraint: claims.DeviceConstraint) -> str:
    if constraint.match_attribute:
        return f"the same {constraint.match_attribute}"
    return f"a different {constraint.distinct_attribute} each"


def _without(items: tuple[T, ...], place: int) -> tuple[T, ...]:
    return (*items[:place], *items[place + 1 :])


def _replaced(items: tuple[T, ...], place: int, item: T) -> tuple[T, ...]:
    return (*items[:place], item, *items[place + 1 :])
