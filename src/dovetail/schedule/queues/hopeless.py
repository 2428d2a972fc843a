"""Says which waiting work fits no node even if all were empty: it wants nothing, and lowers no other queue's share.

Judges a pod by facts of nodes that do not change with use: labels, lasting taints, size, devices as they are published.
Says so only where it is proved: cordons and taints of passing states count as none, a search cut short as a yes, and of
each queue only so many kinds of pods are looked at. Remembered per kind until nodes, slices or classes change.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from dovetail.allocate import allocator, outcome
from dovetail.cel.effort import Effort, TooExpensive, Unfinished
from dovetail.model import nodes, pods, policy, requests
from dovetail.schedule import extended, fit, judge, likeness, memory, owned, ready, spending
from dovetail.schedule.claims import Books, Needs
from dovetail.schedule.gangs.jobs import Job, State
from dovetail.schedule.queues import amounts
from dovetail.world.view import NodeView
from dovetail.world.world import World

MOST_KINDS: Final = 32  # of pods that are looked at for one queue in one decision
MOST_REMEMBERED: Final = 4096  # kinds
SEARCH_STEPS: Final = 2000  # for the devices of one kind on one kind of node
PASSING_TAINTS: Final = "node.kubernetes.io/"  # not-ready, unreachable and the like come and go with the node's state


class _Seen(NamedTuple):
    pod: pods.Pod
    claims: tuple[str, ...]  # uids
    kind: likeness.Key


class _Kept:
    """What outlives a decision. Never holds the world itself."""

    def __init__(self) -> None:
        self.basis: object = None
        self.fits: dict[likeness.Key, bool] = {}
        self.seen: dict[str, _Seen] = {}
        self.views: dict[str, NodeView] = {}

    def bring_up(self, world: World) -> None:
        """Forgets everything once nodes, slices or classes changed; pods that are gone once they are many."""
        basis = (world.nodes_version, world.slices_version, world.classes_version)
        if self.basis != basis or len(self.fits) > MOST_REMEMBERED:
            self.basis = basis
            self.fits, self.seen, self.views = {}, {}, {}
        elif len(self.seen) > 2 * len(world.pods) + 64:
            self.seen = {id_: one for id_, one in self.seen.items() if id_ in world.pods}


_MEMORY: Final = memory.Memory[_Kept]()


class Hopeless:
    """The answers of one decision."""

    def __init__(self, world: World, policy_: policy.Policy, spending_: spending.Spending) -> None:
        self._world = world
        self._spending = spending_
        self._policy = policy_
        self._books = Books(world)
        self._behind = extended.classes_by_resource(world.classes)
        self._kept = _MEMORY.of(world, msgspec.json.encode(policy_), _Kept) if policy_.memo else _Kept()
        self._kept.bring_up(world)
        self._kinds: dict[str, set[likeness.Key]] = {}  # by queue, those looked at

    def of(self, job: Job, least: dict[str, amounts.Amounts], capacity: amounts.Amounts) -> frozenset[str]:
        """The waiting pods of a job that can never start, given what each costs; all of them if one it needs is."""
        if len(job.pods) == 1:  # as most are
            return frozenset(id_ for id_ in least if not self._fits(job, id_))
        waiting = [id_ for id_, state in job.state.items() if state is State.WAITING]
        needed = job.next_pods()
        never = frozenset(id_ for id_ in waiting if not self._fits(job, id_))
        together = amounts.total(least[id_] for id_ in needed)
        is_too_large = any(
            together.get(name, 0) > capacity.get(name, 0) for name in (amounts.GPU, amounts.CPU, amounts.MEMORY)
        )
        if is_too_large or not never.isdisjoint(needed):
            return frozenset(waiting)
        return never

    def _fits(self, job: Job, id_: str) -> bool:
        pod = job.pods[id_]
        kind = self._kind(id_, pod)
        if kind is None:
            return True
        known = self._kept.fits.get(kind)
        looked_at = self._kinds.setdefault(job.queue, set())
        if kind not in looked_at and len(looked_at) >= MOST_KINDS:
            return True
        looked_at.add(kind)
        if known is None:
            needs = ready.needs(pod, self._books)
            assert isinstance(needs, Needs)
            known = self._judged(id_, pod, needs)
            if known is None:
                return True
            self._kept.fits[kind] = known
        return known

    def _judged(self, id_: str, pod: pods.Pod, needs: Needs) -> bool | None:
        """Whether any node could serve the pod; None where its selectors take more than it may spend on them now."""
        try:
            effort = self._spending.effort(id_)
            try:
                return self._is_served(pod, needs, effort)
            finally:
                self._spending.settle(id_, is_answered=None)
        except (Unfinished, TooExpensive):
            return None

    def _kind(self, id_: str, pod: pods.Pod) -> likeness.Key | None:
        """Equal for pods of which one fits where the other does; None where nobody can tell yet."""
        named = [self._world.claims.get(key) for key in self._world.claims_used(pod)]
        uids = tuple(one.metadata.uid if one is not None else "" for one in named)
        seen = self._kept.seen.get(id_)
        if seen is not None and seen.pod is pod and seen.claims == uids:
            return seen.kind
        needs = ready.needs(pod, self._books)
        if not isinstance(needs, Needs) or needs.held or pod.status.extended_resource_claim_status is not None:
            return None
        kind = likeness.pod_key(pod, needs)
        self._kept.seen[id_] = _Seen(pod, uids, kind)
        return kind

    def _is_served(self, pod: pods.Pod, needs: Needs, effort: Effort) -> bool:
        """Whether any node could serve the pod, were it empty. Devices are looked for once on nodes that look alike."""
        asked = requests.pod_request(pod)
        backed = extended.backing(asked, self._behind) if extended.may_want(pod, self._behind) else ()
        kind = judge.kind_of(pod, needs, backed=backed)
        every = kind.claims_for(tuple(name for name, _ in backed))
        keys = likeness.NodeKeys(likeness.reads_of(every, self._world.classes, effort))
        known: dict[tuple[object, ...], bool] = {}
        for name, node in self._world.nodes.items():
            if not owned.is_ours(node, self._policy.ownership) or not _suits(pod, node):
                continue
            offered = self._world.offered(name)
            served = extended.served_by_devices(backed, offered) if backed else ()
            if requests.shortages(asked.without(served), offered):
                continue
            wanted = kind.claims_for(served)
            if not wanted:
                return True
            view = self._view(name)
            look = (served, keys.devices_key(view))
            if look not in known:
                found = allocator.allocate(
                    view,
                    wanted,
                    self._world.classes,
                    policy=self._policy.allocation,
                    budget=SEARCH_STEPS,
                    effort=effort,
                )
                known[look] = isinstance(found, outcome.Allocated | outcome.Undecided)
            if known[look]:
                return True
        return False

    def _view(self, node: str) -> NodeView:
        known = self._kept.views.get(node)
        if known is None:
            known = self._kept.views[node] = self._world.empty_view(node)
        return known


def _suits(pod: pods.Pod, node: nodes.Node) -> bool:
    """Whether the node could take the pod once passing states are over."""
    if not fit.has_labels(pod.spec, node):
        return False
    lasting = [one for one in node.spec.taints if not one.key.startswith(PASSING_TAINTS)]
    return fit.untolerated(lasting, pod.spec.tolerations) is None
