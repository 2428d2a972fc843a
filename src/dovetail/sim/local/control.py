"""One turn of the control plane: lets time pass, makes claims from templates, decides, writes what was decided.

Stands in for the claim controller, the scheduler's loop and the kubelets of a real cluster: state in, state out. A pod
that is placed runs and ends by its stages; one that is not says why in its PodScheduled condition. Never decides
itself.
"""

import datetime
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from dovetail import timestamps
from dovetail.hollow import hollow_status, pod_admission, pod_stages
from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.core import nodes, pods
from dovetail.kubetypes.resource import claims
from dovetail.model import condition_reasons, plan, policy
from dovetail.quantity import durations
from dovetail.sim.local import (
    claim_templates,
    local_cluster,
    local_evictions,
    local_gangs,
    local_queues,
)
from dovetail.sim.server import volume_controllers, write_rules
from dovetail.world.events import Changed, Deleted, Object, ObjectKey
from dovetail.world.world import World

SCHEDULED: Final = "PodScheduled"
MOST_ROUNDS: Final = (
    100  # in which somebody yields; a plan lets nobody yield for nothing, so few are needed
)

_SEEN: Final = tuple(kind.struct for kind in registry.WORLD)


def turn(
    cluster: local_cluster.Cluster,
    *,
    now: datetime.datetime,
    walk: pod_stages.Stages = pod_stages.DEFAULT,
) -> local_cluster.Cluster:
    """The cluster as it is now: what was due has happened, everything that can start has started.

    Another turn changes nothing, and it does not matter how often there was one before: whoever finds room because
    another has ended starts when that one ended, not when somebody looks.
    """
    mirror = _Mirror()
    cluster = _caught_up(cluster, now, walk=walk, mirror=mirror)
    cluster = _placed(cluster, now, walk=walk, mirror=mirror)
    return _caught_up(cluster, now, walk=walk, mirror=mirror)  # some end as soon as they start


def is_due(
    cluster: local_cluster.Cluster,
    *,
    now: datetime.datetime,
    walk: pod_stages.Stages = pod_stages.DEFAULT,
) -> bool:
    """Whether some pod takes a step by now. Reads only pods that were applied."""
    at = _next_moment(cluster, walk)
    return at is not None and at <= now


def world_of(cluster: local_cluster.Cluster) -> World:
    """The world the stored objects describe."""
    return _Mirror().world_of(cluster)


def facts_of(cluster: local_cluster.Cluster) -> list[Object]:
    """What the stored objects say, for whoever builds a world of their own."""
    mirror = _Mirror()
    mirror.world_of(cluster)
    return mirror.facts()


class _Mirror:
    """A world that follows a cluster: told only what differs from what it was shown before."""

    def __init__(self) -> None:
        self._world = World()
        self._owners = local_gangs.Owners(self._world)
        self._shown: dict[local_cluster.Key, local_cluster.Record] = {}

    def world_of(self, cluster: local_cluster.Cluster) -> World:
        """The world as this cluster describes it, until the next one is shown."""
        before, after = self._shown, cluster.records
        for key in sorted(before.keys() - after.keys()):
            gone = local_cluster.decoded(before[key])
            self._owners.gone(gone)
            if isinstance(gone.struct, _SEEN):
                self._world.apply(Deleted(gone.struct))
        for key in sorted(key for key, record in after.items() if before.get(key) is not record):
            found = local_cluster.decoded(after[key])
            self._owners.seen(found)
            if isinstance(found.struct, _SEEN):
                self._world.apply(Changed(found.struct))
        self._shown = after
        return self._world

    def facts(self) -> list[Object]:
        """Everything that was shown, and the gangs read off it."""
        found = [local_cluster.decoded(record).struct for _, record in sorted(self._shown.items())]
        return [*(one for one in found if isinstance(one, _SEEN)), *self._owners.gangs()]


def _caught_up(
    cluster: local_cluster.Cluster,
    now: datetime.datetime,
    *,
    walk: pod_stages.Stages,
    mirror: _Mirror,
) -> local_cluster.Cluster:
    """What happened by now, moment by moment. Ends: no pod takes a step twice."""
    while (at := _next_moment(cluster, walk)) is not None and at <= now:
        cluster = _placed(_walked(cluster, at, walk=walk), at, walk=walk, mirror=mirror)
    return cluster


class _Due(NamedTuple):
    """A pod, what it becomes next, and when."""

    pod: codec.Stored
    become: pod_stages.EnterPhase
    at: datetime.datetime


