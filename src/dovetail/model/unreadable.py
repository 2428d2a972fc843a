"""Marks pods of which only a part could be read: they occupy what they occupy, and are not scheduled.

Given a pod as far as it was read, and why the rest was not. The mark is a scheduling gate that exists in memory alone,
and an annotation beside it with the reason. Never writes.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dovetail.model import pods

NAME: Final = "dovetail.dev/unreadable"


def marked(pod: pods.Pod, problem: str) -> pods.Pod:
    """The pod with the mark: whoever decides by a part of what it asks for would place it wrongly."""
    metadata = msgspec.structs.replace(pod.metadata, annotations=pod.metadata.annotations | {NAME: problem})
    gates = (*pod.spec.scheduling_gates, pods.PodSchedulingGate(name=NAME))
    spec = msgspec.structs.replace(pod.spec, scheduling_gates=gates)
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec)


def problem_of(pod: pods.Pod) -> str | None:
    """Why a part of the pod could not be read; None where all of it was."""
    if not any(gate.name == NAME for gate in pod.spec.scheduling_gates):
        return None
    return pod.metadata.annotations.get(NAME, "")
