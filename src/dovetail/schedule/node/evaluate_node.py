"""Filters and scores one node for one kind of pod: what the pod would cost others there, or why it cannot run there.

Given the World as it is in the trial. Claims are evaluated under stand-in names, so that pods which differ in names
only get the same answer. Never selects between nodes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from dovetail.allocate import allocator, outcome
from dovetail.cel.effort import Effort
from dovetail.kubetypes import meta
from dovetail.kubetypes.core import nodes, pods
from dovetail.kubetypes.resource import claims
from dovetail.model import gpu_annotations, node_pools, plan, pod_requests, policy
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule.node import expected_losses, extended_resources, image_fit, node_fit
from dovetail.schedule.node.filters import ownership
from dovetail.schedule.node.pod_claims import PodClaim, PodClaims, reaches
from dovetail.schedule.node.score import (
    gpu_states,
    node_preferences,
    placement_cost,
    score_terms,
)
from dovetail.world.devices import gpu_ledger
from dovetail.world.views.node_view import NodeView
from dovetail.world.world import World

_CODES: Final = {
    node_fit.Cause.OTHER_NODE: ReasonCode.OTHER_NODE,
    node_fit.Cause.CORDONED: ReasonCode.CORDONED,
    node_fit.Cause.TAINT: ReasonCode.NODE_TAINT,
    node_fit.Cause.LABELS: ReasonCode.NODE_LABELS,
    node_fit.Cause.FEATURES: ReasonCode.NODE_FEATURES,
    node_fit.Cause.GPU_CHOICE: ReasonCode.GPU_CHOICE,
    node_fit.Cause.RESOURCES: ReasonCode.ROOM,
}


EVALUATION_STEPS: Final = 15  # what an answer without any search costs, in steps of a search
SHARES_TERM: Final = "shares"  # the allocator's name for what a share of a device costs
FEW_OPTIONS: Final = 8  # requests, and alternatives of requests; each beyond costs as much again


class Choice(NamedTuple):
    """What the best devices of a node cost; the devices themselves are searched again once the node is selected."""

    milli_gpu: float = 0.0
    taken_milli_gpu: int = 0
    steps_down: int = 0  # entries of firstAvailable lists passed over
    has_slices: bool = False  # parts of GPUs that are cut as needed
    taken: tuple[gpu_states.Taken, ...] = ()  # where costs are expected losses


class NodeVerdict(NamedTuple):
    """Why a pod cannot run on a node, or that the search was cut short."""

    reasons: tuple[Reason, ...] | None  # None: not worked out yet
    is_undecided: bool = False


class PodKind(NamedTuple):
    """What pods of one kind want."""

    pod: pods.Pod  # any of them
    need: pod_requests.Resources
    held: tuple[PodClaim, ...]
    fresh: tuple[claims.ResourceClaim, ...]  # under stand-in names
    backed: extended_resources.Backing = ()  # extended resources that devices could serve
    followed: PodClaim | None = None  # the allocated claim made for these resources before
    requirements: image_fit.Requirements = ()  # of its containers, about the node's driver

    def extra_claim(self, served: tuple[str, ...]) -> claims.ResourceClaim:
        """The claim that serves these extended resources, under its stand-in name."""
        requests = extended_resources.requests_for(self.pod, self.backed, served).requests
        spec = claims.ResourceClaimSpec(devices=claims.DeviceClaim(requests=requests))
        return claims.ResourceClaim(
            metadata=meta.ObjectMeta(name=extended_resources.STAND_IN), spec=spec
        )

    @property
    def is_share(self) -> bool:
        """Asks for a part of one device: which of a node's devices it is makes a difference."""
        if len(self.fresh) != 1 or self.backed:
            return False
        requests = self.fresh[0].spec.devices.requests
        option = requests[0].exactly if len(requests) == 1 else None
        is_single = option is not None and option.count <= 1 and option.allocation_mode != "All"
        return is_single and option is not None and option.capacity is not None

    def claims_for(self, served: tuple[str, ...]) -> tuple[claims.ResourceClaim, ...]:
        """The claims to allocate where devices serve these resources."""
        if not served or self.followed is not None:
            return self.fresh
        return (*self.fresh, self.extra_claim(served))


