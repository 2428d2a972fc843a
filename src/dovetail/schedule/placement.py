"""Decides where a pod goes: on the node where it costs others least, of equal ones the first by name.

Pods of one kind share a cohort, which outlives the cycle for as long as its world, policy and budget are the same. With
the memo off every node is judged anew for every pod; the plan is the same. Reads the world inside a trial; never
changes it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

import msgspec

from dovetail.allocate import outcome
from dovetail.cel.effort import TooExpensive, Unfinished
from dovetail.model import claims, objects, plan, pods, policy, requests
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule import extended, likeness, memory, refuse, reuse, spending, ties
from dovetail.schedule.claims import Needs, Wanted, named_nodes
from dovetail.schedule.cohort import Cohort, Cohorts, Singles
from dovetail.schedule.judge import Judge, Kind, Known, kind_of, stand_in
from dovetail.world.events import ObjectKey, key_of, pod_id
from dovetail.world.world import World

MAX_COHORTS: Final = 256  # kinds of pods remembered for one world
MAX_FILED: Final = 1_000_000  # nodes filed in all of them together


_Answer = ties.Best | refuse.Tally | int  # a node, why there is none, or how many are still to be judged


class Found(NamedTuple):
    """A node for the pod, and devices for those of its claims that had none."""

    node: str
    allocations: dict[ObjectKey, claims.AllocationResult]
    made: plan.MadeClaim | None
    terms: tuple[plan.Term, ...] = ()
    volumes: tuple[plan.VolumeStep, ...] = ()

    def taken(self, pod: pods.Pod) -> dict[ObjectKey, claims.AllocationResult]:
        """Everything to assume for the pod, a claim that has no name yet included."""
        if self.made is None:
            return self.allocations
        named = self.made.existing
        key = (named.namespace, named.name) if named is not None else extended.assumed_key(pod)
        return self.allocations | {key: self.made.result}


class _Kept:
    """What outlives a cycle. Never holds the world itself."""

    def __init__(self, world: World) -> None:
        self.known = Known()
        self.cohorts = Cohorts(max(min(MAX_COHORTS, MAX_FILED // max(len(world.nodes), 1)), 1))
        self.behind: dict[str, str] = {}
        self.classes_version = -1

    def bring_up(self, world: World) -> None:
        """Forgets what changed classes and nodes made stale."""
        self.known.trim(len(world.nodes))
        if self.classes_version != world.classes_version:
            self.classes_version = world.classes_version
            self.cohorts.drop_readers(world.classes)
            self.behind = extended.classes_by_resource(world.classes)


_MEMORY: Final = memory.Memory[_Kept]()


def _kept(world: World, policy: policy.Policy, budget: policy.Budget) -> _Kept:
    if not policy.memo:
        return _Kept(world)
    return _MEMORY.of(world, msgspec.json.encode((policy, budget)), lambda: _Kept(world))


class Search:
    """Finds nodes for the pods of one cycle."""

    def __init__(
        self, world: World, policy: policy.Policy, budget: policy.Budget, *, among: Collection[str] | None = None
    ) -> None:
        self._world = world
        self.spending = spending.begun(world, budget, among)
        self._memo = policy.memo
        self._kept = _kept(world, policy, budget)
        self._kept.bring_up(world)
        self._judge = Judge(world, policy, budget, self._kept.known)
        self._passing: dict[likeness.Key, Cohort] = {}  # of pods whose claims have devices: good for this cycle only
        self._last: tuple[Found, Cohort] | None = None  # what was found last

    def find(self, pod: pods.Pod, needs: Needs, *, within: Collection[str] | None = None) -> Found | plan.Refusal:
        """The best node, of these if any are named, or why there is none."""
        id_ = pod_id(pod)
        try:
            self._judge.effort = self.spending.effort(id_)
            try:
                found = self._find(pod, needs, within)
            except TooExpensive as error:
                self.spending.refuse(id_, str(error))
            except Unfinished:
                found = refuse.of_pod(pod, (SELECTORS_LEFT,), is_undecided=True)
            is_answered = isinstance(found, Found) or not refuse.is_to_be_continued(found)
            self.spending.settle(id_, is_answered=is_answered)
        except TooExpensive as error:
            return refuse.of_pod(pod, (too_expensive(error),))
        return found

    def _find(self, pod: pods.Pod, needs: Needs, within: Collection[str] | None) -> Found | plan.Refusal:
        tied = ties.of(pod, self._world)
        if tied is not None and not isinstance(tied, ties.Ties):
            return refuse.of_pod(pod, tied)
        backed = self._backed(pod)
        before = extended.made_before(self._world, pod) if backed else ()
        followed = _followed(before)
        self._judge.begin()
        cohort: Cohort | None
        if not self._memo or needs.held or followed is not None:
            cohort = None
            kind = kind_of(pod, needs, backed=backed, followed=followed)
            answer = self._singly(kind, needs, tied, within)
        else:
            cohort = self._cohort(pod, needs, backed)
            kind = cohort.kind if not backed else cohort.kind._replace(pod=pod)
            answer = self._together(cohort, tied, within)
        if isinstance(answer, ties.Best):
            found = self._chosen(kind, needs, best=answer, before=before, cohort=cohort)
            if tied is not None and tied.volumes is not None:
                found = found._replace(volumes=tied.volumes.steps(self._world.nodes[answer.node]))
            self._last = (found, cohort) if cohort is not None else None
            return found
        if isinstance(answer, int):
            return refuse.of_pod(pod, (_to_be_judged(answer),), is_undecided=True)
        names = {f"claim {stand_in(place)}": f"claim {one.name}" for place, one in enumerate(needs.fresh)}
        holding = self._holding(pod, kind) if not answer.is_undecided else ()
        return refuse.over_nodes(pod, answer, names=names | _resource_names(kind), holding=holding)

    @property
    def worked(self) -> int:
        """Steps taken so far."""
        return self._judge.worked

    def placed(self, found: Found) -> None:
        """The pod that this was found for was put there, just now. Spares a look at the node; need not be told."""
        if self._last is not None and self._last[0] is found:
            self._last[1].placed(self._judge, found.node)
        self._last = None

    def _backed(self, pod: pods.Pod) -> extended.Backing:
        behind = self._kept.behind
        if not extended.may_want(pod, behind):
            return ()
        return extended.backing(requests.pod_request(pod), behind)

    def _singly(self, kind: Kind, needs: Needs, tied: ties.Ties | None, within: Collection[str] | None) -> _Answer:
        """Without memory; where devices are settled most nodes need not be looked at."""
        if not self._memo:
            return self._asked(Singles(self._judge, kind), tied, within)
        near = named_nodes(_settled(kind))
        if near is not None:
            answer = self._asked(Singles(self._judge, kind, near), tied, within)
            return answer if isinstance(answer, ties.Best) else self._asked(Singles(self._judge, kind), tied, within)
        key = (self._pod_key(kind.pod, needs), kind.backed, kind.followed and kind.followed.key)
        known = self._passing.get(key)
        if known is None:
            known = self._passing[key] = self._new_cohort(kind)
        return self._together(known, tied, within)

    def _asked(self, singles: Singles, tied: ties.Ties | None, within: Collection[str] | None) -> _Answer:
        return singles.unfiled or self._best(singles, tied, within)

    def _together(self, cohort: Cohort, tied: ties.Ties | None, within: Collection[str] | None) -> _Answer:
        return cohort.refresh(self._judge) or self._best(cohort, tied, within)

    def _best(
        self, judged: Cohort | Singles, tied: ties.Ties | None, within: Collection[str] | None
    ) -> ties.Best | refuse.Tally:
        """Of the nodes that suit the one the pod's ties leave and like best, or why none is left."""
        if tied is None:
            self._judge.worked += len(within) // 16 if within is not None else 0
            best = judged.best(within)
            return judged.tally(self._judge) if best is None else ties.Best(best, judged.terms(self._judge, best))
        self._judge.worked += len(self._world.nodes) // 2
        found = tied.choose(judged.scores(within), self._world.nodes, self._judge.weights)
        if isinstance(found, ties.Best):
            return found._replace(terms=(*found.terms, *judged.terms(self._judge, found.node)))
        return found.plus(judged.tally(self._judge))

    def _pod_key(self, pod: pods.Pod, needs: Needs) -> likeness.Key:
        return likeness.pod_key(pod, needs, self._world.images)

    def _cohort(self, pod: pods.Pod, needs: Needs, backed: extended.Backing) -> Cohort:
        key = (self._pod_key(pod, needs), backed)
        known = self._kept.cohorts.get(key)
        if known is None:
            known = self._new_cohort(kind_of(pod, needs, backed=backed))
            named = likeness.classes_named(_every_claim(known.kind))
            read = {name: self._world.classes.get(name) for name in named}
            spec_bytes = sum(len(objects.encode_struct(one.spec)) for one in known.kind.fresh)
            self._kept.cohorts.keep(key, known, read, spec_bytes=spec_bytes)
        return known

    def _new_cohort(self, kind: Kind) -> Cohort:
        reads = likeness.reads_of(_every_claim(kind), self._world.classes, self._judge.effort)
        return Cohort(kind, likeness.keys_for(self._world, reads))

    def _chosen(
        self,
        kind: Kind,
        needs: Needs,
        *,
        best: ties.Best,
        before: tuple[claims.ResourceClaim, ...],
        cohort: Cohort | None,
    ) -> Found:
        """Devices on the node, under the claims' own names: share ids depend on them, the choice does not."""
        node = best.node
        served = self._judge.served(kind, node)
        extra = _extra_claim(kind, served, before)
        own = needs.fresh
        fresh = tuple([one.claim for one in own])
        wanted = fresh if extra is None else (*fresh, extra)
        results = self._results(wanted, node, cohort if extra is None else None) if wanted else ()
        allocations = dict(zip([one.key for one in own], results[: len(own)], strict=True))
        if not served:
            return Found(node, allocations, None, best.terms)
        claim, result = (kind.followed.claim, kind.followed.allocation) if kind.followed else (extra, results[-1])
        assert claim is not None
        assert result is not None
        mappings = extended.built(kind.pod.spec, kind.backed, served).mappings
        made = plan.MadeClaim(claim=_nameless(claim), result=result, mappings=mappings, existing=_ref(claim))
        return Found(node, allocations, made, best.terms)

    def _results(
        self, wanted: tuple[claims.ResourceClaim, ...], node: str, cohort: Cohort | None
    ) -> tuple[claims.AllocationResult, ...]:
        known = cohort.pick(node) if cohort is not None else None
        if known is not None:
            return known
        view = self._judge.view(node)
        found = self._judge.allocated(wanted, view)
        assert isinstance(found, outcome.Allocated), "the same claims on the same node gave another answer"
        if cohort is not None and (pick := reuse.kept(found.results, view)) is not None:
            cohort.keep_pick(node, pick)
        return found.results

    def _holding(self, pod: pods.Pod, kind: Kind) -> tuple[plan.ClaimRef, ...]:
        """Claims nobody but the pod uses, if other nodes could be tried without their devices."""
        settled = _settled(kind)
        own = [one for one in settled if self._is_alone(one, pod)]
        if not own:
            return ()
        tied = [one for one in settled if one not in own]
        for node in self._world.nodes.values():
            if (
                self._judge.own_standing(kind, node) is None
                and all(self._judge.follows(kind, one, node) for one in tied)
                and not all(self._judge.follows(kind, one, node) for one in own)
            ):
                return tuple(plan.ClaimRef(*one.key) for one in own)
        return ()

    def _is_alone(self, wanted: Wanted, pod: pods.Pod) -> bool:
        if wanted.claim.status.allocation is None or self._world.assumed_users(wanted.key):
            return False
        return all(user.uid == pod.metadata.uid for user in wanted.claim.status.reserved_for)


