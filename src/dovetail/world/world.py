"""The World: an indexed picture of the cluster that events keep current and trials may bend for a while.

Events change facts and are refused inside a trial, where a rollback would lose them. Assumptions (decided, not yet
confirmed) are a layer of their own: trials make them and take them back, events confirm or cancel them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from dovetail.errors import StateError
from dovetail.model import claims, classes, namespaces, nodes, plan, pods, requests, slices, taintrules
from dovetail.model.requests import Resources
from dovetail.world import overlaps, soundness, views
from dovetail.world.crowd import Crowd
from dovetail.world.devices import Interner
from dovetail.world.events import Changed, Event, Object, ObjectKey, claims_of, key_of, pod_id
from dovetail.world.holders import Holders
from dovetail.world.journal import Journal
from dovetail.world.pools import Pool, PoolKey, part_of
from dovetail.world.rules import Rules
from dovetail.world.storage import Storage
from dovetail.world.trial import Trial
from dovetail.world.usage import Usage
from dovetail.world.view import NodeView

TERMINAL: Final = ("Succeeded", "Failed")


class Assumption(NamedTuple):
    """A pod decided for a node, with the claims allocated for it, until events tell."""

    pod: pods.Pod
    node: str
    request: Resources
    allocations: Mapping[ObjectKey, claims.AllocationResult]
    volumes: tuple[plan.VolumeStep, ...] = ()


class World:
    """Facts by kind, what is free, what is assumed. Read the mappings; change them only through `apply`."""

    def __init__(self) -> None:
        self.nodes: dict[str, nodes.Node] = {}
        self.pods: dict[str, pods.Pod] = {}
        self.claims: dict[ObjectKey, claims.ResourceClaim] = {}
        self.templates: dict[ObjectKey, claims.ResourceClaimTemplate] = {}
        self.classes: dict[str, classes.DeviceClass] = {}
        self.rules: dict[str, taintrules.DeviceTaintRule] = {}
        self.namespaces: dict[str, namespaces.Namespace] = {}
        self.images: Counter[str] = Counter()  # by name, how many nodes hold it
        self.crowd = Crowd()  # the pods on nodes, as others see them
        self.storage = Storage()  # volumes, their claims and what is decided about them
        self.assumed: dict[str, Assumption] = {}
        self.held: dict[str, claims.AllocationResult] = {}  # kept out of use, by the name it was held under
        self.journal = Journal()  # which nodes changed
        self.classes_version = 0  # grows with every change of a class
        self.nodes_version = 0  # grows with every change of a node that decisions read
        self._interner = Interner()
        self._pools: dict[PoolKey, Pool] = {}
        self._slices: dict[str, PoolKey] = {}
        self._local: dict[str, set[PoolKey]] = {}
        self._wide: set[PoolKey] = set()
        self._home: dict[PoolKey, str] = {}  # the node a pool is filed under in _local
        self._rules = Rules()
        self._assumed_claims: dict[ObjectKey, str] = {}  # whose assumption gives a claim its devices
        self._assumed_users: dict[ObjectKey, set[str]] = {}  # assumed pods that use a claim
        self._owned_claims: dict[str, set[ObjectKey]] = {}  # by the uid of the controlling owner
        self._usage = Usage()
        self._holders = Holders()
        self._unaudited: set[PoolKey] = set()  # pools whose overlaps are to be looked for
        self._overlaps: dict[PoolKey, tuple[overlaps.Overlap, ...]] = {}
        self._offered: dict[str, Resources] = {}  # by node, what it has to give
        self._taken: dict[str, Resources] = {}  # by node, bound and assumed pods together
        self._running: dict[str, tuple[str, Resources]] = {}  # bound pods: where, and what they take there
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
            known = self._views[node] = views.node_view(self.nodes[node], pools, self._usage, self._rules)
        return known

    def free(self, node: str) -> Resources:
        """What bound and assumed pods leave of the node."""
        taken = self._taken.get(node)
        return self._offered[node] if taken is None else self._offered[node].minus(taken)

    def offered(self, node: str) -> Resources:
        """What the node has to give, taken or not."""
        return self._offered[node]

    def pending(self, among: Collection[str] | None = None) -> list[pods.Pod]:
        """Pods that have no node, have not ended and are not assumed anywhere; of those named, if any are."""
        if among is None:
            return [pod for id_, pod in self._pending.items() if id_ not in self.assumed]
        wanted = dict.fromkeys(among)
        return [self._pending[id_] for id_ in wanted if id_ in self._pending and id_ not in self.assumed]

    def allocation(self, key: ObjectKey) -> claims.AllocationResult | None:
        """What a claim holds, by its status or by assumption."""
        claim = self.claims.get(key)
        if claim is not None and claim.status.allocation is not None:
            return claim.status.allocation
        id_ = self._assumed_claims.get(key)
        return None if id_ is None else self.assumed[id_].allocations[key]

    def assumed_users(self, key: ObjectKey) -> Collection[str]:
        """The assumed pods that use a claim, by id."""
        return self._assumed_users.get(key, ())

    def owned_claims(self, uid: str) -> tuple[claims.ResourceClaim, ...]:
        """The claims an object controls, by name."""
        return tuple(self.claims[key] for key in sorted(self._owned_claims.get(uid, ())))

    def users(self, driver: str, pool: str, device: str) -> tuple[ObjectKey, ...]:
        """The claims that hold a device, by status or by assumption. Administrative access holds nothing."""
        return tuple(sorted(self._holders.of_device((driver, pool), device)))

    def overlaps(self) -> tuple[overlaps.Overlap, ...]:
        """Claims that hold more than there is. Looks again only at pools that changed since it was asked last."""
        for key in self._unaudited:
            self._audit(key)
        self._unaudited.clear()
        return tuple(one for key in sorted(self._overlaps) for one in self._overlaps[key])

    def sound(self, node: str, allocations: Mapping[ObjectKey, claims.AllocationResult]) -> str | None:
        """Why what was decided for a node no longer fits there, asked right before a binding; None if it does."""
        if node not in self.nodes:
            return f"node {node} is gone"
        if problem := soundness.room_problem(node, self.free(node), self._offered[node]):
            return problem
        for key in soundness.pools_of(allocations):
            if key in self._unaudited:
                self._audit(key)
                self._unaudited.discard(key)
            for overlap in self._overlaps.get(key, ()):
                if not allocations.keys().isdisjoint(overlap.claims):
                    return str(overlap)
        return soundness.hold_problem(allocations, self.held)

    # Events

    def apply(self, event: Event) -> None:
        """Takes a fact in. Refused inside a trial: a rollback would lose it."""
        self._refuse_in_trial("an event arrived")
        found = event.object
        is_there = isinstance(event, Changed)
        match found:
            case nodes.Node():
                self._put_node(found, is_there=is_there)
            case pods.Pod():
                self._put_pod(found, is_there=is_there)
            case claims.ResourceClaim():
                self._put_claim(found, is_there=is_there)
            case slices.ResourceSlice():
                self._put_slice(found, is_there=is_there)
            case _:
                self._put_plain(found, is_there=is_there)

    def _put_node(self, node: nodes.Node, *, is_there: bool) -> None:
        name = node.metadata.name
        old = self.nodes.pop(name, None)
        self._count_images(old, node if is_there else None)
        if not is_there:
            self._offered.pop(name, None)
            self._touch(name)
            self.nodes_version += 1
            return
        self.nodes[name] = node
        if old is not None and _decides_alike(old, node):  # a heartbeat
            if name in self._views:
                self._views[name] = self._views[name]._replace(node=node)
            return
        self._offered[name] = requests.allocatable(node.status.allocatable)
        self.nodes_version += 1
        self._touch(name)

    def _count_images(self, old: nodes.Node | None, new: nodes.Node | None) -> None:
        before = old.status.images if old is not None else ()
        after = new.status.images if new is not None else ()
        if before != after:
            self.images.subtract(name for image in before for name in image.names)
            self.images.update(name for image in after for name in image.names)
            self.images = +self.images

    def _put_pod(self, pod: pods.Pod, *, is_there: bool) -> None:
        id_ = pod_id(pod)
        self.pods.pop(id_, None)
        self._pending.pop(id_, None)
        self.crowd.expect(id_, None)
        before = self._running.pop(id_, None)
        after = (pod.spec.node_name, requests.occupied(pod)) if is_there and _occupies(pod) else None
        if before is not None and before != after:
            self._take(*before, sign=-1)
        if before is not None and after is None:
            self.crowd.drop(id_)
        if not is_there or pod.spec.node_name or pod.status.phase in TERMINAL:
            self._confirm(id_, keep_claims=is_there and bool(pod.spec.node_name))
        if not is_there:
            return
        self.pods[id_] = pod
        if after is not None:
            self._running[id_] = after
            self.crowd.put(id_, pod, pod.spec.node_name)
            if before != after:
                self._take(*after, sign=1)
        elif not pod.spec.node_name and pod.status.phase not in TERMINAL:
            self._pending[id_] = pod
            self.crowd.expect(id_, pod)

    def _put_claim(self, claim: claims.ResourceClaim, *, is_there: bool) -> None:
        key = key_of(claim)
        old = self.claims.pop(key, None)
        if old is not None:
            self._file_owner(old, key, is_there=False)
        before = old.status.allocation if old is not None else None
        after = claim.status.allocation if is_there else None
        if before is not None and before != after:
            self._use(before, key, sign=-1)
        if not is_there or after is not None:
            self._drop_assumed_claim(key)
        if not is_there:
            return
        self.claims[key] = claim
        self._file_owner(claim, key, is_there=True)
        if after is not None and before != after:
            self._use(after, key, sign=1)

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
                self.classes_version += 1
            case taintrules.DeviceTaintRule():
                old = self.rules.get(found.metadata.name)
                _put(self.rules, found.metadata.name, found if is_there else None)
                if old is None or not is_there or old.spec != found.spec:
                    self._rules = Rules(self.rules.values())
                    self._touch_all()
            case namespaces.Namespace():
                _put(self.namespaces, found.metadata.name, found if is_there else None)
            case _:
                if not self.storage.put(found, is_there=is_there):
                    raise StateError(f"the world keeps no {type(found).__name__}")

    # Assumptions, trials and holds

    def assume(
        self,
        pod: pods.Pod,
        node: str,
        allocations: Mapping[ObjectKey, claims.AllocationResult] | None = None,
        *,
        volumes: tuple[plan.VolumeStep, ...] = (),
    ) -> None:
        """Takes a decision as done until events tell. Inside a trial it is taken back at the end.

        Claims that have devices already keep those. Resources the node does not offer are served by devices.
        """
        given = {key: one for key, one in (allocations or {}).items() if self.allocation(key) is None}
        request = requests.pod_request(pod)
        if request.scalars:
            offered = self._offered.get(node, requests.NOTHING)
            request = request.without([name for name, _ in request.scalars if offered.scalar(name) <= 0])
        assumption = Assumption(pod, node, request, given, volumes)
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

    def hold(self, name: str, allocation: claims.AllocationResult) -> None:
        """Keeps devices out of use until they are released; what was held under the name before is released."""
        self.release(name)
        self.held[name] = allocation
        self._use(allocation, None, sign=1)

    def release(self, name: str) -> None:
        """Gives back what is held under a name, if anything is."""
        self._refuse_in_trial("devices were held or released")
        allocation = self.held.pop(name, None)
        if allocation is not None:
            self._use(allocation, None, sign=-1)

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

    def _refuse_in_trial(self, what: str) -> None:
        if self._undo:
            raise StateError(f"{what} inside a trial; finish or roll back the trial first")

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
        if assumption.request != requests.NOTHING:  # else the pod's own event speaks for it
            self._take(assumption.node, assumption.request, sign=1)
            self.crowd.put(id_, assumption.pod, assumption.node)
        for key in claims_of(assumption.pod):
            self._assumed_users.setdefault(key, set()).add(id_)
        for key, allocation in assumption.allocations.items():
            self._assumed_claims[key] = id_
            self._use(allocation, key, sign=1)
        self.storage.assume(assumption.node, assumption.volumes)

    def _unset_assumed(self, id_: str, assumption: Assumption) -> None:
        del self.assumed[id_]
        if assumption.request != requests.NOTHING:
            self._take(assumption.node, assumption.request, sign=-1)
            self.crowd.drop(id_)
        for key in claims_of(assumption.pod):
            self._assumed_users[key].discard(id_)
            if not self._assumed_users[key]:
                del self._assumed_users[key]
        for key, allocation in assumption.allocations.items():
            self._assumed_claims.pop(key, None)
            self._use(allocation, key, sign=-1)
        self.storage.assume(assumption.node, assumption.volumes, sign=-1)

    def _confirm(self, id_: str, *, keep_claims: bool) -> None:
        """The pod's own event speaks now: its request is counted from the pod. Claims wait for theirs."""
        assumption = self.assumed.get(id_)
        if assumption is None:
            return
        self._unset_assumed(id_, assumption)
        left = {key: a for key, a in assumption.allocations.items() if keep_claims and not self._is_allocated(key)}
        if left:
            self._set_assumed(id_, assumption._replace(request=requests.NOTHING, allocations=left, volumes=()))

    def _drop_assumed_claim(self, key: ObjectKey) -> None:
        id_ = self._assumed_claims.get(key)
        if id_ is None:
            return
        assumption = self.assumed[id_]
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
        self.journal.note(node)

    def _use(self, allocation: claims.AllocationResult, claim: ObjectKey | None, *, sign: int) -> None:
        """Takes or gives back devices, for a claim or just out of use."""
        if claim is not None:
            (self._holders.add if sign > 0 else self._holders.remove)(claim, allocation)
        for key in self._usage.change(allocation, sign):
            self._touch_pool(key)
            self._unaudited.add(key)
            if self._usage.pools[key].is_empty:
                del self._usage.pools[key]

    def _audit(self, key: PoolKey) -> None:
        pool = self._pools.get(key)
        found = overlaps.found_in(key, self._holders.of_pool(key), pool.newest() if pool is not None else None)
        _put(self._overlaps, key, found or None)

    def _file_owner(self, claim: claims.ResourceClaim, key: ObjectKey, *, is_there: bool) -> None:
        for owner in claim.metadata.owner_references:
            if not owner.controller:
                continue
            owned = self._owned_claims.setdefault(owner.uid, set())
            (owned.add if is_there else owned.discard)(key)
            if not owned:
                del self._owned_claims[owner.uid]

    def _settle_pool(self, key: PoolKey) -> None:
        """Files a pool under the node it belongs to, or under none."""
        self._touch_pool(key)
        self._unaudited.add(key)
        self._wide.discard(key)
        home = self._home.pop(key, None)
        if home is not None:
            self._local[home].discard(key)
            if not self._local[home]:
                del self._local[home]
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
        self.journal.note(node)

    def _touch_all(self) -> None:
        self._views.clear()
        self.journal.note_all()


def _occupies(pod: pods.Pod) -> bool:
    return bool(pod.spec.node_name) and pod.status.phase not in TERMINAL


def _decides_alike(one: nodes.Node, other: nodes.Node) -> bool:
    """Whether nothing that decisions read of a node differs."""
    return (
        one.metadata.labels == other.metadata.labels
        and one.spec == other.spec
        and one.status.allocatable == other.status.allocatable
        and one.status.declared_features == other.status.declared_features
        and one.status.images == other.status.images
    )


def _put(table: dict, key: object, value: object) -> None:  # type: ignore[type-arg]
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value
