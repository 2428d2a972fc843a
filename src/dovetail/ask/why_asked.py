"""Asks why a pod or workload does not start, by the names that people type.

Given the replica of a cluster. Raises NotFound for what does not exist, with what was probably meant. Never decides.
"""

from __future__ import annotations

from typing import Final

from dovetail import errors
from dovetail.answer.replica.patches import ObjectRef
from dovetail.answer.replica.replica import Replica
from dovetail.answer.why import subjects
from dovetail.answer.why import why as answers
from dovetail.answer.why.evidence import observed
from dovetail.answer.why.fixes import owner_patches
from dovetail.answer.why.why_answer import Why

# What is read beyond the kinds of every question: events, quotas, owners, other schedulers' objects.
KINDS: Final = (*subjects.MORE_KINDS, *observed.KINDS, *owner_patches.KINDS)


def why(replica: Replica, name: str, namespace: str) -> Why:
    """Why the pod NAME or the workload KIND/NAME does not start, or that it does."""
    return answers.why(replica, subject_of(replica, name, namespace))


def why_waiting(replica: Replica, namespace: str | None) -> list[Why]:
    """The same about every pod that waits, of one namespace or all."""
    return list(answers.waiting(replica, namespace))


def subject_of(replica: Replica, name: str, namespace: str) -> ObjectRef:
    """The object that a name means. Raises NotFound with what was probably meant."""
    word, slash, object_name = name.rpartition("/")
    if slash and not (word and object_name):
        raise errors.InputError(f'"{name}": expected NAME or KIND/NAME, such as job/train')
    subject = subjects.named(replica, word or "pod", object_name, namespace)
    if subject is None:
        raise errors.NotFound(subjects.missing(replica, word or "pod", object_name, namespace))
    return subject
