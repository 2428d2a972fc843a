"""Causes that the engine states itself: gates, claims, volumes and queues that keep a pod from being tried at all.

Given reasons of the engine and what exists under similar names. One sentence each. Never looks at nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from dovetail.allocate.ask import device_requests
from dovetail.answer.why import near_values
from dovetail.answer.why.cause_codes import CauseCode
from dovetail.answer.why.why_answer import Cause
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.world.events import pod_id
from dovetail.world.world import World

CODES: Final = {
    ReasonCode.GATED: CauseCode.GATED,
    ReasonCode.ANNOTATION: CauseCode.ANNOTATION,
    ReasonCode.CLAIM_MISSING: CauseCode.CLAIM_MISSING,
    ReasonCode.CLAIM_NOT_MADE: CauseCode.CLAIM_NOT_MADE,
    ReasonCode.CLAIM_DELETING: CauseCode.CLAIM_MISSING,
    ReasonCode.CLAIM_RETURNING: CauseCode.CLAIM_IN_USE,
    ReasonCode.CLAIM_NOT_OURS: CauseCode.CLAIM_INVALID,
    ReasonCode.CLAIM_UNREADABLE: CauseCode.CLAIM_INVALID,
    ReasonCode.CLAIM_FULL: CauseCode.CLAIM_IN_USE,
    ReasonCode.CLAIM_QUEUE: CauseCode.QUEUE_UNUSABLE,
    ReasonCode.INPUT: CauseCode.CLAIM_INVALID,
    ReasonCode.NEVER: CauseCode.NO_DEVICES,
    ReasonCode.SELECTOR_COST: CauseCode.CEL_ERROR,
    ReasonCode.VOLUME_MISSING: CauseCode.VOLUME_MISSING,
    ReasonCode.VOLUME_DELETING: CauseCode.VOLUME_MISSING,
    ReasonCode.VOLUME_NOT_OURS: CauseCode.VOLUME_MISSING,
    ReasonCode.VOLUME_UNBOUND: CauseCode.VOLUME_UNBOUND,
    ReasonCode.VOLUME_IN_USE: CauseCode.VOLUME_IN_USE,
    ReasonCode.NO_NODES: CauseCode.NO_NODES,
    ReasonCode.QUEUE_UNUSABLE: CauseCode.QUEUE_UNUSABLE,
    ReasonCode.QUEUE_LIMIT: CauseCode.QUEUE_LIMIT,
    ReasonCode.QUEUE_QUOTA: CauseCode.QUEUE_QUOTA,
    ReasonCode.QUEUE_SHARE: CauseCode.QUEUE_SHARE,
    ReasonCode.QUEUE_BEHIND: CauseCode.QUEUE_QUOTA,
    ReasonCode.POWER_CAP: CauseCode.POWER_CAP,
    ReasonCode.GANG_INCOMPLETE: CauseCode.GANG_INCOMPLETE,
    ReasonCode.GANG_WAITS: CauseCode.GANG_CANNOT_START,
    ReasonCode.TOPOLOGY: CauseCode.TOPOLOGY,
    ReasonCode.PROMISED: CauseCode.PROMISED,
    ReasonCode.TOO_YOUNG: CauseCode.TOO_YOUNG,
    ReasonCode.QUARANTINE: CauseCode.DEVICES_QUARANTINED,
    ReasonCode.BUDGET: CauseCode.SEARCH_UNFINISHED,
    ReasonCode.TO_BE_CONTINUED: CauseCode.SEARCH_UNFINISHED,
}
# Who adds a gate and removes it, by how its name begins.
_GATE_OWNERS: Final = {
    "kueue.x-k8s.io/": "Kueue removes it when it admits the workload",
    "kai.scheduler/": "KAI removes it",
    "dovetail.dev/": "Dovetail removes it",
}


def cause(code: CauseCode, sentence: str) -> Cause:
    """A cause of the class that its code has."""
    return Cause(class_=code.cause_class, code=code, sentence=sentence)


def of_reasons(reasons: Iterable[Reason], pod: pods.Pod, world: World) -> Iterator[Cause]:
    """The cause of each reason that has one."""
    listed = list(reasons)
    gates = [reason for reason in listed if reason.code is ReasonCode.GATED]
    if gates:
        yield _gated([reason.subject.removeprefix("gate ") for reason in gates])
    for reason in listed:
        code = CODES.get(reason.code)
        if code is not None and code is not CauseCode.GATED:
            yield _of_reason(code, reason, pod, world)


def of_claims(wanted: Iterable[tuple[str, claims.ResourceClaim]], world: World) -> Iterator[Cause]:
    """Classes that do not exist and selectors that do not compile, by the names that the pod gives its claims."""
    for name, claim in wanted:
        for request in claim.spec.devices.requests:
            for option in (request.exactly, *request.first_available):
                if option is not None:
                    yield from _of_option(f"claim {name}, request {request.name}", option, world)


def _gated(gates: list[str]) -> Cause:
    owners = [
        who for gate in gates for prefix, who in _GATE_OWNERS.items() if gate.startswith(prefix)
    ]
    noun = "scheduling gate" if len(gates) == 1 else "scheduling gates"
    verb = "holds" if len(gates) == 1 else "hold"
    text = f"{noun} {' and '.join(gates)} {verb} it back{f': {owners[0]}' if owners else ''}"
    return cause(CauseCode.GATED, text)


def _gang_name(pod: pods.Pod, world: World) -> str:
    member = world.gangs.of(pod_id(pod))
    return "" if member is None else member.gang[1].partition("/")[2] or member.gang[1]


def _of_option(
    subject: str, option: claims.ExactDeviceRequest | claims.DeviceSubRequest, world: World
) -> Iterator[Cause]:
    class_name = option.device_class_name
    device_class = world.classes.get(class_name)
    if device_class is None:
        hint = _did_you_mean(near_values.nearest(class_name, world.classes))
        if not hint:
            verb = "is" if len(world.classes) == 1 else "are"
            hint = f"; there {verb} {_listed(sorted(world.classes))}" if world.classes else ""
        text = f"{subject}: device class {class_name} does not exist{hint}"
        yield cause(CauseCode.CLASS_MISSING, text)
        return
    for selector in (*device_class.spec.selectors, *option.selectors):
        problem = device_requests.compile_problem(selector.cel.expression) if selector.cel else None
        if problem is not None:
            first_line = problem.partition("\n")[0]  # below it stands a mark under the expression
            text = f"{subject}: a selector does not compile: {first_line}"
            yield cause(CauseCode.CEL_ERROR, text)


def _of_reason(code: CauseCode, reason: Reason, pod: pods.Pod, world: World) -> Cause:
    text = str(reason)
    match reason.code:
        case ReasonCode.CLAIM_MISSING:
            text = f"{reason.subject} does not exist{_similar_claim(reason.subject, world)}"
        case ReasonCode.CLAIM_NOT_MADE if "does not exist" in reason.detail:
            code = CauseCode.TEMPLATE_MISSING
            text = _missing_template(reason, pod, world)
        case ReasonCode.VOLUME_MISSING | ReasonCode.VOLUME_UNBOUND:
            text = f"{reason.subject} {reason.detail}{_volume_hint(reason, pod, world)}"
        case ReasonCode.VOLUME_IN_USE:
            text = f"{reason.subject} {reason.detail}{_volume_users(reason, pod, world)}"
        case ReasonCode.QUEUE_LIMIT | ReasonCode.QUEUE_QUOTA | ReasonCode.QUEUE_SHARE:
            text = f"{reason.subject}: {reason.detail.partition(';')[0]}"
            if "power cap" in reason.detail:
                code = CauseCode.POWER_CAP
        case ReasonCode.ANNOTATION:
            text = f"{reason.subject}: {reason.detail.partition(';')[0]}"
        case ReasonCode.TOO_YOUNG if "preemptionPolicy" in reason.detail:
            code = CauseCode.PREEMPTION_NEVER
        case ReasonCode.GANG_INCOMPLETE:
            text = f"gang {_gang_name(pod, world)}: {reason.detail}"
    return cause(code, text)


def _similar_claim(subject: str, world: World) -> str:
    namespace, _, name = subject.removeprefix("claim ").partition("/")
    names = [key[1] for key in world.claims if key[0] == namespace]
    hint = _did_you_mean(near_values.nearest(name, names))
    if not hint:
        elsewhere = [key[0] for key in world.claims if key[1] == name]
        hint = f"; there is one in namespace {elsewhere[0]}" if elsewhere else ""
    return hint


def _missing_template(reason: Reason, pod: pods.Pod, world: World) -> str:
    entry_name = reason.subject.removeprefix("resourceClaims ")
    entry = next(entry for entry in pod.spec.resource_claims if entry.name == entry_name)
    template, namespace = entry.resource_claim_template_name or "", pod.metadata.namespace
    names = [key[1] for key in world.templates if key[0] == namespace]
    hint = _did_you_mean(near_values.nearest(template, names))
    if not hint:
        elsewhere = sorted(key[0] for key in world.templates if key[1] == template)
        hint = f"; there is one in namespace {elsewhere[0]}" if elsewhere else ""
    return f"claim template {namespace}/{template} does not exist{hint}"


def _volume_hint(reason: Reason, pod: pods.Pod, world: World) -> str:
    name, namespace = reason.subject.removeprefix("volume claim "), pod.metadata.namespace
    claim = world.storage.claims.get((namespace, name))
    if claim is None:
        names = [key[1] for key in world.storage.claims if key[0] == namespace]
        return _did_you_mean(near_values.nearest(name, names))
    class_name = claim.storage_class
    if class_name and class_name not in world.storage.classes:
        hint = _did_you_mean(near_values.nearest(class_name, world.storage.classes))
        return f": storage class {class_name} does not exist{hint}"
    if class_name:
        provisioner = world.storage.classes[class_name].provisioner
        return f": storage class {class_name} ({provisioner})"
    return ""


def _volume_users(reason: Reason, pod: pods.Pod, world: World) -> str:
    name = reason.subject.removeprefix("volume claim ")
    users = sorted(
        user.metadata.name
        for user in world.pods.values()
        if user.spec.node_name
        and user.metadata.namespace == pod.metadata.namespace
        and any(
            volume.persistent_volume_claim is not None
            and volume.persistent_volume_claim.claim_name == name
            for volume in user.spec.volumes
        )
    )
    return f": {_listed(users)}" if users else ""


def _did_you_mean(name: str | None) -> str:
    return f"; did you mean {name}?" if name else ""


def _listed(names: list[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
