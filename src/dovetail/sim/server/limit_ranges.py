"""What the LimitRanges of a namespace do: defaults for containers, and bounds for containers, pods and volume claims.

Given the ranges as trees and a new object; returns the object with defaults, or why it is forbidden, in the words of
kube-apiserver's LimitRanger plugin. Never stores anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from dovetail.quantity import quantity
from dovetail.quantity.quantity import Quantity

Tree = dict[str, Any]
Amounts = dict[str, Quantity]

ANNOTATION: Final = "kubernetes.io/limit-ranger"
CONTAINER: Final = "Container"
POD: Final = "Pod"
VOLUME_CLAIM: Final = "PersistentVolumeClaim"
_CONTAINERS: Final = (("container", "containers"), ("init container", "initContainers"))


def filled_range(tree: Tree) -> Tree:
    """A LimitRange with the defaults that follow from its bounds: max bounds limits, limits or min give requests."""
    spec: Tree = tree.get("spec") or {}
    return tree | {"spec": spec | {"limits": [*map(_filled_item, spec.get("limits") or ())]}}


def _filled_item(item: Tree) -> Tree:
    if item.get("type") != CONTAINER:
        return item
    limits = (item.get("max") or {}) | (item.get("default") or {})
    requests = (item.get("min") or {}) | limits | (item.get("defaultRequest") or {})
    defaults = {"default": limits, "defaultRequest": requests}
    return item | {name: amounts for name, amounts in defaults.items() if amounts}


def with_defaults(pod: Tree, ranges: Sequence[Tree]) -> Tree:
    """A new pod whose containers have the requests and limits that they leave open; an annotation says which."""
    spec = dict(pod.get("spec") or {})
    notes: list[str] = []
    for item in _items(ranges, CONTAINER):
        for word, field in _CONTAINERS:
            if isinstance(spec.get(field), list):
                spec[field] = [_with_defaults(each, item, word, notes) for each in spec[field]]
    if not notes:
        return pod
    metadata: Tree = pod.get("metadata") or {}
    note = {ANNOTATION: "LimitRanger plugin set: " + "; ".join(notes)}
    annotations = (metadata.get("annotations") or {}) | note
    return pod | {"metadata": metadata | {"annotations": annotations}, "spec": spec}


def _with_defaults(container: Tree, item: Tree, word: str, notes: list[str]) -> Tree:
    resources: Tree = container.get("resources") or {}
    filled = dict(resources)
    for name, field, noun in (
        ("requests", "defaultRequest", "request"),
        ("limits", "default", "limit"),
    ):
        current: Tree = resources.get(name) or {}
        absent = {
            key: value for key, value in (item.get(field) or {}).items() if key not in current
        }
        if absent:
            filled[name] = current | absent
            listed = ", ".join(sorted(absent))
            notes.append(f"{listed} {noun} for {word} {container.get('name')}")
    return container | {"resources": filled} if filled != resources else container


def pod_refusal(pod: Tree, ranges: Sequence[Tree]) -> str:
    """Why a pod is forbidden; empty if it is not."""
    spec: Tree = pod.get("spec") or {}
    containers = [*(spec.get("containers") or ())]
    first_containers = [*(spec.get("initContainers") or ())]
    problems: list[str] = []
    for item in _items(ranges, CONTAINER):
        for container in (*containers, *first_containers):
            amounts = _amounts(container, "requests"), _amounts(container, "limits")
            problems += _problems(item, CONTAINER, *amounts)
    for item in _items(ranges, POD):
        totals = [_total(containers, first_containers, name) for name in ("requests", "limits")]
        problems += _problems(item, POD, *totals)
    return _joined(problems)


def volume_claim_refusal(claim: Tree, ranges: Sequence[Tree]) -> str:
    """Why a volume claim is forbidden; empty if it is not."""
    requests = _amounts(claim.get("spec") or {}, "requests")
    problems: list[str] = []
    for item in _items(ranges, VOLUME_CLAIM):
        problems += _below_minimum(item, VOLUME_CLAIM, requests, {})
        for name, most in _bounds(item, "max"):
            start = f"maximum {name} usage per {VOLUME_CLAIM} is {most}"
            if name not in requests:
                problems.append(f"{start}.  No request is specified")
            elif requests[name] > most:
                problems.append(f"{start}, but request is {requests[name]}")
    return _joined(problems)


def _problems(item: Tree, type_: str, requests: Amounts, limits: Amounts) -> Iterator[str]:
    yield from _below_minimum(item, type_, requests, limits)
    yield from _above_maximum(item, type_, requests, limits)
    yield from _above_ratio(item, type_, requests, limits)


def _below_minimum(item: Tree, type_: str, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for name, least in _bounds(item, "min"):
        start = f"minimum {name} usage per {type_} is {least}"
        if name not in requests:
            yield f"{start}.  No request is specified"
        elif requests[name] < least:
            yield f"{start}, but request is {requests[name]}"
        elif name in limits and limits[name] < least:
            yield f"{start}, but limit is {limits[name]}"


def _above_maximum(item: Tree, type_: str, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for name, most in _bounds(item, "max"):
        start = f"maximum {name} usage per {type_} is {most}"
        if name not in limits:
            yield f"{start}.  No limit is specified"
        elif limits[name] > most:
            yield f"{start}, but limit is {limits[name]}"
        elif name in requests and requests[name] > most:
            yield f"{start}, but request is {requests[name]}"


def _above_ratio(item: Tree, type_: str, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for name, most in _bounds(item, "maxLimitRequestRatio"):
        start = f"{name} max limit to request ratio per {type_} is {most}"
        request, limit = requests.get(name), limits.get(name)
        if not request or not request.nanos:
            yield f"{start}, but no request is specified or request is 0"
        elif not limit or not limit.nanos:
            yield f"{start}, but no limit is specified or limit is 0"
        elif limit.nanos * 10**9 > most.nanos * request.nanos:
            yield f"{start}, but provided ratio is {limit.nanos / request.nanos:f}"


def _total(containers: Iterable[Tree], first_containers: Iterable[Tree], name: str) -> Amounts:
    """What a pod needs: all containers together, or the largest of those that run before."""
    total: Amounts = {}
    for container in containers:
        for key, amount in _amounts(container, name).items():
            total[key] = total[key].add(amount) if key in total else amount
    for container in first_containers:
        for key, amount in _amounts(container, name).items():
            total[key] = max(total.get(key, amount), amount)
    return total


def _items(ranges: Sequence[Tree], type_: str) -> Iterator[Tree]:
    for tree in ranges:
        for item in (tree.get("spec") or {}).get("limits") or ():
            if item.get("type") == type_:
                yield item


def _bounds(item: Tree, field: str) -> list[tuple[str, Quantity]]:
    bounds: Tree = item.get(field) or {}
    return [(name, quantity.from_wire(amount)) for name, amount in sorted(bounds.items())]


def _amounts(holder: Tree, name: str) -> Amounts:
    amounts: Tree = (holder.get("resources") or {}).get(name) or {}
    return {key: quantity.from_wire(amount) for key, amount in amounts.items()}


def _joined(problems: Sequence[str]) -> str:
    return problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]" if problems else ""
