"""Reads as much as can be read of an object that does not decode, where leaving it out would free what it holds.

Given a pod's or a claim's document and what is wrong with it. A pod keeps its node and whatever of its requests can be
read; a claim keeps its devices. Both are marked: nothing is decided by half of what is asked for. Of other kinds
nothing is taken. Never guesses a value.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from dovetail import errors
from dovetail.model import claims, kinds, objects, pods, unreadable

ROUNDS: Final = 4  # each removes everything that was found wrong; one misfit can hide others
_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")


def read(kind: kinds.Kind, document: bytes, problem: str) -> Any | None:
    """The object as far as it can be read; None where that is of no use."""
    if kind.name not in (kinds.POD.name, kinds.CLAIM.name):
        return None
    struct = _without_misfits(kind, document)
    if isinstance(struct, pods.Pod) and struct.metadata.name:
        return unreadable.marked(struct, problem)
    if isinstance(struct, claims.ResourceClaim) and struct.metadata.name:
        return unreadable.marked_claim(struct, problem)
    return None


def _without_misfits(kind: kinds.Kind, document: bytes) -> Any | None:
    try:
        tree = msgspec.json.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    for _ in range(ROUNDS):
        try:
            return objects.decode_struct(kind.struct, objects.encode_tree(tree))
        except objects.DecodeError as error:
            removed = [_removed(tree, misfit.path) for misfit in error.misfits]
            if not any(removed):
                return None
        except errors.InputError:
            return None
    return None


def _removed(tree: Any, path: str) -> bool:
    """Makes the value at a path null, which reads as nothing; whether there was one."""
    steps = [name or index for name, index in _STEP.findall(path)]
    for step in steps[:-1]:
        tree = _below(tree, step)
    if not steps:
        return False
    last = steps[-1]
    if isinstance(tree, dict) and tree.get(last) is not None:
        tree[last] = None
        return True
    if isinstance(tree, list) and last.isdigit() and int(last) < len(tree) and tree[int(last)] is not None:
        tree[int(last)] = None
        return True
    return False


def _below(tree: Any, step: str) -> Any:
    if isinstance(tree, dict):
        return tree.get(step)
    if isinstance(tree, list) and step.isdigit() and int(step) < len(tree):
        return tree[int(step)]
    return None
