"""What KAI and Volcano say about a pending pod: the conditions of its PodGroup, and their events about the pod.

Given the replica and the pod. KAI's reasons stand under status.schedulingConditions; where several node pools were
tried the last one counts. Never decides.
"""

from __future__ import annotations

import re
from typing import Final

from dovetail.answer.replica.replica import Replica
from dovetail.answer.why.cause_codes import CauseCode
from dovetail.answer.why.evidence import observation
from dovetail.answer.why.evidence.observation import Observed
from dovetail.answer.why.evidence.sources import fields, pod_state, quoting
from dovetail.answer.why.evidence.sources.fields import Tree
from dovetail.answer.why.evidence.sources.pod_state import PodState
from dovetail.kubetypes import object_set, registry

_KAI: Final = registry.KAI_POD_GROUP.unique_name
_KAI_ANNOTATION: Final = "pod-group-name"  # the pod grouper writes it on every pod
_VOLCANO: Final = object_set.unique_kind("scheduling.volcano.sh/v1beta1", "PodGroup")
_VOLCANO_ANNOTATION: Final = "scheduling.k8s.io/group-name"

_KAI_REASONS: Final = {
    "NonPreemptibleOverQuota": CauseCode.KAI_QUOTA,
    "OverLimit": CauseCode.KAI_QUOTA,
    "QueueDoesNotExist": CauseCode.KAI_CONFIG,
    "PreemptionDelayNotElapsed": CauseCode.TOO_YOUNG,
}
_KAI_FORMS: Final = tuple(
    (re.compile(pattern), code)
    for pattern, code in (
        (r"\bQueueDoesNotExist\b|[Qq]ueue \S+ (?:doesn't|does not) exist", CauseCode.KAI_CONFIG),
        (r"\bNonPreemptibleOverQuota\b|is over quota\b", CauseCode.KAI_QUOTA),
        (r"\bOverLimit\b|quota has reached the allowable limit", CauseCode.KAI_QUOTA),
        (
            r"Resources were (?:not )?found for (?:\d+ )?pods?\b|didn't have enough "
            r"(?:resources?|of mig profile)|can allocate only \d+ of \d+ required pods"
            r"|no nodes with enough resources|Unable to schedule pod",
            CauseCode.KAI_CAPACITY,
        ),
    )
)
_GANG: Final = re.compile(
    r"Resources were found for (?P<fit>\d+) pods(?P<groups> from all sub-groups)? while "
    r"(?:sub-group (?P<group>\S+) requires )?(?P<need>\d+) (?:pods|are required) "
    r"(?:for )?(?:required )?(?:for )?gang scheduling\. .*? due to: (?P<reason>.+)",
    re.DOTALL,
)
_OVER_QUOTA: Final = re.compile(
    r"Workload requested (?P<asked>\S+) (?P<unit>[^,]+?), but (?P<queue>.+?) quota is (?P<quota>\S+)"
    r" [^,]+, while (?P<used>\S+) "
)
_DOMAIN: Final = re.compile(
    r"node-group (?P<group>\S+) can allocate only (?P<fit>\d+) of (?P<need>\d+) required pods"
)
_OVERRIDING: Final = frozenset({CauseCode.KAI_QUOTA, CauseCode.KAI_CONFIG, CauseCode.TOO_YOUNG})


def kai(replica: Replica, state: PodState) -> Observed | None:
    """What KAI holds against the pod."""
    if state.node:
        return None
    group = _group(replica, state, _KAI, _KAI_ANNOTATION)
    condition = _last_kai_condition(group) if group is not None else {}
    event = next((each for each in state.events if _is_of_kai(each.source, each.reason)), None)
    reasons = fields.trees_at(condition, "reasons")
    texts = [fields.text_at(reason, "message") for reason in reasons]
    texts += [fields.text_at(condition, "message"), event.message if event else ""]
    text = next(filter(None, texts), "")
    if not text:
        return None

    named = (_KAI_REASONS.get(fields.text_at(reason, "reason")) for reason in reasons)
    code = next(filter(None, named), None) or _kai_code(text)
    lines = []
    if condition:
        name = fields.text_at(group, "metadata", "name")
        about = f"PodGroup {state.pod.metadata.namespace}/{name}"
        lines.append(pod_state.condition_line(about, {**condition, "message": text}))
    if event is not None:
        lines.append(event.line)
    return observation.observed_cause(
        code, _kai_sentence(text), *lines, overrides=code in _OVERRIDING
    )


def volcano(replica: Replica, state: PodState) -> Observed | None:
    """What Volcano says about the pod's group."""
    if state.node:
        return None
    group = _group(replica, state, _VOLCANO, _VOLCANO_ANNOTATION)
    condition = fields.condition(group, "Unschedulable") if group is not None else {}
    phase = fields.text_at(group, "status", "phase")
    if group is None or phase == "Running" or fields.text_at(condition, "status") != "True":
        return None
    name = fields.text_at(group, "metadata", "name")
    line = pod_state.condition_line(f"PodGroup {state.pod.metadata.namespace}/{name}", condition)
    said = quoting.words(fields.text_at(condition, "message"))
    return observation.observed_cause(
        CauseCode.OTHER_SCHEDULER, f"Volcano holds its group: {said}", line, overrides=False
    )


def _group(replica: Replica, state: PodState, kind: str, annotation: str) -> Tree | None:
    metadata = state.pod.metadata
    name = metadata.annotations.get(annotation, "")
    stored = replica.get(object_set.Key(kind, metadata.namespace, name)) if name else None
    return stored.tree if stored is not None else None


def _last_kai_condition(group: Tree) -> Tree:
    conditions = [
        condition
        for condition in fields.trees_at(group, "status", "schedulingConditions")
        if fields.text_at(condition, "status") in ("", "True")
    ]
    return max(conditions, key=_transition, default={})


def _transition(condition: Tree) -> tuple[int, str]:
    digits = fields.text_at(condition, "transitionID")
    number = int(digits[:18]) if digits.isascii() and digits.isdecimal() else 0
    return number, fields.text_at(condition, "lastTransitionTime")


def _is_of_kai(source: str, reason: str) -> bool:
    return source.startswith("kai-scheduler") and reason in ("Unschedulable", "FailedScheduling")


def _kai_code(text: str) -> CauseCode:
    for pattern, code in _KAI_FORMS:
        if pattern.search(text[:8_192]):
            return code
    return CauseCode.OTHER_SCHEDULER


def _kai_sentence(text: str) -> str:
    text = text[:8_192]
    if gang := _GANG.search(text):
        return (
            f"KAI has room for {gang['fit'][:9]} of the {gang['need'][:9]} pods its gang needs: "
            f"{quoting.words(gang['reason'])}"
        )
    if over := _OVER_QUOTA.search(text):
        return (
            f"KAI queue {quoting.words(over['queue'], 63)} is at its quota for non-preemptible work: "
            f"{quoting.words(over['used'], 20)} of {quoting.words(over['quota'], 20)} "
            f"{quoting.words(over['unit'], 20)} used, {quoting.words(over['asked'], 20)} more asked for"
        )
    if domain := _DOMAIN.search(text):
        return (
            f"KAI: the largest topology domain, {quoting.words(domain['group'], 63)}, takes "
            f"{domain['fit'][:9]} of the {domain['need'][:9]} pods"
        )
    return f"KAI holds it: {quoting.words(text)}"
