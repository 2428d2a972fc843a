"""Devices that are allocated and not ready: a driver could not prepare them, or their binding conditions are open.

Given the pod with its events and its claims. A failed preparation counts while no container has started and nothing
later happened to the pod; binding conditions are read off the claims themselves. Never allocates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from dovetail.answer.replica.replica import Replica
from dovetail.answer.why.cause_codes import CauseCode
from dovetail.answer.why.evidence import observation
from dovetail.answer.why.evidence.observation import Observed
from dovetail.answer.why.evidence.sources import quoting
from dovetail.answer.why.evidence.sources.pod_state import PodState
from dovetail.kubetypes import meta, object_set, registry
from dovetail.kubetypes.resource import claims

FAILED: Final = "FailedPrepareDynamicResources"
PENDING: Final = "BindingConditionsPending"
AFTER_PREPARATION: Final = (  # what a kubelet reports only once devices are prepared
    "Pulling",
    "Pulled",
    "Created",
    "Started",
    "FailedCreatePodSandBox",
    "BackOff",
)


class _Form(NamedTuple):
    pattern: re.Pattern[str]
    sentence: Callable[[re.Match[str], str], str]


def prepare_failed(replica: Replica, state: PodState) -> Observed | None:
    """A driver that could not prepare the pod's devices."""
    event = state.newest(FAILED)
    if event is None or state.has_started or state.is_over(event, *AFTER_PREPARATION):
        return None
    node = quoting.words(state.node, 63) or "?"
    for form in _FORMS:
        if match := form.pattern.search(event.message[:8_192]):
            return observation.observed_cause(
                CauseCode.PREPARE_FAILED, form.sentence(match, node), event.line
            )
    said = event.message.removeprefix("Failed to prepare dynamic resources: ")
    sentence = f"its devices could not be prepared on node {node}: {quoting.words(said)}"
    return observation.observed_cause(CauseCode.PREPARE_FAILED, sentence, event.line)


def binding_pending(replica: Replica, state: PodState) -> Observed | None:
    """Allocated devices whose binding conditions are not met yet, or failed."""
    if state.node:
        return None
    for claim in _claims_of(replica, state):
        allocation = claim.status.allocation
        for result in allocation.devices.results if allocation is not None else ():
            conditions = _conditions(claim, result)
            failed = [name for name in result.binding_failure_conditions if conditions.get(name)]
            waiting = [name for name in result.binding_conditions if not conditions.get(name)]
            if failed or waiting:
                return _binding(state, claim, result, failed, waiting)
    return None


def _binding(
    state: PodState,
    claim: claims.ResourceClaim,
    result: claims.DeviceRequestAllocationResult,
    failed: list[str],
    waiting: list[str],
) -> Observed:
    device = quoting.words(f"{result.pool}/{result.device}", 80)
    driver = quoting.words(result.driver, 63)
    if failed:
        what = f"reports {quoting.named(failed)}: the device could not be made ready"
    else:
        what = f"has not reported {quoting.named(waiting)} yet"
    said = _message(claim, result, [*failed, *waiting])
    sentence = f"device {device} is allocated to it, and driver {driver} {what}{said}"
    name = f"ResourceClaim {claim.metadata.namespace}/{claim.metadata.name}"
    words = ", ".join([*(f"{name}=True" for name in failed), *(f"{name} open" for name in waiting)])
    lines = [quoting.line(f"{name}, device {result.device}", None, words)]
    if event := state.newest(PENDING):
        lines.append(event.line)
    return observation.observed_cause(CauseCode.BINDING_CONDITIONS, sentence, *lines)


def _claims_of(replica: Replica, state: PodState) -> Iterator[claims.ResourceClaim]:
    names = [entry.resource_claim_name for entry in state.pod.spec.resource_claims]
    names += [each.resource_claim_name for each in state.pod.status.resource_claim_statuses]
    for name in dict.fromkeys(filter(None, names)):
        key = object_set.Key(registry.CLAIM.unique_name, state.pod.metadata.namespace, name)
        stored = replica.get(key)
        if stored is not None and isinstance(stored.struct, claims.ResourceClaim):
            yield stored.struct


