"""The World: the state of the cluster, indexed for scheduling, as informer events and assumptions leave it.

Three layers, from the outside in:

- Facts are objects as the API server reports them. Only `apply` changes them.
- Assumptions are placements that were decided but not yet confirmed by events. `assume` adds them, `forget` drops
  them, and the pod's and claims' own events replace them.
- Trials are checkpoints around assumptions and hypothetical evictions: whatever happens inside is undone on exit
  unless the trial is committed. Events are refused inside a trial, because a rollback would lose them.

Never decides anything and never writes to the API server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from dovetail.errors import StateError
from dovetail.kubetypes.core import namespaces, nodes, pods
from dovetail.kubetypes.custom import queues, topologies
from dovetail.kubetypes.resource import claims, device_classes, slices, taint_rules
from dovetail.model import gangs, idle, plan, pod_mix, pod_requests, reservations, share_templates
from dovetail.model.pod_requests import Resources
from dovetail.world import events, recheck
from dovetail.world.budget_protection import BudgetProtection
from dovetail.world.change_log import ChangeLog
from dovetail.world.devices import device_overlaps, shareable_gpus
from dovetail.world.devices.device_columns import Devices
from dovetail.world.devices.device_inventory import Inventory
from dovetail.world.devices.device_pools import PoolKey
from dovetail.world.devices.device_usage import UncertainHold
from dovetail.world.events import ObjectKey
from dovetail.world.first_users import FirstUsers
from dovetail.world.gang_index import GangIndex
from dovetail.world.pod_index import PodIndex
from dovetail.world.storage import Storage
from dovetail.world.undo_log import Trial, UndoLog
from dovetail.world.views.node_view import NodeView

Occupancy = tuple[str, Resources]  # the node of a bound pod, and what the pod takes there


class Assumption(NamedTuple):
    """A pod placed on a node, with the claims allocated for it, until events confirm or cancel it."""

    pod: pods.Pod
    node: str
    request: Resources
    allocations: Mapping[ObjectKey, claims.AllocationResult]
    volumes: tuple[plan.VolumeStep, ...] = ()


class MixInForce(NamedTuple):
    """The mix that placements expect, how many pods it was counted from, and how many were gone by then."""

    mix: pod_mix.Mix
    pods: int
    pods_gone: int


class World:
    """Facts by kind, free capacity, assumptions. Read the mappings; change facts only through `apply`."""

    def __init__(self) -> None:
        # Facts, by name or by namespace and name.
        self.nodes: dict[str, nodes.Node] = {}
        self.pods: dict[str, pods.Pod] = {}
        self.claims: dict[ObjectKey, claims.ResourceClaim] = {}
        self.templates: dict[ObjectKey, claims.ResourceClaimTemplate] = {}
        self.classes: dict[str, device_classes.DeviceClass] = {}
        self.rules: dict[str, taint_rules.DeviceTaintRule] = {}
        self.namespaces: dict[str, namespaces.Namespace] = {}
        self.queues: dict[str, queues.Queue] = {}
        self.topologies: dict[str, topologies.Topology] = {}

        # Indexes over facts.
        self.gangs = GangIndex()  # gangs and their members
        self.pod_index = PodIndex()  # the pods on nodes: labels, host ports, volumes, affinities
        self.storage = Storage()  # volumes, their claims, and decisions about them
        self.images: Counter[str] = Counter()  # image name -> nodes that have it
        self._owned_claims: dict[str, set[ObjectKey]] = {}  # uid of the controlling owner -> claims

        # Set from outside, between decisions.
        self.budget_protection = BudgetProtection()  # disruption budgets, as last listed
        self.idle: dict[str, idle.IdleState] = {}  # pod id -> measured idleness
        self.promises: dict[plan.GangRef, plan.Promise] = {}  # promised or lost starts
        self.mix_in_force: MixInForce | None = None  # of the pods, as last counted
        self.pods_gone = 0  # deleted since the World began

        # Assumptions.
        self.assumed: dict[str, Assumption] = {}  # by pod id
        self._assumed_claims: dict[ObjectKey, str] = {}  # claim -> pod whose assumption has it
        self._assumed_users: dict[ObjectKey, set[str]] = {}  # claim -> the assumed pods that use it

        # Devices: what is published, what is in use, what is held out of use without a claim.
        self.node_changes = ChangeLog[str]()  # names of nodes that changed
        self.claim_changes = ChangeLog[ObjectKey]()  # claims that events changed
        self._inventory = Inventory(self.node_changes, self.nodes)
        self.held: dict[str, claims.AllocationResult] = {}  # by the name of the hold
        self.uncertain_holds: dict[
            str, UncertainHold
        ] = {}  # why some of these are held, by the same names

        # Room on nodes.
        self._offered: dict[str, Resources] = {}  # node -> allocatable
        self._taken: dict[str, Resources] = {}  # node -> requests of bound and assumed pods
        self._running: dict[str, Occupancy] = {}  # by pod id
        self._first_users = FirstUsers(self._running.keys())
        # Bound pods by scheduler and priority.
        self._standings: Counter[tuple[str, int]] = Counter()
        self._pending: dict[str, pods.Pod] = {}  # neither bound nor ended, by pod id

        # Versions: readers compare them to know whether a cached answer still holds.
        self.changes = 0  # every fact, and every assumption given up
        self.nodes_version = 0  # changes of a node that scheduling can see
        self.classes_version = 0
        self.slices_version = 0
        # By version of the slices:
        self._shareable: tuple[int, Mapping[share_templates.Kind, int]] = (0, {})

        # Trials.
        self._vacated: dict[str, Occupancy] = {}  # pods evicted hypothetically, by id
        self._freed: set[ObjectKey] = set()  # claims whose devices count as free meanwhile
        self._undo = UndoLog()

    # Questions: nodes and pods

    def free(self, node: str) -> Resources:
        """What bound and assumed pods leave of the node."""
        requested = self._taken.get(node)
        offered = self._offered[node]
        return offered if requested is None else offered.minus(requested)

    def offered(self, node: str) -> Resources:
        """The node's allocatable resources, in use or not."""
        return self._offered[node]

    def running(self) -> Mapping[str, Occupancy]:
        """Bound pods by id: the node, and what the pod takes there."""
        return self._running

    def pending(self, among: Collection[str] | None = None) -> list[pods.Pod]:
        """Pods that are neither bound nor ended nor assumed; restricted to the ids in `among`, in their order."""
        if among is None:
            return [pod for pod_id, pod in self._pending.items() if pod_id not in self.assumed]
        waiting = [pod_id for pod_id in dict.fromkeys(among) if pod_id in self._pending]
        return [self._pending[pod_id] for pod_id in waiting if pod_id not in self.assumed]

    def lowest_priority(self, scheduler_names: Collection[str]) -> int | None:
        """The lowest priority among bound pods of these schedulers, or of all if none is named."""
        priorities = (
            priority
            for scheduler, priority in self._standings
            if not scheduler_names or scheduler in scheduler_names
        )
        return min(priorities, default=None)

    # Questions: devices

    def view(self, node: str) -> NodeView:
        """The node's devices as allocation sees them, assumptions included."""
        return self._inventory.view(node)

    def empty_view(self, node: str) -> NodeView:
        """The same without any use and without DeviceTaintRules. Computed on every call."""
        return self._inventory.empty_view(node)

    def devices_in(self, pool: PoolKey) -> Devices | None:
        """The devices a pool publishes; None if it is gone."""
        return self._inventory.devices_in(pool)

    def slice_counts(self, pool: PoolKey) -> tuple[int, int]:
        """How many slices of a pool are published, and how many there should be."""
        return self._inventory.slice_counts(pool)

    def published(self) -> Iterator[Devices]:
        """The devices of every pool."""
        return self._inventory.published()

    def shareable_gpus(self) -> Mapping[share_templates.Kind, int]:
        """How many GPUs of which kind offer shares of their memory."""
        version, counts = self._shareable
        if version != self.slices_version:
            counts = shareable_gpus.count_by_kind(self.published())
            self._shareable = (self.slices_version, counts)
        return counts

    def users(self, driver: str, pool: str, device: str) -> tuple[ObjectKey, ...]:
        """The claims that hold a device, by status or by assumption. Administrative access holds nothing."""
        return self._inventory.users((driver, pool), device)

    def overlaps(self) -> tuple[device_overlaps.Overlap, ...]:
        """Claims that hold more than there is. Checks only the pools that changed since the last call."""
        return self._inventory.overlaps()

    # Questions: claims

    def allocation(self, key: ObjectKey) -> claims.AllocationResult | None:
        """What a claim holds, by its status or by assumption."""
        claim = self.claims.get(key)
        if claim is not None and claim.status.allocation is not None and key not in self._freed:
            return claim.status.allocation
        pod_id = self._assumed_claims.get(key)
        return None if pod_id is None else self.assumed[pod_id].allocations[key]

    def is_untouched(self, key: ObjectKey, claim: claims.ResourceClaim) -> bool:
        """Whether a claim is this very object, holds no devices, and no assumed pod uses it."""
        return (
            self.claims.get(key) is claim
            and claim.status.allocation is None
            and key not in self._assumed_users
            and key not in self._assumed_claims
        )

    def assumed_users(self, key: ObjectKey) -> Collection[str]:
        """The assumed pods that use a claim, by id."""
        return self._assumed_users.get(key, ())

    def claims_off_node(self) -> Iterable[ObjectKey]:
        """Allocated claims whose first user is not on a node, or that have none; evictions in a trial do not count."""
        return self._first_users.off_node()

    def owned_claims(self, uid: str) -> tuple[claims.ResourceClaim, ...]:
        """The claims an object controls, by name."""
        return tuple(self.claims[key] for key in sorted(self._owned_claims.get(uid, ())))

    def claims_used(self, pod: pods.Pod) -> tuple[ObjectKey, ...]:
        """The claims of a pod, including the one that serves its extended resources."""
        return reservations.used_claims(pod)

    def user_of(self, pod: pods.Pod, key: ObjectKey) -> claims.ResourceClaimConsumerReference:
        """The entry of `reservedFor` under which the pod uses a claim: the pod itself or its PodGroup."""
        return reservations.user_of(pod, key[1], self.gangs.native_of(pod))

    def has_ended(self, user: claims.ResourceClaimConsumerReference, namespace: str) -> bool:
        """Whether a consumer of a claim has ended or is gone.

        A PodGroup has ended when it has pods and none of them is bound or assumed. Consumers of any other kind than
        pods and PodGroups never count as ended.
        """
        if reservations.is_group(user):
            members = self.gangs.owned(reservations.group_key(user, namespace))
            return bool(members) and all(
                pod_id not in self._running and pod_id not in self.assumed for pod_id in members
            )
        pod = self.pods.get(user.uid)
        return user.resource == "pods" and (pod is None or pod.status.phase in pods.TERMINAL_PHASES)

    def binding_problem(
        self, node: str, allocations: Mapping[ObjectKey, claims.AllocationResult]
    ) -> str | None:
        """The last check before a pod is bound: why its placement no longer fits the node; None if it does."""
        if node not in self.nodes:
            return f"node {node} is gone"
        if problem := recheck.room_problem(node, self.free(node), self._offered[node]):
            return problem
        for pool in recheck.pools_of(allocations):
            for overlap in self._inventory.overlaps_in(pool):
                if not allocations.keys().isdisjoint(overlap.claims):
                    return str(overlap)
        return recheck.hold_problem(allocations, self.held)

    # Events

    def apply(self, event: events.Event) -> None:
        """Takes a fact in. Refused inside a trial: a rollback would lose it."""
        self._refuse_in_trial("an event arrived")
        self.changes += 1
        changed = event.object
        is_there = isinstance(event, events.Changed)
        match changed:
            case nodes.Node():
                self._put_node(changed, is_there=is_there)
            case pods.Pod():
                self._put_pod(changed, is_there=is_there)
            case claims.ResourceClaim():
                self._put_claim(changed, is_there=is_there)
            case slices.ResourceSlice():
                self.slices_version += 1
                self._inventory.put_slice(changed, is_there=is_there)
            case taint_rules.DeviceTaintRule():
                self._put_rule(changed, is_there=is_there)
            case _:
                self._put_plain(changed, is_there=is_there)

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
        if old is not None and _schedules_alike(old, node):  # a heartbeat
            self._inventory.refresh(node)
            return
        self._offered[name] = pod_requests.allocatable(node.status.allocatable)
        self.nodes_version += 1
        self._inventory.touch(name)

    def _count_images(self, old: nodes.Node | None, new: nodes.Node | None) -> None:
        before = old.status.images if old is not None else ()
        after = new.status.images if new is not None else ()
        if before == after:
            return
        self.images.subtract(name for image in before for name in image.names)
        self.images.update(name for image in after for name in image.names)
        self.images = +self.images  # drops names no node has any more

    def _put_pod(self, pod: pods.Pod, *, is_there: bool) -> None:
        """Replaces a pod: first removes what the old object stood for, then adds the new one."""
        pod_id = events.pod_id(pod)
        is_bound = bool(pod.spec.node_name)
        has_ended = pod.status.phase in pods.TERMINAL_PHASES
        occupies = is_there and is_bound and not has_ended

        old = self.pods.pop(pod_id, None)
        new = pod if is_there else None
        self.budget_protection.put_pod(pod_id, old, new)
        self._pending.pop(pod_id, None)
        self.gangs.put_pod(pod_id, new)
        self.pod_index.set_nominated(pod_id, None)

        before = self._running.pop(pod_id, None)
        after = (pod.spec.node_name, pod_requests.occupied(pod)) if occupies else None
        if before is not None:
            if old is not None:
                self._count_standing(old, -1)
            if before != after:
                self._take(*before, sign=-1)
            if after is None:
                self.pod_index.drop(pod_id)

        # After the old object's room is returned, before the new object takes its own: a bound pod must not be
        # counted both as assumed and as running.
        if not is_there or is_bound or has_ended:
            self._confirm(pod_id, keep_claims=is_there and is_bound)
        if before is not None and after is None:
            self._first_users.moved(pod_id)
        if not is_there:
            self.idle.pop(pod_id, None)
            self.pods_gone += old is not None
            return

        self.pods[pod_id] = pod
        if after is not None:
            self._running[pod_id] = after
            self._count_standing(pod, 1)
            self.pod_index.put(pod_id, pod, pod.spec.node_name)
            if before is None:
                self._first_users.moved(pod_id)
            if before != after:
                self._take(*after, sign=1)
        elif not is_bound and not has_ended:
            self._pending[pod_id] = pod
            self.pod_index.set_nominated(pod_id, pod)

    def _count_standing(self, pod: pods.Pod, sign: int) -> None:
        key = pod.spec.scheduler_name, pod.spec.priority or 0
        self._standings[key] += sign
        if not self._standings[key]:
            del self._standings[key]

    def _put_claim(self, claim: claims.ResourceClaim, *, is_there: bool) -> None:
        key = events.key_of(claim)
        self.claim_changes.note(key)
        self._first_users.put(key, claim if is_there else None)
        old = self.claims.pop(key, None)
        if old is not None:
            self._file_owner(old, key, is_there=False)
        before = old.status.allocation if old is not None else None
        after = claim.status.allocation if is_there else None
        if before is not None and before != after:
            self._inventory.use(before, key, sign=-1)

        # An allocation in the status replaces the assumed one; so does deletion.
        if not is_there or after is not None:
            self._drop_assumed_claim(key)
        if not is_there:
            return

        self.claims[key] = claim
        self._file_owner(claim, key, is_there=True)
        if after is not None and before != after:
            self._inventory.use(after, key, sign=1)

    def _file_owner(self, claim: claims.ResourceClaim, key: ObjectKey, *, is_there: bool) -> None:
        for owner in claim.metadata.owner_references:
            if not owner.controller:
                continue
            owned = self._owned_claims.setdefault(owner.uid, set())
            (owned.add if is_there else owned.discard)(key)
            if not owned:
                del self._owned_claims[owner.uid]

    def _put_rule(self, rule: taint_rules.DeviceTaintRule, *, is_there: bool) -> None:
        name = rule.metadata.name
        old = self.rules.get(name)
        _put(self.rules, name, rule if is_there else None)
        # Status updates of a rule are frequent and reach no device: rebuilding every view for them would be waste.
        if old is None or not is_there or old.spec != rule.spec:
            self._inventory.put_rules(self.rules.values())

    def _put_plain(self, changed: events.Object, *, is_there: bool) -> None:
        """Kinds that are only stored, or whose index does all of the work."""
        name = changed.metadata.name
        stored = changed if is_there else None
        match changed:
            case claims.ResourceClaimTemplate():
                _put(self.templates, events.key_of(changed), stored)
            case device_classes.DeviceClass():
                _put(self.classes, name, stored)
                self.classes_version += 1
            case namespaces.Namespace():
                _put(self.namespaces, name, stored)
            case queues.Queue():
                _put(self.queues, name, stored)
            case topologies.Topology():
                _put(self.topologies, name, stored)
            case gangs.Gang():
                self.gangs.put(events.key_of(changed), changed if is_there else None)
            case _:
                if not self.storage.put(changed, is_there=is_there):
                    raise StateError(
                        f"the world does not store objects of type {type(changed).__name__}"
                    )

    # Assumptions

    def assume(
        self,
        pod: pods.Pod,
        node: str,
        allocations: Mapping[ObjectKey, claims.AllocationResult] | None = None,
        *,
        volumes: tuple[plan.VolumeStep, ...] = (),
        request: Resources | None = None,
    ) -> None:
        """Counts a placement as done until events confirm or cancel it. Inside a trial it is undone at the end.

        Claims that already have devices keep those. Resources the node does not offer are served by devices. A caller
        that knows what the pod requests may say so.
        """
        new_allocations = {
            key: allocation
            for key, allocation in (allocations or {}).items()
            if self.allocation(key) is None
        }
        if request is None:
            request = pod_requests.pod_request(pod)
        if request.scalars:
            offered = self._offered.get(node, pod_requests.NOTHING)
            served_by_devices = [name for name, _ in request.scalars if offered.scalar(name) <= 0]
            request = request.without(served_by_devices)
        assumption = Assumption(pod, node, request, new_allocations, volumes)
        self._set_assumed(events.pod_id(pod), assumption)
        self._undo.note(lambda: self._unset_assumed(events.pod_id(pod), assumption))

    def forget(self, pod: pods.Pod) -> None:
        """Gives up an assumption whose write failed."""
        assumption = self.assumed.get(events.pod_id(pod))
        if assumption is None:
            return
        if not self._undo.is_open:
            self.changes += 1
        self._unset_assumed(events.pod_id(pod), assumption)
        self._undo.note(lambda: self._set_assumed(events.pod_id(pod), assumption))

    def adopt_assumption(self, pod_id: str, assumption: Assumption) -> None:
        """Adopts an assumption of another World as it is."""
        self._set_assumed(pod_id, assumption)

    def _set_assumed(self, pod_id: str, assumption: Assumption) -> None:
        if pod_id in self.assumed:
            raise StateError(f"pod {pod_id} is already assumed")
        self.assumed[pod_id] = assumption
        # Without a request only claims are assumed: the bound pod itself already counts for its room.
        if assumption.request != pod_requests.NOTHING:
            self._take(assumption.node, assumption.request, sign=1)
            self.pod_index.put(pod_id, assumption.pod, assumption.node)
        for key in reservations.named_claims(assumption.pod):
            self._assumed_users.setdefault(key, set()).add(pod_id)
        for key, allocation in assumption.allocations.items():
            self._assumed_claims[key] = pod_id
            self._inventory.use(allocation, key, sign=1)
        self.storage.assume(assumption.node, assumption.volumes)

    def _unset_assumed(self, pod_id: str, assumption: Assumption) -> None:
        del self.assumed[pod_id]
        if assumption.request != pod_requests.NOTHING:
            self._take(assumption.node, assumption.request, sign=-1)
            self.pod_index.drop(pod_id)
        for key in reservations.named_claims(assumption.pod):
            self._assumed_users[key].discard(pod_id)
            if not self._assumed_users[key]:
                del self._assumed_users[key]
        for key, allocation in assumption.allocations.items():
            self._assumed_claims.pop(key, None)
            self._inventory.use(allocation, key, sign=-1)
        self.storage.assume(assumption.node, assumption.volumes, sign=-1)

    def _confirm(self, pod_id: str, *, keep_claims: bool) -> None:
        """The pod's own event arrived: its request now counts from the pod. Its claims wait for their own events."""
        assumption = self.assumed.get(pod_id)
        if assumption is None:
            return
        self._unset_assumed(pod_id, assumption)
        unconfirmed = {
            key: allocation
            for key, allocation in assumption.allocations.items()
            if keep_claims and not self._is_allocated(key)
        }
        if unconfirmed:
            claims_only = assumption._replace(
                request=pod_requests.NOTHING, allocations=unconfirmed, volumes=()
            )
            self._set_assumed(pod_id, claims_only)

    def _drop_assumed_claim(self, key: ObjectKey) -> None:
        pod_id = self._assumed_claims.get(key)
        if pod_id is None:
            return
        assumption = self.assumed[pod_id]
        self._unset_assumed(pod_id, assumption)
        remaining = dict(assumption.allocations)
        del remaining[key]
        if remaining or assumption.request != pod_requests.NOTHING:
            self._set_assumed(pod_id, assumption._replace(allocations=remaining))

    def _is_allocated(self, key: ObjectKey) -> bool:
        claim = self.claims.get(key)
        return claim is not None and claim.status.allocation is not None

    # Trials

    @contextmanager
    def trial(self) -> Iterator[Trial]:
        """A checkpoint: changes made inside are undone on exit, newest first, unless committed."""
        with self._undo.trial() as trial:
            yield trial

    def _refuse_in_trial(self, what: str) -> None:
        if self._undo.is_open:
            raise StateError(f"{what} inside a trial; finish or roll back the trial first")

    def vacate(self, pod_id: str) -> None:
        """Evicts a bound pod for the rest of the trial: frees its room, and devices that only evicted pods use.

        Does nothing if the pod is not bound. It may be assumed again, on any node, under the same id.
        """
        if not self._undo.is_open:
            raise StateError("a pod can be vacated only inside a trial; use an event instead")
        occupancy = self._running.pop(pod_id, None)
        if occupancy is None:
            return
        pod = self.pods[pod_id]
        self._vacated[pod_id] = occupancy
        freed = [key for key in self.claims_used(pod) if self._is_vacant(key)]
        self._move(pod_id, pod, occupancy, freed, sign=-1)
        self._undo.note(lambda: self._unvacate(pod_id, pod, occupancy, freed))

    def _unvacate(
        self, pod_id: str, pod: pods.Pod, occupancy: Occupancy, freed: list[ObjectKey]
    ) -> None:
        del self._vacated[pod_id]
        self._running[pod_id] = occupancy
        self._move(pod_id, pod, occupancy, freed, sign=1)

    def _move(
        self,
        pod_id: str,
        pod: pods.Pod,
        occupancy: Occupancy,
        freed: list[ObjectKey],
        *,
        sign: int,
    ) -> None:
        """Takes a pod off its node with the claims it frees (-1), or puts both back (1)."""
        self._take(*occupancy, sign=sign)
        for key in freed:
            allocation = self.claims[key].status.allocation
            assert allocation is not None
            self._inventory.use(allocation, key, sign=sign)
            (self._freed.add if sign < 0 else self._freed.discard)(key)
        if sign > 0:
            self.pod_index.put(pod_id, pod, occupancy[0])
        else:
            self.pod_index.drop(pod_id)

    def _is_vacant(self, key: ObjectKey) -> bool:
        """Whether every consumer of an allocated claim was vacated or has ended, so that its devices are free."""
        claim = self.claims.get(key)
        if claim is None or claim.status.allocation is None or key in self._freed:
            return False
        return all(
            user.uid in self._vacated or self.has_ended(user, key[0])
            for user in claim.status.reserved_for
        )

    def free_claim(self, key: ObjectKey) -> None:
        """Counts a claim's devices as free for the rest of the trial, because every consumer has ended."""
        claim = self.claims.get(key)
        if claim is None or key in self._freed:
            return
        allocation = claim.status.allocation
        if allocation is None:
            return
        self._inventory.use(allocation, key, sign=-1)
        self._freed.add(key)
        self._undo.note(lambda: self._freed.discard(key))
        self._undo.note(lambda: self._inventory.use(allocation, key, sign=1))

    # Promises and holds

    def set_promises(self, promises: Iterable[plan.Promise]) -> None:
        """Replaces the promised starts of all gangs."""
        self.promises = {
            promise.gang: promise
            for promise in promises
            if promise.start is not None or promise.moved_from is not None
        }

    def hold(
        self, name: str, allocation: claims.AllocationResult, doubt: UncertainHold | None = None
    ) -> None:
        """Keeps devices out of use until they are released; replaces an earlier hold of the same name.

        With a doubt about a pod that is gone, its queue is charged for them meanwhile.
        """
        self.release(name)
        self.changes += 1
        if doubt is not None:
            self.uncertain_holds[name] = doubt
        self.held[name] = allocation
        self._inventory.use(allocation, None, sign=1)

    def release(self, name: str) -> None:
        """Ends a hold, if there is one of that name."""
        self._refuse_in_trial("devices were held or released")
        self.uncertain_holds.pop(name, None)
        allocation = self.held.pop(name, None)
        if allocation is not None:
            self.changes += 1
            self._inventory.use(allocation, None, sign=-1)

    def _take(self, node: str, request: Resources, *, sign: int) -> None:
        """Adds a request to what is taken of a node (1), or subtracts it (-1)."""
        total = self._taken.get(node, pod_requests.NOTHING)
        total = total.plus(request) if sign > 0 else total.minus(request)
        _put(self._taken, node, None if total == pod_requests.NOTHING else total)
        self.node_changes.note(node)


def _schedules_alike(old: nodes.Node, new: nodes.Node) -> bool:
    """Whether two versions of a node differ in nothing that scheduling reads."""
    return (
        old.metadata.labels == new.metadata.labels
        and old.spec == new.spec
        and old.status.allocatable == new.status.allocatable
        and old.status.declared_features == new.status.declared_features
        and old.status.images == new.status.images
    )


def _put(table: dict, key: object, value: object) -> None:  # type: ignore[type-arg]
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value
