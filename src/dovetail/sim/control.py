"""One turn of the control plane: makes claims from templates, decides, writes what was decided.

Stands in for the claim controller, the scheduler's loop and the kubelets of a real cluster: state in, state out. A pod
that is placed runs at once; one that is not says why in its PodScheduled condition. Never decides itself.
"""

import datetime
import hashlib
from collections.abc import Iterator
from typing import Final

import msgspec

from dovetail.loops import hollow, stages
from dovetail.model import claims, meta, nodes, objects, plan, pods, policy, slices, taintrules
from dovetail.model.classes import DeviceClass
from dovetail.schedule import cycle
from dovetail.sim import cluster as clusters
from dovetail.sim import rulings
from dovetail.world.events import Changed
from dovetail.world.world import World

POD_CLAIM_ANNOTATION: Final = "resource.kubernetes.io/pod-claim-name"
SCHEDULED: Final = "PodScheduled"
MAX_GENERATED_BASE: Final = 58  # what apimachinery keeps of a name before it appends five characters

_SEEN: Final = (
    nodes.Node,
    pods.Pod,
    slices.ResourceSlice,
    claims.ResourceClaim,
    claims.ResourceClaimTemplate,
    DeviceClass,
    taintrules.DeviceTaintRule,
)


def turn(cluster: clusters.Cluster, *, now: datetime.datetime) -> clusters.Cluster:
    """The cluster after everything that can start has started. Another turn changes nothing."""
    stamp = timestamp(now)
    cluster = clusters.written(cluster, _claims_from_templates(cluster), now=stamp)
    # Again until nobody starts: who waits is told how things are now, not how they were when it was its turn.
    while (decided := cycle.decide(world_of(cluster), policy.DEFAULT, now)).placements:
        for placement in decided.placements:
            cluster = clusters.written(cluster, _carried_out(cluster, placement, stamp), now=stamp)
    waits = [one for refusal in decided.refusals if (one := _told(cluster, refusal, stamp)) is not None]
    return clusters.written(cluster, waits, now=stamp)


def world_of(cluster: clusters.Cluster) -> World:
    """The world the stored objects describe."""
    world = World()
    for key in sorted(cluster.records):
        found = clusters.decoded(cluster.records[key]).struct
        if isinstance(found, _SEEN):
            world.apply(Changed(found))
    return world


def timestamp(now: datetime.datetime) -> str:
    """As the API server writes times."""
    return now.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _claims_from_templates(cluster: clusters.Cluster) -> Iterator[objects.Stored]:
    """Claims for pods that name templates, each followed by the pod that records its name."""
    for stored in clusters.listed(cluster, "Pod"):
        pod = stored.struct
        if not isinstance(pod, pods.Pod) or pod.status.phase in ("Succeeded", "Failed"):
            continue
        made = list(pod.status.resource_claim_statuses)
        known = {status.name for status in made}
        for entry in pod.spec.resource_claims:
            template = _template(cluster, pod, entry) if entry.name not in known else None
            if template is None:
                continue
            claim = _from_template(pod, entry.name, template)
            made.append(pods.PodResourceClaimStatus(name=entry.name, resource_claim_name=claim.metadata.name))
            yield objects.store(claim)
        if len(made) > len(known):
            status = msgspec.structs.replace(pod.status, resource_claim_statuses=tuple(made))
            yield objects.replace(stored, msgspec.structs.replace(pod, status=status))


def _template(
    cluster: clusters.Cluster, pod: pods.Pod, entry: pods.PodResourceClaim
) -> claims.ResourceClaimTemplate | None:
    name = entry.resource_claim_template_name
    found = clusters.get(cluster, clusters.Key("ResourceClaimTemplate", pod.metadata.namespace, name)) if name else None
    return found.struct if found and isinstance(found.struct, claims.ResourceClaimTemplate) else None


def _from_template(pod: pods.Pod, entry: str, template: claims.ResourceClaimTemplate) -> claims.ResourceClaim:
    wanted = template.spec
    base = f"{pod.metadata.name}-{entry}-"[:MAX_GENERATED_BASE]
    owner = meta.OwnerReference(
        api_version="v1",
        kind="Pod",
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )
    metadata = meta.ObjectMeta(
        name=_generated(base, pod.metadata.uid, entry),
        generate_name=base,
        namespace=pod.metadata.namespace,
        labels=wanted.metadata.labels,
        annotations=wanted.metadata.annotations | {POD_CLAIM_ANNOTATION: entry},
        owner_references=(owner,),
    )
    return claims.ResourceClaim(
        api_version=objects.RESOURCE_V1, kind="ResourceClaim", metadata=metadata, spec=wanted.spec
    )


