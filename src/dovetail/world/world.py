"""The World: an indexed picture of the cluster that events keep current and trials may bend for a while.

Events change facts and are refused inside a trial, where a rollback would lose them. Assumptions (decided, not yet
confirmed) are a layer of their own: trials make them and take them back, events confirm or cancel them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from dovetail.errors import StateError
from dovetail.model import claims, classes, nodes, pods, requests, slices, taintrules
from dovetail.model.requests import Resources
from dovetail.world import views
from dovetail.world.devices import Interner
from dovetail.world.events import Changed, Event, Object, ObjectKey, key_of, pod_id
from dovetail.world.pools import Pool, PoolKey, part_of
from dovetail.world.usage import Usage
from dovetail.world.view import NodeView

TERMINAL = ("Succeeded", "Failed")
JOURNAL_LIMIT = 100_000


class Assumption(NamedTuple):
    """A pod decided for a node, with the claims allocated for it, until events tell."""

    pod: pods.Pod
    node: str
    request: Resources
    allocations: Mapping[ObjectKey, claims.AllocationResult]


class Trial:
    """An open checkpoint. What is assumed meanwhile is taken back at the end unless `commit` was called."""

    __slots__ = ("is_committed",)

    def __init__(self) -> None:
        self.is_committed = False

    def commit(self) -> None:
        """Keeps what was assumed; an outer trial may still take it back."""
        self.is_committed = True


class World:
    """Facts by kind, what is free, what is assumed. Read the mappings; change them only through `apply`."""

    def __init__(self) -> None:
        self.nodes: dict[str, nodes.Node] = {}
        self.pods: dict[str, pods.Pod] = {}
        self.claims: dict[ObjectKey, claims.ResourceClaim] = {}
        self.templates: dict[ObjectKey, claims.ResourceClaimTemplate] = {}
        self.classes: dict[str, classes.DeviceClass] = {}
        self.rules: dict[str, taintrules.DeviceTaintRule] = {}
        self.assumed: dict[str, Assumption] = {}
        self.journal: list[str] = []  # names of nodes that changed, oldest first; "" means all of them
        self._interner = Interner()
        self._pools: dict[PoolKey, Pool] = {}
        self._slices: dict[str, PoolKey] = {}
        self._local: dict[str, set[PoolKey]] = {}
        self._wide: set[PoolKey] = set()
        self._home: dict[PoolKey, str] = {}  # the node a pool is filed under in _local
        self._assumed_claims: dict[ObjectKey, claims.AllocationResult] = {}
        self._usage = Usage()
        self._offered: dict[str, Resources] = {}  # by node, what it has to give
        self._taken: dict[str, Resources] = {}  # by node, bound and assumed pods together
        self._pending: dict[str, pods.Pod] = {}
        self._views: dict[str, NodeView] = {}
        self._undo: list[list[tuple[str, Assumption]]] = []

    # Questions

    def view(self, node: str) -> NodeView:
        """The node's devices as allocation sees them, assumptions included."""
        known = self._views.get(node)
        if known is None:
            keys = sorted(self._local.get(node, ())) + sorted(self._wide)
            pools = [self._pools[key] for key in keys]
            rules = [self.rules[name] for name in sorted(self.rules)]
            known = self._views[node] = views.node_view(self.nodes[node], pools, self._usage, rules)
        return known

    def free(self, node: str) -> Resources:
        """What bound and assumed pods leave of the node."""
        taken = self._taken.get(node)
        return self._offered[node] if taken is None else self._offered[node].minus(taken)

    def pending(self) -> list[pods.Pod]:
        """Pods that have no node, have not ended and are not assumed anywhere."""
        return [pod for id_, pod in self._pending.items() if id_ not in self.assumed]

    def allocation(self, key: ObjectKey) -> claims.AllocationResult | None:
        """What a claim holds, by its status or by assumption."""
        claim = self.claims.get(key)
        if claim is not None and claim.status.allocation is not None:
            return claim.status.allocation
        return self._assumed_claims.get(key)

    # Events

    def apply(self, event: Event) -> None:
        """Takes a fact in. Refused inside a trial: a rollback would lose it."""
        if self._undo:
            raise StateError("an event arrived inside a trial; finish or roll back the trial first")
        if len(self.journal) > JOURNAL_LIMIT:
            self.journal.clear()  # nobody reads it between cycles
        found = event.object
        new = found if isinstance(event, Changed) else None
        match found:
            case nodes.Node():
                self._put_node(found, is_there=new is not None)
            case pods.Pod():
                self._put_pod(found, is_there=new is not None)
            case claims.ResourceClaim():
                self._put_claim(found, is_there=new is not None)
            case slices.ResourceSlice():
                self._put_slice(found, is_there=new is not None)
            case _:
                self._put_plain(found, is_there=new is not None)

    def _put_node(self, node: nodes.Node, *, is_there: bool) -> None:
        name = node.metadata.name
        if is_there:
            self.nodes[name] = node
            self._offered[name] = requests.allocatable(node.status.allocatable)
        else:
            self.nodes.pop(name, None)
            self._offered.pop(name, None)
        self._touch(name)

    def _put_pod(self, pod: pods.Pod, *, is_there: bool) -> None:
        id_ = pod_id(pod)
        old = self.pods.pop(id_, None)
        self._pending.pop(id_, None)
        if old is not None and _occupies(old):
            self._take(old.spec.node_name, requests.pod_request(old), sign=-1)
        if not is_there or pod.spec.node_name or pod.status.phase in TERMINAL:
            self._confirm(id_, keep_claims=is_there and bool(pod.spec.node_name))
        if not is_there:
            return
        self.pods[id_] = pod
        if _occupies(pod):
            self._take(pod.spec.node_name, requests.pod_request(pod), sign=1)
        elif not pod.spec.node_name and pod.status.phase not in TERMINAL:
            self._pending[id_] = pod

    def _put_claim(self, claim: claims.ResourceClaim, *, is_there: bool) -> None:
        key = key_of(claim)
        old = self.claims.pop(key, None)
        if old is not None and old.status.allocation is not None:
            self._use(old.status.allocation, sign=-1)
        allocation = claim.status.allocation
        if not is_there or allocation is not None:
            self._drop_assumed_claim(key)
        if not is_there:
            return
        self.claims[key] = claim
        if allocation is not None:
            self._use(allocation, sign=1)

    def _put_slice(self, slice_: slices.ResourceSlice, *, is_there: bool) -> None:
        name = slice_.metadata.name
        before = self._slices.pop(name, None)
        if before is not None:
            self._pools[before].drop(name)
            self._settle_pool(before)
        if is_there:
            key = (slice_.spec.driver, slice_.spec.pool.name)
            pool = self._pools.get(key)
            if pool is None:
                pool = self._pools[key] = Pool(key, self._interner)
            pool.put(part_of(self._interner, slice_))
            self._slices[name] = key
            self._settle_pool(key)

    def _put_plain(self, found: Object, *, is_there: bool) -> None:
        match found:
            case claims.ResourceClaimTemplate():
                _put(self.templates, key_of(found), found if is_there else None)
            case classes.DeviceClass():
                _put(self.classes, found.metadata.name, found if is_there else None)
            case taintrules.DeviceTaintRule():
                _put(self.rules, found.metadata.name, found if is_there else None)
                self._touch_all()
            case _:
                raise StateError(f"the world keeps no {type(found).__name__}")

    # Assumptions and trials

    def assume(
        self, pod: pods.Pod, node: str, allocations: Mapping[ObjectKey, claims.AllocationResult] | None = None
    ) -> None:
        """Takes a decision as done until events tell. Inside a trial it is taken back at the end."""
        assumption = Assumption(pod, node, requests.pod_request(pod), dict(allocations or {}))
        self._set_assumed(pod_id(pod), assumption)
        if self._undo:
            self._undo[-1].append(("assumed", assumption))

    def forget(self, pod: pods.Pod) -> None:
        """Gives up an assumption: its write failed."""
        assumption = self.assumed.get(pod_id(pod))
        if assumption is None:
            return
        self._unset_assumed(pod_id(pod), assumption)
        if self._undo:
            self._undo[-1].append(("forgotten", assumption))

    def take_over(self, id_: str, assumption: Assumption) -> None:
        """Adopts an assumption as another World holds it."""
        self._set_assumed(id_, assumption)

    @contextmanager
    def trial(self) -> Iterator[Trial]:
        """A checkpoint: assumptions made inside are taken back on exit, newest first, unless committed."""
        self._undo.append([])
        trial = Trial()
        try:
            yield trial
        finally:
            done = self._undo.pop()
            if not trial.is_committed:
                self._roll_back(done)
            elif self._undo:
                self._undo[-1].extend(done)

    def _roll_back(self, done: list[tuple[str, Assumption]]) -> None:
        for what, assumption in reversed(done):
            if what == "assumed":
                self._unset_assumed(pod_id(assumption.pod), assumption)
            else:
                self._set_assumed(pod_id(assumption.pod), assumption)

    def _set_assumed(self, id_: str, assumption: Assumption) -> None:
        if id_ in self.assumed:
            raise StateError(f"pod {id_} is assumed already")
        self.assumed[id_] = assumption
        self._take(assumption.node, assumption.request, sign=1)
        for key, allocation in assumption.allocations.items():
            self._assumed_claims[key] = allocation
            self._use(allocation, sign=1)

    def _unset_assumed(self, id_: str, assumption: Assumption) -> None:
        del self.assumed[id_]
        self._take(assumption.node, assumption.request, sign=-1)
        for key, allocation in assumption.allocations.items():
            self._assumed_claims.pop(key, None)
            self._use(allocation, sign=-1)

    def _confirm(self, id_: str, *, keep_claims: bool) -> None:
        """The pod's own event speaks now: its request is counted from the pod. Claims wait for theirs."""
        assumption = self.assumed.get(id_)
        if assumption is None:
            return
        self._unset_assumed(id_, assumption)
        left = {key: a for key, a in assumption.allocations.items() if keep_claims and not self._is_allocated(key)}
        if left:
            self._set_assumed(id_, assumption._replace(request=requests.NOTHING, allocations=left))

    def _drop_assumed_claim(self, key: ObjectKey) -> None:
        if key not in self._assumed_claims:
            return
        for id_, assumption in list(self.assumed.items()):
            if key in assumption.allocations:
                self._unset_assumed(id_, assumption)
                left = {other: a for other, a in assumption.allocations.items() if other != key}
                if left or assumption.request != requests.NOTHING:
                    self._set_assumed(id_, assumption._replace(allocations=left))

    def _is_allocated(self, key: ObjectKey) -> bool:
        claim = self.claims.get(key)
        return claim is not None and claim.status.allocation is not None

    # Bookkeeping

    def _take(self, node: str, request: Resources, *, sign: int) -> None:
        held = self._taken.get(node, requests.NOTHING)
        held = held.plus(request) if sign > 0 else held.minus(request)
        _put(self._taken, node, None if held == requests.NOTHING else held)
        self._note(node)

    def _use(self, allocation: claims.AllocationResult, *, sign: int) -> None:
        for key in self._usage.change(allocation, sign):
            self._touch_pool(key)
            if self._usage.pools[key].is_empty:
                del self._usage.pools[key]

    def _settle_pool(self, key: PoolKey) -> None:
        """Files a pool under the node it belongs to, or under none."""
        self._touch_pool(key)
        self._wide.discard(key)
        home = self._home.pop(key, None)
        if home is not None:
            self._local[home].discard(key)
        pool = self._pools[key]
        node = pool.only_node
        if not pool.parts:
            del self._pools[key]
            return
        if node:
            self._local.setdefault(node, set()).add(key)
            self._home[key] = node
        else:
            self._wide.add(key)
        self._touch_pool(key)

    def _touch_pool(self, key: PoolKey) -> None:
        if key in self._home:
            self._touch(self._home[key])
        elif key in self._wide:
            self._touch_all()

    def _touch(self, node: str) -> None:
        self._views.pop(node, None)
        self._note(node)

    def _touch_all(self) -> None:
        self._views.clear()
        self.journal.append("")

    def _note(self, node: str) -> None:
        self.journal.append(node)


def _occupies(pod: pods.Pod) -> bool:
    return bool(pod.spec.node_name) and pod.status.phase not in TERMINAL


def _put(table: dict, key: object, value: object) -> None:  # type: ignore[type-arg]
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value
