"""The way of an object into the API: defaults, alpha fields left out, rules; what to store or what is wrong.

Given an object, what was stored and the terms of the verdict; answers as an API server with default gates.
Kinds without rules of their own pass. Never writes, never asks who is asking.
"""

from typing import TypeVar

import msgspec

from dovetail.model import claims, classes, meta, nodes, objects, pods, queues, slices, taintrules, topologies
from dovetail.model.validation import claims as claim_rules
from dovetail.model.validation import classes as class_rules
from dovetail.model.validation import defaults, fields, gates, status, workloads
from dovetail.model.validation import queues as queue_rules
from dovetail.model.validation import slices as slice_rules
from dovetail.model.validation import taintrules as taint_rules

O = TypeVar(  # noqa: E741 - an object
    "O",
    slices.ResourceSlice,
    classes.DeviceClass,
    claims.ResourceClaim,
    claims.ResourceClaimTemplate,
    taintrules.DeviceTaintRule,
    queues.Queue,
)


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """The object as it would be stored, and every reason not to store it."""

    object: objects.Object
    problems: tuple[fields.FieldProblem, ...]

    @property
    def is_valid(self) -> bool:
        """Whether nothing speaks against the object."""
        return not self.problems


def create(new: objects.Object, terms: fields.Terms) -> Verdict:
    """A new object."""
    problems: fields.Problems = []
    new = _placed(new, terms.namespace)
    match new:
        case slices.ResourceSlice():
            spec = gates.slice_spec(defaults.slice_spec(new.spec, terms.now), None)
            new = _first_generation(msgspec.structs.replace(new, spec=spec))
            slice_rules.check_create(problems, new)
        case classes.DeviceClass():
            new = _first_generation(new)
            class_rules.check_create(problems, new, terms)
        case claims.ResourceClaim():
            spec_of_claim = gates.claim_spec(defaults.claim_spec(new.spec), None)
            new = msgspec.structs.replace(new, spec=spec_of_claim, status=claims.ResourceClaimStatus())
            claim_rules.check_create(problems, new, terms)
        case claims.ResourceClaimTemplate():
            new = _defaulted_template(new, None)
            claim_rules.check_template_create(problems, new, terms)
        case taintrules.DeviceTaintRule():
            rule_spec = defaults.taint_rule_spec(new.spec, terms.now)
            cleared = taintrules.DeviceTaintRuleStatus()
            new = _first_generation(msgspec.structs.replace(new, spec=rule_spec, status=cleared))
            taint_rules.check_create(problems, new)
        case pods.Pod():
            new = msgspec.structs.replace(new, spec=defaults.pod_spec(new.spec, new.metadata.labels))
            workloads.check_pod(problems, new)
        case nodes.Node():
            workloads.check_node(problems, new)
        case queues.Queue():
            new = msgspec.structs.replace(new, status=queues.QueueStatus())
            queue_rules.check_queue(problems, new)
        case topologies.Topology():
            queue_rules.check_topology(problems, new)
        case _:
            workloads.check_generic(problems, new)
    return Verdict(new, _distinct(problems))


def update(new: objects.Object, old: objects.Object, *, terms: fields.Terms) -> Verdict:
    """A changed object; its status, where it has one, stays as stored."""
    problems: fields.Problems = []
    old = _as_read(old, terms.now)
    new = _carried_over(_placed(new, terms.namespace), old)
    match new, old:
        case slices.ResourceSlice(), slices.ResourceSlice():
            is_changed = (spec := defaults.slice_spec(new.spec, terms.now)) != old.spec
            new = msgspec.structs.replace(new, spec=gates.slice_spec(spec, old.spec))
            new = _next_generation(new, old, is_changed=is_changed)
            slice_rules.check_update(problems, new, old)
        case classes.DeviceClass(), classes.DeviceClass():
            new = _next_generation(new, old, is_changed=new.spec != old.spec)
            class_rules.check_update(problems, new, old, terms=terms)
        case claims.ResourceClaim(), claims.ResourceClaim():
            spec_of_claim = gates.claim_spec(defaults.claim_spec(new.spec), old.spec)
            new = msgspec.structs.replace(new, spec=spec_of_claim, status=old.status)
            claim_rules.check_update(problems, new, old)
        case claims.ResourceClaimTemplate(), claims.ResourceClaimTemplate():
            new = _defaulted_template(new, old)
            claim_rules.check_template_update(problems, new, old, terms=terms)
        case taintrules.DeviceTaintRule(), taintrules.DeviceTaintRule():
            new = _updated_rule(new, old, terms.now)
            taint_rules.check_update(problems, new, old)
        case queues.Queue(), queues.Queue():
            new = msgspec.structs.replace(new, status=old.status)
            queue_rules.check_queue(problems, new)
        case _:
            return create(new, terms)
    return Verdict(new, _distinct(problems))