SELECTORS_LEFT: Final = Reason(
    code=ReasonCode.TO_BE_CONTINUED,
    detail="its selectors are still to be evaluated on some devices; the units for them are used up for now",
)


def too_expensive(error: TooExpensive) -> Reason:
    """Why nothing more is spent on a pod's selectors."""
    return Reason(code=ReasonCode.SELECTOR_COST, detail=f"its selectors are too expensive: {error}")


def _to_be_judged(count: int) -> Reason:
    detail = f"{count} nodes are still to be judged; what may be spent on one pod is used up for now"
    return Reason(code=ReasonCode.TO_BE_CONTINUED, detail=detail)


def _settled(kind: Kind) -> tuple[Wanted, ...]:
    """Claims whose devices the pod has to follow."""
    return kind.held if kind.followed is None else (*kind.held, kind.followed)


def _every_claim(kind: Kind) -> tuple[claims.ResourceClaim, ...]:
    """The claims of a pod on a node where devices serve all that they could."""
    return kind.claims_for(tuple(name for name, _ in kind.backed))


def _followed(before: tuple[claims.ResourceClaim, ...]) -> Wanted | None:
    """The claim made before whose devices the pod has to follow."""
    if not before or before[0].status.allocation is None:
        return None
    return Wanted(before[0].metadata.name, key_of(before[0]), before[0], before[0].status.allocation)


