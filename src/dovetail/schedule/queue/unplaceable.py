"""Decides which pending work fits no node even if all were empty: it is no demand, and lowers no other queue's share.

Judges a pod by facts of nodes that do not change with use: labels, lasting taints, size, published devices. Says so
only where it is certain: cordons and taints of passing states do not count, a search cut short counts as a fit, and
only so many kinds of pods are checked for each queue. Cached per kind until nodes, slices or classes change.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from dovetail import cache
from dovetail.allocate import allocator, outcome
from dovetail.cel.effort import Effort, TooExpensive, Unfinished
from dovetail.kubetypes.core import nodes, pods
from dovetail.model import pod_requests, policy
from dovetail.schedule import selector_budget
from dovetail.schedule.gang.jobs import Job, State
from dovetail.schedule.node import (
    equivalence,
    evaluate_node,
    extended_resources,
    node_fit,
    preconditions,
)
from dovetail.schedule.node.filters import ownership
from dovetail.schedule.node.pod_claims import ClaimLookup, PodClaims
from dovetail.schedule.node.pod_profiles import PodProfiles
from dovetail.schedule.queue import amounts
from dovetail.world.views.node_view import NodeView
from dovetail.world.world import World

MOST_KINDS: Final = 32  # of pods that are checked for one queue in one decision
MOST_REMEMBERED: Final = 4096  # kinds
SEARCH_STEPS: Final = 2000  # for the devices of one kind on one kind of node
PASSING_TAINTS: Final = "node.kubernetes.io/"  # not-ready, unreachable and the like come and go


class _Seen(NamedTuple):
    pod: pods.Pod
    claims: tuple[str, ...]  # uids
    kind: equivalence.Key


class _Kept:
    """What outlives a decision. Never holds the World itself."""

    def __init__(self) -> None:
        self.basis: object = None
        self.fits: dict[equivalence.Key, bool] = {}
        self.seen: dict[str, _Seen] = {}
        self.views: dict[str, NodeView] = {}

    def bring_up(self, world: World) -> None:
        """Forgets everything once nodes, slices or classes changed; deleted pods once they are many."""
        basis = (world.nodes_version, world.slices_version, world.classes_version)
        if self.basis != basis or len(self.fits) > MOST_REMEMBERED:
            self.basis = basis
            self.fits, self.seen, self.views = {}, {}, {}
        elif len(self.seen) > 2 * len(world.pods) + 64:
            self.seen = {
                pod_id: entry for pod_id, entry in self.seen.items() if pod_id in world.pods
            }


_MEMORY: Final = cache.WeakMemo[World, bytes, _Kept](cache.MOST_POLICIES)


class Unplaceable:
    """The answers of one decision."""

    def __init__(
        self,
        world: World,
        policy_: policy.Policy,
        spending_: selector_budget.Spending,
        profiles: PodProfiles,
    ) -> None:
        self._world = world
        self._spending = spending_
        self._policy = policy_
        self._profiles = profiles
        self._claim_lookup = ClaimLookup(world)
        self._behind = extended_resources.classes_by_resource(world.classes)
        self._kept = (
            _MEMORY.of(world, msgspec.json.encode(policy_), _Kept) if policy_.memo else _Kept()
        )
        self._kept.bring_up(world)
        self._kinds: dict[str, set[equivalence.Key]] = {}  # by queue, those checked

    def of(
        self, job: Job, least: dict[str, amounts.Amounts], capacity: amounts.Amounts
    ) -> frozenset[str]:
        """The pending pods of a job that can never start, given what each costs; all if one of its next pods is."""
        if len(job.pods) == 1:  # the common case
            return self._unfit(job, least)

        waiting = [pod_id for pod_id, state in job.state.items() if state is State.WAITING]
        needed = job.next_pods()
        never = self._unfit(job, waiting)
        together = amounts.total(least[pod_id] for pod_id in needed)
        if _exceeds(together, capacity) or not never.isdisjoint(needed):
            return frozenset(waiting)
        return never

    def _unfit(self, job: Job, pod_ids: Iterable[str]) -> frozenset[str]:
        return frozenset(pod_id for pod_id in pod_ids if not self._fits(job, pod_id))

    def _fits(self, job: Job, pod_id: str) -> bool:
        pod = job.pods[pod_id]
        kind = self._kind(pod_id, pod)
        if kind is None:
            return True
        checked = self._kinds.setdefault(job.queue, set())
        if kind not in checked and len(checked) >= MOST_KINDS:
            return True
        checked.add(kind)

        fits = self._kept.fits.get(kind)
        if fits is None:
            needs = preconditions.needs(pod, self._claim_lookup)
            assert isinstance(needs, PodClaims)
            fits = self._fits_any_node(pod_id, pod, needs)
            if fits is None:
                return True
            self._kept.fits[kind] = fits
        return fits

    def _fits_any_node(self, pod_id: str, pod: pods.Pod, needs: PodClaims) -> bool | None:
        """Whether any node could serve the pod; None where its selectors cost more than it may spend now."""
        try:
            effort = self._spending.effort(pod_id)
            try:
                return self._is_served(pod, needs, effort)
            finally:
                self._spending.settle(pod_id, is_answered=None)
        except (Unfinished, TooExpensive):
            return None

    def _kind(self, pod_id: str, pod: pods.Pod) -> equivalence.Key | None:
        """Equal for pods that fit the same nodes; None where that is not known yet."""
        profile = self._profiles.of(pod_id, pod)
        if profile is not None:
            return profile.kind

        pod_claims = [self._world.claims.get(key) for key in self._world.claims_used(pod)]
        uids = tuple(claim.metadata.uid if claim is not None else "" for claim in pod_claims)
        entry = self._kept.seen.get(pod_id)
        if entry is not None and entry.pod is pod and entry.claims == uids:
            return entry.kind

        needs = preconditions.needs(pod, self._claim_lookup)
        if not isinstance(needs, PodClaims) or needs.held:
            return None
        if pod.status.extended_resource_claim_status is not None:
            return None
        kind = equivalence.pod_key(pod, needs)
        self._kept.seen[pod_id] = _Seen(pod, uids, kind)
        return kind

    def _is_served(self, pod: pods.Pod, needs: PodClaims, effort: Effort) -> bool:
        """Whether any node, emptied, could serve the pod. Devices are searched once on equal nodes."""
        request = pod_requests.pod_request(pod)
        backed: extended_resources.Backing = ()
        if extended_resources.may_want(pod, self._behind):
            backed = extended_resources.backing(request, self._behind)
        kind = evaluate_node.kind_of(pod, needs, backed=backed)
        every = kind.claims_for(tuple(name for name, _ in backed))
        keys = equivalence.NodeKeys(equivalence.reads_of(every, self._world.classes, effort))
        refused: set[tuple[object, ...]] = set()  # kinds of nodes whose devices would not do
        for name, node in self._world.nodes.items():
            if not ownership.is_ours(node, self._policy.ownership) or not _suits(pod, node):
                continue
            offered = self._world.offered(name)
            served = extended_resources.served_by_devices(backed, offered) if backed else ()
            if pod_requests.shortages(request.without(served), offered):
                continue
            pod_claims = kind.claims_for(served)
            if not pod_claims:
                return True

            view = self._empty_view(name)
            node_kind = (served, keys.devices_key(view))
            if node_kind in refused:
                continue
            answer = allocator.allocate(
                view,
                pod_claims,
                self._world.classes,
                policy=self._policy.allocation,
                budget=SEARCH_STEPS,
                effort=effort,
            )
            if isinstance(answer, outcome.Allocated | outcome.Undecided):
                return True
            refused.add(node_kind)
        return False

    def _empty_view(self, node: str) -> NodeView:
        view = self._kept.views.get(node)
        if view is None:
            view = self._kept.views[node] = self._world.empty_view(node)
        return view


def _exceeds(cost: amounts.Amounts, capacity: amounts.Amounts) -> bool:
    return any(
        cost.get(name, 0) > capacity.get(name, 0)
        for name in (amounts.GPU, amounts.CPU, amounts.MEMORY)
    )


def _suits(pod: pods.Pod, node: nodes.Node) -> bool:
    """Whether the node could take the pod once passing states are over."""
    if not node_fit.has_labels(pod.spec, node) or node_fit.gpu_misfit(pod, node) is not None:
        return False
    lasting = [taint for taint in node.spec.taints if not taint.key.startswith(PASSING_TAINTS)]
    return node_fit.untolerated(lasting, pod.spec.tolerations) is None
