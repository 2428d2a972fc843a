"""Admits one object as an API server with default feature gates would: defaults, disabled fields, then the rules.

Given an object, the stored object it replaces and the terms of the request; returns the object to store and every
reason to refuse it. Each kind has one `Strategy`, after the strategies of the API server's own registry; kinds without
one pass with a check of their metadata. Never writes, never authorises the request.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from dovetail.admission import (
    defaults,
    feature_gates,
    validate_claim_status,
    validate_claims,
    validate_classes,
    validate_core,
    validate_custom,
    validate_slices,
    validate_taint_rules,
)
from dovetail.kubetypes import codec, field_errors, meta, registry
from dovetail.kubetypes.core import nodes, pods
from dovetail.kubetypes.custom import queues, topologies
from dovetail.kubetypes.field_errors import Problems, Terms
from dovetail.kubetypes.resource import claims, device_classes, slices, taint_rules

O = TypeVar(  # noqa: E741 - an object
    "O",
    slices.ResourceSlice,
    device_classes.DeviceClass,
    claims.ResourceClaim,
    claims.ResourceClaimTemplate,
    taint_rules.DeviceTaintRule,
    queues.Queue,
)


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """The object as it would be stored, and every reason not to store it."""

    object: codec.Object
    problems: tuple[field_errors.FieldProblem, ...]

    @property
    def is_valid(self) -> bool:
        """Whether the object may be stored."""
        return not self.problems


Create = Callable[[Any, Terms, Problems], codec.Object]
Update = Callable[[Any, Any, Terms, Problems], codec.Object]  # new, old, terms, problems
Read = Callable[[Any, str], codec.Object]  # stored object, now


class Strategy(NamedTuple):
    """What happens to the objects of one kind on each write. Every function returns the object to store."""

    create: Create
    update: Update | None = None  # None: an update is checked like a new object
    update_status: Update | None = None  # None: a status write is checked like an update
    as_read: Read | None = None  # applies defaults to an object stored without them


def create(new: codec.Object, terms: Terms) -> Verdict:
    """A new object."""
    problems: Problems = []
    new = _in_namespace(new, terms.namespace)
    strategy = _STRATEGIES.get(type(new), _GENERIC)
    new = strategy.create(new, terms, problems)
    return Verdict(new, _distinct(problems))


def update(new: codec.Object, old: codec.Object, *, terms: Terms) -> Verdict:
    """A changed object; its status, where it has one, stays as stored."""
    strategy = _strategy_for(new, old)
    old = as_read(old, terms.now)
    new = _with_server_metadata(_in_namespace(new, terms.namespace), old)
    if strategy.update is None:
        return create(new, terms)
    problems: Problems = []
    new = strategy.update(new, old, terms, problems)
    return Verdict(new, _distinct(problems))


def update_status(new: codec.Object, old: codec.Object, *, terms: Terms) -> Verdict:
    """A new status; the spec, and metadata that status writers may not change, stay as stored."""
    strategy = _strategy_for(new, old)
    old = as_read(old, terms.now)
    new = _with_server_metadata(_in_namespace(new, terms.namespace), old)
    if strategy.update_status is None:
        return update(new, old, terms=terms)
    problems: Problems = []
    new = strategy.update_status(new, old, terms, problems)
    return Verdict(new, _distinct(problems))


def as_read(old: codec.Object, now: str) -> codec.Object:
    """A stored object as a reader sees it: defaults apply on reading, too."""
    strategy = _STRATEGIES.get(type(old), _GENERIC)
    return old if strategy.as_read is None else strategy.as_read(old, now)


# ResourceSlice


def _create_slice(
    new: slices.ResourceSlice, terms: Terms, problems: Problems
) -> slices.ResourceSlice:
    spec = feature_gates.slice_spec(defaults.slice_spec(new.spec, terms.now), None)
    new = _first_generation(msgspec.structs.replace(new, spec=spec))
    validate_slices.check_create(problems, new)
    return new


def _update_slice(
    new: slices.ResourceSlice, old: slices.ResourceSlice, terms: Terms, problems: Problems
) -> slices.ResourceSlice:
    spec = defaults.slice_spec(new.spec, terms.now)
    # Compared before disabled fields are dropped: the generation counts what the writer changed.
    is_changed = spec != old.spec
    new = msgspec.structs.replace(new, spec=feature_gates.slice_spec(spec, old.spec))
    new = _next_generation(new, old, is_changed=is_changed)
    validate_slices.check_update(problems, new, old)
    return new


def _read_slice(old: slices.ResourceSlice, now: str) -> slices.ResourceSlice:
    return msgspec.structs.replace(old, spec=defaults.slice_spec(old.spec, now))


# DeviceClass


def _create_class(
    new: device_classes.DeviceClass, terms: Terms, problems: Problems
) -> device_classes.DeviceClass:
    new = _first_generation(new)
    validate_classes.check_create(problems, new, terms)
    return new


def _update_class(
    new: device_classes.DeviceClass,
    old: device_classes.DeviceClass,
    terms: Terms,
    problems: Problems,
) -> device_classes.DeviceClass:
    new = _next_generation(new, old, is_changed=new.spec != old.spec)
    validate_classes.check_update(problems, new, old, terms=terms)
    return new


# ResourceClaim


def _create_claim(
    new: claims.ResourceClaim, terms: Terms, problems: Problems
) -> claims.ResourceClaim:
    spec = feature_gates.claim_spec(defaults.claim_spec(new.spec), None)
    new = msgspec.structs.replace(new, spec=spec, status=claims.ResourceClaimStatus())
    validate_claims.check_create(problems, new, terms)
    return new


def _update_claim(
    new: claims.ResourceClaim, old: claims.ResourceClaim, terms: Terms, problems: Problems
) -> claims.ResourceClaim:
    spec = feature_gates.claim_spec(defaults.claim_spec(new.spec), old.spec)
    new = msgspec.structs.replace(new, spec=spec, status=old.status)
    validate_claims.check_update(problems, new, old)
    return new


def _update_claim_status(
    new: claims.ResourceClaim, old: claims.ResourceClaim, terms: Terms, problems: Problems
) -> claims.ResourceClaim:
    status = feature_gates.claim_status(defaults.claim_status(new.status), old.status)
    status = _without_stale_reports(status, old.status)
    new = msgspec.structs.replace(
        new, metadata=_status_metadata(new, old), spec=old.spec, status=status
    )
    validate_claim_status.check_update(problems, new, old, terms=terms)
    return new


def _read_claim(old: claims.ResourceClaim, now: str) -> claims.ResourceClaim:
    spec = defaults.claim_spec(old.spec)
    status = defaults.claim_status(old.status)
    return msgspec.structs.replace(old, spec=spec, status=status)


def _without_stale_reports(
    new: claims.ResourceClaimStatus, old: claims.ResourceClaimStatus
) -> claims.ResourceClaimStatus:
    """Drops the reports of drivers about devices that this write deallocates."""
    before = validate_claim_status.device_ids(old.allocation)
    deallocated = before - validate_claim_status.device_ids(new.allocation)
    if not deallocated:
        return new
    current_reports = tuple(
        report
        for report in new.devices
        if (report.driver, report.pool, report.device, report.share_id) not in deallocated
    )
    return msgspec.structs.replace(new, devices=current_reports)


# ResourceClaimTemplate


def _create_template(
    new: claims.ResourceClaimTemplate, terms: Terms, problems: Problems
) -> claims.ResourceClaimTemplate:
    new = _defaulted_template(new, None)
    validate_claims.check_template_create(problems, new, terms)
    return new


def _update_template(
    new: claims.ResourceClaimTemplate,
    old: claims.ResourceClaimTemplate,
    terms: Terms,
    problems: Problems,
) -> claims.ResourceClaimTemplate:
    new = _defaulted_template(new, old.spec.spec)
    validate_claims.check_template_update(problems, new, old, terms=terms)
    return new


def _read_template(old: claims.ResourceClaimTemplate, now: str) -> claims.ResourceClaimTemplate:
    spec = msgspec.structs.replace(old.spec, spec=defaults.claim_spec(old.spec.spec))
    return msgspec.structs.replace(old, spec=spec)


def _defaulted_template(
    new: claims.ResourceClaimTemplate, old: claims.ResourceClaimSpec | None
) -> claims.ResourceClaimTemplate:
    spec = feature_gates.claim_spec(defaults.claim_spec(new.spec.spec), old)
    return msgspec.structs.replace(new, spec=msgspec.structs.replace(new.spec, spec=spec))


# DeviceTaintRule


def _create_taint_rule(
    new: taint_rules.DeviceTaintRule, terms: Terms, problems: Problems
) -> taint_rules.DeviceTaintRule:
    spec = defaults.taint_rule_spec(new.spec, terms.now)
    status = taint_rules.DeviceTaintRuleStatus()
    new = _first_generation(msgspec.structs.replace(new, spec=spec, status=status))
    validate_taint_rules.check_create(problems, new)
    return new


def _update_taint_rule(
    new: taint_rules.DeviceTaintRule,
    old: taint_rules.DeviceTaintRule,
    terms: Terms,
    problems: Problems,
) -> taint_rules.DeviceTaintRule:
    spec = defaults.taint_rule_spec(new.spec, terms.now)
    is_new_effect = spec.taint.effect != old.spec.taint.effect
    if is_new_effect and spec.taint.time_added == old.spec.taint.time_added:
        # The time says since when this effect holds, not since when the rule exists.
        taint = msgspec.structs.replace(spec.taint, time_added=terms.now)
        spec = msgspec.structs.replace(spec, taint=taint)
    new = msgspec.structs.replace(new, spec=spec, status=old.status)
    new = _next_generation(new, old, is_changed=spec != old.spec)
    validate_taint_rules.check_update(problems, new, old)
    return new


def _update_taint_rule_status(
    new: taint_rules.DeviceTaintRule,
    old: taint_rules.DeviceTaintRule,
    terms: Terms,
    problems: Problems,
) -> taint_rules.DeviceTaintRule:
    new = msgspec.structs.replace(new, metadata=_status_metadata(new, old), spec=old.spec)
    validate_taint_rules.check_status_update(problems, new, old)
    return new


def _read_taint_rule(old: taint_rules.DeviceTaintRule, now: str) -> taint_rules.DeviceTaintRule:
    return msgspec.structs.replace(old, spec=defaults.taint_rule_spec(old.spec, now))


# Pods, nodes, our own kinds, and every other kind


def _create_pod(new: pods.Pod, terms: Terms, problems: Problems) -> pods.Pod:
    new = msgspec.structs.replace(new, spec=defaults.pod_spec(new.spec, new.metadata.labels))
    validate_core.check_pod(problems, new)
    return new


def _create_node(new: nodes.Node, terms: Terms, problems: Problems) -> nodes.Node:
    validate_core.check_node(problems, new)
    return new


def _create_queue(new: queues.Queue, terms: Terms, problems: Problems) -> queues.Queue:
    new = msgspec.structs.replace(new, status=queues.QueueStatus())
    validate_custom.check_queue(problems, new)
    return new


def _update_queue(
    new: queues.Queue, old: queues.Queue, terms: Terms, problems: Problems
) -> queues.Queue:
    new = msgspec.structs.replace(new, status=old.status)
    validate_custom.check_queue(problems, new)
    return new


def _update_queue_status(
    new: queues.Queue, old: queues.Queue, terms: Terms, problems: Problems
) -> queues.Queue:
    return msgspec.structs.replace(new, metadata=_status_metadata(new, old), spec=old.spec)


def _create_topology(
    new: topologies.Topology, terms: Terms, problems: Problems
) -> topologies.Topology:
    validate_custom.check_topology(problems, new)
    return new


def _create_generic(new: codec.Object, terms: Terms, problems: Problems) -> codec.Object:
    validate_core.check_generic(problems, new)
    return new


_STRATEGIES: Final[dict[type[codec.Object], Strategy]] = {
    registry.SLICE.struct: Strategy(_create_slice, _update_slice, as_read=_read_slice),
    registry.DEVICE_CLASS.struct: Strategy(_create_class, _update_class),
    registry.CLAIM.struct: Strategy(
        _create_claim, _update_claim, _update_claim_status, _read_claim
    ),
    registry.TEMPLATE.struct: Strategy(_create_template, _update_template, as_read=_read_template),
    registry.TAINT_RULE.struct: Strategy(
        _create_taint_rule, _update_taint_rule, _update_taint_rule_status, _read_taint_rule
    ),
    registry.POD.struct: Strategy(_create_pod),
    registry.NODE.struct: Strategy(_create_node),
    registry.QUEUE.struct: Strategy(_create_queue, _update_queue, _update_queue_status),
    registry.TOPOLOGY.struct: Strategy(_create_topology),
}
_GENERIC: Final = Strategy(_create_generic)


# What the strategies share


def _strategy_for(new: codec.Object, old: codec.Object) -> Strategy:
    """The strategy of the kind; the generic one if the stored object is of another kind."""
    if type(new) is not type(old):
        return _GENERIC
    return _STRATEGIES.get(type(new), _GENERIC)


def _in_namespace(new: codec.Object, namespace: str) -> codec.Object:
    if not namespace or new.metadata.namespace or type(new) not in codec.NAMESPACED:
        return new
    metadata = msgspec.structs.replace(new.metadata, namespace=namespace)
    return msgspec.structs.replace(new, metadata=metadata)


def _with_server_metadata(new: codec.Object, old: codec.Object) -> codec.Object:
    """The fields the server tracks come from the stored object, whatever a writer sends."""
    sent, stored = new.metadata, old.metadata
    grace_seconds = sent.deletion_grace_period_seconds
    if grace_seconds is None:
        grace_seconds = stored.deletion_grace_period_seconds

    metadata = msgspec.structs.replace(
        sent,
        generation=stored.generation,
        uid=sent.uid or stored.uid,
        creation_timestamp=stored.creation_timestamp or sent.creation_timestamp,
        deletion_timestamp=stored.deletion_timestamp or sent.deletion_timestamp,
        deletion_grace_period_seconds=grace_seconds,
    )
    return msgspec.structs.replace(new, metadata=metadata)


def _first_generation(new: O) -> O:
    metadata = msgspec.structs.replace(new.metadata, generation=1)
    return msgspec.structs.replace(new, metadata=metadata)


def _next_generation(new: O, old: O, *, is_changed: bool) -> O:
    generation = old.metadata.generation + 1 if is_changed else old.metadata.generation
    metadata = msgspec.structs.replace(new.metadata, generation=generation)
    return msgspec.structs.replace(new, metadata=metadata)


def _status_metadata(new: O, old: O) -> meta.ObjectMeta:
    """Metadata a status write can change: nothing but what the server itself tracks."""
    return msgspec.structs.replace(
        new.metadata,
        deletion_timestamp=old.metadata.deletion_timestamp,
        generation=old.metadata.generation,
        labels=old.metadata.labels,
        annotations=old.metadata.annotations,
        finalizers=old.metadata.finalizers,
        owner_references=old.metadata.owner_references,
    )


def _distinct(problems: Problems) -> tuple[field_errors.FieldProblem, ...]:
    """Each type of problem once per field, with its first message."""
    first = {(problem.type, problem.field): problem for problem in reversed(problems)}
    return tuple(reversed(first.values()))
