"""Finds the node for a pod: filters nodes, scores those that fit, selects the cheapest, or the first by name of equals.

Scores are what the pod would cost others there. Pods of one kind share what was worked out about nodes, for as long as
World, policy and budget are the same; with the memo off every node is evaluated for every pod, and the plan is the
same. Reads the World inside a trial; never changes it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import msgspec

from dovetail import cache
from dovetail.allocate import outcome
from dovetail.allocate.index import blocked_places
from dovetail.cel.effort import TooExpensive, Unfinished
from dovetail.kubetypes import codec
from dovetail.kubetypes.core import nodes, pods
from dovetail.kubetypes.resource import claims
from dovetail.model import gpu_annotations, plan, pod_requests, policy
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule import refusal_summary, selector_budget
from dovetail.schedule.node import (
    equivalence,
    expected_losses,
    extended_resources,
    pick_transfer,
)
from dovetail.schedule.node.evaluate_node import (
    NodeEvaluator,
    NodeFacts,
    PodKind,
    kind_of,
    stand_in,
)
from dovetail.schedule.node.filters import relational
from dovetail.schedule.node.node_cache import EachNode, NodeClasses, NodeClassesCache
from dovetail.schedule.node.pod_claims import PodClaim, PodClaims, named_nodes
from dovetail.schedule.node.pod_profiles import PodProfile
from dovetail.world.events import ObjectKey, key_of, pod_id
from dovetail.world.world import World

MAX_POD_KINDS: Final = 256  # kinds of pods remembered for one world
MAX_CACHED_NODES: Final = 1_000_000  # nodes filed in all of them together


# A node, why there is none, or how many nodes are not evaluated yet.
_Selection = relational.SelectedNode | refusal_summary.Tally | int


class NodePlacement(NamedTuple):
    """A node for the pod, and devices for those of its claims that had none."""

    node: str
    allocations: dict[ObjectKey, claims.AllocationResult]
    made: plan.ExtendedResourceClaim | None
    terms: tuple[plan.Term, ...] = ()
    volumes: tuple[plan.VolumeStep, ...] = ()
    warnings: tuple[Reason, ...] = ()

    def allocations_to_assume(self, pod: pods.Pod) -> dict[ObjectKey, claims.AllocationResult]:
        """Every allocation to assume for the pod, that of a claim without a name included."""
        if self.made is None:
            return self.allocations
        existing = self.made.existing
        if existing is not None:
            key = (existing.namespace, existing.name)
        else:
            key = extended_resources.assumed_key(pod)
        return self.allocations | {key: self.made.result}


class _Kept:
    """What outlives a cycle. Never holds the World itself."""

    def __init__(self, world: World) -> None:
        self.known = NodeFacts()
        self.classes_by_kind = NodeClassesCache(
            max(min(MAX_POD_KINDS, MAX_CACHED_NODES // max(len(world.nodes), 1)), 1)
        )
        self.class_of_resource: dict[str, str] = {}
        self.classes_version = -1

    def bring_up(self, world: World, policy: policy.Policy) -> None:
        """Forgets what changed device classes and nodes, or another mix of pods, made stale."""
        self.known.trim(len(world.nodes))
        mix = expected_losses.mix_for(world, policy)
        if mix is not (self.known.losses.mix if self.known.losses is not None else None):
            self.known.losses = None
            if mix is not None:
                self.known.losses = expected_losses.ExpectedLosses(mix, policy.weights)
            self.classes_by_kind.clear()
        if self.classes_version != world.classes_version:
            self.classes_version = world.classes_version
            self.classes_by_kind.drop_readers(world.classes)
            self.class_of_resource = extended_resources.classes_by_resource(world.classes)


_MEMORY: Final = cache.WeakMemo[World, bytes, _Kept](cache.MOST_POLICIES)


def _kept(world: World, policy: policy.Policy, budget: policy.Budget) -> _Kept:
    if not policy.memo:
        return _Kept(world)
    return _MEMORY.of(world, msgspec.json.encode((policy, budget)), lambda: _Kept(world))


class NodeSearch:
    """Finds nodes for the pods of one cycle."""

    def __init__(
        self,
        world: World,
        policy: policy.Policy,
        budget: policy.Budget,
        *,
        among: Collection[str] | None = None,
    ) -> None:
        self._world = world
        self.spending = selector_budget.begin(world, budget, among)
        self._memo = policy.memo
        self._kept = _kept(world, policy, budget)
        self._kept.bring_up(world, policy)
        self._evaluator = NodeEvaluator(world, policy, budget, self._kept.known)
        # Of pods whose claims have devices: good for this cycle only.
        self._passing: dict[equivalence.Key, NodeClasses] = {}
        self._last: tuple[NodePlacement, NodeClasses] | None = None  # the latest placement
        self._recent: tuple[equivalence.Key, NodeClasses] | None = None  # by identity of the kind

    def find(
        self,
        pod: pods.Pod,
        needs: PodClaims,
        *,
        within: Collection[str] | None = None,
        profile: PodProfile | None = None,
    ) -> NodePlacement | plan.Refusal:
        """The best node, of these if any are named, or why there is none. A known profile saves work."""
        id_of_pod = pod_id(pod)
        try:
            self._evaluator.effort = self.spending.effort(id_of_pod)
            try:
                placement = self._filter_score_select(pod, needs, within, profile)
            except TooExpensive as error:
                self.spending.refuse(id_of_pod, str(error))
            except Unfinished:
                placement = refusal_summary.of_pod(pod, (SELECTORS_LEFT,), is_undecided=True)
            self.spending.settle(id_of_pod, is_answered=_is_answered(placement))
        except TooExpensive as error:
            return refusal_summary.of_pod(pod, (too_expensive(error),))
        return placement

    def _filter_score_select(
        self,
        pod: pods.Pod,
        needs: PodClaims,
        within: Collection[str] | None,
        profile: PodProfile | None,
    ) -> NodePlacement | plan.Refusal:
        filters = relational.filters_of(
            pod, self._world
        )  # filters that depend on other pods and volumes
        if filters is not None and not isinstance(filters, relational.RelationalFilters):
            return refusal_summary.of_pod(pod, filters)
        node_classes = self._recent_cohort(profile)
        backing = node_classes.kind.backed if node_classes is not None else self._backing(pod)
        earlier_claims = extended_resources.existing_claims(self._world, pod) if backing else ()
        followed = _followed(earlier_claims)
        self._evaluator.begin()

        if not self._memo or needs.held or followed is not None:
            node_classes = None
            kind = kind_of(pod, needs, backed=backing, followed=followed)
            selection = self._select_without_memory(kind, needs, filters, within)
        else:
            if node_classes is None:
                node_classes = self._cohort(pod, needs, backing, profile)
            kind = node_classes.kind if not backing else node_classes.kind._replace(pod=pod)
            selection = self._select_from_cohort(node_classes, filters, within)

        if isinstance(selection, int):
            return refusal_summary.of_pod(pod, (_to_be_judged(selection),), is_undecided=True)
        if isinstance(selection, refusal_summary.Tally):
            return self._refusal(pod, needs, kind, selection)
        placement = self._allocate_on(
            selection, kind, needs, earlier_claims=earlier_claims, node_classes=node_classes
        )
        if filters is not None and filters.volumes is not None:
            volumes = filters.volumes.steps(self._world.nodes[selection.node])
            placement = placement._replace(volumes=volumes)
        if kind.requirements:
            node = self._world.nodes[selection.node]
            placement = placement._replace(warnings=self._evaluator.driver_warnings(kind, node))
        self._last = (placement, node_classes) if node_classes is not None else None
        return placement

    @property
    def worked(self) -> int:
        """Steps taken so far."""
        return self._evaluator.worked

    def placed(self, placement: NodePlacement) -> None:
        """The pod that this was found for was assumed there just now. Optional: spares another look at the node."""
        if self._last is not None and self._last[0] is placement:
            self._last[1].placed(self._evaluator, placement.node)
        self._last = None

    def blocked_places(
        self, pod: pods.Pod, needs: PodClaims, node: str, *, most: int | None
    ) -> list[blocked_places.BlockedPlace]:
        """Devices of a node that suits the pod, each with at most so many partitions in use in its way."""
        if needs.held:
            return []
        kind = kind_of(pod, needs, backed=self._backing(pod))
        evaluator = self._evaluator
        if evaluator.node_refusal(kind, self._world.nodes[node]) is not None:
            return []
        wanted_claims = kind.claims_for(evaluator.served(kind, node))
        try:
            evaluator.effort = self.spending.effort(pod_id(pod))
            return blocked_places.blocked_places(
                evaluator.view(node),
                wanted_claims,
                self._world.classes,
                most=most,
                effort=evaluator.effort,
            )
        except (TooExpensive, Unfinished):
            return []

    def _backing(self, pod: pods.Pod) -> extended_resources.Backing:
        class_of_resource = self._kept.class_of_resource
        if not extended_resources.may_want(pod, class_of_resource):
            return ()
        return extended_resources.backing(pod_requests.pod_request(pod), class_of_resource)

    # Filter and score, then select

    def _select_from_cohort(
        self,
        node_classes: NodeClasses,
        filters: relational.RelationalFilters | None,
        within: Collection[str] | None,
    ) -> _Selection:
        unevaluated = node_classes.refresh(
            self._evaluator
        )  # filters and scores the nodes that changed
        return unevaluated or self._select(node_classes, filters, within)

    def _select_from_nodes(
        self,
        evaluated: EachNode,
        filters: relational.RelationalFilters | None,
        within: Collection[str] | None,
    ) -> _Selection:
        return evaluated.unfiled or self._select(evaluated, filters, within)

    def _select_without_memory(
        self,
        kind: PodKind,
        needs: PodClaims,
        filters: relational.RelationalFilters | None,
        within: Collection[str] | None,
    ) -> _Selection:
        """Where claims have devices, the nodes these reach come first: most others need no look."""
        if not self._memo:
            return self._select_from_nodes(EachNode(self._evaluator, kind), filters, within)
        reachable = named_nodes(_settled(kind))
        if reachable is not None:
            nearby = EachNode(self._evaluator, kind, reachable)
            selection = self._select_from_nodes(nearby, filters, within)
            if isinstance(selection, relational.SelectedNode):
                return selection
            # Why every single node does not suit: the refusal counts all of them.
            return self._select_from_nodes(EachNode(self._evaluator, kind), filters, within)
        key = (self._pod_key(kind.pod, needs), kind.backed, kind.followed and kind.followed.key)
        node_classes = self._passing.get(key)
        if node_classes is None:
            node_classes = self._passing[key] = self._new_cohort(kind)
        return self._select_from_cohort(node_classes, filters, within)

    def _select(
        self,
        evaluated: NodeClasses | EachNode,
        filters: relational.RelationalFilters | None,
        within: Collection[str] | None,
    ) -> relational.SelectedNode | refusal_summary.Tally:
        """The node with the best score that the pod's ties allow, or why none is left."""
        evaluator = self._evaluator
        if filters is None:
            evaluator.worked += len(within) // 16 if within is not None else 0
            node = evaluated.best(within)
            if node is None:
                return evaluated.tally(evaluator)
            return relational.SelectedNode(node, evaluated.terms(evaluator, node))
        evaluator.worked += len(self._world.nodes) // 2
        selection = filters.choose(evaluated.scores(within), self._world.nodes, evaluator.weights)
        if isinstance(selection, relational.SelectedNode):
            node_terms = evaluated.terms(evaluator, selection.node)
            return selection._replace(terms=(*selection.terms, *node_terms))
        return selection.plus(evaluated.tally(evaluator))

    def _pod_key(self, pod: pods.Pod, needs: PodClaims) -> equivalence.Key:
        return equivalence.pod_key(pod, needs, self._world.images)

    def _recent_cohort(self, profile: PodProfile | None) -> NodeClasses | None:
        """The node classes of the pod before, if this one is of its kind."""
        if profile is None or self._recent is None:
            return None
        kind, node_classes = self._recent
        return node_classes if kind is profile.kind_with_images else None

    def _cohort(
        self,
        pod: pods.Pod,
        needs: PodClaims,
        backing: extended_resources.Backing,
        profile: PodProfile | None,
    ) -> NodeClasses:
        if profile is not None:
            node_classes = self._cohort_of(profile.kind_with_images, pod, needs, backing)
            self._recent = (profile.kind_with_images, node_classes)
            return node_classes
        return self._cohort_of(self._pod_key(pod, needs), pod, needs, backing)

    def _cohort_of(
        self,
        pod_key: equivalence.Key,
        pod: pods.Pod,
        needs: PodClaims,
        backing: extended_resources.Backing,
    ) -> NodeClasses:
        key = (pod_key, backing)
        node_classes = self._kept.classes_by_kind.get(key)
        if node_classes is None:
            node_classes = self._new_cohort(kind_of(pod, needs, backed=backing))
            class_names = equivalence.classes_named(_every_claim(node_classes.kind))
            classes = {name: self._world.classes.get(name) for name in class_names}
            spec_bytes = sum(
                len(codec.encode_struct(claim.spec)) for claim in node_classes.kind.fresh
            )
            self._kept.classes_by_kind.keep(key, node_classes, classes, spec_bytes=spec_bytes)
        return node_classes

    def _new_cohort(self, kind: PodKind) -> NodeClasses:
        reads = equivalence.reads_of(
            _every_claim(kind), self._world.classes, self._evaluator.effort
        )
        keys = equivalence.keys_for(self._world, reads)
        return NodeClasses(kind, keys, has_prices=self._evaluator.has_prices)

    # Devices on the selected node

    def _allocate_on(
        self,
        selection: relational.SelectedNode,
        kind: PodKind,
        needs: PodClaims,
        *,
        earlier_claims: tuple[claims.ResourceClaim, ...],
        node_classes: NodeClasses | None,
    ) -> NodePlacement:
        """Devices under the claims' own names: share ids depend on them, the selection does not."""
        node = selection.node
        served = self._evaluator.served(kind, node)
        extra_claim = _extra_claim(kind, served, earlier_claims)
        fresh = needs.fresh
        fresh_claims = tuple([pod_claim.claim for pod_claim in fresh])
        results: tuple[claims.AllocationResult, ...] = ()
        if extra_claim is not None:
            results = self._results(kind, (*fresh_claims, extra_claim), node, None)
        elif fresh_claims:
            results = self._results(kind, fresh_claims, node, node_classes)

        keys = [pod_claim.key for pod_claim in fresh]
        allocations = dict(zip(keys, results[: len(keys)], strict=True))
        if not served:
            return NodePlacement(node, allocations, None, selection.terms)

        claim, result = extra_claim, results[-1] if results else None
        if kind.followed is not None:
            claim, result = kind.followed.claim, kind.followed.allocation
        assert claim is not None
        assert result is not None
        mappings = extended_resources.requests_for(kind.pod, kind.backed, served).mappings
        made_claim = plan.ExtendedResourceClaim(
            claim=_nameless(claim), result=result, mappings=mappings, existing=_ref(claim)
        )
        return NodePlacement(node, allocations, made_claim, selection.terms)

    def _results(
        self,
        kind: PodKind,
        resource_claims: tuple[claims.ResourceClaim, ...],
        node: str,
        node_classes: NodeClasses | None,
    ) -> tuple[claims.AllocationResult, ...]:
        """The allocator's results for claims on a node, or those for a node that looks the same."""
        transferred = node_classes.pick(node) if node_classes is not None else None
        if transferred is not None:
            return transferred
        view = self._evaluator.chosen_view(kind, node)
        allocated = self._evaluator.allocate(resource_claims, view)
        assert isinstance(allocated, outcome.Allocated), (
            "the same claims on the same node gave another answer"
        )
        if (
            node_classes is not None
            and (pick := pick_transfer.transferable(allocated.results, view)) is not None
        ):
            node_classes.keep_pick(node, pick)
        return allocated.results

    # Refusals

    def _refusal(
        self, pod: pods.Pod, needs: PodClaims, kind: PodKind, tally: refusal_summary.Tally
    ) -> plan.Refusal:
        names = {
            f"claim {stand_in(place)}": f"claim {pod_claim.name}"
            for place, pod_claim in enumerate(needs.fresh)
        }
        holding = () if tally.is_undecided else self._claims_in_the_way(pod, kind)
        return refusal_summary.over_nodes(
            pod, tally, names=names | _resource_names(kind), holding=holding
        )

    def _claims_in_the_way(self, pod: pods.Pod, kind: PodKind) -> tuple[plan.ClaimRef, ...]:
        """Allocated claims that only this pod uses, if it could try other nodes without their devices."""
        settled = _settled(kind)
        own = [pod_claim for pod_claim in settled if self._is_only_user(pod_claim, pod)]
        if not own:
            return ()
        shared = [pod_claim for pod_claim in settled if pod_claim not in own]
        for node in self._world.nodes.values():
            if self._evaluator.node_refusal(kind, node) is not None:
                continue
            if self._follows_all(kind, shared, node) and not self._follows_all(kind, own, node):
                return tuple(plan.ClaimRef(*pod_claim.key) for pod_claim in own)
        return ()

    def _follows_all(self, kind: PodKind, settled: Sequence[PodClaim], node: nodes.Node) -> bool:
        return all(self._evaluator.follows(kind, pod_claim, node) for pod_claim in settled)

    def _is_only_user(self, pod_claim: PodClaim, pod: pods.Pod) -> bool:
        if pod_claim.claim.status.allocation is None or self._world.assumed_users(pod_claim.key):
            return False
        return all(user.uid == pod.metadata.uid for user in pod_claim.claim.status.reserved_for)