def _next_moment(
    cluster: local_cluster.Cluster, walk: pod_stages.Stages
) -> datetime.datetime | None:
    """When the next step is due; None if nothing ever happens by itself.

    Not before the newest pod was made: what a late change makes due in the past would start a pod before its time.
    """
    walkers = _walkers(cluster)
    steps = [due.at for stored in walkers if (due := _due(cluster, stored, walk)) is not None]
    if not steps:
        return None
    return max(
        [min(steps), *(made for stored in walkers if (made := _created(stored.struct)) is not None)]
    )


def _walked(
    cluster: local_cluster.Cluster, at: datetime.datetime, *, walk: pod_stages.Stages
) -> local_cluster.Cluster:
    """The cluster after one step of every pod that is due by then, and without what the pods that ended held."""
    stamp = timestamps.to_text(at)
    steps = [
        due
        for stored in _walkers(cluster)
        if (due := _due(cluster, stored, walk)) is not None and due.at <= at
    ]
    changed = [_stepped(due.pod, due.become, at=at) for due in steps]
    ended = [due.pod for due in steps if due.become.phase in pods.TERMINAL_PHASES]
    return local_evictions.given_back(
        local_cluster.written(cluster, changed, now=stamp), ended, stamp
    )


def _walkers(cluster: local_cluster.Cluster) -> list[codec.Stored]:
    """Pods somebody applied here. A pod of a snapshot has no manifest: its time stood still when it was saved."""
    keys = sorted(
        key
        for key, record in cluster.records.items()
        if key.kind == "Pod" and bytes(record.applied)
    )
    return [local_cluster.decoded(cluster.records[key]) for key in keys]


def _due(
    cluster: local_cluster.Cluster, stored: codec.Stored, walk: pod_stages.Stages
) -> _Due | None:
    pod = stored.struct
    assert isinstance(pod, pods.Pod)
    if pod.metadata.deletion_timestamp is not None:
        return None  # nothing here lets go of pods
    try:
        since = pod_stages.phase_since(pod) or _created(pod)
        step = None if since is None else pod_stages.next_step(pod, walk, since=since, now=since)
        if since is None or step is None or not isinstance(step.action, pod_stages.EnterPhase):
            return None
        at = durations.later(since, step.wait_seconds)
    except (ValueError, OverflowError):
        return None  # a manifest may bring a status, with a 30th of February or the end of all time
    if step.action.phase == pod_stages.RUNNING and not _may_start(cluster, pod):
        return None
    return _Due(stored, step.action, at)


def _may_start(cluster: local_cluster.Cluster, pod: pods.Pod) -> bool:
    """Whether a kubelet would start a pod that was bound: its node is there, its claims are its own."""

    def lookup(key: ObjectKey) -> claims.ResourceClaim | None:
        found = local_cluster.get(cluster, local_cluster.Key("ResourceClaim", *key))
        return (
            found.struct
            if found is not None and isinstance(found.struct, claims.ResourceClaim)
            else None
        )

    found = local_cluster.get(cluster, local_cluster.Key("Node", "", pod.spec.node_name))
    node = None if found is None else found.struct
    return isinstance(node, nodes.Node) and pod_admission.objection_to(pod, node, lookup) is None


def _created(pod: codec.Object) -> datetime.datetime | None:
    try:
        return timestamps.parse(pod.metadata.creation_timestamp or "")
    except ValueError:
        return None


def _stepped(
    stored: codec.Stored, become: pod_stages.EnterPhase, *, at: datetime.datetime
) -> codec.Stored:
    """The pod in its next phase, written as hollow nodes write it."""
    assert isinstance(stored.struct, pods.Pod)
    change = {"status": hollow_status.pod_status(stored.struct, become, now=at)["status"]}
    return codec.decode(write_rules.merged(stored.tree, change))


