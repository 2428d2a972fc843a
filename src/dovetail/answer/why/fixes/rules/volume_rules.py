"""Proposes changes of volumes: the name of a claim that does not exist, the class of one that no volume serves.

Given a case. A volume claim that is bound is left alone: its data is in one place. Never tries a proposal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dovetail.answer.replica import patches
from dovetail.answer.why.fixes import edits, nearest
from dovetail.answer.why.fixes.proposals import Candidate, Case, Intent, Ladder, ObjectChange
from dovetail.answer.why.fixes.tree_paths import Path
from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.storage import volumes
from dovetail.model.reasons import ReasonCode

MOST_CLASSES: Final = 4
_CLAIM: Final = registry.VOLUME_CLAIM.unique_name
_UNBOUND: Final = (
    ReasonCode.VOLUME_UNBOUND,
    ReasonCode.VOLUME_NONE,
    ReasonCode.VOLUME_MISSING,
    ReasonCode.VOLUME_NODE,
    ReasonCode.VOLUME_SPACE,
)


def ladders(case: Case) -> Iterator[Ladder]:
    """What could be changed about the volumes."""
    if case.has(ReasonCode.VOLUME_MISSING):
        yield from _names(case)
    if case.has(*_UNBOUND):
        yield from _classes(case)


def _names(case: Case) -> Iterator[Ladder]:
    namespace = case.pod.metadata.namespace
    existing = [
        stored.struct.metadata.name for stored in case.replica.listed(_CLAIM, namespace=namespace)
    ]
    for place, volume in enumerate(case.pod.spec.volumes):
        source = volume.persistent_volume_claim
        if source is None or source.claim_name in existing:
            continue
        path: Path = ("spec", "volumes", place, "persistentVolumeClaim", "claimName")
        rungs = [
            Candidate(
                f"volume {volume.name}: claim {source.claim_name} -> {other}",
                case.pod_change(edits.replacing(path, source.claim_name, other)),
                Intent.CORRECTED,
            )
            for other in nearest.names(source.claim_name, existing)
        ]
        yield Ladder(("volume claim", volume.name), tuple(rungs))


def _classes(case: Case) -> Iterator[Ladder]:
    classes = [
        stored.struct.metadata.name
        for stored in case.replica.listed(registry.STORAGE_CLASS.unique_name)
    ]
    for volume in case.pod.spec.volumes:
        source = volume.persistent_volume_claim
        if source is None:
            continue
        key = object_set.Key(_CLAIM, case.pod.metadata.namespace, source.claim_name)
        stored = case.replica.get(key)
        if stored is None or not isinstance(stored.struct, volumes.PersistentVolumeClaim):
            continue
        spec = stored.struct.spec
        if spec.volume_name:
            continue
        written = spec.storage_class_name or ""
        near = nearest.names(written, classes) if written not in classes else []
        others = [name for name in classes if name != written and name not in near]
        rungs = [
            Candidate(
                f"volume claim {source.claim_name}: storage class {written or 'none'} -> {name}",
                (
                    ObjectChange(
                        patches.ref_of(stored.struct),
                        edits.setting(("spec", "storageClassName"), name),
                    ),
                ),
                Intent.CORRECTED if name in near else Intent.REPLACED,
            )
            for name in [*near, *others][:MOST_CLASSES]
        ]
        yield Ladder(("storage class", source.claim_name), tuple(rungs))
