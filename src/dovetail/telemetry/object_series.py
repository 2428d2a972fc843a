"""The series that one object of the cluster has: claims, slices, classes and queues, under kube-state-metrics' names.

Given an object, returns its series. Names and labels of the `kube_` metrics are those that kube-state-metrics proposes;
the others are Dovetail's. Pure: what an object does not say has no series.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from dovetail import timestamps
from dovetail.kubetypes import meta
from dovetail.kubetypes.custom import queues
from dovetail.kubetypes.resource import claims, device_classes, slices
from dovetail.model.exposition import Family, Series
from dovetail.quantity import quantity

PARTITION: Final = "mig"  # attribute `type` of a partition that a GPU could have

FAMILIES: Final = tuple(
    Family(name, "gauge", help_)
    for name, help_ in (
        ("kube_resourceclaim_info", "A claim."),
        ("kube_resourceclaim_created", "When the claim was created, in seconds since 1970."),
        ("kube_resourceclaim_status_allocated", "1 if the claim is allocated, else 0."),
        ("kube_resourceclaim_status_reserved_for", "A consumer of the claim."),
        ("kube_resourceclaim_allocation_device_info", "A device that the claim has."),
        ("kube_resourceslice_info", "A slice."),
        ("kube_resourceslice_created", "When the slice was created, in seconds since 1970."),
        ("kube_resourceslice_devices_total", "Devices in the slice."),
        ("kube_resourceslice_device_info", "A device in the slice."),
        ("kube_deviceclass_info", "A device class."),
        ("kube_deviceclass_created", "When the class was created, in seconds since 1970."),
        ("dovetail_device_info", "A whole GPU: its published name, its uuid and its product."),
        ("dovetail_device_unhealthy", "A taint of a device."),
        (
            "dovetail_claim_allocated_timestamp_seconds",
            "When the claim was allocated, in seconds since 1970.",
        ),
        ("dovetail_claim_unused", "An allocated claim that no pod has reserved."),
        ("dovetail_queue_info", "A queue and its parent."),
        ("dovetail_queue_ready", "1 if the queue is ready, else 0."),
        ("dovetail_queue_quota", "What the queue is sure of."),
        ("dovetail_queue_limit", "The most the queue may hold."),
        ("dovetail_queue_charged", "What the queue's work holds."),
        ("dovetail_queue_charged_non_preemptible", "The part of it that may not be evicted."),
        ("dovetail_queue_requested", "What the queue's work holds and waits for."),
        ("dovetail_queue_fair_share", "What the queue is due."),
        ("dovetail_queue_running_pods", "Pods of the queue that run."),
        ("dovetail_queue_pending_pods", "Pods of the queue that wait."),
    )
)


def of_claim(claim: claims.ResourceClaim) -> Iterator[Series]:
    """Its state, its consumers and its devices."""
    own = {"namespace": claim.metadata.namespace, "resourceclaim": claim.metadata.name}
    allocation = claim.status.allocation
    yield Series("kube_resourceclaim_info", own, 1)
    yield from _created("kube_resourceclaim_created", own, claim.metadata)
    yield Series("kube_resourceclaim_status_allocated", own, int(allocation is not None))
    for consumer in claim.status.reserved_for:
        labels = {
            "consumer_apigroup": consumer.api_group,
            "consumer_resource": consumer.resource,
            "consumer_name": consumer.name,
            "consumer_uid": consumer.uid,
        }
        yield Series("kube_resourceclaim_status_reserved_for", own | labels, 1)
    if allocation is None:
        return

    for result in allocation.devices.results:
        labels = {
            "request": result.request,
            "driver": result.driver,
            "pool": result.pool,
            "device": result.device,
        }
        yield Series("kube_resourceclaim_allocation_device_info", own | labels, 1)
    if allocation.allocation_timestamp is not None:
        at = _seconds(allocation.allocation_timestamp)
        yield Series("dovetail_claim_allocated_timestamp_seconds", own, at)
    if not claim.status.reserved_for:
        yield Series("dovetail_claim_unused", own, 1)


def of_slice(slice_: slices.ResourceSlice, *, has_partitions: bool = False) -> Iterator[Series]:
    """The slice and its devices; partitions that a GPU could have only if they are wanted."""
    spec = slice_.spec
    node = spec.node_name or ""
    name = {"resourceslice": slice_.metadata.name}
    own = name | {"driver": spec.driver, "pool_name": spec.pool.name, "node_name": node}
    info = own | {"all_nodes": "true" if spec.all_nodes else "false"}
    yield Series("kube_resourceslice_info", info, 1)
    yield from _created("kube_resourceslice_created", name, slice_.metadata)
    yield Series("kube_resourceslice_devices_total", own, len(spec.devices))
    for device in spec.devices:
        is_partition = _attribute(device, "type", spec.driver) == PARTITION
        if has_partitions or not is_partition:
            yield Series("kube_resourceslice_device_info", own | {"device_name": device.name}, 1)
        identity = {"driver": spec.driver, "pool": spec.pool.name, "device": device.name}
        uuid = _attribute(device, "uuid", spec.driver)
        if uuid and not is_partition:
            facts = {
                "node": node or device.node_name or "",
                "uuid": uuid,
                "product": _attribute(device, "productName", spec.driver),
            }
            yield Series("dovetail_device_info", identity | facts, 1)
        if not is_partition:
            for taint in device.taints:
                labels = {"key": taint.key, "effect": taint.effect}
                yield Series("dovetail_device_unhealthy", identity | labels, 1)


def of_class(class_: device_classes.DeviceClass) -> Iterator[Series]:
    """The class and the extended resource it serves."""
    own = {"deviceclass": class_.metadata.name}
    resource = {"extended_resource_name": class_.spec.extended_resource_name or ""}
    yield Series("kube_deviceclass_info", own | resource, 1)
    yield from _created("kube_deviceclass_created", own, class_.metadata)


def of_queue(queue: queues.Queue) -> Iterator[Series]:
    """What the queue is due and what it holds, as its status has it."""
    own = {"queue": queue.metadata.name}
    yield Series("dovetail_queue_info", own | {"parent": queue.spec.parent}, 1)
    is_ready = any(
        condition.type == "Ready" and condition.status == "True"
        for condition in queue.status.conditions
    )
    yield Series("dovetail_queue_ready", own, int(is_ready))
    yield Series("dovetail_queue_running_pods", own, queue.status.running)
    yield Series("dovetail_queue_pending_pods", own, queue.status.pending)
    for resource, share in queue.spec.resources.items():
        labels = own | {"resource": resource}
        for name, amount in (("quota", share.quota), ("limit", share.limit)):
            if amount is not None and amount < queues.UNLIMITED:
                yield Series(f"dovetail_queue_{name}", labels, amount.approx_float())
    for resource, numbers in queue.status.resources.items():
        labels = own | {"resource": resource}
        for name, text in (
            ("charged", numbers.charged),
            ("charged_non_preemptible", numbers.charged_non_preemptible),
            ("requested", numbers.requested),
            ("fair_share", numbers.fair_share),
        ):
            if text and quantity.is_quantity(text):
                value = quantity.parse(text).approx_float()
                yield Series(f"dovetail_queue_{name}", labels, value)


def _created(name: str, labels: dict[str, str], metadata: meta.ObjectMeta) -> Iterator[Series]:
    if metadata.creation_timestamp is not None:
        yield Series(name, labels, _seconds(metadata.creation_timestamp))


def _seconds(text: str) -> float:
    return timestamps.parse_as_utc(text).timestamp()


def _attribute(device: slices.Device, name: str, driver: str) -> str:
    """A text attribute, with or without the driver's domain in front."""
    attribute: Any = device.attributes.get(name) or device.attributes.get(f"{driver}/{name}")
    return "" if attribute is None else attribute.string_value or ""
