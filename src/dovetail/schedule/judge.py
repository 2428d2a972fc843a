"""Decides what one node means for one kind of pod: how well it would do there, or what stands in the way.

Given the world as it is in the trial. Claims are judged under stand-in names, so that pods which differ in names only
get one and the same answer. Never chooses between nodes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from dovetail.allocate import allocator, outcome
from dovetail.cel.effort import Effort
from dovetail.model import claims, meta, nodes, plan, pods, policy, pools, requests
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule import extended, fit, leaning, owned, score
from dovetail.schedule.claims import Needs, Wanted, reaches
from dovetail.world import ledger
from dovetail.world.view import NodeView
from dovetail.world.world import World

_CODES: Final = {
    fit.Cause.OTHER_NODE: ReasonCode.OTHER_NODE,
    fit.Cause.CORDONED: ReasonCode.CORDONED,
    fit.Cause.TAINT: ReasonCode.NODE_TAINT,
    fit.Cause.LABELS: ReasonCode.NODE_LABELS,
    fit.Cause.FEATURES: ReasonCode.NODE_FEATURES,
    fit.Cause.RESOURCES: ReasonCode.ROOM,
}


ASKING_STEPS: Final = 15  # what an answer without any search costs, in steps of a search
FEW_OPTIONS: Final = 8  # requests, and alternatives of requests; each beyond costs as much again


class Choice(NamedTuple):
    """What the best devices of a node cost; the devices themselves are found again when they are wanted."""

    milli_gpu: float = 0.0
    taken_milli_gpu: int = 0
    steps_down: int = 0  # entries of firstAvailable lists passed over


class Told(NamedTuple):
    """Why a pod cannot run, or that nobody knows."""

    reasons: tuple[Reason, ...] | None  # None: to be asked for
    is_undecided: bool = False


class Kind(NamedTuple):
    """What pods of one kind want."""

    pod: pods.Pod  # any of them
    need: requests.Resources
    held: tuple[Wanted, ...]
    fresh: tuple[claims.ResourceClaim, ...]  # under stand-in names
    backed: extended.Backing = ()  # extended resources that devices could serve
    followed: Wanted | None = None  # the claim with devices that was made for these resources before

    def extra_claim(self, served: tuple[str, ...]) -> claims.ResourceClaim:
        """The claim that serves these extended resources, under its stand-in name."""
        wanted = extended.built(self.pod.spec, self.backed, served).requests
        spec = claims.ResourceClaimSpec(devices=claims.DeviceClaim(requests=wanted))
        return claims.ResourceClaim(metadata=meta.ObjectMeta(name=extended.STAND_IN), spec=spec)

    def claims_for(self, served: tuple[str, ...]) -> tuple[claims.ResourceClaim, ...]:
        """The claims to allocate where devices serve these resources."""
        if not served or self.followed is not None:
            return self.fresh
        return (*self.fresh, self.extra_claim(served))


def kind_of(pod: pods.Pod, needs: Needs, *, backed: extended.Backing = (), followed: Wanted | None = None) -> Kind:
    """The kind a pod is of."""
    fresh = tuple(
        msgspec.structs.replace(one.claim, metadata=meta.ObjectMeta(name=stand_in(place)))
        for place, one in enumerate(needs.fresh)
    )
    return Kind(pod, requests.pod_request(pod), needs.held, fresh, backed, followed)


def stand_in(place: int) -> str:
    """The name under which the fresh claim in this place is judged. No claim can be called so."""
    return f"<{place}>"


class Known:
    """What a judge has worked out about nodes; good for as long as their views are the same objects."""

    def __init__(self) -> None:
        self.ledger = ledger.Ledger()
        self.free: dict[str, tuple[NodeView, int]] = {}
        self.owned: dict[str, tuple[NodeView, NodeView]] = {}

    def trim(self, nodes: int) -> None:
        """Forgets nodes once most of those known are gone."""
        for table in (self.free, self.owned):
            if len(table) > 2 * nodes + 64:
                table.clear()


class Judge:
    """Judges nodes of one world."""

    def __init__(self, world: World, policy: policy.Policy, budget: policy.Budget, known: Known | None = None) -> None:
        self.world = world
        self._policy = policy
        self._budget = budget
        self._known = known or Known()
        self._spent = 0  # steps since the last pod was begun
        self.worked = 0  # steps of every kind since the decision began
        self.effort = Effort()  # what the pod may spend on selectors

    def begin(self) -> None:
        """Another pod's turn: the budget for one kind is full again."""
        self._spent = 0

    @property
    def is_spent(self) -> bool:
        """Whether the budget for one kind of pods is used up, and further nodes have to wait."""
        return self.effort.is_spent or (self._budget.kind_steps is not None and self._spent > self._budget.kind_steps)

    def standing(self, kind: Kind, node: nodes.Node) -> Reason | None:
        """What about the node itself rules it out, whatever room is left."""
        if reason := self.own_standing(kind, node):
            return reason
        for wanted in (*kind.held, *((kind.followed,) if kind.followed else ())):
            if not self.follows(kind, wanted, node):
                return Reason(code=ReasonCode.CLAIM_ELSEWHERE, subject=f"claim {wanted.key[0]}/{wanted.key[1]}")
        return None

    def own_standing(self, kind: Kind, node: nodes.Node) -> Reason | None:
        """The same, the pod's claims aside."""
        if not owned.is_ours(node, self._policy.ownership):
            return _NOT_OWNED
        misfit = fit.node_misfit(kind.pod, node)
        return None if misfit is None else msgspec.structs.replace(_reason(misfit), pool=pools.name_of(node))

    def leaning(self, kind: Kind, node: nodes.Node) -> tuple[plan.Term, ...]:
        """What about the node itself the pod likes less, or more."""
        return leaning.terms(kind.pod, node, self._policy.weights)

    @property
    def weights(self) -> policy.Weights:
        """How much each term counts."""
        return self._policy.weights

    def follows(self, kind: Kind, wanted: Wanted, node: nodes.Node) -> bool:
        """Whether the pod could use the devices a claim has on the node."""
        if not reaches(wanted, node):
            return False
        if wanted is not kind.followed:
            return True
        served = self.served(kind, node.metadata.name)
        return kind.extra_claim(served).spec.devices.requests == wanted.claim.spec.devices.requests

    def served(self, kind: Kind, node: str) -> tuple[str, ...]:
        """The extended resources that devices have to serve on the node."""
        return extended.served_by_devices(kind.backed, self.world.offered(node)) if kind.backed else ()

    def room(self, kind: Kind, node: str, served: tuple[str, ...]) -> Told | None:
        """What the node has too little of, devices aside."""
        misfits = fit.room_misfits(kind.need.without(served), self.world.free(node))
        return Told(tuple(map(_reason, misfits))) if misfits else None

    def choice(self, kind: Kind, node: str, served: tuple[str, ...]) -> Choice | Told:
        """What the node's devices mean for the kind. Depends on nothing but the devices."""
        wanted = kind.claims_for(served)
        if not wanted:
            return Choice()
        view = self.view(node)
        found = self.allocated(wanted, view)
        match found:
            case outcome.Allocated():
                pools = {(pool.driver, pool.name): pool.devices for pool in view.pools}
                taken = sum(self._known.ledger.allocation_cost(one, pools) for one in found.results)
                return Choice(found.milli_gpu, taken, sum(found.preference))
            case outcome.Refused():
                return Told(None)
            case outcome.Undecided():
                detail = f"the search for devices was cut short after {found.steps} steps"
                return Told((Reason(code=ReasonCode.BUDGET, detail=detail),), is_undecided=True)
            case outcome.Failed():
                return Told((found.reason,))

    def node_terms(self, kind: Kind, node: str, choice: Choice) -> tuple[plan.Term, ...]:
        """What choosing the node costs others and the pod itself, the choice of devices aside."""
        return self.leaning(kind, self.world.nodes[node]) + score.node_terms(
            score.Situation(
                need=kind.need.without(self.served(kind, node)),
                free=self.world.free(node),
                free_milli_gpu=self.free_milli_gpu(node),
                taken_milli_gpu=choice.taken_milli_gpu,
                steps_down=choice.steps_down,
                weights=self._policy.weights,
            )
        )

    def score(self, kind: Kind, node: str, choice: Choice) -> float:
        """What the pod would cost others here; lower is better."""
        return sum(term.milli_gpu for term in self.node_terms(kind, node, choice)) + choice.milli_gpu

    def answer(self, kind: Kind, node: str) -> float | Told:
        """The score of the node for the kind right now, or what stands in the way."""
        served = self.served(kind, node)
        if (short := self.room(kind, node, served)) is not None:
            return short
        choice = self.choice(kind, node, served)
        return choice if isinstance(choice, Told) else self.score(kind, node, choice)

    def reasons(self, kind: Kind, node: str) -> tuple[Reason, ...]:
        """Why the node's devices do not do, worked out anew: few such reasons are ever read, and keeping what they
        are made of would keep everything the search stood on."""
        wanted = kind.claims_for(self.served(kind, node))
        found = self.allocated(wanted, self.view(node))
        assert isinstance(found, outcome.Refused), "the same pod on the same node got another answer"
        explaining_steps = _asking_steps(wanted)
        self._spent += explaining_steps
        self.worked += explaining_steps
        return found.reasons or _NO_DEVICES

    def terms(self, kind: Kind, node: str) -> tuple[plan.Term, ...]:
        """What the score of a node that suits is made of."""
        served = self.served(kind, node)
        choice = self.choice(kind, node, served)
        assert isinstance(choice, Choice), "the same pod on the same node got another answer"
        own = self.node_terms(kind, node, choice)
        wanted = kind.claims_for(served)
        found = self.allocated(wanted, self.view(node)) if wanted else None
        listed = found.terms if isinstance(found, outcome.Allocated) else ()
        return (*own, *(plan.Term(*one) for one in listed if one.milli_gpu))

    def allocated(self, wanted: tuple[claims.ResourceClaim, ...], view: NodeView) -> outcome.Outcome:
        """Devices for the claims on one node. Raises Unfinished or TooExpensive where selectors take too much."""
        found = allocator.allocate(
            view,
            wanted,
            self.world.classes,
            policy=self._policy.allocation,
            budget=self._budget.search_steps,
            effort=self.effort,
        )
        taken = _asking_steps(wanted) + (0 if isinstance(found, outcome.Failed) else found.steps)
        self._spent += taken
        self.worked += taken
        return found

    def view(self, node: str) -> NodeView:
        """The node's devices, those of others out of bounds."""
        view = self.world.view(node)
        rules = self._policy.ownership.device_rules
        if not rules:
            return view
        known = self._known.owned.get(node)
        if known is None or known[0] is not view:
            known = self._known.owned[node] = (view, owned.seen_as_owner(view, rules))
        return known[1]

    def free_milli_gpu(self, node: str) -> int:
        """What is free of the node's GPUs."""
        view = self.view(node)
        known = self._known.free.get(node)
        if known is None or known[0] is not view:
            known = self._known.free[node] = (view, sum(map(self._known.ledger.free_milli_gpu, view.pools)))
        return known[1]


_NO_DEVICES: Final = (Reason(code=ReasonCode.NO_DEVICES),)
_NOT_OWNED: Final = Reason(code=ReasonCode.NOT_OWNED, detail="belongs to another scheduler")


def _asking_steps(wanted: tuple[claims.ResourceClaim, ...]) -> int:
    asked = [request for claim in wanted for request in claim.spec.devices.requests]
    options = sum(len(request.first_available) or 1 for request in asked)
    return ASKING_STEPS * max(1, options - FEW_OPTIONS)


def _reason(misfit: fit.Misfit) -> Reason:
    is_amount = misfit.cause is fit.Cause.RESOURCES
    return Reason(
        code=_CODES[misfit.cause],
        subject=misfit.what,
        need=misfit.need if is_amount else None,
        have=misfit.have if is_amount else None,
    )
