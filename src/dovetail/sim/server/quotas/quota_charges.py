"""What one object is charged against the quotas of its namespace, by the keys of a ResourceQuota.

Given a stored object; answers amounts as the evaluators of kube-apiserver do (pkg/quota/v1/evaluator/core): pods until
they end, claims for devices by class, volume claims by size, services by type, every object by count. Never compares
an amount with a limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dovetail.kubetypes import registry
from dovetail.kubetypes.core import pods, resource_quotas
from dovetail.kubetypes.resource import claims
from dovetail.kubetypes.storage import volumes
from dovetail.model import pod_requests
from dovetail.quantity import quantity
from dovetail.schedule.node import extended_resources
from dovetail.sim.server.object_store import ObjectStore, Record
from dovetail.sim.server.served_kinds import TableKey, table_key

Charges = dict[str, quantity.Quantity]
Tree = dict[str, Any]

POD_TABLE: Final = table_key(registry.POD)
CLAIM_TABLE: Final = table_key(registry.CLAIM)
VOLUME_CLAIM_TABLE: Final = ("", "persistentvolumeclaims")
SERVICE_TABLE: Final = ("", "services")
COUNT_PREFIX: Final = "count/"
REQUESTS: Final = "requests."
LIMITS: Final = "limits."
# An implicit extended resource: the devices of a class, requested by the class's name.
IMPLICIT_RESOURCE: Final = resource_quotas.IMPLICIT_PREFIX.removeprefix(REQUESTS)
STORAGE_CLASS_INFIX: Final = ".storageclass.storage.k8s.io/"
# Kinds that also have a count under their bare name; pods and volume claims have it from their own evaluators.
BARE_COUNTS: Final = frozenset(
    {
        ("", "configmaps"),
        ("", "replicationcontrollers"),
        ("", "resourcequotas"),
        ("", "secrets"),
        ("", "services"),
    }
)
UNCOUNTED: Final = frozenset({("", "events"), ("events.k8s.io", "events")})  # ignored upstream
_COMPUTE: Final = (pod_requests.CPU, pod_requests.MEMORY, pod_requests.EPHEMERAL_STORAGE)
# Keys for which every container must state an amount, where a quota has them.
STATED_KEYS: Final = frozenset(
    {"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"}
)
_ONE: Final = quantity.Quantity.from_int(1)


def charges_of(table: TableKey, record: Record, shelf: ObjectStore) -> Charges:
    """What an object is charged, by key. A pod that ended is charged as an object only.

    The store is asked for the pod and the classes of a claim.
    """
    if table in UNCOUNTED:
        return {}
    charges = {count_key(table): _ONE}
    if table == POD_TABLE:
        charges |= _of_pod(record.struct)
    elif table == CLAIM_TABLE:
        charges |= _of_claim(record.struct, shelf)
    elif table == VOLUME_CLAIM_TABLE:
        charges |= _of_volume_claim(record.struct)
    elif table == SERVICE_TABLE:
        charges |= _of_service(record.tree)
    if table in BARE_COUNTS:
        charges[table[1]] = _ONE
    return charges


def count_key(table: TableKey) -> str:
    """The key that counts the objects of a kind: count/pods, count/jobs.batch."""
    group, plural = table
    return f"{COUNT_PREFIX}{plural}.{group}" if group else COUNT_PREFIX + plural


def missing_statements(pod: pods.Pod, keys: frozenset[str]) -> dict[str, list[str]]:
    """The containers that leave out an amount a quota counts, by key; none where the pod states it as a whole."""
    required = keys & STATED_KEYS
    if not required:
        return {}
    if pod.spec.resources is not None:
        required -= _compute(pod.spec.resources.requests, pod.spec.resources.limits).keys()

    missing: dict[str, list[str]] = {}
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        resources = container.resources
        stated = _compute(pod_requests.requested(resources), resources.limits)
        for key in required - stated.keys():
            missing.setdefault(key, []).append(container.name)
    return missing


def _of_pod(pod: pods.Pod) -> Charges:
    if pod.status.phase in pods.TERMINAL_PHASES:
        return {}
    requests = pod_requests.request_amounts(pod)
    charges = _compute(requests, pod_requests.limit_amounts(pod))
    charges["pods"] = _ONE
    return charges


def _compute(
    requests: Mapping[str, quantity.Quantity], limits: Mapping[str, quantity.Quantity]
) -> Charges:
    """Requests and limits under the names that quotas have for them."""
    charges: Charges = {}
    for name, amount in requests.items():
        for key in _request_keys(name):
            charges[key] = amount
    for name in _COMPUTE:
        if name in limits:
            charges[LIMITS + name] = limits[name]
    return charges


def _request_keys(name: str) -> Iterator[str]:
    if name in _COMPUTE or name.startswith(pod_requests.HUGE_PAGES):
        yield name
        yield REQUESTS + name
    elif name.startswith(IMPLICIT_RESOURCE) or pod_requests.is_extended(name):
        yield REQUESTS + name


def _of_claim(claim: claims.ResourceClaim, shelf: ObjectStore) -> Charges:
    """The claim, its devices by class, and the same devices as the extended resources that the classes serve.

    Where the scheduler created the claim for extended resources of a pod, the pod is charged for those already.
    """
    counts = resource_quotas.charge(claim.spec.devices)
    charges = {key: quantity.Quantity.from_int(count) for key, count in counts.items()}
    as_resources: Charges = {}
    for key, amount in charges.items():
        if not key.endswith(resource_quotas.DEVICES_SUFFIX):
            continue
        class_name = key.removesuffix(resource_quotas.DEVICES_SUFFIX)
        for resource_key in _resource_keys(class_name, shelf):
            as_resources[resource_key] = amount

    pod_charges = _charges_of_served_pod(claim, shelf)
    for key, amount in as_resources.items():
        remainder = amount.sub(pod_charges.get(key, quantity.ZERO))
        if remainder.nanos > 0:
            charges[key] = remainder
    return charges


def _resource_keys(class_name: str, shelf: ObjectStore) -> Iterator[str]:
    """The keys under which devices of a class are requested as an extended resource."""
    yield resource_quotas.IMPLICIT_PREFIX + class_name
    device_class = shelf.find(registry.DEVICE_CLASS, ("", class_name))
    if device_class is not None and device_class.struct.spec.extended_resource_name:
        yield REQUESTS + device_class.struct.spec.extended_resource_name


def _charges_of_served_pod(claim: claims.ResourceClaim, shelf: ObjectStore) -> Charges:
    """What the pod is charged for whose extended resources the claim was created; nothing for other claims."""
    if claim.metadata.annotations.get(extended_resources.ANNOTATION) != "true":
        return {}
    for owner in claim.metadata.owner_references:
        if not owner.controller or (owner.api_version, owner.kind) != ("v1", "Pod"):
            continue
        record = shelf.find(registry.POD, (claim.metadata.namespace, owner.name))
        if record is not None and record.metadata.uid == owner.uid:
            return _of_pod(record.struct)
    return {}


def _of_volume_claim(claim: volumes.PersistentVolumeClaim) -> Charges:
    charges = {"persistentvolumeclaims": _ONE}
    if claim.size is not None:
        charges["requests.storage"] = claim.size
    if claim.storage_class:
        of_class = {
            f"{claim.storage_class}{STORAGE_CLASS_INFIX}{key}": amount
            for key, amount in charges.items()
        }
        charges |= of_class
    return charges


def _of_service(tree: Tree) -> Charges:
    spec: Tree = tree.get("spec") or {}
    type_ = spec.get("type")
    charges = {}
    has_node_ports = type_ == "NodePort" or (
        type_ == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is not False
    )
    if type_ == "LoadBalancer":
        charges["services.loadbalancers"] = _ONE
    if has_node_ports:
        charges["services.nodeports"] = quantity.Quantity.from_int(len(spec.get("ports") or ()))
    return charges
