"""Reads what it can of an object that does not decode, if leaving it out would free the devices it holds.

Given a pod's or a claim's document and its problem. A pod keeps its node and its readable requests; a claim keeps its
devices. Both are marked, so that no decision relies on half a request. Objects of other kinds are left out. Never
guesses a value.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from dovetail import errors
from dovetail.kubetypes import codec, registry, unreadable
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims

ROUNDS: Final = 4  # each removes all reported misfits; one misfit can hide others
_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")


def read(kind: registry.Kind, document: bytes, problem: str) -> Any | None:
    """The readable part of the object, marked with the problem; None for kinds where that is of no use."""
    if kind.name not in (registry.POD.name, registry.CLAIM.name):
        return None
    struct = _without_misfits(kind, document)
    if isinstance(struct, pods.Pod) and struct.metadata.name:
        return unreadable.marked(struct, problem)
    if isinstance(struct, claims.ResourceClaim) and struct.metadata.name:
        return unreadable.marked_claim(struct, problem)
    return None


def _without_misfits(kind: registry.Kind, document: bytes) -> Any | None:
    try:
        tree = msgspec.json.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    for _ in range(ROUNDS):
        try:
            return codec.decode_struct(kind.struct, codec.encode_tree(tree))
        except codec.DecodeError as error:
            removals = [_remove(tree, misfit.path) for misfit in error.misfits]
            if not any(removals):
                return None
        except errors.InputError:
            return None
    return None


def _remove(tree: Any, path: str) -> bool:
    """Sets the value at a path to null, which reads as absent; whether there was one."""
    steps = [name or index for name, index in _STEP.findall(path)]
    for step in steps[:-1]:
        tree = _below(tree, step)
    if not steps or _below(tree, steps[-1]) is None:
        return False

    if isinstance(tree, dict):
        tree[steps[-1]] = None
    else:
        tree[int(steps[-1])] = None
    return True


def _below(tree: Any, step: str) -> Any:
    if isinstance(tree, dict):
        return tree.get(step)
    if isinstance(tree, list) and step.isdigit() and int(step) < len(tree):
        return tree[int(step)]
    return None
