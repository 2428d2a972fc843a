"""Marks pods and claims that could be read only in part: they keep what they hold, and are not scheduled.

Given the readable part of an object, and the problem of the rest. The mark is an annotation with the problem, and for a
pod also a scheduling gate, both in memory only. Never writes.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims

NAME: Final = "dovetail.dev/unreadable"


def marked(pod: pods.Pod, problem: str) -> pods.Pod:
    """The pod with the mark: deciding by a part of its requests would place it wrongly."""
    metadata = msgspec.structs.replace(
        pod.metadata, annotations=pod.metadata.annotations | {NAME: problem}
    )
    gates = (*pod.spec.scheduling_gates, pods.PodSchedulingGate(name=NAME))
    spec = msgspec.structs.replace(pod.spec, scheduling_gates=gates)
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec)


def marked_claim(claim: claims.ResourceClaim, problem: str) -> claims.ResourceClaim:
    """The claim with the mark."""
    metadata = msgspec.structs.replace(
        claim.metadata, annotations=claim.metadata.annotations | {NAME: problem}
    )
    return msgspec.structs.replace(claim, metadata=metadata)


def problem_of_claim(claim: claims.ResourceClaim) -> str | None:
    """Why a part of the claim could not be read; None where all of it was."""
    return claim.metadata.annotations.get(NAME)


def problem_of(pod: pods.Pod) -> str | None:
    """Why a part of the pod could not be read; None where all of it was."""
    if not any(gate.name == NAME for gate in pod.spec.scheduling_gates):
        return None
    return pod.metadata.annotations.get(NAME, "")