def update_status(new: objects.Object, old: objects.Object, *, terms: fields.Terms) -> Verdict:
    """A new status; the spec, and metadata that is not for status writers, stay as stored."""
    problems: fields.Problems = []
    old = _as_read(old, terms.now)
    new = _carried_over(_placed(new, terms.namespace), old)
    match new, old:
        case claims.ResourceClaim(), claims.ResourceClaim():
            written = gates.claim_status(defaults.claim_status(new.status), old.status)
            written = _without_stale_reports(written, old.status)
            new = msgspec.structs.replace(new, metadata=_status_metadata(new, old), spec=old.spec, status=written)
            status.check_update(problems, new, old, terms=terms)
        case taintrules.DeviceTaintRule(), taintrules.DeviceTaintRule():
            new = msgspec.structs.replace(new, metadata=_status_metadata(new, old), spec=old.spec)
            taint_rules.check_status_update(problems, new, old)
        case queues.Queue(), queues.Queue():
            new = msgspec.structs.replace(new, metadata=_status_metadata(new, old), spec=old.spec)
        case _:
            return update(new, old, terms=terms)
    return Verdict(new, _distinct(problems))


def _as_read(old: objects.Object, now: str) -> objects.Object:
    """A stored object as reading gives it: defaults apply to it too."""
    match old:
        case slices.ResourceSlice():
            return msgspec.structs.replace(old, spec=defaults.slice_spec(old.spec, now))
        case claims.ResourceClaim():
            spec, written = defaults.claim_spec(old.spec), defaults.claim_status(old.status)
            return msgspec.structs.replace(old, spec=spec, status=written)
        case claims.ResourceClaimTemplate():
            mould = msgspec.structs.replace(old.spec, spec=defaults.claim_spec(old.spec.spec))
            return msgspec.structs.replace(old, spec=mould)
        case taintrules.DeviceTaintRule():
            return msgspec.structs.replace(old, spec=defaults.taint_rule_spec(old.spec, now))
        case _:
            return old


def _placed(new: objects.Object, namespace: str) -> objects.Object:
    if not namespace or new.metadata.namespace or type(new) not in objects.NAMESPACED:
        return new
    return msgspec.structs.replace(new, metadata=msgspec.structs.replace(new.metadata, namespace=namespace))


def _carried_over(new: objects.Object, old: objects.Object) -> objects.Object:
    """What the server tracks comes from the stored object, whatever a writer sends."""
    sent, kept = new.metadata, old.metadata
    grace = sent.deletion_grace_period_seconds
    metadata = msgspec.structs.replace(
        sent,
        generation=kept.generation,
        uid=sent.uid or kept.uid,
        creation_timestamp=kept.creation_timestamp or sent.creation_timestamp,
        deletion_timestamp=kept.deletion_timestamp or sent.deletion_timestamp,
        deletion_grace_period_seconds=kept.deletion_grace_period_seconds if grace is None else grace,
    )
    return msgspec.structs.replace(new, metadata=metadata)


def _distinct(problems: fields.Problems) -> tuple[fields.FieldProblem, ...]:
    """Each kind of problem once per field."""
    if not problems:
        return ()
    return tuple({(problem.type, problem.field): problem for problem in reversed(problems)}.values())[::-1]


def _first_generation(new: O) -> O:
    return msgspec.structs.replace(new, metadata=msgspec.structs.replace(new.metadata, generation=1))


def _next_generation(new: O, old: O, *, is_changed: bool) -> O:
    generation = old.metadata.generation + 1 if is_changed else old.metadata.generation
    metadata = msgspec.structs.replace(new.metadata, generation=generation)
    return msgspec.structs.replace(new, metadata=metadata)


def _defaulted_template(
    new: claims.ResourceClaimTemplate, old: claims.ResourceClaimTemplate | None
) -> claims.ResourceClaimTemplate:
    spec = gates.claim_spec(defaults.claim_spec(new.spec.spec), None if old is None else old.spec.spec)
    return msgspec.structs.replace(new, spec=msgspec.structs.replace(new.spec, spec=spec))


def _updated_rule(
    new: taintrules.DeviceTaintRule, old: taintrules.DeviceTaintRule, now: str
) -> taintrules.DeviceTaintRule:
    spec = defaults.taint_rule_spec(new.spec, now)
    is_new_effect = spec.taint.effect != old.spec.taint.effect
    if is_new_effect and spec.taint.time_added == old.spec.taint.time_added:
        # The time says since when this effect holds, not since when the rule exists.
        spec = msgspec.structs.replace(spec, taint=msgspec.structs.replace(spec.taint, time_added=now))
    new = msgspec.structs.replace(new, spec=spec, status=old.status)
    return _next_generation(new, old, is_changed=spec != old.spec)


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


def _without_stale_reports(
    new: claims.ResourceClaimStatus, old: claims.ResourceClaimStatus
) -> claims.ResourceClaimStatus:
    """Reports about devices that were given back with this write go with them."""
    returned = status.device_ids(old.allocation) - status.device_ids(new.allocation)
    if not returned:
        return new
    kept = tuple(
        report for report in new.devices if (report.driver, report.pool, report.device, report.share_id) not in returned
    )
    return msgspec.structs.replace(new, devices=kept)
