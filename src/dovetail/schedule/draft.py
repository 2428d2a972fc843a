"""A plan in the making: collects starts and waits in the order they were decided, then freezes."""

from __future__ import annotations

from dovetail.model import plan, pods
from dovetail.schedule.claims import Books, Needs
from dovetail.schedule.placement import Found


class Draft:
    """What was decided so far."""

    def __init__(self) -> None:
        self._placements: list[plan.Placement] = []
        self._nominations: list[plan.Nomination] = []
        self._evictions: list[plan.Eviction] = []
        self._refusals: list[plan.Refusal] = []

    def start(
        self, pod: pods.Pod, found: Found, needs: Needs, *, books: Books, gang: plan.GangRef | None = None
    ) -> None:
        """The pod starts."""
        self._placements.append(
            plan.Placement(
                pod=plan.pod_ref(pod),
                node=found.node,
                allocations=tuple(
                    plan.Allocation(plan.ClaimRef(*k), result) for k, result in found.allocations.items()
                ),
                reservations=tuple(
                    plan.ClaimRef(*one.key) for one in needs.wanted if not books.is_reserved(one.claim, pod)
                ),
                made=found.made,
                volumes=found.volumes,
                terms=found.terms,
                gang=gang,
            )
        )

    def nominate(self, pod: pods.Pod, node: str, gang: plan.GangRef) -> None:
        """The pod starts once others are gone."""
        self._nominations.append(plan.Nomination(pod=plan.pod_ref(pod), node=node, gang=gang))

    def evict(self, eviction: plan.Eviction) -> None:
        """The pod has to go."""
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
