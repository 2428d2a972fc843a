"""What an API server fills in when it reads an object: allocation mode and count, operators, times.

Given a decoded object and the time to write; returns the object, changed only where something was missing.
Never removes anything.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from dovetail.kubetypes import meta, node_selectors
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims, slices, taint_rules

R = TypeVar("R", claims.ExactDeviceRequest, claims.DeviceSubRequest)


def claim_spec(spec: claims.ResourceClaimSpec) -> claims.ResourceClaimSpec:
    """One device unless more are asked for; tolerations compare for equality."""
    requests = tuple(_request(request) for request in spec.devices.requests)
    if all(new is old for new, old in zip(requests, spec.devices.requests, strict=True)):
        return spec
    return claims.ResourceClaimSpec(
        devices=msgspec.structs.replace(spec.devices, requests=requests)
    )


def claim_status(status: claims.ResourceClaimStatus) -> claims.ResourceClaimStatus:
    """Tolerations copied into results compare for equality."""
    allocation = status.allocation
    if allocation is None or not any(result.tolerations for result in allocation.devices.results):
        return status
    results = tuple(
        msgspec.structs.replace(result, tolerations=_tolerations(result.tolerations))
        for result in allocation.devices.results
    )
    devices = msgspec.structs.replace(allocation.devices, results=results)
    return msgspec.structs.replace(
        status, allocation=msgspec.structs.replace(allocation, devices=devices)
    )


def pod_spec(spec: pods.PodSpec, labels: Mapping[str, str]) -> pods.PodSpec:
    """Label keys that pods must share, or must not, become part of the selectors, with the values of the pod itself."""
    affinity = spec.affinity
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return spec
    near, away = (
        _keyed_side(side, labels) for side in (affinity.pod_affinity, affinity.pod_anti_affinity)
    )
    both = msgspec.structs.replace(affinity, pod_affinity=near, pod_anti_affinity=away)
    return msgspec.structs.replace(spec, affinity=both)


def slice_spec(spec: slices.ResourceSliceSpec, now: str) -> slices.ResourceSliceSpec:
    """Taints begin when they are written."""
    if not any(taint.time_added is None for device in spec.devices for taint in device.taints):
        return spec
    devices = tuple(
        msgspec.structs.replace(
            device, taints=tuple(taint_added(taint, now) for taint in device.taints)
        )
        if device.taints
        else device
        for device in spec.devices
    )
    return msgspec.structs.replace(spec, devices=devices)


def taint_rule_spec(
    spec: taint_rules.DeviceTaintRuleSpec, now: str
) -> taint_rules.DeviceTaintRuleSpec:
    """The taint begins when it is written."""
    return msgspec.structs.replace(spec, taint=taint_added(spec.taint, now))


def taint_added(taint: node_selectors.DeviceTaint, now: str) -> node_selectors.DeviceTaint:
    """The taint with a time."""
    return taint if taint.time_added is not None else msgspec.structs.replace(taint, time_added=now)


def _request(request: claims.DeviceRequest) -> claims.DeviceRequest:
    exactly = None if request.exactly is None else _counted(request.exactly)
    options = tuple(_counted(option) for option in request.first_available)
    if exactly is request.exactly and all(
        new is old for new, old in zip(options, request.first_available, strict=True)
    ):
        return request
    return msgspec.structs.replace(request, exactly=exactly, first_available=options)


def _counted(request: R) -> R:
    mode = request.allocation_mode or claims.MODE_EXACT_COUNT
    count = request.count or (1 if mode == claims.MODE_EXACT_COUNT else 0)
    tolerations = _tolerations(request.tolerations)
    if (mode, count) == (
        request.allocation_mode,
        request.count,
    ) and tolerations is request.tolerations:
        return request
    return msgspec.structs.replace(
        request, allocation_mode=mode, count=count, tolerations=tolerations
    )


def _tolerations(
    tolerations: tuple[node_selectors.DeviceToleration, ...],
) -> tuple[node_selectors.DeviceToleration, ...]:
    if all(toleration.operator for toleration in tolerations):
        return tolerations
    return tuple(
        toleration if toleration.operator else msgspec.structs.replace(toleration, operator="Equal")
        for toleration in tolerations
    )


def _keyed_side(
    side: pods.PodAffinity | None, labels: Mapping[str, str]
) -> pods.PodAffinity | None:
    if side is None:
        return None
    soft = side.preferred_during_scheduling_ignored_during_execution
    return msgspec.structs.replace(
        side,
        required_during_scheduling_ignored_during_execution=tuple(
            _keyed(term, labels)
            for term in side.required_during_scheduling_ignored_during_execution
        ),
        preferred_during_scheduling_ignored_during_execution=tuple(
            msgspec.structs.replace(
                weighted, pod_affinity_term=_keyed(weighted.pod_affinity_term, labels)
            )
            for weighted in soft
        ),
    )


def _keyed(term: pods.PodAffinityTerm, labels: Mapping[str, str]) -> pods.PodAffinityTerm:
    selector = term.label_selector
    if selector is None:
        return term
    tests = tuple(
        meta.LabelSelectorRequirement(key=key, operator=operator, values=(labels[key],))
        for keys, operator in ((term.match_label_keys, "In"), (term.mismatch_label_keys, "NotIn"))
        for key in keys
        if key in labels
    )
    expressions = tuple(dict.fromkeys((*selector.match_expressions, *tests)))
    if expressions == selector.match_expressions:
        return term
    return msgspec.structs.replace(
        term, label_selector=msgspec.structs.replace(selector, match_expressions=expressions)
    )
