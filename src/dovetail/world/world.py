"""The World: an indexed picture of the cluster that events keep current and trials may bend for a while.

Events change facts and are refused inside a trial, where a rollback would lose them. Assumptions (decided, not yet
confirmed) are a layer of their own: trials make them and take them back, events confirm or cancel them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from dovetail.errors import StateError
from dovetail.model import (
    claims,
    classes,
    gangs,
    idling,
    namespaces,
    nodes,
    plan,
    pods,
    queues,
    requests,
    reservations,
    slices,
    taintrules,
    topologies,
)
from dovetail.model.requests import Resources
from dovetail.world import overlaps, soundness
from dovetail.world.crowd import Crowd
from dovetail.world.devices import Devices
from dovetail.world.events import Changed, Event, Object, ObjectKey, claims_of, key_of, pod_id
from dovetail.world.gangs import Gangs
from dovetail.world.holds import Doubt
from dovetail.world.inventory import Inventory
from dovetail.world.journal import Journal
from dovetail.world.pools import PoolKey
from dovetail.world.shields import Shields
from dovetail.world.storage import Storage
from dovetail.world.trial import Trial, UndoLog
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
        self.queues: dict[str, queues.Queue] = {}
        self.topologies: dict[str, topologies.Topology] = {}
        self.gangs = Gangs()  # who belongs together
        self.shields = Shields()  # disruption budgets; put in by whoever lists them, between decisions
        self.idle: dict[str, idling.IdleState] = {}  # by pod; written by whoever measures, between decisions
        self.images: Counter[str] = Counter()  # by name, how many nodes hold it
        self.crowd = Crowd()  # the pods on nodes, as others see them
        self.storage = Storage()  # volumes, their claims and what is decided about them
        self.assumed: dict[str, Assumption] = {}
        self.promises: dict[plan.GangRef, plan.Promise] = {}  # starts promised before, or lost, as last told
        self.held: dict[str, claims.AllocationResult] = {}  # kept out of use, by the name it was held under
        self.doubts: dict[str, Doubt] = {}  # why some of that is held, under the same names
        self.journal = Journal[str]()  # which nodes changed
        self.classes_version = 0  # grows with every change of a class
        self.nodes_version = 0  # grows with every change of a node that decisions read
        self.changes = 0  # grows with every fact, and with every decision that is given up
        self.slices_version = 0  # grows with every change of a slice
        self._inventory = Inventory(self.journal, self.nodes)  # devices, and who holds them
        self._assumed_claims: dict[ObjectKey, str] = {}  # whose assumption gives a claim its devices
        self._assumed_users: dict[ObjectKey, set[str]] = {}  # assumed pods that use a claim
        self._owned_claims: dict[str, set[ObjectKey]] = {}  # by the uid of the controlling owner
        self._offered: dict[str, Resources] = {}  # by node, what it has to give
        self._taken: dict[str, Resources] = {}  # by node, bound and assumed pods together
        self._running: dict[str, tuple[str, Resources]] = {}  # bound pods: where, and what they take there
        self._standings: Counter[tuple[str, int]] = Counter()  # bound pods, by scheduler and priority
        self._pending: dict[str, pods.Pod] = {}
        self._vacated: dict[str, tuple[str, Resources]] = {}  # pods taken off their nodes in a trial
        self._freed: set[ObjectKey] = set()  # claims whose devices are free for as long
        self._undo = UndoLog()

    # Questions

    def view(self, node: str) -> NodeView:
        """The node's devices as allocation sees them, assumptions included."""
        return self._inventory.view(node)

    def empty_view(self, node: str) -> NodeView:
        """The same if nothing were in use, and nobody had tainted devices by a rule. Worked out with every call."""
        return self._inventory.empty_view(node)

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
        if claim is not None and claim.status.allocation is not None and key not in self._freed:
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
        return self._inventory.users((driver, pool), device)

    def devices_in(self, pool: PoolKey) -> Devices | None:
        """The devices a pool publishes; None if it is gone."""
        return self._inventory.devices_in(pool)

    def published(self) -> Iterator[Devices]:
        """The devices of every pool."""
        return self._inventory.published()

    def running(self) -> Mapping[str, tuple[str, Resources]]:
        """Pods on nodes by id: where, and what they take there."""
        return self._running

    def lowest_priority(self, scheduler_names: Collection[str]) -> int | None:
        """The lowest priority among bound pods of these schedulers, of all where none is named; None without pods."""
        standings = self._standings
        return min((rank for name, rank in standings if not scheduler_names or name in scheduler_names), default=None)

    def overlaps(self) -> tuple[overlaps.Overlap, ...]:
        """Claims that hold more than there is. Looks again only at pools that changed since it was asked last."""
        return self._inventory.overlaps()

    def sound(self, node: str, allocations: Mapping[ObjectKey, claims.AllocationResult]) -> str | None:
        """Why what was decided for a node no longer fits there, asked right before a binding; None if it does."""
        if node not in self.nodes:
            return f"node {node} is gone"
        if problem := soundness.room_problem(node, self.free(node), self._offered[node]):
            return problem
        for key in soundness.pools_of(allocations):
            for overlap in self._inventory.overlaps_in(key):
                if not allocations.keys().isdisjoint(overlap.claims):
                    return str(overlap)
        return soundness.hold_problem(allocations, self.held)

    # Events

    def apply(self, event: Event) -> None:
        """Takes a fact in. Refused inside a trial: a rollback would lose it."""
        self._refuse_in_trial("an event arrived")
        self.changes += 1
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
                self.slices_version += 1
                self._inventory.put_slice(found, is_there=is_there)
            case _:
                self._put_plain(found, is_there=is_there)

    def _put_node(self, node: nodes.Node, *, is_there: bool) -> None:
        name = node.metadata.name
        old = self.nodes.pop(name, None)
        self._count_images(old, node if is_there else None)
        if not is_there:
            self._offered.pop(name, None)
            self._inventory.touch(name)
            self.nodes_version += 1
            return
        self.nodes[name] = node
        if old is not None and _decides_alike(old, node):  # a heartbeat
            self._inventory.refresh(node)
            return
        self._offered[name] = requests.allocatable(node.status.allocatable)
        self.nodes_version += 1
        self._inventory.touch(name)

    def _count_images(self, old: nodes.Node | None, new: nodes.Node | None) -> None:
        before = old.status.images if old is not None else ()
        after = new.status.images if new is not None else ()
        if before != after:
            self.images.subtract(name for image in before for name in image.names)
            self.images.update(name for image in after for name in image.names)
            self.images = +self.images

    def _put_pod(self, pod: pods.Pod, *, is_there: bool) -> None:
        id_ = pod_id(pod)
        old = self.pods.pop(id_, None)
        self.shields.join(id_, old, pod if is_there else None)
        self._pending.pop(id_, None)
        self.gangs.join(id_, pod if is_there else None)
        self.crowd.expect(id_, None)
        before = self._running.pop(id_, None)
        if old is not None and before is not None:
            self._count_standing(old, -1)
        after = (pod.spec.node_name, requests.occupied(pod)) if is_there and _occupies(pod) else None
        if before is not None and before != after:
            self._take(*before, sign=-1)
        if before is not None and after is None:
            self.crowd.drop(id_)
        if not is_there or pod.spec.node_name or pod.status.phase in TERMINAL:
            self._confirm(id_, keep_claims=is_there and bool(pod.spec.node_name))
        if not is_there:
            self.idle.pop(id_, None)
            return
        self.pods[id_] = pod
        if after is not None:
            self._running[id_] = after
            self._count_standing(pod, 1)
            self.crowd.put(id_, pod, pod.spec.node_name)
            if before != after:
                self._take(*after, sign=1)
        elif not pod.spec.node_name and pod.status.phase not in TERMINAL:
            self._pending[id_] = pod
            self.crowd.expect(id_, pod)

    def _count_standing(self, pod: pods.Pod, more: int) -> None:
        key = pod.spec.scheduler_name, pod.spec.priority or 0
        self._standings[key] += more
        if not self._standings[key]:
            del self._standings[key]

    def _put_claim(self, claim: claims.ResourceClaim, *, is_there: bool) -> None:
        key = key_of(claim)
        old = self.claims.pop(key, None)
        if old is not None:
            self._file_owner(old, key, is_there=False)
        before = old.status.allocation if old is not None else None
        after = claim.status.allocation if is_there else None
        if before is not None and before != after:
            self._inventory.use(before, key, sign=-1)
        if not is_there or after is not None:
            self._drop_assumed_claim(key)
        if not is_there:
            return
        self.claims[key] = claim
        self._file_owner(claim, key, is_there=True)
        if after is not None and before != after:
            self._inventory.use(after, key, sign=1)

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
                    self._inventory.put_rules(self.rules.values())
            case namespaces.Namespace():
                _put(self.namespaces, found.metadata.name, found if is_there else None)
            case queues.Queue():
                _put(self.queues, found.metadata.name, found if is_there else None)
            case topologies.Topology():
                _put(self.topologies, found.metadata.name, found if is_there else None)
            case gangs.Gang():
                self.gangs.put(key_of(found), found if is_there else None)
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
        self._undo.note(lambda: self._unset_assumed(pod_id(pod), assumption))

    def forget(self, pod: pods.Pod) -> None:
        """Gives up an assumption: its write failed."""
        assumption = self.assumed.get(pod_id(pod))
        if assumption is None:
            return
        if not self._undo.is_open:
            self.changes += 1
        self._unset_assumed(pod_id(pod), assumption)
        self._undo.note(lambda: self._set_assumed(pod_id(pod), assumption))

    def take_over(self, id_: str, assumption: Assumption) -> None:
        """Adopts an assumption as another World holds it."""
        self._set_assumed(id_, assumption)

    def vacate(self, id_: str) -> None:
        """Takes a bound pod off its node for the rest of the trial: its room, and devices only such pods use.

        Nothing where the pod is on no node. It may be assumed elsewhere, or where it was, under the same id.
        """
        if not self._undo.is_open:
            raise StateError("a pod can be taken off its node only inside a trial")
        held = self._running.pop(id_, None)
        if held is None:
            return
        pod = self.pods[id_]
        self._vacated[id_] = held
        freed = [key for key in self.claims_used(pod) if self._is_vacant(key)]
        self._move(id_, pod, held, freed, sign=-1)
        self._undo.note(lambda: self._unvacate(id_, pod, held, freed))

    def _unvacate(self, id_: str, pod: pods.Pod, held: tuple[str, Resources], freed: list[ObjectKey]) -> None:
        del self._vacated[id_]
        self._running[id_] = held
        self._move(id_, pod, held, freed, sign=1)

    def _move(self, id_: str, pod: pods.Pod, held: tuple[str, Resources], freed: list[ObjectKey], *, sign: int) -> None:
        self._take(*held, sign=sign)
        for key in freed:
            allocation = self.claims[key].status.allocation
            assert allocation is not None
            self._inventory.use(allocation, key, sign=sign)
            (self._freed.add if sign < 0 else self._freed.discard)(key)
        if sign > 0:
            self.crowd.put(id_, pod, held[0])
        else:
            self.crowd.drop(id_)

    def unclaim(self, key: ObjectKey) -> None:
        """Takes a claim's devices as free for the rest of the trial: everybody who used it has ended."""
        claim = self.claims.get(key)
        if claim is None or (held := claim.status.allocation) is None or key in self._freed:
            return
        self._inventory.use(held, key, sign=-1)
        self._freed.add(key)
        self._undo.note(lambda: self._freed.discard(key))
        self._undo.note(lambda: self._inventory.use(held, key, sign=1))

    def claims_used(self, pod: pods.Pod) -> tuple[ObjectKey, ...]:
        """The claims of a pod, one made for its extended resources included."""
        named = claims_of(pod)
        served = pod.status.extended_resource_claim_status
        return named if served is None else (*named, (pod.metadata.namespace, served.resource_claim_name))

    def _is_vacant(self, key: ObjectKey) -> bool:
        """Whether everybody who uses a claim was taken off its node, so that its devices are free."""
        claim = self.claims.get(key)
        if claim is None or claim.status.allocation is None or key in self._freed:
            return False
        return all(user.uid in self._vacated or self.is_over(user, key[0]) for user in claim.status.reserved_for)

    def is_over(self, user: claims.ResourceClaimConsumerReference, namespace: str) -> bool:
        """Whether a user of a claim has ended or is gone: a pod, or all pods of a PodGroup that has some; no others."""
        if reservations.is_group(user):
            members = self.gangs.owned(reservations.group_key(user, namespace))
            return bool(members) and all(id_ not in self._running and id_ not in self.assumed for id_ in members)
        pod = self.pods.get(user.uid)
        return user.resource == "pods" and (pod is None or pod.status.phase in TERMINAL)

    def user_of(self, pod: pods.Pod, key: ObjectKey) -> claims.ResourceClaimConsumerReference:
        """For whom a claim is reserved when the pod uses it."""
        return reservations.user_of(pod, key[1], self.gangs.native_of(pod))

    def promise(self, promises: Iterable[plan.Promise]) -> None:
        """Takes note of what gangs are promised from now on; what was promised before is forgotten."""
        known = [one for one in promises if one.start is not None or one.moved_from is not None]
        self.promises = {one.gang: one for one in known}

    def hold(self, name: str, allocation: claims.AllocationResult, doubt: Doubt | None = None) -> None:
        """Keeps devices out of use until they are released; what was held under the name before is released.

        With a doubt about a pod that is gone they are charged to its queue meanwhile.
        """
        self.release(name)
        self.changes += 1
        if doubt is not None:
            self.doubts[name] = doubt
        self.held[name] = allocation
        self._inventory.use(allocation, None, sign=1)

    def release(self, name: str) -> None:
        """Gives back what is held under a name, if anything is."""
        self._refuse_in_trial("devices were held or released")
        self.doubts.pop(name, None)
        allocation = self.held.pop(name, None)
        if allocation is not None:
            self.changes += 1
            self._inventory.use(allocation, None, sign=-1)

    @contextmanager
    def trial(self) -> Iterator[Trial]:
        """A checkpoint: assumptions made inside are taken back on exit, newest first, unless committed."""
        with self._undo.trial() as trial:
            yield trial

    def _refuse_in_trial(self, what: str) -> None:
        if self._undo.is_open:
            raise StateError(f"{what} inside a trial; finish or roll back the trial first")

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
            self._inventory.use(allocation, key, sign=1)
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
            self._inventory.use(allocation, key, sign=-1)
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

    def _file_owner(self, claim: claims.ResourceClaim, key: ObjectKey, *, is_there: bool) -> None:
        for owner in claim.metadata.owner_references:
            if not owner.controller:
                continue
            owned = self._owned_claims.setdefault(owner.uid, set())
            (owned.add if is_there else owned.discard)(key)
            if not owned:
                del self._owned_claims[owner.uid]


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
