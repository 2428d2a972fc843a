"""A plan in the making: collects starts, nominations, evictions and refusals in order, then freezes. Never decides."""

from __future__ import annotations

from dovetail.kubetypes.core import pods
from dovetail.model import plan
from dovetail.schedule.node.find_node import NodePlacement
from dovetail.schedule.node.pod_claims import ClaimLookup, PodClaims


class PlanDraft:
    """The decisions so far."""

    def __init__(self) -> None:
        self._placements: list[plan.Placement] = []
        self._nominations: list[plan.Nomination] = []
        self._evictions: list[plan.Eviction] = []
        self._refusals: list[plan.Refusal] = []

    def start(
        self,
        pod: pods.Pod,
        placement: NodePlacement,
        needs: PodClaims,
        *,
        claim_lookup: ClaimLookup,
        gang: plan.GangRef | None = None,
    ) -> None:
        """The pod starts."""
        self._placements.append(
            plan.Placement(
                pod=plan.pod_ref(pod),
                node=placement.node,
                allocations=tuple(
                    plan.Allocation(plan.ClaimRef(*k), result)
                    for k, result in placement.allocations.items()
                ),
                reservations=tuple(
                    plan.ClaimRef(*wanted_claim.key)
                    for wanted_claim in needs.wanted
                    if not claim_lookup.is_reserved(wanted_claim.claim, pod)
                ),
                made=placement.made,
                volumes=placement.volumes,
                terms=placement.terms,
                warnings=placement.warnings,
                gang=gang,
            )
        )

    def nominate(self, pod: pods.Pod, node: str, gang: plan.GangRef) -> None:
        """The pod starts on the node once its victims are gone."""
        self._nominations.append(plan.Nomination(pod=plan.pod_ref(pod), node=node, gang=gang))

    def evict(self, eviction: plan.Eviction) -> None:
        """The pod is evicted."""
        self._evictions.append(eviction)

    def wait(self, refusal: plan.Refusal) -> None:
        """The pod waits."""
        self._refusals.append(refusal)

    def finish(self, *, wake_at: plan.Instant | None) -> plan.Plan:
        """The plan."""
        return plan.Plan(
            placements=tuple(self._placements),
            evictions=tuple(self._evictions),
            nominations=tuple(self._nominations),
            refusals=tuple(self._refusals),
            wake_at=wake_at,
        )