SELECTORS_LEFT: Final = Reason(
    code=ReasonCode.TO_BE_CONTINUED,
    detail="its selectors are still to be evaluated on some devices; the units for them are used up for now",
)


def too_expensive(error: TooExpensive) -> Reason:
    """Why no more units are spent on a pod's selectors."""
    return Reason(code=ReasonCode.SELECTOR_COST, detail=f"its selectors are too expensive: {error}")


def _is_answered(placement: NodePlacement | plan.Refusal) -> bool:
    return isinstance(placement, NodePlacement) or not refusal_summary.is_to_be_continued(placement)


def _to_be_judged(count: int) -> Reason:
    detail = (
        f"{count} nodes are still to be judged; what may be spent on one pod is used up for now"
    )
    return Reason(code=ReasonCode.TO_BE_CONTINUED, detail=detail)


def _settled(kind: PodKind) -> tuple[PodClaim, ...]:
    """Allocated claims: the pod has to go where their devices are."""
    return kind.held if kind.followed is None else (*kind.held, kind.followed)


def _every_claim(kind: PodKind) -> tuple[claims.ResourceClaim, ...]:
    """The claims of a pod on a node where devices serve every extended resource that they can."""
    return kind.claims_for(tuple(name for name, _ in kind.backed))


def _followed(earlier_claims: tuple[claims.ResourceClaim, ...]) -> PodClaim | None:
    """The allocated claim for extended resources, if one was made before: the pod goes where its devices are."""
    if not earlier_claims or earlier_claims[0].status.allocation is None:
        return None
    claim = earlier_claims[0]
    return PodClaim(claim.metadata.name, key_of(claim), claim, claim.status.allocation)


