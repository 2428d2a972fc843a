"""A cluster that lives in virtual time: gangs arrive, plans are carried out, pods leave after a grace, work ends.

Pure: a World, `decide`, and a clock that jumps. Evicted pods are recreated, as a Job controller does. Everything
that happens is recorded, so that tests can check it. Builders of small clusters come first.
"""

from __future__ import annotations

import datetime
import heapq
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from dovetail.kubetypes import meta
from dovetail.kubetypes.core import disruption_budgets, namespaces, pods
from dovetail.kubetypes.custom import queues, topologies
from dovetail.kubetypes.resource import claims, slices
from dovetail.live.evict import slot_reservations
from dovetail.model import gangs, plan, policy
from dovetail.quantity import quantity
from dovetail.schedule import decide
from dovetail.world.events import Changed, Deleted, Object, ObjectKey
from dovetail.world.world import World
from tests.schedule import build

EPOCH: Final = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
GRACE: Final = 30  # seconds a pod takes to leave
KEPT: Final = 300  # seconds the new place of a pod that moves is kept
SPACE: Final = "default"
API: Final = "dovetail.dev/v1alpha1"
SHARED_GIB: Final = 24
PARTS: Final = 4


class Ask(NamedTuple):
    """What one pod asks for: whole GPUs, a share of one, or a partition."""

    cpu: int = 1
    gpus: int = 0
    share_gib: int = 0
    part: int = 0
    same: str = ""  # an attribute all of its GPUs have to agree in


class Work(NamedTuple):
    """A gang with its members, each in a group; how long it runs (None: it never ends), and when it comes."""

    gang: gangs.Gang
    asks: tuple[tuple[str, Ask], ...]
    runtime: int | None = None
    arrives: int = 0

    @property
    def name(self) -> str:
        return self.gang.metadata.name


class Happened(NamedTuple):
    """One eviction."""

    second: int
    turn: int  # of the decisions; evictions of one turn were decided together
    victim: str
    pod: str
    beneficiary: str
    rule: plan.Rule
    is_move: bool