def _placed(
    cluster: local_cluster.Cluster,
    now: datetime.datetime,
    *,
    walk: pod_stages.Stages,
    mirror: _Mirror,
) -> local_cluster.Cluster:
    """The cluster after everything that can start has started, and who has to yield for it has."""
    stamp = timestamps.to_text(now)
    cluster = local_cluster.written(cluster, claim_templates.claims_of(cluster), now=stamp)
    cluster = _with_volumes(cluster, stamp)
    if not _has_waiting(cluster) and not any(key.kind == "Queue" for key in cluster.records):
        return cluster
    from dovetail.schedule import decide  # who only asks what is due needs no engine

    # Again until nobody starts: who waits is told how things are now, not how they were when it was its turn.
    rounds = 0
    while True:
        world = mirror.world_of(cluster)
        decided = decide.decide(world, policy.DEFAULT, now)
        rounds += 1
        evictions = decided.evictions if rounds <= MOST_ROUNDS else ()
        if not decided.placements and not evictions:
            break
        for placement in decided.placements:
            carried_out = _carried_out(cluster, placement, stamp, walk=walk, world=world)
            cluster = local_cluster.written(cluster, carried_out, now=stamp)
        cluster = local_evictions.evicted(cluster, evictions, now=stamp)
        cluster = local_cluster.written(cluster, claim_templates.claims_of(cluster), now=stamp)
        cluster = _with_volumes(cluster, stamp)
    waits = [
        one for refusal in decided.refusals if (one := _told(cluster, refusal, stamp)) is not None
    ]
    cluster = local_cluster.written(cluster, waits, now=stamp)
    cluster = local_cluster.written(
        cluster, local_evictions.nominated(cluster, decided.nominations), now=stamp
    )
    return local_cluster.written(
        cluster, local_queues.told(cluster, decided.queues, now=stamp), now=stamp
    )


def _with_volumes(cluster: local_cluster.Cluster, stamp: str) -> local_cluster.Cluster:
    """The cluster after the controllers of volumes did all they can."""
    users = [
        one
        for key, one in cluster.records.items()
        if key.kind == "Pod" and b'"ephemeral"' in bytes(one.document)
    ]
    if not users and not any(key.kind.startswith("PersistentVolume") for key in cluster.records):
        return cluster
    # A claim of a snapshot has no manifest: nobody provisions for it here but for pods that are placed.
    still = {
        (key.namespace, key.name)
        for key, record in cluster.records.items()
        if key.kind == "PersistentVolumeClaim" and not bytes(record.applied)
    }
    while True:
        listed = {
            kind: [one.tree for one in local_cluster.listed(cluster, kind)]
            for kind in volume_controllers.KINDS
            if kind != "Pod"
        }
        listed["Pod"] = [local_cluster.decoded(one).tree for one in users]
        after = local_cluster.written(
            cluster, map(codec.decode, volume_controllers.changes(listed, still)), now=stamp
        )
        if after.revision == cluster.revision:
            return cluster
        cluster = after


def _has_waiting(cluster: local_cluster.Cluster) -> bool:
    found = (stored.struct for stored in local_cluster.listed(cluster, "Pod"))
    return any(isinstance(pod, pods.Pod) and not pod.spec.node_name for pod in found)


def _carried_out(
    cluster: local_cluster.Cluster,
    placement: plan.Placement,
    now: str,
    *,
    walk: pod_stages.Stages,
    world: World,
) -> Iterator[codec.Stored]:
    """Claims before the pod: a pod is bound only when all its devices are its own."""
    given = {one.claim: one.result for one in placement.allocations}
    user = claims.ResourceClaimConsumerReference(
        resource="pods", name=placement.pod.name, uid=placement.pod.uid
    )
    for ref in placement.reservations:
        stored = local_cluster.get(
            cluster, local_cluster.Key("ResourceClaim", ref.namespace, ref.name)
        )
        assert stored is not None
        assert isinstance(stored.struct, claims.ResourceClaim)
        whose = world.user_of(world.pods[placement.pod.uid], (ref.namespace, ref.name))
        yield codec.replace(stored, _reserved(stored.struct, given.get(ref), whose))
    for step in placement.volumes:
        yield _step_taken(cluster, step, placement.node)
    served = None
    if placement.made is not None:
        made = _made(cluster, placement.made, user)
        yield made
        name = made.struct.metadata.name
        served = pods.PodExtendedResourceClaimStatus(
            request_mappings=placement.made.mappings, resource_claim_name=name
        )
    stored = local_cluster.get(
        cluster, local_cluster.Key("Pod", placement.pod.namespace, placement.pod.name)
    )
    assert stored is not None
    assert isinstance(stored.struct, pods.Pod)
    pod = stored.struct
    condition = pods.PodCondition(type=SCHEDULED, status="True", last_transition_time=now)
    status = msgspec.structs.replace(
        pod.status,
        conditions=_with_condition(pod.status.conditions, condition),
        extended_resource_claim_status=served,
    )
    spec = msgspec.structs.replace(pod.spec, node_name=placement.node)
    yield _started(
        codec.replace(stored, msgspec.structs.replace(pod, spec=spec, status=status)),
        now,
        walk=walk,
    )