def _extra_claim(
    kind: Kind, served: tuple[str, ...], before: tuple[claims.ResourceClaim, ...]
) -> claims.ResourceClaim | None:
    """The claim to allocate for extended resources: one made before that asks for the same, else a new one."""
    if not served or kind.followed is not None:
        return None
    wanted = extended.built(kind.pod.spec, kind.backed, served).requests
    for claim in before:
        if claim.spec.devices.requests == wanted:
            return claim
    claim = extended.claim_for(kind.pod, wanted)
    # Share ids come from the claim's identity, and it has none yet: the pod's stands in.
    metadata = msgspec.structs.replace(claim.metadata, uid="/".join(extended.assumed_key(kind.pod)))
    return msgspec.structs.replace(claim, metadata=metadata)


def _nameless(claim: claims.ResourceClaim) -> claims.ResourceClaim:
    """The claim as it is, or as it is to be created: the server gives it a uid."""
    if claim.metadata.name:
        return claim
    return msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, uid=""))


def _ref(claim: claims.ResourceClaim) -> plan.ClaimRef | None:
    return plan.ClaimRef(*key_of(claim)) if claim.metadata.name else None


def _resource_names(kind: Kind) -> dict[str, str]:
    """Requests of the claim for extended resources under the name their owner knows: that of the resource."""
    if not kind.backed:
        return {}
    every = tuple(name for name, _ in kind.backed)
    mappings = extended.built(kind.pod.spec, kind.backed, every).mappings
    return {
        f"claim {extended.STAND_IN}: request {one.request_name}": f"resource {one.resource_name}" for one in mappings
    }