def kind_of(
    pod: pods.Pod,
    needs: PodClaims,
    *,
    backed: extended_resources.Backing = (),
    followed: PodClaim | None = None,
) -> PodKind:
    """The kind a pod is of."""
    fresh = tuple(
        msgspec.structs.replace(pod_claim.claim, metadata=meta.ObjectMeta(name=stand_in(place)))
        for place, pod_claim in enumerate(needs.fresh)
    )
    return PodKind(
        pod,
        pod_requests.pod_request(pod),
        needs.held,
        fresh,
        backed,
        followed,
        image_fit.requirements_of(pod),
    )


def stand_in(place: int) -> str:
    """The name under which the claim in this place is evaluated. No claim can have it."""
    return f"<{place}>"


class NodeFacts:
    """What was worked out about nodes; valid for as long as their views are the same objects."""

    def __init__(self) -> None:
        self.ledger = gpu_ledger.Ledger()
        self.image_fit = image_fit.ImageFit()
        self.free: dict[str, tuple[NodeView, int]] = {}
        self.owned: dict[str, tuple[NodeView, NodeView]] = {}
        self.states: dict[str, tuple[NodeView, pod_requests.Resources, gpu_states.GpuState]] = {}
        self.losses: expected_losses.ExpectedLosses | None = None  # where the policy says so

    def trim(self, nodes: int) -> None:
        """Forgets nodes once most of those known are gone."""
        for table in (self.free, self.owned, self.states):
            if len(table) > 2 * nodes + 64:
                table.clear()


