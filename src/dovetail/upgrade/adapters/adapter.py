"""The contract between the executor of an upgrade and whatever installs software on a node.

An adapter is given facts about one node and a target, and returns what to write next, what it waits for, or how it
ended. The executor fences and drains the node first, then calls `apply` after every change of the facts until the
answer is Applied, ApplyFailed or ByHand. All memory is in the cluster: an adapter keeps none, so a process that dies
between any two writes loses nothing. Never reads a clock, never sends a request.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from dovetail.kubetypes import registry
from dovetail.upgrade.adapters.node_facts import NodeFacts


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is to have afterwards. An empty field stays as it is."""

    driver: str = ""  # such as 595.91.07
    dra_driver: str = ""
    node_image: str = ""
    mig_config: str = ""  # name of a configuration of the MIG manager


class NodePatch(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Sets or, with None, removes labels and annotations of a node by merge patch. Safe to repeat."""

    node: str
    labels: dict[str, str | None] = {}
    annotations: dict[str, str | None] = {}
    why: str


class ObjectPatch(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A merge patch of a custom object, cluster-scoped unless a namespace is given. Safe to repeat."""

    kind: registry.Kind
    name: str
    namespace: str = ""
    patch: dict[str, Any]
    why: str


class PodDelete(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Deletes one pod, with its uid as precondition: a repetition never meets the pod that replaced it."""

    namespace: str
    name: str
    uid: str
    why: str


Write = NodePatch | ObjectPatch | PodDelete


class Working(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Not there yet. The writes may be sent in any order; without writes something else has to happen first."""

    writes: tuple[Write, ...] = ()
    waiting_for: str  # one line for a person: what has to happen, with numbers


class Applied(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The node has the target, as far as the installer can see. Validation is the executor's."""

    evidence: str  # what shows it


class ApplyFailed(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The installer gave up, or cannot go on. A later call may see that it recovered."""

    reason: str
    next_step: str  # what a person does about it
    may_recover: bool = (
        False  # the installer itself goes on trying: a stop rule decides how long that is awaited
    )


class ByHand(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Only a person can do it. Called again, the adapter returns Applied once the facts show that it is done."""

    steps: tuple[str, ...]
    done_when: str


Outcome = Working | Applied | ApplyFailed | ByHand


class Reversible(msgspec.Struct, frozen=True, tag=True):
    """The same adapter brings the node back, given the old versions as the target."""


class ForwardOnly(msgspec.Struct, frozen=True, tag=True):
    """There is no way back. Said before anything starts."""

    reason: str


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something about a node that is to be put right, or at least known, before its turn."""

    code: str  # stable, for conditions and metrics
    message: str
    next_step: str
    blocks: bool = (
        True  # False: a danger that is stated, and does not keep the upgrade from starting
    )


class Adapter(Protocol):
    """One way to change what is installed on a node."""

    @property
    def name(self) -> str:
        """As statuses and metrics show it."""
        ...

    def governs(self, facts: NodeFacts, target: Target) -> bool:
        """Whether this adapter is the one that brings this node to the target."""
        ...

    def reversible(self, facts: NodeFacts, target: Target) -> Reversible | ForwardOnly:
        """Whether the node can go back to what it has now."""
        ...

    def unready(self, facts: NodeFacts, target: Target) -> tuple[Problem, ...]:
        """What stands against a start, blockers first. Read before the node is fenced."""
        ...

    def apply(self, facts: NodeFacts, target: Target) -> Outcome:
        """The next step on a node that is fenced and empty. The same facts give the same answer."""
        ...
