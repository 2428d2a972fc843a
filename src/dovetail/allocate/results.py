"""Writes allocations in the form the API server and drivers expect, down to the order of configurations.

Given claims, the options chosen and their devices; copies what results must carry. Never chooses anything.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from dovetail.allocate import capacity
from dovetail.allocate.ground import Ground
from dovetail.allocate.requests import InvalidRequest, Option, claim_name
from dovetail.model import claims as wire
from dovetail.model.selectors import FIELD_NODE_NAME, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm

FROM_CLASS = "FromClass"  # resource.k8s.io/v1 AllocationConfigSource
FROM_CLAIM = "FromClaim"
_SHARE_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "shares.dovetail")

Picks = Sequence[tuple[Option, int]]


def results_of(
    ground: Ground,
    claims: Sequence[wire.ResourceClaim],
    chosen: Sequence[Option],
    picks: Picks,
    *,
    fractional: bool,
) -> tuple[wire.AllocationResult, ...]:
    """One result per claim: devices by request, then by position."""
    found = []
    for number, claim in enumerate(claims):
        mine = sorted(
            ((option, device) for option, device in picks if option.claim == number),
            key=lambda pick: (pick[0].request, pick[1]),
        )
        options = sorted((option for option in chosen if option.claim == number), key=lambda option: option.request)
        devices = wire.DeviceAllocationResult(
            results=tuple(
                _result(ground, claim, option, device, place=place, fractional=fractional)
                for place, (option, device) in enumerate(mine)
            ),
            config=_configuration(claim, options),
        )
        selector = _node_selector(ground, claim, [device for _, device in mine])
        found.append(wire.AllocationResult(devices=devices, node_selector=selector))
    return tuple(found)


def check_selectors(ground: Ground, claims: Sequence[wire.ResourceClaim], picks: Picks) -> None:
    """Raises InvalidRequest where a device's node selector cannot be written into a result."""
    if any(_has_many_terms(ground, device) for _, device in picks):
        for number, claim in enumerate(claims):
            mine = [(option.request, device) for option, device in picks if option.claim == number]
            _node_selector(ground, claim, [device for _, device in sorted(mine)])


def _has_many_terms(ground: Ground, device: int) -> bool:
    pool, index = ground.place(device)
    published = ground.pools[pool].devices
    for selector in (published.origins[index].node_selector, published.templates[index].node_selector):
        if selector is not None and len(selector.node_selector_terms) > 1:
            return True
    return False


def _result(
    ground: Ground, claim: wire.ResourceClaim, option: Option, device: int, *, place: int, fractional: bool
) -> wire.DeviceRequestAllocationResult:
    pool_number, index = ground.place(device)
    pool = ground.pools[pool_number]
    template = pool.devices.templates[index]
    share_id, consumed = None, {}
    if template.allow_multiple_allocations:
        identity = (
            claim.metadata.uid or claim_name(claim),
            pool.driver,
            pool.name,
            pool.devices.names[index],
            str(place),
        )
        share_id = str(uuid.uuid5(_SHARE_NAMESPACE, "\n".join(identity)))
        consumed = dict(capacity.share_of(template, option, fractional=fractional) or {})
    return wire.DeviceRequestAllocationResult(
        request=option.name,
        driver=pool.driver,
        pool=pool.name,
        device=pool.devices.names[index],
        admin_access=True if option.is_admin else None,
        tolerations=option.tolerations,
        binding_conditions=template.binding_conditions,
        binding_failure_conditions=template.binding_failure_conditions,
        share_id=share_id,
        consumed_capacity=consumed,
    )


def _configuration(
    claim: wire.ResourceClaim, options: Sequence[Option]
) -> tuple[wire.DeviceAllocationConfiguration, ...]:
    """The classes' configuration, each class once in the order of requests, then the claim's own."""
    by_class: dict[str, list[Option]] = {}
    for option in options:
        by_class.setdefault(option.device_class.metadata.name, []).append(option)
    found = [
        wire.DeviceAllocationConfiguration(
            source=FROM_CLASS, requests=_requests([one.name for one in users], options), opaque=config.opaque
        )
        for users in by_class.values()
        for config in users[0].device_class.spec.config
    ]
    for config in claim.spec.devices.config:
        if not config.requests or any(_is_named(option, config.requests) for option in options):
            found.append(
                wire.DeviceAllocationConfiguration(
                    source=FROM_CLAIM, requests=_requests(config.requests, options), opaque=config.opaque
                )
            )
    return tuple(found)


def _requests(named: Sequence[str], options: Sequence[Option]) -> tuple[str, ...]:
    """The names, or none where they cover every request."""
    return () if all(_is_named(option, named) for option in options) else tuple(named)


def _is_named(option: Option, names: Sequence[str]) -> bool:
    return option.base_name in names or option.name in names


def _node_selector(ground: Ground, claim: wire.ResourceClaim, devices: Sequence[int]) -> NodeSelector | None:
    """The node itself if any device is bound to it, else what the devices' selectors require together."""
    fields: list[NodeSelectorRequirement] = []
    expressions: list[NodeSelectorRequirement] = []
    for device in devices:
        pool_number, index = ground.place(device)
        published = ground.pools[pool_number].devices
        template, origin = published.templates[index], published.origins[index]
        node_name = template.node_name if origin.is_per_device else origin.node_name
        selector = template.node_selector if origin.is_per_device else origin.node_selector
        if node_name is not None or template.binds_to_node:
            return _only(ground.view.node.metadata.name)
        terms = selector.node_selector_terms if selector is not None else ()
        if len(terms) > 1:
            detail = (
                f"device {published.names[index]}: its node selector has {len(terms)} terms, at most 1 is supported"
            )
            raise InvalidRequest(claim_name(claim), detail)
        for term in terms:
            _add_new(fields, term.match_fields)
            _add_new(expressions, term.match_expressions)
    if not fields and not expressions:
        return None
    term = NodeSelectorTerm(match_expressions=tuple(expressions), match_fields=tuple(fields))
    return NodeSelector(node_selector_terms=(term,))


def _only(node_name: str) -> NodeSelector:
    named = NodeSelectorRequirement(key=FIELD_NODE_NAME, operator="In", values=(node_name,))
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(named,)),))


def _add_new(known: list[NodeSelectorRequirement], more: Sequence[NodeSelectorRequirement]) -> None:
    for one in more:
        if not any(_says_the_same(one, other) for other in known):
            known.append(one)


def _says_the_same(one: NodeSelectorRequirement, other: NodeSelectorRequirement) -> bool:
    return one.key == other.key and one.operator == other.operator and set(one.values) == set(other.values)