def _generated(base: str, *parts: str) -> str:
    """The name a server would make of a generateName: five letters more, the same ones for the same parts."""
    alphabet = "bcdfghjklmnpqrstvwxz2456789"  # apimachinery's safe letters and digits
    digest = hashlib.sha256("/".join(parts).encode()).digest()
    return base[:MAX_GENERATED_BASE] + "".join(alphabet[byte % len(alphabet)] for byte in digest[:5])


def _carried_out(cluster: clusters.Cluster, placement: plan.Placement, now: str) -> Iterator[objects.Stored]:
    """Claims before the pod: a pod is bound only when all its devices are its own."""
    given = {one.claim: one.result for one in placement.allocations}
    user = claims.ResourceClaimConsumerReference(resource="pods", name=placement.pod.name, uid=placement.pod.uid)
    for ref in placement.reservations:
        stored = clusters.get(cluster, clusters.Key("ResourceClaim", ref.namespace, ref.name))
        assert stored is not None
        assert isinstance(stored.struct, claims.ResourceClaim)
        yield objects.replace(stored, _reserved(stored.struct, given.get(ref), user))
    served = None
    if placement.made is not None:
        made = _made(cluster, placement.made, user)
        yield made
        name = made.struct.metadata.name
        served = pods.PodExtendedResourceClaimStatus(request_mappings=placement.made.mappings, resource_claim_name=name)
    stored = clusters.get(cluster, clusters.Key("Pod", placement.pod.namespace, placement.pod.name))
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
    yield _started(objects.replace(stored, msgspec.structs.replace(pod, spec=spec, status=status)), now)


def _started(stored: objects.Stored, now: str) -> objects.Stored:
    """The bound pod after its first step, written as hollow nodes write it."""
    assert isinstance(stored.struct, pods.Pod)
    moment = stages.moment(now)
    step = stages.next_step(stored.struct, stages.DEFAULT, since=moment, now=moment)
    if step is None or step.wait_seconds > 0 or not isinstance(step.action, stages.Become):
        return stored
    change = {"status": hollow.pod_status(stored.struct, step.action, now=moment)["status"]}
    return objects.decode(rulings.merged(stored.tree, change))


def _made(
    cluster: clusters.Cluster, made: plan.MadeClaim, user: claims.ResourceClaimConsumerReference
) -> objects.Stored:
    """The claim for extended resources, new or found, with its devices and its user."""
    if made.existing is not None:
        stored = clusters.get(cluster, clusters.Key("ResourceClaim", made.existing.namespace, made.existing.name))
        assert stored is not None
        assert isinstance(stored.struct, claims.ResourceClaim)
        return objects.replace(stored, _reserved(stored.struct, made.result, user))
    asked = objects.encode_struct(made.claim.spec).decode()  # two claims of one pod ask for different things
    name = _generated(made.claim.metadata.generate_name, user.uid, asked)
    metadata = msgspec.structs.replace(made.claim.metadata, name=name)
    return objects.store(_reserved(msgspec.structs.replace(made.claim, metadata=metadata), made.result, user))


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


def _told(cluster: clusters.Cluster, refusal: plan.Refusal, now: str) -> objects.Stored | None:
    """The waiting pod with the reason in its condition; None if it says so already."""
    stored = clusters.get(cluster, clusters.Key("Pod", refusal.pod.namespace, refusal.pod.name))
    assert stored is not None
    assert isinstance(stored.struct, pods.Pod)
    pod = stored.struct
    reason = "SchedulerError" if refusal.is_undecided else "Unschedulable"
    before = next((one for one in pod.status.conditions if one.type == SCHEDULED), None)
    if before is not None and (before.status, before.reason, before.message) == ("False", reason, refusal.summary):
        return None
    since = before.last_transition_time if before is not None and before.status == "False" else now
    condition = pods.PodCondition(
        type=SCHEDULED, status="False", reason=reason, message=refusal.summary, last_transition_time=since
    )
    conditions = _with_condition(pod.status.conditions, condition)
    status = msgspec.structs.replace(pod.status, phase="Pending", conditions=conditions)
    return objects.replace(stored, msgspec.structs.replace(pod, status=status))


def _with_condition(
    conditions: tuple[pods.PodCondition, ...], condition: pods.PodCondition
) -> tuple[pods.PodCondition, ...]:
    return (*(one for one in conditions if one.type != condition.type), condition)
