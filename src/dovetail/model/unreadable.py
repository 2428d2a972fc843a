"""Marks pods and claims of which only a part could be read: they hold what they hold, and are not scheduled by.

Given an object as far as it was read, and why the rest was not. The mark is an annotation with the reason, and for a
pod a scheduling gate beside it, both in memory alone. Never writes.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dovetail.model import claims, pods

NAME: Final = "dovetail.dev/unreadable"


def marked(pod: pods.Pod, problem: str) -> pods.Pod:
    """The pod with the mark: whoever decides by a part of what it asks for would place it wrongly."""
    metadata = msgspec.structs.replace(pod.metadata, annotations=pod.metadata.annotations | {NAME: problem})
    gates = (*pod.spec.scheduling_gates, pods.PodSchedulingGate(name=NAME))
    spec = msgspec.structs.replace(pod.spec, scheduling_gates=gates)
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec)


def marked_claim(claim: claims.ResourceClaim, problem: str) -> claims.ResourceClaim:
    """The claim with the mark."""
    metadata = msgspec.structs.replace(claim.metadata, annotations=claim.metadata.annotations | {NAME: problem})
    return msgspec.structs.replace(claim, metadata=metadata)


def problem_of_claim(claim: claims.ResourceClaim) -> str | None:
    """Why a part of the claim could not be read; None where all of it was."""
    return claim.metadata.annotations.get(NAME)


def problem_of(pod: pods.Pod) -> str | None:
    """Why a part of the pod could not be read; None where all of it was."""
    if not any(gate.name == NAME for gate in pod.spec.scheduling_gates):
        return None
    return pod.metadata.annotations.get(NAME, "")
