"""Why a kubelet refused a pod that was bound to its node: devices gone, NUMA topology, no room, two shares.

Given the status of a failed pod: its reason and message are the kubelet's. A refused pod never starts again; its owner
makes another. Never reads what a driver did later (see device_preparation).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from dovetail.answer.replica.replica import Replica
from dovetail.answer.why.cause_codes import CauseCode
from dovetail.answer.why.evidence import observation
from dovetail.answer.why.evidence.observation import Observed
from dovetail.answer.why.evidence.sources import fields, quoting
from dovetail.answer.why.evidence.sources.pod_state import PodState

_UNEXPECTED: Final = "UnexpectedAdmissionError"
_OUT_OF: Final = re.compile(r"OutOf(?P<resource>\S+)")
_SHORT: Final = re.compile(
    r"didn't have enough resource: (?P<resource>[^\s,]+),? requested: (?P<asked>\d+), "
    r"used: (?P<used>\d+), capacity: (?P<capacity>\d+)"
)
# Reasons by which a kubelet refuses a pod at admission (pkg/kubelet of Kubernetes 1.37).
_REASONS: Final = frozenset(
    {
        _UNEXPECTED,
        "TopologyAffinityError",
        "EmptyPodSharedPoolError",
        "SMTAlignmentError",
        "NodeAffinity",
        "NodePorts",
        "PodOSNotSupported",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "AppArmor",
        "NodeShutdown",
        "InitContainerRestartPolicyForbidden",
        "SupplementalGroupsPolicyNotSupported",
        "PodFeatureUnsupported",
        "PodLevelResourcesNotAdmittedReason",
    }
)
_CREATE_AGAIN: Final = "the pod must be created again"


class _Form(NamedTuple):
    pattern: re.Pattern[str]
    sentence: Callable[[re.Match[str], str], str]
    code: CauseCode = CauseCode.KUBELET_REFUSED


def refused(replica: Replica, state: PodState) -> Observed | None:
    """Why the kubelet refused the pod; None where it did not."""
    reason = fields.text_at(state.tree, "status", "reason")
    if state.pod.status.phase != "Failed" or not _is_refusal(reason) or state.has_started:
        return None
    message = fields.text_at(state.tree, "status", "message")
    node = quoting.words(state.node, 63) or "?"
    source = f"Pod {state.id}, status {reason}"
    lines = [quoting.line(source, fields.time_at(state.tree, "status", "startTime"), message)]
    if event := state.newest(reason):
        lines.append(event.line)

    for form in _FORMS:
        if match := form.pattern.search(message[:8_192]):
            sentence = form.sentence(match, node)
            return observation.observed_cause(form.code, sentence, *lines)
    said = quoting.words(message) or quoting.words(reason)
    sentence = f"the kubelet of node {node} refused it ({quoting.words(reason, 60)}): {said}"
    return observation.observed_cause(CauseCode.KUBELET_REFUSED, sentence, *lines)


def _is_refusal(reason: str) -> bool:
    return reason in _REASONS or _OUT_OF.fullmatch(reason) is not None


def _too_few(match: re.Match[str], node: str) -> str:
    resource = quoting.words(match["resource"], 63)
    return (
        f"node {node} had {match['have'][:9]} of the {match['asked'][:9]} {resource} it was promised "
        f"when the pod arrived: the device plugin restarted or devices failed; {_CREATE_AGAIN}"
    )


def _unhealthy(match: re.Match[str], node: str) -> str:
    resource = quoting.words(match["resource"], 63)
    return f"every {resource} of node {node} is unhealthy by its device plugin; {_CREATE_AGAIN} elsewhere"


def _unregistered(match: re.Match[str], node: str) -> str:
    resource = quoting.words(match["resource"], 63)
    return (
        f"the device plugin of {resource} was not registered with the kubelet of node {node}: it "
        f"restarts after the kubelet does; {_CREATE_AGAIN}"
    )


def _shared(match: re.Match[str], node: str) -> str:
    return (
        f"node {node} shares its GPUs by time-slicing or MPS: a request for more than "
        f"{match['most'][:9]} replica is refused, since two replicas may be one GPU; ask for 1"
    )


def _topology(match: re.Match[str], node: str) -> str:
    return (
        f"node {node} could not align its cpus, memory and devices on one NUMA node (topology manager); "
        f"ask for less per pod or for a node with that much on one NUMA node; {_CREATE_AGAIN}"
    )


def _no_room(match: re.Match[str], node: str) -> str:
    resource = quoting.words(match["resource"], 63)
    return (
        f"node {node} had no room for {match['asked'][:18]} {resource} when the pod arrived "
        f"({match['used'][:18]} of {match['capacity'][:18]} used): two schedulers placed pods there"
    )


_FORMS: Final = (
    _Form(  # first: an allocation failure quotes it
        re.compile(r"maximum request size for shared resources is (?P<most>\d+)"),
        _shared,
        CauseCode.SHARED_REQUEST,
    ),
    _Form(
        re.compile(
            r"requested number of devices unavailable for (?P<resource>\S+?)\. "
            r"Requested: (?P<asked>\d+), Available: (?P<have>\d+)"
        ),
        _too_few,
    ),
    _Form(re.compile(r"cannot allocate unhealthy devices (?P<resource>[^\s,]+)"), _unhealthy),
    _Form(re.compile(r"cannot allocate unregistered device (?P<resource>[^\s,]+)"), _unregistered),
    _Form(re.compile(r"cannot be allocated with Topology locality"), _topology),
    _Form(_SHORT, _no_room),
)
