"""Writes allocations in the form the API server and drivers expect, down to the order of configurations.

Given claims, the chosen options and their devices. Never chooses anything.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from dovetail.allocate.ask.device_requests import InvalidRequest, Option, claim_name
from dovetail.allocate.index import consumed_capacity
from dovetail.allocate.index.device_bits import NodeDevices
from dovetail.kubetypes.node_selectors import (
    FIELD_NODE_NAME,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from dovetail.kubetypes.resource import claims as wire

FROM_CLASS = "FromClass"  # resource.k8s.io/v1 AllocationConfigSource
FROM_CLAIM = "FromClaim"
_SHARE_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "shares.dovetail")

Picks = Sequence[tuple[Option, int]]


def results_of(
    node: NodeDevices,
    claims: Sequence[wire.ResourceClaim],
    chosen: Sequence[Option],
    picks: Picks,
    *,
    fractional: bool,
) -> tuple[wire.AllocationResult, ...]:
    """One result per claim: devices by request, then by position."""
    allocations = []
    for number, claim in enumerate(claims):
        claim_picks = [pick for pick in picks if pick[0].claim == number]
        claim_picks.sort(key=lambda pick: (pick[0].request, pick[1]))
        options = [option for option in chosen if option.claim == number]
        options.sort(key=lambda option: option.request)
        devices = wire.DeviceAllocationResult(
            results=tuple(
                _result(node, claim, option, device, place=place, fractional=fractional)
                for place, (option, device) in enumerate(claim_picks)
            ),
            config=_configuration(claim, options),
        )
        selector = _node_selector(node, claim, [device for _, device in claim_picks])
        allocations.append(wire.AllocationResult(devices=devices, node_selector=selector))
    return tuple(allocations)


def check_selectors(node: NodeDevices, claims: Sequence[wire.ResourceClaim], picks: Picks) -> None:
    """Raises InvalidRequest if a device's node selector cannot be written into a result."""
    if not any(_has_many_terms(node, device) for _, device in picks):
        return
    for number, claim in enumerate(claims):
        devices = [(option.request, device) for option, device in picks if option.claim == number]
        _node_selector(node, claim, [device for _, device in sorted(devices)])


def _has_many_terms(node: NodeDevices, device: int) -> bool:
    pool, index = node.place(device)
    published = node.pools[pool].devices
    of_slice = published.origins[index].node_selector
    of_device = published.templates[index].node_selector
    return any(
        selector is not None and len(selector.node_selector_terms) > 1
        for selector in (of_slice, of_device)
    )


def _result(
    node: NodeDevices,
    claim: wire.ResourceClaim,
    option: Option,
    device: int,
    *,
    place: int,
    fractional: bool,
) -> wire.DeviceRequestAllocationResult:
    pool_number, index = node.place(device)
    pool = node.pools[pool_number]
    template = pool.devices.templates[index]
    share_id, consumed = None, {}
    if template.allow_multiple_allocations:
        # Derived from what it identifies, so that a repeated decision writes the same id.
        identity = (
            claim.metadata.uid or claim_name(claim),
            pool.driver,
            pool.name,
            pool.devices.names[index],
            str(place),
        )
        share_id = str(uuid.uuid5(_SHARE_NAMESPACE, "\n".join(identity)))
        consumed = dict(consumed_capacity.share_of(template, option, fractional=fractional) or {})
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
    """The configuration of the classes, each class once in the order of requests, then the claim's own."""
    by_class: dict[str, list[Option]] = {}
    for option in options:
        by_class.setdefault(option.device_class.metadata.name, []).append(option)

    configurations = []
    for users in by_class.values():
        names = _requests([option.name for option in users], options)
        for of_class in users[0].device_class.spec.config:
            configurations.append(
                wire.DeviceAllocationConfiguration(
                    source=FROM_CLASS, requests=names, opaque=of_class.opaque
                )
            )
    for of_claim in claim.spec.devices.config:
        applies = not of_claim.requests or any(
            _is_named(option, of_claim.requests) for option in options
        )
        if applies:
            names = _requests(of_claim.requests, options)
            configurations.append(
                wire.DeviceAllocationConfiguration(
                    source=FROM_CLAIM, requests=names, opaque=of_claim.opaque
                )
            )
    return tuple(configurations)


def _requests(names: Sequence[str], options: Sequence[Option]) -> tuple[str, ...]:
    """The names, or none if they cover every request."""
    return () if all(_is_named(option, names) for option in options) else tuple(names)


def _is_named(option: Option, names: Sequence[str]) -> bool:
    return option.base_name in names or option.name in names


def _node_selector(
    node: NodeDevices, claim: wire.ResourceClaim, devices: Sequence[int]
) -> NodeSelector | None:
    """This node by name if any device is tied to it, else what the devices' selectors require together."""
    fields: list[NodeSelectorRequirement] = []
    expressions: list[NodeSelectorRequirement] = []
    for device in devices:
        pool_number, index = node.place(device)
        published = node.pools[pool_number].devices
        template, origin = published.templates[index], published.origins[index]
        node_name = template.node_name if origin.is_per_device else origin.node_name
        selector = template.node_selector if origin.is_per_device else origin.node_selector
        if node_name is not None or template.binds_to_node:
            return _only_node(node.view.node.metadata.name)
        terms = selector.node_selector_terms if selector is not None else ()
        if len(terms) > 1:
            detail = (
                f"device {published.names[index]}: its node selector has {len(terms)} terms, "
                "at most 1 is supported"
            )
            raise InvalidRequest(claim_name(claim), detail)
        for term in terms:
            _add_new(fields, term.match_fields)
            _add_new(expressions, term.match_expressions)
    if not fields and not expressions:
        return None
    term = NodeSelectorTerm(match_expressions=tuple(expressions), match_fields=tuple(fields))
    return NodeSelector(node_selector_terms=(term,))


def _only_node(name: str) -> NodeSelector:
    by_name = NodeSelectorRequirement(key=FIELD_NODE_NAME, operator="In", values=(name,))
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(by_name,)),))


def _add_new(
    collected: list[NodeSelectorRequirement], requirements: Sequence[NodeSelectorRequirement]
) -> None:
    """Adds the requirements that are not among those collected; the order of values does not matter."""
    for requirement in requirements:
        if not any(_is_equal(requirement, present) for present in collected):
            collected.append(requirement)


def _is_equal(first: NodeSelectorRequirement, second: NodeSelectorRequirement) -> bool:
    return (
        first.key == second.key
        and first.operator == second.operator
        and set(first.values) == set(second.values)
    )
