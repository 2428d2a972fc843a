"""Decides which claims a pod needs, which of them are allocated already, and what keeps the pod from using them.

Given a pod and the World; a claim is the pod's by name, or was made for it from a template. A claim that pods share is
allocated once; later pods go where its devices are. A claim of a PodGroup is shared by all its pods, and is released
when none of them is on a node. Never allocates.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

from dovetail.kubetypes import node_selectors, unreadable
from dovetail.kubetypes.core import nodes, pods
from dovetail.kubetypes.resource import claims
from dovetail.model import gpu_shares, reservations
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.world import events
from dovetail.world.events import ObjectKey, pod_id
from dovetail.world.world import World

OPTIONAL_OPERATIONS: Final = (
    "DRAOptionalNodeOperations"  # feature a node must declare for skipped operations
)
NO_SHARES: Final = (
    "no GPU offers shares of its memory; have the driver publish GPUs that several claims may use "
    "(allowMultipleAllocations), or request a whole GPU"
)


class PodClaim(NamedTuple):
    """A claim of the pod under the name the pod gives it."""

    name: str
    key: ObjectKey
    claim: claims.ResourceClaim
    allocation: claims.AllocationResult | None


class PodClaims(NamedTuple):
    """The claims of a pod, each once, in the pod's order."""

    wanted: tuple[PodClaim, ...] = ()

    @property
    def fresh(self) -> tuple[PodClaim, ...]:
        """Claims that have no devices yet."""
        return tuple(pod_claim for pod_claim in self.wanted if pod_claim.allocation is None)

    @property
    def held(self) -> tuple[PodClaim, ...]:
        """Claims whose devices are settled."""
        return tuple(pod_claim for pod_claim in self.wanted if pod_claim.allocation is not None)


class ClaimLookup:
    """The claims that pods use and their other users, by what the World observed and assumed."""

    def __init__(self, world: World) -> None:
        self._world = world

    def needs(self, pod: pods.Pod) -> PodClaims | tuple[Reason, ...]:
        """The claims of the pod, or every reason why they cannot be used now."""
        wanted_by_key: dict[ObjectKey, PodClaim] = {}
        reasons: list[Reason] = []
        for entry in pod.spec.resource_claims:
            is_from_template = entry.resource_claim_name is None
            if is_from_template and not _has_status(pod, entry):
                reasons.append(self._not_made(pod, entry))
                continue
            name = reservations.claim_name(pod, entry)
            if name is None:  # the pod needs no claim here, and its status says so
                continue
            key = (pod.metadata.namespace, name)
            answer = self._wanted(pod, entry.name, key=key, must_own=is_from_template)
            if isinstance(answer, Reason):
                reasons.append(answer)
            else:
                wanted_by_key.setdefault(key, answer)
        return tuple(reasons) if reasons else PodClaims(tuple(wanted_by_key.values()))

    @property
    def images(self) -> Collection[str]:
        """The images that any node holds."""
        return self._world.images

    def are_untouched(self, needs: PodClaims) -> bool:
        """Whether these claims are the objects of now, without devices, and no pod is about to use them."""
        for pod_claim in needs.wanted:
            if pod_claim.allocation is not None:
                return False
            if not self._world.is_untouched(pod_claim.key, pod_claim.claim):
                return False
        return True

    def is_reserved(self, claim: claims.ResourceClaim, pod: pods.Pod) -> bool:
        """Whether the claim lists the pod as a user, or the group it is used for."""
        user = self._world.user_of(pod, events.key_of(claim))
        return any(consumer.uid == user.uid for consumer in claim.status.reserved_for)

    def _not_made(self, pod: pods.Pod, entry: pods.PodResourceClaim) -> Reason:
        """Why there is no claim yet: its template does not exist, or the claim is still to be made from it."""
        subject = f"resourceClaims {entry.name}"
        template, namespace = entry.resource_claim_template_name, pod.metadata.namespace
        if template is None:
            detail = "names neither a claim nor a template"
            return Reason(code=ReasonCode.INPUT, subject=subject, detail=detail)
        is_there = (namespace, template) in self._world.templates
        is_share = gpu_shares.of_template(template) is not None
        if is_share and not is_there and not self._world.shareable_gpus():
            return Reason(code=ReasonCode.NEVER, subject=subject, detail=NO_SHARES)
        if is_there:
            detail = (
                f"no claim was made from template {template} yet; "
                "where that lasts, the pod's events say why"
            )
        elif is_share:
            detail = (
                f"template {template} is still to be created by the scheduler; "
                "where that lasts, kaiShares is off in its configuration"
            )
        else:
            detail = (
                f"template {template} does not exist in namespace {namespace}; "
                "create it, or correct its name"
            )
        return Reason(code=ReasonCode.CLAIM_NOT_MADE, subject=subject, detail=detail)

    def _wanted(
        self, pod: pods.Pod, name: str, *, key: ObjectKey, must_own: bool
    ) -> PodClaim | Reason:
        subject = f"claim {key[0]}/{key[1]}"
        claim = self._world.claims.get(key)
        if claim is None:
            return Reason(
                code=ReasonCode.CLAIM_MISSING, subject=subject, detail="does not exist; create it"
            )
        if claim.metadata.deletion_timestamp is not None:
            detail = "is being deleted; the pod can start once it is gone and created again"
            return Reason(code=ReasonCode.CLAIM_DELETING, subject=subject, detail=detail)
        if (problem := unreadable.problem_of_claim(claim)) is not None:
            detail = f"cannot be read, so no devices are allocated for it: {problem}"
            return Reason(code=ReasonCode.CLAIM_UNREADABLE, subject=subject, detail=detail)
        if must_own and not reservations.is_made_for(claim, pod):
            detail = "was made from a template for another pod"
            return Reason(code=ReasonCode.CLAIM_NOT_OURS, subject=subject, detail=detail)
        allocation = self._world.allocation(key)
        if (
            allocation is not None
            and releasing_scheduler(claim, self._world) == pod.spec.scheduler_name
        ):
            detail = "is being given back: no pod of its PodGroup is on a node any more"
            return Reason(code=ReasonCode.CLAIM_RETURNING, subject=subject, detail=detail)
        most = len(claim.status.reserved_for) + len(self._world.assumed_users(key))
        users = self._users(claim, pod, key) if most >= claims.MAX_RESERVED_FOR else ()
        if len(users) > claims.MAX_RESERVED_FOR:
            detail = f"is reserved for {len(users) - 1} users, the most a claim can have"
            have = claims.MAX_RESERVED_FOR
            return Reason(
                code=ReasonCode.CLAIM_FULL,
                subject=subject,
                need=len(users),
                have=have,
                detail=detail,
            )
        return PodClaim(name, key, claim, allocation)

    def _users(self, claim: claims.ResourceClaim, pod: pods.Pod, key: ObjectKey) -> set[str]:
        """Who uses the claim once the pod does: by status, about to, and the pod, or its group for all its pods."""
        user = self._world.user_of(pod, key)
        user_ids = {consumer.uid for consumer in claim.status.reserved_for}
        if reservations.is_group(user):
            return user_ids | {user.uid}
        return user_ids.union(self._world.assumed_users(key), (pod_id(pod),))