def _message(
    claim: claims.ResourceClaim,
    result: claims.DeviceRequestAllocationResult,
    names: list[str],
) -> str:
    """What the driver says about the first of these conditions, with a colon before it."""
    for condition in _reported(claim, result):
        words = condition.message or condition.reason
        if condition.type in names and words:
            return f": {quoting.words(words)}"
    return ""


def _conditions(
    claim: claims.ResourceClaim, result: claims.DeviceRequestAllocationResult
) -> dict[str, bool]:
    """Which conditions of an allocated device are true."""
    return {each.type: each.status == "True" for each in _reported(claim, result)}


def _reported(
    claim: claims.ResourceClaim, result: claims.DeviceRequestAllocationResult
) -> tuple[meta.Condition, ...]:
    """The conditions of an allocated device."""
    device = (result.driver, result.pool, result.device)
    for status in claim.status.devices:
        if (status.driver, status.pool, status.device) == device:
            return tuple(status.conditions)
    return ()


def _unregistered(match: re.Match[str], node: str) -> str:
    driver = quoting.words(match["driver"], 63)
    return (
        f"DRA driver {driver} does not run on node {node}: its kubelet knows no such plugin; "
        "start the driver's pod there"
    )


def _driver_failed(match: re.Match[str], node: str) -> str:
    claim, problem = quoting.words(match["claim"], 63), quoting.words(match["problem"])
    return f"the driver on node {node} could not prepare claim {claim}: {problem}"


def _not_allowed(match: re.Match[str], node: str) -> str:
    claim = quoting.words(match["claim"], 63)
    return (
        f"the kubelet of node {node} refuses claim {claim}: it is not reserved for this pod; "
        "create the pod again so that a scheduler reserves it"
    )


def _unpreparing(match: re.Match[str], node: str) -> str:
    claim = quoting.words(match["claim"], 63)
    return f"claim {claim} is still being released on node {node} by a pod that ended"


def _old_claim(match: re.Match[str], node: str) -> str:
    claim = quoting.words(match["claim"], 63)
    return (
        f"an earlier claim called {claim} is still prepared on node {node}: its pod was deleted by "
        "force; it goes when the driver releases it"
    )


def _call_failed(match: re.Match[str], node: str) -> str:
    problem = quoting.words(match["problem"])
    return f"the driver on node {node} did not answer when asked to prepare: {problem}"


def _claim_unread(match: re.Match[str], node: str) -> str:
    claim, problem = quoting.words(match["claim"], 63), quoting.words(match["problem"], 80)
    return f"the kubelet of node {node} could not read claim {claim}: {problem}"


_FORMS: Final = (
    _Form(re.compile(r"DRA driver (?P<driver>\S+) is not registered"), _unregistered),
    _Form(
        re.compile(
            r"NodePrepareResources failed for ResourceClaim (?P<claim>[^\s:]+): (?P<problem>.+)",
            re.DOTALL,
        ),
        _driver_failed,
    ),
    _Form(
        re.compile(r"is not allowed to use ResourceClaim (?P<claim>\S+)"),
        _not_allowed,
    ),
    _Form(re.compile(r"ResourceClaim (?P<claim>\S+) is being unprepared"), _unpreparing),
    _Form(re.compile(r"old ResourceClaim with same name (?P<claim>\S+) and"), _old_claim),
    _Form(
        re.compile(r"fetch ResourceClaim (?P<claim>[^\s:]+): (?P<problem>.+)", re.DOTALL),
        _claim_unread,
    ),
    _Form(
        re.compile(r"NodePrepareResources(?: failed)?: (?P<problem>.+)", re.DOTALL), _call_failed
    ),
)
