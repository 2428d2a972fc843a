"""Claims a pod waits for that are not made: the template is missing, a quota refuses, or no controller makes them.

Given the pod and the objects of its namespace; the event FailedResourceClaimCreation counts only while the claim is
missing. Never creates a claim.
"""

from __future__ import annotations

import difflib
import re
from typing import Final

from dovetail.answer.replica.replica import Replica
from dovetail.answer.why.cause_codes import CauseClass, CauseCode
from dovetail.answer.why.evidence import (
    absent_scheduler,
    admission_refusals,
    observation,
    quota_room,
)
from dovetail.answer.why.evidence.observation import Observed
from dovetail.answer.why.evidence.sources import quoting
from dovetail.answer.why.evidence.sources.object_events import Event
from dovetail.answer.why.evidence.sources.pod_state import PodState
from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.core import pods

FAILED: Final = "FailedResourceClaimCreation"
PATIENCE_SECONDS: Final = 30.0  # in which a running controller makes a claim
_ENTRY: Final = re.compile(r"PodResourceClaim (?P<entry>[^\s:]+): (?P<problem>.*)", re.DOTALL)
_MANAGER: Final = "kube-controller-manager"  # also the name of its Lease
_TEMPLATE: Final = registry.TEMPLATE.unique_name
_CLAIM: Final = registry.CLAIM.unique_name


def not_made(replica: Replica, state: PodState) -> Observed | None:
    """The first claim that should be there and is not."""
    pod = state.pod
    if state.node or pod.status.phase in pods.TERMINAL_PHASES:
        return None
    for entry in pod.spec.resource_claims:
        template = entry.resource_claim_template_name
        if template is None or _is_made(replica, pod, entry.name):
            continue
        event = _event_about(state, entry.name)
        return (
            _template_missing(replica, state, entry.name, template, event)
            or _refused(replica, state, entry.name, event)
            or _no_controller(replica, state, entry.name, template)
        )
    return None


def _is_made(replica: Replica, pod: pods.Pod, entry: str) -> bool:
    for status in pod.status.resource_claim_statuses:
        if status.name == entry:
            name = status.resource_claim_name
            return name is None or _exists(replica, _CLAIM, pod.metadata.namespace, name)
    return False


def _exists(replica: Replica, kind: str, namespace: str, name: str) -> bool:
    return replica.get(object_set.Key(kind, namespace, name)) is not None


def _event_about(state: PodState, entry: str) -> Event | None:
    for event in state.events:
        if event.reason == FAILED:
            parts = _ENTRY.match(event.message[:8_192])
            if parts is None or parts["entry"] == entry:
                return event
    return None


def _template_missing(
    replica: Replica, state: PodState, entry: str, template: str, event: Event | None
) -> Observed | None:
    namespace = state.pod.metadata.namespace
    if _exists(replica, _TEMPLATE, namespace, template):
        return None
    known = [
        stored.struct.metadata.name for stored in replica.listed(_TEMPLATE, namespace=namespace)
    ]
    nearest = difflib.get_close_matches(template, known, n=1)
    hint = f"; did you mean {quoting.words(nearest[0], 63)}" if nearest else ""
    if not hint:
        elsewhere = [
            stored.struct.metadata.namespace
            for stored in replica.listed(_TEMPLATE)
            if stored.struct.metadata.name == template
        ]
        hint = f"; namespace {quoting.named(elsewhere)} has one" if elsewhere else ""
    sentence = (
        f"ResourceClaimTemplate {quoting.words(template, 63)} of its claim {quoting.words(entry, 63)} "
        f"does not exist in namespace {quoting.words(namespace, 63)}{hint}"
    )
    return observation.observed_cause(CauseCode.TEMPLATE_MISSING, sentence, *_lines(event))


def _refused(replica: Replica, state: PodState, entry: str, event: Event | None) -> Observed | None:
    """The API server refused the claim; while the quota has room again it only takes the next try."""
    if event is None:
        return None
    namespace = state.pod.metadata.namespace
    parts = _ENTRY.match(event.message[:8_192])
    problem = parts["problem"] if parts else event.message
    refusal = admission_refusals.refusal(problem, namespace)
    if refusal.exceeded is None:
        sentence = f"its claim {quoting.words(entry, 63)} is not made: {quoting.words(problem)}"
        class_ = refusal.class_ if refusal.code is not CauseCode.ADMISSION_DENIED else None
        return observation.observed_cause(
            CauseCode.CLAIM_NOT_MADE, sentence, event.line, class_=class_
        )
    room = quota_room.room(replica, namespace, refusal.exceeded)
    if room.suffices:
        sentence = (
            f"its claim {quoting.words(entry, 63)} was refused by quota {refusal.exceeded.quota}, "
            "which has room now: the claim controller tries again"
        )
        return observation.observed_cause(
            CauseCode.CLAIM_NOT_MADE, sentence, event.line, class_=CauseClass.QUOTA
        )
    users = f"; used by {', '.join(room.users[:3])}" if room.users else ""
    sentence = f"{refusal.sentence}{quoting.words(users, 100)}"
    return observation.observed_cause(
        CauseCode.RESOURCE_QUOTA, sentence, event.line, fixes=room.fixes
    )


def _no_controller(replica: Replica, state: PodState, entry: str, template: str) -> Observed | None:
    """No event and no claim although there was time, and no manager holds its Lease: the controller does not run.

    A claim alone may only not have been read: the controller makes it within a second.
    """
    created = state.created
    if created is None or (replica.now - created).total_seconds() < PATIENCE_SECONDS:
        return None
    leases = [each.struct.metadata.name for each in replica.listed(registry.LEASE.unique_name)]
    if _MANAGER not in leases or _MANAGER in absent_scheduler.renewed_leases(replica):
        return None
    sentence = (
        f"no controller made its claim {quoting.words(entry, 63)} from template "
        f"{quoting.words(template, 63)}: kube-controller-manager's resourceclaim controller does not run"
    )
    line = quoting.line(
        f"Pod {state.id}", created, "created; status.resourceClaimStatuses is empty"
    )
    return observation.observed_cause(CauseCode.CLAIM_NOT_MADE, sentence, line)


def _lines(event: Event | None) -> tuple[str, ...]:
    return (event.line,) if event is not None else ()
