"""Completes recommendations with a cluster at hand: patches for its objects, and what the engine says about them.

Given the answer about records and a replica. Work whose pods are not in the cluster gets no patch, and says so. Never
changes a recommendation, never applies a patch.
"""

from __future__ import annotations

import msgspec

from dovetail.answer.replica.replica import Replica
from dovetail.answer.right_size import cluster_work, more_fit, size_patches
from dovetail.answer.right_size.right_size_answer import Answer, Recommendation
from dovetail.kubetypes.core import pods


def completed(answer: Answer, replica: Replica) -> Answer:
    """The answer with patches and consequences for every change that it recommends."""
    by_work = {str(key): own for key, own in cluster_work.pods_by_family(replica).items()}
    work = tuple(
        each if each.recommended is None else _completed(each, replica, by_work.get(each.work, []))
        for each in answer.work
    )
    return msgspec.structs.replace(answer, work=work)


def _completed(
    recommendation: Recommendation, replica: Replica, work: list[pods.Pod]
) -> Recommendation:
    assert recommendation.recommended is not None
    sized = size_patches.change(replica, work, recommendation.recommended)
    if sized.change is None:
        return msgspec.structs.replace(recommendation, patch_note=sized.note)
    return msgspec.structs.replace(
        recommendation,
        is_patchable=True,
        patches=sized.change.patches,
        what_if=more_fit.more_fit(replica, work, sized.change),
    )