def _extra_claim(
    kind: PodKind, served: tuple[str, ...], earlier_claims: tuple[claims.ResourceClaim, ...]
) -> claims.ResourceClaim | None:
    """The claim to allocate for extended resources: an earlier one with the same requests, else a new one."""
    if not served or kind.followed is not None:
        return None
    requests = extended_resources.requests_for(kind.pod, kind.backed, served).requests
    for earlier in earlier_claims:
        if earlier.spec.devices.requests == requests:
            return earlier
    claim = extended_resources.claim_for(kind.pod, requests)
    # Share ids come from the claim's uid, and it has none yet: the pod's identity stands in.
    uid = "/".join(extended_resources.assumed_key(kind.pod))
    metadata = msgspec.structs.replace(claim.metadata, uid=uid)
    return msgspec.structs.replace(claim, metadata=metadata)


def _nameless(claim: claims.ResourceClaim) -> claims.ResourceClaim:
    """The claim as it is, or as it will be created: the server gives it a uid."""
    if claim.metadata.name:
        return claim
    return msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, uid=""))


def _ref(claim: claims.ResourceClaim) -> plan.ClaimRef | None:
    return plan.ClaimRef(*key_of(claim)) if claim.metadata.name else None


def _resource_names(kind: PodKind) -> dict[str, str]:
    """By request of the claim for extended resources, the name that the pod's author knows: the resource's."""
    if not kind.backed:
        return {}
    every = tuple(name for name, _ in kind.backed)
    mappings = extended_resources.requests_for(kind.pod, kind.backed, every).mappings
    prefix = f"claim {extended_resources.STAND_IN}: request"
    names = {
        f"{prefix} {mapping.request_name}": f"resource {mapping.resource_name}"
        for mapping in mappings
    }
    # A selector that stands for an annotation is called by the annotation.
    annotations = kind.pod.metadata.annotations
    for key, expression in gpu_annotations.selectors(gpu_annotations.choice_of(kind.pod)).items():
        names[expression] = gpu_annotations.quoted(key, annotations[key])
    return names
