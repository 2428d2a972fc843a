"""Proposes changes of what a pod's claims ask of devices: class, selectors, count, capacity, constraints, tolerations.

Given a case. A claim that exists by name is changed itself, one that is made from a template is changed there; neither
where devices are allocated already. Names of claims and templates that do not exist are corrected in the pod. Never
tries a proposal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from dovetail.answer.replica import patches
from dovetail.answer.why.fixes import cel_edits, edits, nearest, tree_paths
from dovetail.answer.why.fixes.proposals import (
    Candidate,
    Case,
    Edit,
    Intent,
    Ladder,
    ObjectChange,
    by_intent,
    single,
)
from dovetail.answer.why.fixes.tree_paths import Path, Tree
from dovetail.answer.why.why_answer import Who
from dovetail.kubetypes import node_selectors, object_set, registry
from dovetail.kubetypes.resource import claims
from dovetail.model.reasons import ReasonCode
from dovetail.quantity import quantity

MOST_CLASSES: Final = 5
MOST_TAINTS: Final = 5
MOST_SELECTORS: Final = 8
_PARTS: Final = 4  # steps in which a capacity is lowered
_DEVICES: Final = (
    ReasonCode.NO_DEVICES,
    ReasonCode.CLASS,
    ReasonCode.SELECTOR,
    ReasonCode.CEL_ERROR,
    ReasonCode.CAPACITY_POLICY,
    ReasonCode.TAINT,
    ReasonCode.IN_USE,
    ReasonCode.QUARANTINE,
    ReasonCode.COUNTERS,
    ReasonCode.CAPACITY,
    ReasonCode.CONSTRAINT,
    ReasonCode.COMBINATION,
    ReasonCode.LIMIT,
    ReasonCode.ALL_DEVICES,
    ReasonCode.NEVER,
)
_QUEUES: Final = (ReasonCode.QUEUE_LIMIT, ReasonCode.QUEUE_QUOTA)  # they count devices, too
_SELECTED: Final = (
    ReasonCode.SELECTOR,
    ReasonCode.CEL_ERROR,
    ReasonCode.NO_DEVICES,
    ReasonCode.CLASS,
    ReasonCode.IN_USE,
    ReasonCode.COUNTERS,
    ReasonCode.COMBINATION,
    ReasonCode.CONSTRAINT,
    ReasonCode.INPUT,
    ReasonCode.NEVER,
)


def ladders(case: Case) -> Iterator[Ladder]:
    """What could be changed about the claims."""
    if case.has(ReasonCode.CLAIM_MISSING, ReasonCode.CLAIM_NOT_MADE):
        yield from _names(case)
    if not case.has(*_DEVICES, *_QUEUES, ReasonCode.INPUT):
        return
    for source in _sources(case):
        for request in source.requests():
            yield from _request_ladders(case, source, request)
        if case.has(ReasonCode.CONSTRAINT, ReasonCode.COMBINATION):
            yield from _constraints(source)


# Where claims come from


class _Request(NamedTuple):
    """A request, or one alternative of it: where it is, and what it says."""

    name: str
    path: Path
    tree: Tree


class _Source(NamedTuple):
    """The object that says what a claim asks for."""

    ref: patches.ObjectRef
    devices: Path
    tree: Tree

    def requests(self) -> Iterator[_Request]:
        """Every request and every alternative."""
        listed = tree_paths.at(self.tree, (*self.devices, "requests")) or ()
        for place, request in enumerate(listed):
            name = str(request.get("name"))
            path: Path = (*self.devices, "requests", place)
            if isinstance(request.get("exactly"), dict):
                yield _Request(name, (*path, "exactly"), request["exactly"])
            for index, alternative in enumerate(request.get("firstAvailable") or ()):
                own = f"{name}/{alternative.get('name')}"
                yield _Request(own, (*path, "firstAvailable", index), alternative)

    def candidate(self, title: str, edit: Edit, intent: Intent) -> Candidate:
        """A change of it."""
        return Candidate(title, (ObjectChange(self.ref, edit),), intent)

    def name(self, *parts: str) -> tuple[str, ...]:
        """The name of a ladder about it."""
        return (str(self.ref), *parts)


def _sources(case: Case) -> Iterator[_Source]:
    namespace = case.pod.metadata.namespace
    seen: set[object_set.Key] = set()
    for entry in case.pod.spec.resource_claims:
        is_template = entry.resource_claim_name is None
        kind = registry.TEMPLATE if is_template else registry.CLAIM
        name = entry.resource_claim_template_name if is_template else entry.resource_claim_name
        key = object_set.Key(kind.unique_name, namespace, name or "")
        stored = case.replica.get(key)
        if stored is None or key in seen:
            continue
        seen.add(key)
        if isinstance(stored.struct, claims.ResourceClaim) and stored.struct.status.allocation:
            continue
        devices: Path = ("spec", "spec", "devices") if is_template else ("spec", "devices")
        yield _Source(patches.ref_of(stored.struct), devices, tree_paths.tree_of(stored))


# Requests


def _request_ladders(case: Case, source: _Source, request: _Request) -> Iterator[Ladder]:
    yield from _classes(case, source, request)
    if case.has(ReasonCode.CLASS, ReasonCode.NO_DEVICES):
        yield from _class_selectors(case, request)
    if case.has(*_SELECTED):
        yield from _selectors(case, source, request)
    if case.has(*_DEVICES, *_QUEUES):
        yield from _counts(source, request)
    if case.has(ReasonCode.CAPACITY, ReasonCode.CAPACITY_POLICY):
        yield from _capacities(case, source, request)
    if case.has(*_DEVICES):
        yield from _tolerations(case, source, request)


def _classes(case: Case, source: _Source, request: _Request) -> Iterator[Ladder]:
    written = str(request.tree.get("deviceClassName") or "")
    existing = case.replica.world.classes
    has_devices = any(reason.offered for reason in case.reasons)  # of the class, in use or not
    is_empty = case.has(ReasonCode.CLASS, ReasonCode.NO_DEVICES) and not has_devices
    if written in existing and not is_empty:
        return
    near = nearest.names(written, existing, most=MOST_CLASSES)
    others = [name for name in sorted(existing) if name != written and name not in near]
    rungs = [
        source.candidate(
            f"request {request.name}: device class {written or 'none'} -> {name}",
            edits.replacing(
                (*request.path, "deviceClassName"), request.tree.get("deviceClassName"), name
            ),
            Intent.CORRECTED
            if written not in existing and nearest.is_slip(written, name)
            else Intent.REPLACED,
        )
        for name in [*near, *others][:MOST_CLASSES]
    ]
    yield from by_intent(source.name("class", request.name), rungs)


def _class_selectors(case: Case, request: _Request) -> Iterator[Ladder]:
    """Values that no device has in the selectors of a class: its administrator may have misspelt them."""
    device_class = case.replica.world.classes.get(str(request.tree.get("deviceClassName")))
    selectors = device_class.spec.selectors if device_class is not None else ()
    for place, selector in enumerate(selectors[:MOST_SELECTORS]):
        if device_class is None or selector.cel is None:
            continue
        expression = selector.cel.expression
        path: Path = ("spec", "selectors", place, "cel", "expression")
        name = device_class.metadata.name
        rungs = [
            Candidate(
                f"device class {name}: {other.title}",
                (
                    ObjectChange(
                        patches.ref_of(device_class),
                        edits.replacing(path, expression, other.expression),
                    ),
                ),
                Intent.CORRECTED,
                Who.CLUSTER_ADMIN,
            )
            for other in cel_edits.other_texts(case.replica.world, expression)
            if other.is_correction
        ]
        yield Ladder(("device class", name, expression), tuple(rungs))


def _selectors(case: Case, source: _Source, request: _Request) -> Iterator[Ladder]:
    listed = request.tree.get("selectors") or ()
    for place, selector in enumerate(listed[:MOST_SELECTORS]):
        expression = tree_paths.at(selector, ("cel", "expression"))
        if not isinstance(expression, str):
            continue
        path: Path = (*request.path, "selectors", place)
        rungs: dict[str, list[Candidate]] = {}
        for other in cel_edits.other_texts(case.replica.world, expression):
            title = f"request {request.name}: {other.title}"
            edit = (
                edits.replacing((*path, "cel", "expression"), expression, other.expression)
                if other.expression
                else _without_selector(path, expression)
            )
            intent = Intent.DROPPED if other.is_drop else Intent.REPLACED
            if other.is_correction:
                intent = Intent.CORRECTED
            candidate = source.candidate(title, edit, intent)
            rungs.setdefault(other.condition, []).append(candidate)
        for condition, candidates in rungs.items():
            yield from by_intent(source.name("selector", request.name, condition), candidates)


def _without_selector(path: Path, expression: str) -> Edit:
    """Without the whole selector; the list goes with the last one."""

    def edit(tree: Tree) -> Tree:
        if tree_paths.at(tree, (*path, "cel", "expression")) != expression:
            return tree
        changed: Tree = tree_paths.without(tree, path)
        if not tree_paths.at(changed, path[:-1]):
            changed = tree_paths.without(changed, path[:-1])
        return changed

    return edit


def _counts(source: _Source, request: _Request) -> Iterator[Ladder]:
    count = request.tree.get("count", 1)
    mode = request.tree.get("allocationMode") or claims.MODE_EXACT_COUNT
    if mode != claims.MODE_EXACT_COUNT or not isinstance(count, int) or count < 2:
        return
    rungs = [
        source.candidate(
            f"request {request.name}: count {count} -> {fewer}",
            edits.setting((*request.path, "count"), fewer),
            Intent.LOWERED,
        )
        for fewer in range(count - 1, 0, -1)
    ]
    yield Ladder(source.name("count", request.name), tuple(rungs), is_monotone=True)


def _capacities(case: Case, source: _Source, request: _Request) -> Iterator[Ladder]:
    asked = tree_paths.at(request.tree, ("capacity", "requests")) or {}
    for name, text in sorted(asked.items()):
        if not quantity.is_quantity(str(text)):
            continue
        rungs = [
            source.candidate(
                f"request {request.name}: {name} {text} -> {less}",
                edits.setting((*request.path, "capacity", "requests", name), str(less)),
                Intent.LOWERED,
            )
            for less in _smaller(case, name, quantity.parse(str(text)))
        ]
        yield Ladder(source.name("capacity", request.name, name), tuple(rungs))


def _smaller(case: Case, name: str, asked: quantity.Quantity) -> list[quantity.Quantity]:
    """What devices have, the largest first; then parts of what was asked, for devices that others use."""
    own_name = name.rpartition("/")[2]
    templates = {
        id(template): template
        for devices in case.replica.world.published()
        for template in devices.templates
    }
    seen = {
        capacity.value
        for template in templates.values()
        for written, capacity in template.capacity.items()
        if written.rpartition("/")[2] == own_name and capacity.value < asked
    }
    parts = [
        quantity.Quantity(asked.nanos * part // _PARTS, asked.format)
        for part in range(_PARTS - 1, 0, -1)
    ]
    whole = [part for part in parts if part.nanos > 0 and part.nanos % 10**9 == 0]
    return list(dict.fromkeys([*sorted(seen, reverse=True), *whole]))


def _tolerations(case: Case, source: _Source, request: _Request) -> Iterator[Ladder]:
    for taint in _device_taints(case)[:MOST_TAINTS]:
        toleration: Tree = {"key": taint.key, "operator": "Exists", "effect": taint.effect}
        text = f"{taint.key}:{taint.effect}"
        if taint.value:
            toleration |= {"operator": "Equal", "value": taint.value}
            text = f"{taint.key}={taint.value}:{taint.effect}"
        if toleration in (request.tree.get("tolerations") or ()):
            continue
        candidate = source.candidate(
            f"request {request.name}: tolerate device taint {text}",
            edits.appending((*request.path, "tolerations"), toleration),
            Intent.ALLOWED,
        )
        yield single(source.name("device toleration", request.name, text), candidate)


def _device_taints(case: Case) -> list[node_selectors.DeviceTaint]:
    """The taints that devices carry, by their driver or by a rule."""
    world = case.replica.world
    taints = [rule.spec.taint for rule in world.rules.values()]
    templates = {
        id(template): template for devices in world.published() for template in devices.templates
    }
    for template in templates.values():
        taints += template.taints
    blocking = {
        (taint.key, taint.value, taint.effect): taint
        for taint in taints
        if taint.effect in ("NoSchedule", "NoExecute")
    }
    return [blocking[key] for key in sorted(blocking)]


def _constraints(source: _Source) -> Iterator[Ladder]:
    path: Path = (*source.devices, "constraints")
    for constraint in tree_paths.at(source.tree, path) or ():
        kind = "matchAttribute" if constraint.get("matchAttribute") else "distinctAttribute"
        attribute = str(constraint.get(kind))
        candidate = source.candidate(
            f"drop constraint {kind} {attribute}",
            _without_constraint(path, constraint),
            Intent.DROPPED,
        )
        yield single(source.name("constraint", attribute), candidate)


def _without_constraint(path: Path, constraint: Tree) -> Edit:
    def edit(tree: Tree) -> Tree:
        changed = edits.filtering(path, lambda own: own != constraint)(tree)
        return changed if tree_paths.at(changed, path) else tree_paths.without(changed, path)

    return edit


# Names that pods refer to


def _names(case: Case) -> Iterator[Ladder]:
    namespace = case.pod.metadata.namespace
    kinds = (
        ("resourceClaimTemplateName", registry.TEMPLATE, "claim template"),
        ("resourceClaimName", registry.CLAIM, "claim"),
    )
    for place, entry in enumerate(case.pod.spec.resource_claims):
        for field, kind, word in kinds:
            is_template = kind is registry.TEMPLATE
            name = entry.resource_claim_template_name if is_template else entry.resource_claim_name
            key = object_set.Key(kind.unique_name, namespace, name or "")
            if not name or case.replica.get(key) is not None:
                continue
            existing = _usable_names(case, kind.unique_name, namespace)
            path: Path = ("spec", "resourceClaims", place, field)
            rungs = [
                Candidate(
                    f"resourceClaims {entry.name}: {word} {name} -> {other}",
                    case.pod_change(edits.replacing(path, name, other)),
                    Intent.CORRECTED,
                )
                for other in nearest.names(name, existing)
            ]
            yield Ladder(("claim name", entry.name), tuple(rungs))


def _usable_names(case: Case, kind: str, namespace: str) -> list[str]:
    """Claims that pods made for themselves are no other pod's."""
    return [
        stored.struct.metadata.name
        for stored in case.replica.listed(kind, namespace=namespace)
        if not any(owner.controller for owner in stored.struct.metadata.owner_references)
    ]
