"""Decides what one node means for one kind of pod: how well it would do there, or what stands in the way.

Given the world as it is in the trial. Claims are judged under stand-in names, so that pods which differ in names only
get one and the same answer. Never chooses between nodes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from dovetail.allocate import allocator, outcome
from dovetail.model import claims, meta, nodes, plan, pods, policy, requests
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule import fit, score
from dovetail.schedule.claims import Needs, Wanted, reaches
from dovetail.world import ledger
from dovetail.world.view import NodeView
from dovetail.world.world import World

_CODES: Final = {
    fit.Cause.OTHER_NODE: ReasonCode.OTHER_NODE,
    fit.Cause.CORDONED: ReasonCode.CORDONED,
    fit.Cause.TAINT: ReasonCode.NODE_TAINT,
    fit.Cause.LABELS: ReasonCode.NODE_LABELS,
    fit.Cause.RESOURCES: ReasonCode.ROOM,
}


class Fits(NamedTuple):
    """The pod could run here, at this cost to others."""

    node: str  # where the answer was found; alike nodes share it
    score: float  # lower is better
    node_terms: tuple[plan.Term, ...]
    devices: outcome.Allocated | None

    @property
    def results(self) -> tuple[claims.AllocationResult, ...]:
        """Per fresh claim, as found on `node`."""
        return self.devices.results if self.devices else ()

    @property
    def terms(self) -> tuple[plan.Term, ...]:
        """What the score is made of."""
        listed = self.devices.terms if self.devices else ()
        return (*self.node_terms, *(plan.Term(*one) for one in listed if one.milli_gpu))


class Unfit(NamedTuple):
    """The pod cannot run here, or nobody knows."""

    given: tuple[Reason, ...] = ()
    refused: outcome.Refused | None = None  # writes its reasons down when asked
    is_undecided: bool = False

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Everything that stands in the way."""
        return self.given or (self.refused.reasons if self.refused else ()) or _NO_DEVICES


Answer = Fits | Unfit


class Kind(NamedTuple):
    """What pods of one kind want."""

    pod: pods.Pod  # any of them
    need: requests.Resources
    held: tuple[Wanted, ...]
    fresh: tuple[claims.ResourceClaim, ...]  # under stand-in names


def kind_of(pod: pods.Pod, needs: Needs) -> Kind:
    """The kind a pod is of."""
    fresh = tuple(
        msgspec.structs.replace(one.claim, metadata=meta.ObjectMeta(name=stand_in(place)))
        for place, one in enumerate(needs.fresh)
    )
    return Kind(pod, requests.pod_request(pod), needs.held, fresh)


def stand_in(place: int) -> str:
    """The name under which the fresh claim in this place is judged. No claim can be called so."""
    return f"<{place}>"


class Judge:
    """Judges nodes of one world."""

    def __init__(self, world: World, policy: policy.Policy, budget: policy.Budget) -> None:
        self._world = world
        self._policy = policy
        self._budget = budget
        self._ledger = ledger.Ledger()
        self._free: dict[str, tuple[NodeView, int]] = {}

    def standing(self, kind: Kind, node: nodes.Node) -> Unfit | None:
        """What about the node itself rules it out, whatever room is left."""
        if misfit := fit.node_misfit(kind.pod, node):
            return Unfit((_reason(misfit),))
        for wanted in kind.held:
            if not reaches(wanted, node):
                subject = f"claim {wanted.key[0]}/{wanted.key[1]}"
                return Unfit((Reason(code=ReasonCode.CLAIM_ELSEWHERE, subject=subject),))
        return None

    def answer(self, kind: Kind, node: str) -> Answer:
        """What the node means for the kind right now."""
        free = self._world.free(node)
        if misfits := fit.room_misfits(kind.need, free):
            return Unfit(tuple(map(_reason, misfits)))
        view = self._world.view(node)
        if not kind.fresh:
            return self._fits(kind, view, free=free, found=None)
        found = self.allocated(kind.fresh, view)
        match found:
            case outcome.Allocated():
                return self._fits(kind, view, free=free, found=found)
            case outcome.Refused():
                return Unfit(refused=found)
            case outcome.Undecided():
                detail = f"the search for devices was cut short after {found.steps} steps"
                return Unfit((Reason(code=ReasonCode.BUDGET, detail=detail),), is_undecided=True)
            case outcome.Failed():
                return Unfit((found.reason,))

    def allocated(self, wanted: tuple[claims.ResourceClaim, ...], view: NodeView) -> outcome.Outcome:
        """Devices for the claims on one node."""
        return allocator.allocate(
            view,
            wanted,
            self._world.classes,
            policy=self._policy.allocation,
            budget=self._budget.search_steps,
        )

    def free_milli_gpu(self, node: str) -> int:
        """What is free of the node's GPUs."""
        view = self._world.view(node)
        known = self._free.get(node)
        if known is None or known[0] is not view:
            known = self._free[node] = (view, sum(map(self._ledger.free_milli_gpu, view.pools)))
        return known[1]

    def _fits(self, kind: Kind, view: NodeView, *, free: requests.Resources, found: outcome.Allocated | None) -> Fits:
        pools = {(pool.driver, pool.name): pool.devices for pool in view.pools}
        name = view.node.metadata.name
        situation = score.Situation(
            need=kind.need,
            free=free,
            free_milli_gpu=self.free_milli_gpu(name),
            taken_milli_gpu=sum(self._ledger.allocation_cost(one, pools) for one in found.results) if found else 0,
            steps_down=sum(found.preference) if found else 0,
            weights=self._policy.weights,
        )
        terms = score.node_terms(situation)
        return Fits(name, sum(term.milli_gpu for term in terms) + (found.milli_gpu if found else 0), terms, found)


_NO_DEVICES: Final = (Reason(code=ReasonCode.NO_DEVICES),)


def _reason(misfit: fit.Misfit) -> Reason:
    is_amount = misfit.cause is fit.Cause.RESOURCES
    return Reason(
        code=_CODES[misfit.cause],
        subject=misfit.what,
        need=misfit.need if is_amount else None,
        have=misfit.have if is_amount else None,
    )