class NodeEvaluator:
    """Evaluates nodes of one World."""

    def __init__(
        self,
        world: World,
        policy: policy.Policy,
        budget: policy.Budget,
        node_facts: NodeFacts | None = None,
    ) -> None:
        self.world = world
        self._policy = policy
        self._budget = budget
        self._known = node_facts or NodeFacts()
        self._spent = 0  # steps since the last pod was begun
        self.worked = 0  # steps of every kind since the decision began
        self.effort = Effort()  # what the pod may spend on selectors

    def begin(self) -> None:
        """Another pod's turn: the budget for one kind of pods is full again."""
        self._spent = 0

    @property
    def is_spent(self) -> bool:
        """Whether the budget for one kind of pods is used up, and further nodes have to wait."""
        return self.effort.is_spent or (
            self._budget.kind_steps is not None and self._spent > self._budget.kind_steps
        )

    # Filter

    def static_refusal(self, kind: PodKind, node: nodes.Node) -> Reason | None:
        """What about the node object rules it out, however much room is left."""
        if reason := self._object_refusal(kind, node):
            return reason
        allocated = kind.held if kind.followed is None else (*kind.held, kind.followed)
        for pod_claim in allocated:
            if not self.follows(kind, pod_claim, node):
                subject = f"claim {pod_claim.key[0]}/{pod_claim.key[1]}"
                return Reason(code=ReasonCode.CLAIM_ELSEWHERE, subject=subject)
        return None

    def node_refusal(self, kind: PodKind, node: nodes.Node) -> Reason | None:
        """What about the node and its driver rules it out, the pod's claims aside."""
        return self._object_refusal(kind, node) or self.driver_refusal(kind, node)

    def driver_refusal(self, kind: PodKind, node: nodes.Node) -> Reason | None:
        """Why its driver rules the node out. Depends on what its devices publish, too."""
        if self._policy.image_requirements is not policy.ImageRequirements.REFUSE:
            return None
        return self._driver_misfit(kind, node)

    def driver_warnings(self, kind: PodKind, node: nodes.Node) -> tuple[Reason, ...]:
        """What the pod's author should know about the driver of a node that may be used."""
        if self._policy.image_requirements is not policy.ImageRequirements.WARN:
            return ()
        reason = self._driver_misfit(kind, node)
        return (reason,) if reason is not None else ()

    def _driver_misfit(self, kind: PodKind, node: nodes.Node) -> Reason | None:
        if not kind.requirements:
            return None
        view = self.world.view(node.metadata.name)
        reason = self._known.image_fit.misfit(kind.requirements, node, view)
        if reason is None:
            return None
        return msgspec.structs.replace(reason, pool=node_pools.name_of(node))

    def _object_refusal(self, kind: PodKind, node: nodes.Node) -> Reason | None:
        if not ownership.is_ours(node, self._policy.ownership):
            return _NOT_OWNED
        misfit = node_fit.node_misfit(kind.pod, node)
        if misfit is None:
            return None
        return msgspec.structs.replace(_reason(misfit), pool=node_pools.name_of(node))

    def follows(self, kind: PodKind, pod_claim: PodClaim, node: nodes.Node) -> bool:
        """Whether the pod could use the devices of an allocated claim on the node."""
        if not reaches(pod_claim, node):
            return False
        if pod_claim is not kind.followed:
            return True
        served = self.served(kind, node.metadata.name)
        return (
            kind.extra_claim(served).spec.devices.requests == pod_claim.claim.spec.devices.requests
        )

    def served(self, kind: PodKind, node: str) -> tuple[str, ...]:
        """The extended resources that devices have to serve on the node."""
        if not kind.backed:
            return ()
        return extended_resources.served_by_devices(kind.backed, self.world.offered(node))

    def resource_refusal(
        self, kind: PodKind, node: str, served: tuple[str, ...]
    ) -> NodeVerdict | None:
        """What the node has too little of, devices aside."""
        misfits = node_fit.room_misfits(kind.need.without(served), self.world.free(node))
        return NodeVerdict(tuple(map(_reason, misfits))) if misfits else None

    def device_choice(
        self, kind: PodKind, node: str, served: tuple[str, ...]
    ) -> Choice | NodeVerdict:
        """What the best devices of the node cost, or why they do not do. Depends on the devices alone."""
        wanted_claims = kind.claims_for(served)
        if not wanted_claims:
            return Choice()
        view = self.chosen_view(kind, node)
        allocated = self.allocate(wanted_claims, view)
        match allocated:
            case outcome.Allocated():
                return self._choice_of(allocated, view)
            case outcome.Refused():
                return NodeVerdict(None)
            case outcome.Undecided():
                detail = f"the search for devices was cut short after {allocated.steps} steps"
                return NodeVerdict(
                    (Reason(code=ReasonCode.BUDGET, detail=detail),), is_undecided=True
                )
            case outcome.Failed():
                return NodeVerdict((allocated.reason,))

    def _choice_of(self, allocated: outcome.Allocated, view: NodeView) -> Choice:
        pools = {(pool.driver, pool.name): pool.devices for pool in view.pools}
        ledger = self._known.ledger
        taken_milli_gpu = sum(ledger.allocation_cost(result, pools) for result in allocated.results)
        device_results = [
            device for result in allocated.results for device in result.devices.results
        ]
        has_slices = any(
            ledger.is_slice(device, pools.get((device.driver, device.pool)))
            for device in device_results
        )
        steps_down = sum(allocated.preference)
        if self._known.losses is None:
            return Choice(allocated.milli_gpu, taken_milli_gpu, steps_down, has_slices)
        milli_gpu = sum(term.milli_gpu for term in self._device_terms(allocated))
        taken = gpu_states.taken_by(allocated.results, view, ledger)
        return Choice(milli_gpu, taken_milli_gpu, steps_down, has_slices, taken)

    def _device_terms(self, allocated: outcome.Allocated) -> list[plan.Term]:
        """What the choice of devices costs. Expected losses say themselves what a share costs."""
        replaced = SHARES_TERM if self._known.losses is not None else None
        return [
            plan.Term(*term) for term in allocated.terms if term.milli_gpu and term.name != replaced
        ]

    def reasons(self, kind: PodKind, node: str) -> tuple[Reason, ...]:
        """Why the node's devices do not do.

        Worked out again: few of these reasons are ever read, and keeping them would keep the whole search alive.
        """
        wanted_claims = kind.claims_for(self.served(kind, node))
        refused = self.allocate(wanted_claims, self.view(node))
        assert isinstance(refused, outcome.Refused), (
            "the same pod on the same node got another answer"
        )
        explaining_steps = _asking_steps(wanted_claims)
        self._spent += explaining_steps
        self.worked += explaining_steps
        return refused.reasons or _NO_DEVICES

    # Score

    @property
    def weights(self) -> policy.Weights:
        """How much each term counts."""
        return self._policy.weights

    def evaluate(self, kind: PodKind, node: str) -> float | NodeVerdict:
        """The score of the node for the kind right now, or what stands in the way."""
        served = self.served(kind, node)
        if (short := self.resource_refusal(kind, node, served)) is not None:
            return short
        choice = self.device_choice(kind, node, served)
        return choice if isinstance(choice, NodeVerdict) else self.score(kind, node, choice)

    def score(self, kind: PodKind, node: str, choice: Choice) -> float:
        """What the pod would cost others here; lower is better."""
        fixed = self.fixed_score(kind, node, choice)
        if self._known.losses is None:
            return fixed
        loss = self.loss(kind, node, choice)
        return placement_cost.priced(fixed, loss, self.prices(), self._policy.weights)

    def fixed_score(self, kind: PodKind, node: str, choice: Choice) -> float:
        """The part of the score that changes with the node alone: all of it, but for prices of what is scarce."""
        if self._known.losses is None:
            node_cost = sum(term.milli_gpu for term in self.node_terms(kind, node, choice))
            return node_cost + choice.milli_gpu
        situation = self._situation(kind, node, choice)
        asked_for = (
            *self.preference_terms(kind, self.world.nodes[node]),
            score_terms.second_choice(situation),
        )
        loss = self.loss(kind, node, choice)
        return loss.fixed + (sum(term.milli_gpu for term in asked_for) + choice.milli_gpu)

    # Expected losses

    @property
    def has_losses(self) -> bool:
        """Whether scores are expected losses: the policy says so, and there is a mix of pods to expect."""
        return self._known.losses is not None

    @property
    def has_prices(self) -> bool:
        """Whether scores of unchanged nodes change, because something is scarce elsewhere."""
        return self._known.losses is not None and self._known.losses.totals.has_prices

    def prices(self) -> placement_cost.Prices:
        """What is scarce now. Linear in nodes that changed."""
        assert self._known.losses is not None
        return self._known.losses.prices(self.world, self.gpu_state)

    def gpu_state(self, node: str) -> gpu_states.GpuState:
        """What is free of the node, as expected losses see it."""
        view, free = self.view(node), self.world.free(node)
        entry = self._known.states.get(node)
        if entry is None or entry[0] is not view or entry[1] != free:
            state = gpu_states.state_of(self.world, node, view, self._known.ledger)
            entry = self._known.states[node] = (view, free, state)
        return entry[2]

    def loss(self, kind: PodKind, node: str, choice: Choice) -> placement_cost.Loss:
        """What the pod would make unusable on the node, or take from others."""
        assert self._known.losses is not None
        before = self.gpu_state(node)
        after = gpu_states.after(
            before,
            self.world.free(node),
            kind.need.without(self.served(kind, node)),
            labels=self.world.nodes[node].metadata.labels,
            taken=choice.taken,
        )
        return self._known.losses.tables.loss(before, after, choice.taken)

    def chosen_view(self, kind: PodKind, node: str) -> NodeView:
        """The node's devices, or for a share those among them with the lowest expected loss."""
        view = self.view(node)
        if self._known.losses is None or not kind.is_share:
            return view
        options = gpu_states.views_by_free(view, self._known.ledger)
        if len(options) < 2:
            return view
        costs = []
        for free, restricted in options:
            allocated = self.allocate(kind.fresh, restricted)
            if isinstance(allocated, outcome.Allocated):
                loss = self.loss(kind, node, self._choice_of(allocated, restricted))
                costs.append((loss.of_devices, free, restricted))
        return min(costs, key=lambda cost: cost[:2])[2] if costs else view

    def preference_terms(self, kind: PodKind, node: nodes.Node) -> tuple[plan.Term, ...]:
        """What the pod's preferences make of the node itself."""
        return node_preferences.terms(kind.pod, node, self._policy.weights)

    def node_terms(self, kind: PodKind, node: str, choice: Choice) -> tuple[plan.Term, ...]:
        """What selecting the node costs others and the pod itself, the choice of devices aside."""
        preferences = self.preference_terms(kind, self.world.nodes[node])
        situation = self._situation(kind, node, choice)
        if self._known.losses is None:
            return preferences + score_terms.node_terms(situation)
        second_choice = score_terms.second_choice(situation)
        loss = self.loss(kind, node, choice)
        losses = placement_cost.terms(loss, self.prices(), self._policy.weights)
        return (*preferences, *((second_choice,) if second_choice.milli_gpu else ()), *losses)

    def _situation(self, kind: PodKind, node: str, choice: Choice) -> score_terms.Situation:
        return score_terms.Situation(
            need=kind.need.without(self.served(kind, node)),
            free=self.world.free(node),
            free_milli_gpu=self.free_milli_gpu(node),
            taken_milli_gpu=choice.taken_milli_gpu,
            steps_down=choice.steps_down,
            has_slices=choice.has_slices,
            weights=self._policy.weights,
        )

    def terms(self, kind: PodKind, node: str) -> tuple[plan.Term, ...]:
        """What the score of a node that fits is made of."""
        wanted_claims = kind.claims_for(self.served(kind, node))
        if not wanted_claims:
            return self.node_terms(kind, node, Choice())
        view = self.chosen_view(kind, node)
        allocated = self.allocate(wanted_claims, view)
        assert isinstance(allocated, outcome.Allocated), (
            "the same pod on the same node got another answer"
        )
        node_terms = self.node_terms(kind, node, self._choice_of(allocated, view))
        return (*node_terms, *self._device_terms(allocated))

    # Devices

    def allocate(
        self, resource_claims: tuple[claims.ResourceClaim, ...], view: NodeView
    ) -> outcome.Outcome:
        """Devices for the claims on one node. Raises Unfinished or TooExpensive where selectors take too much."""
        allocated = allocator.allocate(
            view,
            resource_claims,
            self.world.classes,
            policy=self._policy.allocation,
            budget=self._budget.search_steps,
            effort=self.effort,
        )
        search_steps = 0 if isinstance(allocated, outcome.Failed) else allocated.steps
        steps = _asking_steps(resource_claims) + search_steps
        self._spent += steps
        self.worked += steps
        return allocated

    def view(self, node: str) -> NodeView:
        """The node's devices; those of other owners cannot be used."""
        view = self.world.view(node)
        rules = self._policy.ownership.device_rules
        if not rules:
            return view
        entry = self._known.owned.get(node)
        if entry is None or entry[0] is not view:
            entry = self._known.owned[node] = (view, ownership.seen_as_owner(view, rules))
        return entry[1]

    def free_milli_gpu(self, node: str) -> int:
        """What is free of the node's GPUs."""
        view = self.view(node)
        entry = self._known.free.get(node)
        if entry is None or entry[0] is not view:
            free = sum(map(self._known.ledger.free_milli_gpu, view.pools))
            entry = self._known.free[node] = (view, free)
        return entry[1]


_NO_DEVICES: Final = (Reason(code=ReasonCode.NO_DEVICES),)
_NOT_OWNED: Final = Reason(code=ReasonCode.NOT_OWNED, detail="belongs to another scheduler")


def _asking_steps(resource_claims: tuple[claims.ResourceClaim, ...]) -> int:
    requests = [request for claim in resource_claims for request in claim.spec.devices.requests]
    options = sum(len(request.first_available) or 1 for request in requests)
    return EVALUATION_STEPS * max(1, options - FEW_OPTIONS)


def _reason(misfit: node_fit.Misfit) -> Reason:
    is_room = misfit.cause is node_fit.Cause.RESOURCES
    is_amount = is_room or misfit.cause is node_fit.Cause.LABELS
    hint = gpu_annotations.resource_hint(misfit.what) if is_room else ""
    return Reason(
        code=_CODES[misfit.cause],
        subject=misfit.what,
        need=misfit.need if is_amount else None,
        have=misfit.have if is_amount else None,
        detail=hint or misfit.why,
    )
