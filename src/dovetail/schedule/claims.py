"""Decides which claims a pod needs, which of them have devices already, and what keeps the pod from using them.

Given a pod and the world; a claim is the pod's by name or was made for it from a template. Claims shared with other
pods are allocated once; whoever comes later follows to where the devices are. Never allocates.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from dovetail.model import claims, nodes, pods, selectors
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.world import events
from dovetail.world.events import ObjectKey, pod_id
from dovetail.world.world import World

OPTIONAL_OPERATIONS: Final = "DRAOptionalNodeOperations"  # feature a node must declare for skipped operations


class Wanted(NamedTuple):
    """A claim of the pod under the name the pod gives it."""

    name: str
    key: ObjectKey
    claim: claims.ResourceClaim
    allocation: claims.AllocationResult | None


class Needs(NamedTuple):
    """The claims of a pod, each once, in the pod's order."""

    wanted: tuple[Wanted, ...] = ()

    @property
    def fresh(self) -> tuple[Wanted, ...]:
        """Claims that have no devices yet."""
        return tuple(one for one in self.wanted if one.allocation is None)

    @property
    def held(self) -> tuple[Wanted, ...]:
        """Claims whose devices are settled."""
        return tuple(one for one in self.wanted if one.allocation is not None)


class Books:
    """Which claims pods use, and who else does: by the world's facts and its assumptions."""

    def __init__(self, world: World) -> None:
        self._world = world

    def needs(self, pod: pods.Pod) -> Needs | tuple[Reason, ...]:
        """The claims of the pod, or every reason why they cannot be used now."""
        found: dict[ObjectKey, Wanted] = {}
        reasons: list[Reason] = []
        for entry in pod.spec.resource_claims:
            made = entry.resource_claim_name is None
            if made and not _has_status(pod, entry):
                reasons.append(_not_made(entry))
                continue
            name = claim_name(pod, entry)
            if name is None:  # the pod needs no claim here, and its status says so
                continue
            key = (pod.metadata.namespace, name)
            answer = self._wanted(pod, entry.name, key=key, must_own=made)
            if isinstance(answer, Reason):
                reasons.append(answer)
            else:
                found.setdefault(key, answer)
        return tuple(reasons) if reasons else Needs(tuple(found.values()))

    def is_reserved(self, claim: claims.ResourceClaim, pod: pods.Pod) -> bool:
        """Whether the claim lists the pod as a user."""
        return any(user.uid == pod.metadata.uid for user in claim.status.reserved_for)

    def _wanted(self, pod: pods.Pod, name: str, *, key: ObjectKey, must_own: bool) -> Wanted | Reason:
        subject = f"claim {key[0]}/{key[1]}"
        claim = self._world.claims.get(key)
        if claim is None:
            return Reason(code=ReasonCode.CLAIM_MISSING, subject=subject, detail="does not exist; create it")
        if claim.metadata.deletion_timestamp is not None:
            detail = "is being deleted; the pod can start once it is gone and made anew"
            return Reason(code=ReasonCode.CLAIM_DELETING, subject=subject, detail=detail)
        if must_own and not _is_owned(claim, pod):
            detail = "was made from a template for another pod"
            return Reason(code=ReasonCode.CLAIM_NOT_OURS, subject=subject, detail=detail)
        users = {user.uid for user in claim.status.reserved_for}.union(self._world.assumed_users(key))
        if pod_id(pod) not in users and len(users) >= claims.MAX_RESERVED_FOR:
            detail = f"is reserved for {len(users)} users, the most a claim can have"
            have = claims.MAX_RESERVED_FOR
            return Reason(code=ReasonCode.CLAIM_FULL, subject=subject, need=len(users) + 1, have=have, detail=detail)
        return Wanted(name, key, claim, self._world.allocation(key))


claim_name = events.claim_name


def named_nodes(settled: Iterable[Wanted]) -> frozenset[str] | None:
    """The only nodes that can be meant where devices are settled; None if they may be any."""
    found: frozenset[str] | None = None
    for wanted in settled:
        selector = wanted.allocation.node_selector if wanted.allocation is not None else None
        named = None if selector is None else _named(selector)
        if named is not None:
            found = named if found is None else found & named
    return found


def reaches(wanted: Wanted, node: nodes.Node) -> bool:
    """Whether the claim's devices can be used on the node. A selector nobody can read reaches none."""
    allocation = wanted.allocation
    if allocation is None:
        return True
    needs_feature = any(result.skip_node_operations for result in allocation.devices.results)
    if needs_feature and OPTIONAL_OPERATIONS not in node.status.declared_features:
        return False
    if allocation.node_selector is None:
        return True
    try:
        return selectors.picks_node(allocation.node_selector, node.metadata.labels, node_name=node.metadata.name)
    except selectors.SelectorError:
        return False


def _named(selector: selectors.NodeSelector) -> frozenset[str] | None:
    """The nodes a selector names outright in every term; None if a term could pick others."""
    found: set[str] = set()
    for term in selector.node_selector_terms:
        names = [
            one.values for one in term.match_fields if one.key == selectors.FIELD_NODE_NAME and one.operator == "In"
        ]
        if not names:
            return None
        found.update(names[0])
    return frozenset(found)


def _has_status(pod: pods.Pod, entry: pods.PodResourceClaim) -> bool:
    return any(status.name == entry.name for status in pod.status.resource_claim_statuses)


def _not_made(entry: pods.PodResourceClaim) -> Reason:
    template = entry.resource_claim_template_name
    if template is None:
        detail = "names neither a claim nor a template"
        return Reason(code=ReasonCode.INPUT, subject=f"resourceClaims {entry.name}", detail=detail)
    detail = f"no claim was made from template {template} yet; where that lasts, the pod's events say why"
    return Reason(code=ReasonCode.CLAIM_NOT_MADE, subject=f"resourceClaims {entry.name}", detail=detail)


def _is_owned(claim: claims.ResourceClaim, pod: pods.Pod) -> bool:
    return any(owner.controller and owner.uid == pod.metadata.uid for owner in claim.metadata.owner_references)