def stamp(second: int) -> str:
    """A moment as the API writes it."""
    return (EPOCH + datetime.timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%SZ")


def queue(
    name: str,
    *,
    parent: str = "",
    priority: int = 0,
    age: int = 0,
    **shares: tuple[float | None, ...],
) -> Object:
    """A queue for every namespace: by resource (quota, limit, weight), of which the last two may be left out."""
    resources = {}
    for resource, numbers in shares.items():
        quota, limit, weight = (*numbers, None, None)[:3]
        resources[resource] = queues.Share(
            quota=queues.UNLIMITED if quota is None else quantity.parse(f"{quota:g}"),
            limit=quantity.parse(f"{limit:g}") if limit is not None else None,
            weight=int(weight) if weight is not None else 1,
        )
    return queues.Queue(
        api_version=API,
        kind="Queue",
        metadata=meta.ObjectMeta(
            name=name, uid=f"queue-{name}", creation_timestamp=stamp(age - 10**6)
        ),
        spec=queues.QueueSpec(
            parent=parent,
            priority=priority,
            resources=resources,
            namespace_selector=meta.LabelSelector(),
        ),
    )


def topology(name: str, *labels: str) -> Object:
    """A Topology with these levels, widest first."""
    levels = tuple(topologies.Level(node_label=label) for label in labels)
    spec = topologies.TopologySpec(levels=levels)
    return topologies.Topology(
        api_version=API, kind="Topology", metadata=meta.ObjectMeta(name=name), spec=spec
    )


def gang(
    name: str,
    *asks: Ask,
    least: int | None = None,
    arrives: int = 0,
    runtime: int | None = None,
    **facts: Any,
) -> Work:
    """A gang of one group, all of which are needed by default."""
    asks = asks or (Ask(),)
    groups = facts.pop(
        "groups", (gangs.Group(name="default", min=len(asks) if least is None else least),)
    )
    seats = facts.pop("seats", ("default",) * len(asks))
    messages = gangs.Gang(
        metadata=meta.ObjectMeta(
            namespace=SPACE, name=f"gang/{name}", creation_timestamp=stamp(arrives)
        ),
        groups=groups,
        min_groups=facts.pop("min_groups", sum(group.parent is None for group in groups)),
        **facts,
    )
    return Work(messages, tuple(zip(seats, asks, strict=True)), runtime=runtime, arrives=arrives)


def base() -> list[Object]:
    """What every cluster has: the namespace and a class for each kind of GPU."""
    model = f'device.attributes["{build.DRIVER}"].model'
    space = namespaces.Namespace(
        api_version="v1", kind="Namespace", metadata=meta.ObjectMeta(name=SPACE)
    )
    return [
        space,
        build.gpu_class("whole", when=f'{model} == "H100"'),
        build.gpu_class("shared", when=f'{model} == "L4"'),
        *(build.gpu_class(f"part-{size}", when=f'{model} == "part-{size}"') for size in (1, 2, 4)),
    ]


def shared_pool(name: str, count: int) -> Object:
    """A node's GPUs that may be shared by memory."""
    devices = [
        {
            "name": f"gpu-{index}",
            "allowMultipleAllocations": True,
            "attributes": {"model": {"string": "L4"}},
            "capacity": {
                "memory": {"value": f"{SHARED_GIB}Gi", "requestPolicy": {"default": "6Gi"}}
            },
        }
        for index in range(count)
    ]
    return build.gpu_pool(name, devices)


def parted_pool(name: str) -> list[Object]:
    """A node's GPU that comes in parts of one, two or four slices."""
    devices = [
        {
            "name": f"part-{size}-{start}",
            "attributes": {"model": {"string": f"part-{size}"}},
            "consumesCounters": [
                {
                    "counterSet": "set",
                    "counters": {f"slice-{i}": {"value": "1"} for i in range(start, start + size)},
                }
            ],
        }
        for size in (1, 2, 4)
        for start in range(0, PARTS, size)
    ]
    counters = {f"slice-{index}": {"value": "1"} for index in range(PARTS)}
    pool = {"name": name, "generation": 1, "resourceSliceCount": 2}
    spec = {"driver": build.DRIVER, "nodeName": name, "pool": pool}
    parts: list[dict[str, Any]] = [
        {"devices": devices},
        {"sharedCounters": [{"name": "set", "counters": counters}]},
    ]
    return [
        build.struct(
            "ResourceSlice", {"metadata": {"name": f"{name}-{at}"}, "spec": {**spec, **part}}
        )
        for at, part in enumerate(parts)
    ]


def claim_for(name: str, ask: Ask, *, pod_name: str, uid: str) -> claims.ResourceClaim | None:
    """The claim a pod makes for what it asks."""
    if ask.gpus:
        exactly: dict[str, Any] = {"deviceClassName": "whole", "count": ask.gpus}
    elif ask.share_gib:
        exactly = {
            "deviceClassName": "shared",
            "count": 1,
            "capacity": {"requests": {"memory": f"{ask.share_gib}Gi"}},
        }
    elif ask.part:
        exactly = {"deviceClassName": f"part-{ask.part}", "count": 1}
    else:
        return None
    facts: dict[str, Any] = {
        "requests": [{"name": "gpus", "exactly": {"allocationMode": "ExactCount", **exactly}}]
    }
    if ask.same:
        facts["constraints"] = [{"matchAttribute": ask.same}]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod_name, "uid": uid, "controller": True}
    return build.claim(
        name,
        metadata={"namespace": SPACE, "ownerReferences": [owner], "uid": f"uid-{name}"},
        **facts,
    )


def result(
    node: str, devices: Iterable[tuple[str, str | None]], *, share_gib: int = 0
) -> claims.AllocationResult:
    """Devices of one node as an allocation, shares by their ids."""
    outcome = []
    for device, share in devices:
        body: dict[str, Any] = {
            "request": "gpus",
            "driver": build.DRIVER,
            "pool": node,
            "device": device,
        }
        if share is not None:
            body |= {"shareID": share, "consumedCapacity": {"memory": f"{share_gib}Gi"}}
        outcome.append(body)
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    tree = {
        "devices": {"results": outcome},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }
    allocation = build.claim("any", status={"allocation": tree}).status.allocation
    assert allocation is not None
    return allocation