def _step_taken(cluster: local_cluster.Cluster, step: plan.VolumeStep, node: str) -> codec.Stored:
    """The volume given to its claim, or the claim that says where its volume is to be made."""
    claim = local_cluster.get(
        cluster, local_cluster.Key("PersistentVolumeClaim", step.claim.namespace, step.claim.name)
    )
    volume = (
        local_cluster.get(cluster, local_cluster.Key("PersistentVolume", "", step.volume))
        if step.volume
        else None
    )
    assert claim is not None
    if volume is None:
        return codec.decode(volume_controllers.with_selected_node(claim.tree, node))
    return codec.decode(volume_controllers.with_claim_ref(volume.tree, claim.tree))


def _started(stored: codec.Stored, now: str, *, walk: pod_stages.Stages) -> codec.Stored:
    """The bound pod after its first step, if that comes at once; else time brings it."""
    assert isinstance(stored.struct, pods.Pod)
    at = timestamps.parse(now)
    step = pod_stages.next_step(stored.struct, walk, since=at, now=at)
    if step is None or step.wait_seconds > 0 or not isinstance(step.action, pod_stages.EnterPhase):
        return stored
    return _stepped(stored, step.action, at=at)


def _made(
    cluster: local_cluster.Cluster,
    made: plan.ExtendedResourceClaim,
    user: claims.ResourceClaimConsumerReference,
) -> codec.Stored:
    """The claim for extended resources, new or found, with its devices and its user."""
    if made.existing is not None:
        stored = local_cluster.get(
            cluster, local_cluster.Key("ResourceClaim", made.existing.namespace, made.existing.name)
        )
        assert stored is not None
        assert isinstance(stored.struct, claims.ResourceClaim)
        return codec.replace(stored, _reserved(stored.struct, made.result, user))
    asked = codec.encode_struct(
        made.claim.spec
    ).decode()  # two claims of one pod ask for different things
    name = claim_templates.generated(made.claim.metadata.generate_name, user.uid, asked)
    metadata = msgspec.structs.replace(made.claim.metadata, name=name)
    return codec.store(
        _reserved(msgspec.structs.replace(made.claim, metadata=metadata), made.result, user)
    )


def _reserved(
    claim: claims.ResourceClaim,
    result: claims.AllocationResult | None,
    user: claims.ResourceClaimConsumerReference,
) -> claims.ResourceClaim:
    kept = claim.metadata.finalizers
    protected = claims.DELETE_PROTECTION_FINALIZER
    finalizers = kept if protected in kept else (*kept, protected)
    users = claim.status.reserved_for
    status = msgspec.structs.replace(
        claim.status,
        allocation=claim.status.allocation or result,
        reserved_for=users if user in users else (*users, user),
    )
    metadata = msgspec.structs.replace(claim.metadata, finalizers=finalizers)
    return msgspec.structs.replace(claim, metadata=metadata, status=status)


def _told(cluster: local_cluster.Cluster, refusal: plan.Refusal, now: str) -> codec.Stored | None:
    """The waiting pod with the reason in its condition; None if it says so already."""
    stored = local_cluster.get(
        cluster, local_cluster.Key("Pod", refusal.pod.namespace, refusal.pod.name)
    )
    assert stored is not None
    assert isinstance(stored.struct, pods.Pod)
    pod = stored.struct
    reason = condition_reasons.reason_for(pod, refusal) or condition_reasons.UNSCHEDULABLE
    before = next((one for one in pod.status.conditions if one.type == SCHEDULED), None)
    if before is not None and (before.status, before.reason, before.message) == (
        "False",
        reason,
        refusal.summary,
    ):
        return None
    since = before.last_transition_time if before is not None and before.status == "False" else now
    condition = pods.PodCondition(
        type=SCHEDULED,
        status="False",
        reason=reason,
        message=refusal.summary,
        last_transition_time=since,
    )
    conditions = _with_condition(pod.status.conditions, condition)
    status = msgspec.structs.replace(pod.status, phase="Pending", conditions=conditions)
    return codec.replace(stored, msgspec.structs.replace(pod, status=status))


def _with_condition(
    conditions: tuple[pods.PodCondition, ...], condition: pods.PodCondition
) -> tuple[pods.PodCondition, ...]:
    return (*(one for one in conditions if one.type != condition.type), condition)
