"""The lists that the dashboard reads: what the engine needs, and what its answers quote. Never a Secret."""

from __future__ import annotations

from typing import Final

from dovetail.answer.why import subjects
from dovetail.answer.why.evidence import observed
from dovetail.answer.why.fixes import owner_patches
from dovetail.ask import replicas
from dovetail.kubetypes import codec, gpu_stack_kinds, object_set, registry

PRIORITY_CLASS: Final = registry.Kind(
    "scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", False, codec.Generic
)
READS: Final[tuple[object_set.Read, ...]] = tuple(
    {
        (read.kind.group, read.kind.name): read
        for read in replicas.reads(
            (
                *subjects.MORE_KINDS,
                *observed.KINDS,
                *owner_patches.KINDS,
                PRIORITY_CLASS,
                registry.STACK_UPGRADE,
                *gpu_stack_kinds.OPERATOR_KINDS,
            )
        )
        if read.kind.name != "Secret"
    }.values()
)