class Cluster:
    """The cluster, its clock and its past."""

    def __init__(
        self,
        facts: Iterable[Object] = (),
        *,
        rules: policy.Policy = policy.DEFAULT,
        grace: int = GRACE,
    ) -> None:
        self.world = World()
        self.second = 0
        self.turn = 0
        self.policy = rules
        self.judge: Callable[[Cluster, plan.Plan], list[str]] = (
            lambda _, __: []
        )  # what is wrong with a plan
        self.grace = grace
        self.slices: list[slices.ResourceSlice] = []
        self._fixed: list[Object] = []
        self.works: dict[str, Work] = {}
        self._shields: dict[str, disruption_budgets.PodDisruptionBudget] = {}  # by work
        self.seats: dict[str, tuple[str, int]] = {}  # by pod, its work and which member it is
        self.evictions: list[Happened] = []
        self.started: dict[str, int] = {}  # by work, since when it has what it needs
        self.ended: dict[str, int] = {}
        self._made = itertools.count()
        self._slots = slot_reservations.SlotReservations(self.world, seconds=KEPT)
        self._expiries: list[int] = []
        self._leaving: list[tuple[int, str]] = []
        self._coming: list[tuple[int, int, Work]] = []
        self.put(*base(), *facts)

    @property
    def now(self) -> datetime.datetime:
        return EPOCH + datetime.timedelta(seconds=self.second)

    @property
    def is_keeping(self) -> bool:
        """Whether room is kept for pods that move."""
        return len(self._slots) > 0

    @property
    def is_leaving(self) -> bool:
        """Whether any pod is terminating."""
        return bool(self._leaving)

    def put(self, *facts: Object) -> None:
        """Facts arrive."""
        for fact in facts:
            if isinstance(fact, slices.ResourceSlice):
                self.slices.append(fact)
            self._fixed.append(fact)
            self.world.apply(Changed(fact))

    def facts_fixed(self) -> list[Object]:
        """Nodes, devices, queues: everything but work."""
        return [*self._fixed]

    def facts(self) -> list[Object]:
        """Everything that is true of the cluster now, as events would tell a new World."""
        messages = (self.world.gangs.declared((SPACE, name)) for name in self.works)
        return [
            *self._fixed,
            *filter(None, messages),
            *self.world.claims.values(),
            *self.world.pods.values(),
        ]

    def expect(self, *works: Work) -> None:
        """Work that comes when its time has come."""
        for work in works:
            heapq.heappush(self._coming, (work.arrives, len(self._coming) + next(self._made), work))

    def submit(self, *works: Work) -> None:
        """Work that is there now."""
        for work in works:
            self.works[work.name] = work
            self.world.apply(Changed(work.gang))
            for index in range(len(work.asks)):
                self._make(work, index)

    def shield(self, name: str) -> None:
        """A budget that allows no disruption stands over the pods of a work from now on."""
        short = name.partition("/")[2]
        self._shields[name] = disruption_budgets.PodDisruptionBudget(
            metadata=meta.ObjectMeta(name=short, namespace=SPACE),
            spec=disruption_budgets.BudgetSpec(
                selector=meta.LabelSelector(match_labels={gangs.GANG_LABEL: short})
            ),
        )
        self.world.budget_protection.put(self._shields.values())

    def budgets(self) -> list[budgets.PodDisruptionBudget]:
        """Those there are."""
        return [*self._shields.values()]

    def is_fixed(self, name: str) -> bool:
        """Whether work cannot be made to yield: it says so, nothing makes it again, or a budget is over it."""
        messages = self.works[name].gang
        return (
            messages.is_preemptible is False
            or name in self._shields
            or not (messages.is_recreated or messages.may_be_lost)
        )

    def _make(self, work: Work, index: int) -> str:
        """Creates a member, for the first time or again."""
        group, ask = work.asks[index]
        short = work.name.partition("/")[2]
        name = f"{short}-{index:02d}-{next(self._made):05d}"
        uid = f"uid-of-{name}"
        claim = claim_for(f"{name}-gpus", ask, pod_name=name, uid=uid)
        if claim is not None:
            self.world.apply(Changed(claim))
        labels = {gangs.GANG_LABEL: short, gangs.GROUP_LABEL: group}
        pod = build.pod(
            name,
            uses=(claim.metadata.name,) if claim is not None else (),
            cpu=str(ask.cpu),
            priority=work.gang.priority or 0,
            created=stamp(self.second),
            metadata={"labels": labels, "namespace": SPACE, "uid": uid},
        )
        self.seats[uid] = (work.name, index)
        self.world.apply(Changed(pod))
        return uid

    # What is there

    def members(self, name: str) -> list[pods.Pod]:
        """The pods of a gang, by member."""
        outcome = [pod for uid, pod in self.world.pods.items() if self.seats[uid][0] == name]
        return sorted(outcome, key=lambda pod: self.seats[pod.metadata.uid][1])

    def running(self, name: str) -> list[pods.Pod]:
        """Those of its pods that run."""
        return [
            member
            for member in self.members(name)
            if member.spec.node_name and member.metadata.deletion_timestamp is None
        ]

    def nodes_of(self, name: str) -> list[str]:
        """Where they run."""
        return [pod.spec.node_name for pod in self.running(name)]

    def has_minimum(self, name: str) -> bool:
        """Whether a gang runs, counted group by group."""
        work = self.works[name]
        seats = [work.asks[self.seats[pod.metadata.uid][1]][0] for pod in self.running(name)]
        return is_enough(work.gang, seats)

    # What happens

    def bind(self, uid: str, node: str, given: Mapping[ObjectKey, claims.AllocationResult]) -> None:
        """A pod starts, with its devices."""
        pod = self.world.pods[uid]
        user = claims.ResourceClaimConsumerReference(
            resource="pods", name=pod.metadata.name, uid=uid
        )
        for key in self.world.claims_used(pod):
            claim = self.world.claims[key]
            allocation = given.get(key, claim.status.allocation)
            status = _replaced(
                claim.status, allocation=allocation, reserved_for=(*claim.status.reserved_for, user)
            )
            self.world.apply(Changed(_replaced(claim, status=status)))
        status = _replaced(
            pod.status, phase="Running", start_time=stamp(self.second), nominated_node_name=""
        )
        self.world.apply(
            Changed(_replaced(pod, spec=_replaced(pod.spec, node_name=node), status=status))
        )

    def delete(self, uid: str) -> None:
        """A pod begins to leave."""
        pod = self.world.pods[uid]
        heapq.heappush(self._leaving, (self.second + self.grace, uid))
        metadata = _replaced(pod.metadata, deletion_timestamp=stamp(self.second + self.grace))
        self.world.apply(Changed(_replaced(pod, metadata=metadata)))

    def remove(self, uid: str) -> None:
        """A pod is gone, and the claims that were made for it."""
        pod = self.world.pods[uid]
        self.world.apply(Deleted(pod))
        for key in self.world.claims_used(pod):
            self.world.apply(Deleted(self.world.claims[key]))

    def decided(self) -> plan.Plan:
        """What is to happen now."""
        return decide.decide(self.world, self.policy, self.now)

    def fill_slots(self) -> None:
        """Decides pods with reserved room first, as the live loop does."""
        kin = {
            id_: (SPACE, self.seats[id_][0])
            for id_, pod in self.world.pods.items()
            if not pod.spec.node_name
        }
        if not (lifted := self._slots.lift(set(kin.values()))):
            return
        replacement_keys = {slot.replacement_key for slot in lifted.values()}
        asked = {id_: one for id_, one in kin.items() if one in replacement_keys}
        toward = self._slots.nodes_for(lifted, asked)
        done = decide.decide(self.world, self.policy, self.now, among=[*asked], toward=toward)
        self._start(done)
        self._slots.restore(
            lifted,
            [
                slot_reservations.UsedSlot(
                    kin[placement.pod.uid], placement.node, placement.pod.uid
                )
                for placement in done.placements
            ],
        )

    def _start(self, done: plan.Plan) -> None:
        for placement in done.placements:
            given = {
                (part.claim.namespace, part.claim.name): part.result
                for part in placement.allocations
            }
            self.bind(placement.pod.uid, placement.node, given)

    def carry_out(self, done: plan.Plan) -> bool:
        """Carries the plan out; returns whether any pod started or was evicted."""
        self.turn += 1
        assert not (wrong := self.judge(self, done)), wrong
        self._start(done)
        self._nominate({nomination.pod.uid: nomination.node for nomination in done.nominations})
        for gone in done.evictions:
            if gone.moves_to:
                self._slots.reserve(gone, self.world.pods[gone.pod.uid], self.second)
                heapq.heappush(self._expiries, self.second + KEPT)
            self.delete(gone.pod.uid)
            self.evictions.append(
                Happened(
                    second=self.second,
                    turn=self.turn,
                    victim=gone.gang.name,
                    pod=gone.pod.name,
                    beneficiary=gone.beneficiary.name if gone.beneficiary is not None else "",
                    rule=gone.rule,
                    is_move=bool(gone.moves_to),
                )
            )
        self._note()
        return bool(done.placements or done.evictions)

    def _nominate(self, wanted: Mapping[str, str]) -> None:
        for uid, pod in [*self.world.pods.items()]:
            node = wanted.get(uid, "")
            if pod.status.nominated_node_name != node and not pod.spec.node_name:
                self.world.apply(
                    Changed(_replaced(pod, status=_replaced(pod.status, nominated_node_name=node)))
                )

    def _note(self) -> None:
        """Who has what it needs, and who fell below it."""
        for name, work in self.works.items():
            if name in self.ended:
                continue
            is_well = self.has_minimum(name)
            if is_well:
                self.started.setdefault(name, self.second)
            else:
                self.started.pop(name, None)
            is_stale = not is_well and bool(self.running(name))
            messages = self.world.gangs.declared((SPACE, name))
            assert messages is not None
            if is_stale != (messages.stale_since is not None):
                since = stamp(self.second) if is_stale else None
                self.world.apply(Changed(_replaced(work.gang, stale_since=since)))

    def settle(self, *, most: int = 60) -> int:
        """Decides until nothing changes at this moment; how many turns that took. Raises if it takes too many."""
        for turn in range(most):
            self.fill_slots()
            if not self.carry_out(self.decided()):
                return turn
        raise AssertionError(f"after {most} decisions at one moment something still changes")

    def next_event(self) -> int | None:
        """When something happens by itself."""
        ends = [
            at + runtime
            for name, at in self.started.items()
            if (runtime := self.works[name].runtime) is not None
        ]
        if self._leaving:
            ends.append(self._leaving[0][0])
        if self._coming:
            ends.append(self._coming[0][0])
        if self._expiries:
            ends.append(self._expiries[0])
        return max(min(ends), self.second) if ends else None

    def advance(self, second: int) -> None:
        """Time passes: work ends, pods are gone and recreated, work arrives."""
        self.second = second
        self._slots.expire(second)
        while self._expiries and self._expiries[0] <= second:
            heapq.heappop(self._expiries)
        for name, at in [*self.started.items()]:
            runtime = self.works[name].runtime
            if runtime is not None and at + runtime <= second:
                self._end(name)
        while self._leaving and self._leaving[0][0] <= second:
            _, uid = heapq.heappop(self._leaving)
            if uid in self.world.pods:
                name, index = self.seats[uid]
                self.remove(uid)
                if name not in self.ended:
                    self._make(self.works[name], index)
        while self._coming and self._coming[0][0] <= second:
            self.submit(heapq.heappop(self._coming)[2])
        self._note()

    def _end(self, name: str) -> None:
        self.ended[name] = self.second
        del self.started[name]
        for pod in self.members(name):
            self.remove(pod.metadata.uid)
        self.world.apply(Deleted(self.works[name].gang))

    def live(self, *, until: int = 10**7, most: int = 2000) -> None:
        """Lives on until nothing happens by itself any more."""
        for _ in range(most):
            self.settle()
            wake = self.decided().wake_at
            following = [at for at in (self.next_event(), self._seconds(wake)) if at is not None]
            if not following or min(following) > until:
                return
            self.advance(min(following))
        raise AssertionError(f"after {most} events the cluster is not quiet")

    def _seconds(self, moment: datetime.datetime | None) -> int | None:
        if moment is None:
            return None
        seconds = int((moment - EPOCH).total_seconds())
        return seconds if seconds > self.second else None


def is_enough(messages: gangs.Gang, seats: list[str]) -> bool:
    """Whether pods in these groups are the minimum of a gang."""

    def met(group: gangs.Group) -> bool:
        if group.holds_groups:
            return (
                sum(met(item) for item in messages.groups if item.parent == group.name) >= group.min
            )
        return seats.count(group.name) >= group.min

    return (
        sum(met(group) for group in messages.groups if group.parent is None) >= messages.min_groups
    )


def _replaced(struct: Any, **changes: Any) -> Any:
    return msgspec.structs.replace(struct, **changes)