def releasing_scheduler(claim: claims.ResourceClaim, world: World, *, last: str = "") -> str | None:
    """The scheduler that has to release a claim: it is allocated for a PodGroup that has no pod on a node.

    Kubernetes leaves such a claim as it is until the group is gone. None where the claim is in use, is no group's, or
    the group's pods are not known to be of one scheduler. `last` is the scheduler of a pod of it that was just removed.
    """
    users = claim.status.reserved_for
    groups = [user for user in users if reservations.is_group(user)]
    namespace = claim.metadata.namespace
    is_over = is_deserted if last else World.has_ended
    if (
        claim.status.allocation is None
        or not groups
        or not all(is_over(world, user, namespace) for user in users)
    ):
        return None
    members = (
        member_id
        for user in groups
        for member_id in world.gangs.owned(reservations.group_key(user, namespace))
    )
    names = {world.pods[member_id].spec.scheduler_name for member_id in members}.union(
        (last,) if last else ()
    )
    return names.pop() if len(names) == 1 else None


def is_deserted(world: World, user: claims.ResourceClaimConsumerReference, namespace: str) -> bool:
    """Whether a user of a claim is over, or a PodGroup without pods: for callers who know that its pods were ours."""
    is_empty = reservations.is_group(user) and not world.gangs.owned(
        reservations.group_key(user, namespace)
    )
    return is_empty or world.has_ended(user, namespace)


def users_of(claim: claims.ResourceClaim, world: World) -> Iterator[str]:
    """The pods a claim is reserved for, by id; of a PodGroup those that name the claim."""
    key = events.key_of(claim)
    for user in claim.status.reserved_for:
        if not reservations.is_group(user):
            yield user.uid
            continue
        for member_id in world.gangs.owned(reservations.group_key(user, key[0])):
            if key in world.claims_used(world.pods[member_id]):
                yield member_id


def named_nodes(settled: Iterable[PodClaim]) -> frozenset[str] | None:
    """The only nodes that can be meant where devices are settled; None if they may be any."""
    only_nodes: frozenset[str] | None = None
    for allocated in settled:
        selector = allocated.allocation.node_selector if allocated.allocation is not None else None
        node_names = None if selector is None else _named(selector)
        if node_names is not None:
            only_nodes = node_names if only_nodes is None else only_nodes & node_names
    return only_nodes


def reaches(allocated: PodClaim, node: nodes.Node) -> bool:
    """Whether the claim's devices can be used on the node. An unreadable selector reaches none."""
    allocation = allocated.allocation
    if allocation is None:
        return True
    needs_feature = any(result.skip_node_operations for result in allocation.devices.results)
    if needs_feature and OPTIONAL_OPERATIONS not in node.status.declared_features:
        return False
    if allocation.node_selector is None:
        return True
    try:
        return node_selectors.picks_node(
            allocation.node_selector, node.metadata.labels, node_name=node.metadata.name
        )
    except node_selectors.SelectorError:
        return False


def _named(selector: node_selectors.NodeSelector) -> frozenset[str] | None:
    """The nodes a selector names outright in every term; None if a term could pick others."""
    node_names: set[str] = set()
    for term in selector.node_selector_terms:
        names = [
            requirement.values
            for requirement in term.match_fields
            if requirement.key == node_selectors.FIELD_NODE_NAME and requirement.operator == "In"
        ]
        if not names:
            return None
        node_names.update(names[0])
    return frozenset(node_names)


def _has_status(pod: pods.Pod, entry: pods.PodResourceClaim) -> bool:
    return any(status.name == entry.name for status in pod.status.resource_claim_statuses)
