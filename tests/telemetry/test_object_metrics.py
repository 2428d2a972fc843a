"""Metrics of objects, event by event: what is shown is always what a fresh exporter would show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from dovetail.kubetypes import codec, meta, registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.custom import intents, queues
from dovetail.kubetypes.resource import claims, device_classes, slices
from dovetail.model import gangs
from dovetail.telemetry import (
    fragmentation_series,
    gang_counts,
    object_metrics,
    object_series,
    promise_series,
    waiting_pods,
)
from dovetail.world.owners import gang_builder

ROOT = Path(__file__).resolve().parents[2]
AT = "2026-01-01T00:00:00Z"
SECONDS = "1767225600"


def decoded(kind: Any, tree: dict[str, Any]) -> Any:
    return codec.decode_struct(kind, msgspec.json.encode(tree))


def claim(name: str, *, devices: tuple[str, ...] = (), pods: tuple[str, ...] = ()) -> Any:
    results = [
        {"request": "r", "driver": "gpu.nvidia.com", "pool": "n0", "device": device}
        for device in devices
    ]
    status: dict[str, Any] = {}
    if results:
        status["allocation"] = {"devices": {"results": results}, "allocationTimestamp": AT}
    status["reservedFor"] = [{"resource": "pods", "name": pod, "uid": f"u-{pod}"} for pod in pods]
    metadata = {"name": name, "namespace": "ml", "creationTimestamp": AT}
    return decoded(claims.ResourceClaim, {"metadata": metadata, "status": status})


def pod(name: str, gang: str, *, node: str = "", least: str = "") -> Any:
    labels = {"dovetail.dev/gang": gang} if gang else {}
    if least:
        labels["dovetail.dev/gang-min"] = least
    metadata = {
        "name": name,
        "namespace": "ml",
        "uid": f"u-{name}",
        "labels": labels,
        "creationTimestamp": AT,
    }
    return decoded(pods.Pod, {"metadata": metadata, "spec": {"nodeName": node}})


def lines(metrics: object_metrics.ObjectMetrics, prefix: str = "") -> list[str]:
    text = metrics.text().decode()
    return sorted(
        line
        for line in text.splitlines()
        if line.startswith(prefix) and not line.startswith(("#", "dovetail_exporter_synced"))
    )


def test_a_claim_has_kube_state_metrics_series() -> None:
    metrics = object_metrics.ObjectMetrics()
    metrics.changed(registry.CLAIM, claim("a", devices=("gpu-0",), pods=("p",)))
    own = 'namespace="ml",resourceclaim="a"'
    assert lines(metrics, "kube_") == [
        f'kube_resourceclaim_allocation_device_info{{{own},request="r",driver="gpu.nvidia.com",pool="n0",'
        'device="gpu-0"} 1',
        f"kube_resourceclaim_created{{{own}}} {SECONDS}",
        f"kube_resourceclaim_info{{{own}}} 1",
        f"kube_resourceclaim_status_allocated{{{own}}} 1",
        f'kube_resourceclaim_status_reserved_for{{{own},consumer_resource="pods",consumer_name="p",'
        'consumer_uid="u-p"} 1',
    ]
    assert lines(metrics, "dovetail_claim") == [
        f"dovetail_claim_allocated_timestamp_seconds{{{own}}} {SECONDS}"
    ]
    metrics.changed(registry.CLAIM, claim("a", devices=("gpu-0",)))
    assert lines(metrics, "dovetail_claim_unused") == [f"dovetail_claim_unused{{{own}}} 1"]
    metrics.changed(registry.CLAIM, claim("a"))
    assert lines(metrics, "kube_resourceclaim_status_allocated") == [
        f"kube_resourceclaim_status_allocated{{{own}}} 0"
    ]
    assert lines(metrics, "dovetail_claim") == []
    metrics.deleted(registry.CLAIM, claim("a"))
    assert lines(metrics, "kube_") == []


def gpu_slice(name: str) -> Any:
    devices = [
        {
            "name": "gpu-0",
            "attributes": {
                "type": {"string": "gpu"},
                "uuid": {"string": "GPU-a"},
                "gpu.nvidia.com/productName": {"string": "NVIDIA H100"},
            },
            "taints": [{"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}],
        },
        {"name": "gpu-0-mig-1g10gb-19-0", "attributes": {"type": {"string": "mig"}}},
    ]
    spec = {
        "driver": "gpu.nvidia.com",
        "nodeName": "n0",
        "pool": {"name": "n0", "resourceSliceCount": 1},
        "devices": devices,
    }
    return decoded(slices.ResourceSlice, {"metadata": {"name": name}, "spec": spec})


def test_a_slice_lists_whole_gpus_and_partitions_only_if_wanted() -> None:
    metrics = object_metrics.ObjectMetrics()
    metrics.changed(registry.SLICE, gpu_slice("s"))
    own = 'resourceslice="s",driver="gpu.nvidia.com",pool_name="n0",node_name="n0"'
    assert lines(metrics, "kube_resourceslice_device") == [
        f'kube_resourceslice_device_info{{{own},device_name="gpu-0"}} 1',
        f"kube_resourceslice_devices_total{{{own}}} 2",
    ]
    identity = 'driver="gpu.nvidia.com",pool="n0",device="gpu-0"'
    assert lines(metrics, "dovetail_device") == [
        f'dovetail_device_info{{{identity},node="n0",uuid="GPU-a",product="NVIDIA H100"}} 1',
        f'dovetail_device_unhealthy{{{identity},key="gpu.nvidia.com/xid",effect="NoSchedule"}} 1',
    ]
    everything = object_metrics.ObjectMetrics(has_partitions=True)
    everything.changed(registry.SLICE, gpu_slice("s"))
    assert len(lines(everything, "kube_resourceslice_device_info")) == 2


def test_a_queue_shows_the_numbers_of_its_status() -> None:
    tree = {
        "metadata": {"name": "lab"},
        "spec": {"parent": "org", "resources": {"gpu": {"quota": "4", "limit": "1E"}}},
        "status": {
            "running": 3,
            "pending": 1,
            "conditions": [{"type": "Ready", "status": "True"}],
            "resources": {"gpu": {"charged": "2500m", "fairShare": "4", "requested": "nonsense"}},
        },
    }
    metrics = object_metrics.ObjectMetrics()
    metrics.changed(registry.QUEUE, decoded(queues.Queue, tree))
    assert lines(metrics, "dovetail_queue") == [
        'dovetail_queue_charged{queue="lab",resource="gpu"} 2.5',
        'dovetail_queue_fair_share{queue="lab",resource="gpu"} 4',
        'dovetail_queue_info{queue="lab",parent="org"} 1',
        'dovetail_queue_pending_pods{queue="lab"} 1',
        'dovetail_queue_quota{queue="lab",resource="gpu"} 4',
        'dovetail_queue_ready{queue="lab"} 1',
        'dovetail_queue_running_pods{queue="lab"} 3',
    ]


def test_a_class_shows_its_extended_resource() -> None:
    tree = {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "nvidia.com/gpu"}}
    metrics = object_metrics.ObjectMetrics()
    metrics.changed(registry.DEVICE_CLASS, decoded(device_classes.DeviceClass, tree))
    assert lines(metrics, "kube_") == [
        'kube_deviceclass_info{deviceclass="gpu",extended_resource_name="nvidia.com/gpu"} 1'
    ]


def test_a_gang_has_the_minimum_that_its_owner_declares() -> None:
    """As the scheduler reads it: a Job that asks for it is a gang of as many pods as run at a time."""
    metrics = object_metrics.ObjectMetrics()
    receiver = gang_counts.GangReceiver(metrics.gangs)
    builder = gang_builder.GangBuilder(receiver)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u-j", "controller": True}
    metadata = {"name": "j-0", "namespace": "ml", "uid": "u-j-0", "ownerReferences": [owner]}
    metrics.changed(registry.POD, decoded(pods.Pod, {"metadata": metadata}))
    assert lines(metrics, "dovetail_gang") == []
    job = {
        "metadata": {
            "name": "j",
            "namespace": "ml",
            "uid": "u-j",
            "annotations": {"dovetail.dev/gang-min": "3"},
        },
        "spec": {"parallelism": 4, "completions": 4},
    }
    builder.changed(registry.JOB, decoded(registry.JOB.struct, job))
    least = 'dovetail_gang_min_pods{namespace="ml",gang="job/j"} 3'
    assert lines(metrics, "dovetail_gang_min") == [least]
    receiver.replaced(gangs.KIND, [], "")
    assert lines(metrics, "dovetail_gang") == []


def test_the_least_pods_of_nested_groups_are_those_of_the_smallest() -> None:
    groups = (
        gangs.Group(name="a", holds_groups=True, min=1),
        gangs.Group(name="a1", parent="a", min=4),
        gangs.Group(name="a2", parent="a", min=2),
        gangs.Group(name="b", min=3),
        gangs.Group(name="c", min=0),
    )
    gang = gangs.Gang(metadata=meta.ObjectMeta(name="g"), groups=groups, min_groups=3)
    assert gang_counts.least_pods(gang) == 5


def test_waiting_pods_are_counted_by_their_reason_until_they_are_bound() -> None:
    metrics = object_metrics.ObjectMetrics()
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    metadata = {"name": "p", "namespace": "ml", "uid": "u"}
    waiting = {"metadata": metadata, "status": {"conditions": [condition]}}
    metrics.changed(registry.POD, decoded(pods.Pod, waiting))
    metrics.changed(registry.POD, pod("unseen", ""))
    assert lines(metrics, "dovetail_waiting") == ['dovetail_waiting_pods{reason="Unschedulable"} 1']
    metrics.changed(registry.POD, decoded(pods.Pod, {**waiting, "spec": {"nodeName": "n"}}))
    assert lines(metrics, "dovetail_waiting") == []


def intent(name: str, start: str, attempt: int, *, moved_from: str = "") -> intents.Intent:
    seats = (intents.Member(pod="p", uid="u", node="n"),) if start else ()
    promise = intents.Promise(start=start, moved_from=moved_from, seats=seats)
    return intents.Intent(
        metadata=meta.ObjectMeta(namespace="ml", name=name),
        spec=intents.IntentSpec(gang="job/j", attempt=attempt, promise=promise),
    )


def test_promises_are_shown_and_their_moves_counted_once() -> None:
    metrics = object_metrics.ObjectMetrics()
    feed = metrics.feed(registry.INTENT)
    first = intent("first", AT, 1, moved_from="2025-12-01T00:00:00Z")
    feed.replaced([first], "1")  # moved before the exporter began
    shown = 'dovetail_promised_start_timestamp_seconds{namespace="ml",gang="job/j"}'
    moved = 'dovetail_promises_moved_total{namespace="ml"}'
    assert lines(metrics, "dovetail_promise") == [f"{shown} {SECONDS}", f"{moved} 0"]
    second = intent("second", "2026-01-01T01:00:00Z", 2, moved_from=AT)
    feed.changed(second)
    feed.deleted(first)
    feed.replaced([second], "2")
    later = [f"{shown} {int(SECONDS) + 3600}", f"{moved} 1"]
    assert lines(metrics, "dovetail_promise") == later
    feed.changed(intent("third", "2026-01-01T00:30:00Z", 3))  # earlier: kept
    feed.changed(intent("fourth", "", 4, moved_from=AT))  # lost
    assert lines(metrics, "dovetail_promise") == [f"{moved} 2"]


def test_gangs_are_counted_and_pods_alone_are_not() -> None:
    metrics = object_metrics.ObjectMetrics()
    for each in (pod("a", "g", node="n0", least="2"), pod("b", "g"), pod("c", "")):
        metrics.changed(registry.POD, each)
    shown = lines(metrics, "dovetail_gang")
    assert [re.sub(r'gang="[^"]*g"', 'gang="g"', line) for line in shown] == [
        f'dovetail_gang_created_timestamp_seconds{{namespace="ml",gang="g"}} {SECONDS}',
        'dovetail_gang_min_pods{namespace="ml",gang="g"} 2',
        'dovetail_gang_pods{namespace="ml",gang="g",state="pending"} 1',
        'dovetail_gang_pods{namespace="ml",gang="g",state="running"} 1',
    ]
    metrics.deleted(registry.POD, pod("a", "g"))
    metrics.deleted(registry.POD, pod("b", "g"))
    assert lines(metrics, "dovetail_gang") == []


names = st.sampled_from(["a", "b", "c"])
events = st.one_of(
    st.tuples(
        st.just(registry.CLAIM),
        st.booleans(),
        st.builds(
            claim,
            names,
            devices=st.sampled_from([(), ("gpu-0",), ("gpu-0", "gpu-1")]),
            pods=st.sampled_from([(), ("p",)]),
        ),
    ),
    st.tuples(
        st.just(registry.POD),
        st.booleans(),
        st.builds(pod, names, st.sampled_from(["", "g"]), node=st.sampled_from(["", "n0"])),
    ),
    st.tuples(st.just(registry.SLICE), st.booleans(), st.builds(gpu_slice, names)),
)


@given(st.lists(events, max_size=30), st.booleans())
def test_after_any_events_the_text_is_that_of_the_objects_that_are_left(
    history: list[tuple[registry.Kind, bool, Any]], scrapes: bool
) -> None:
    metrics = object_metrics.ObjectMetrics()
    left: dict[tuple[str, str], tuple[registry.Kind, Any]] = {}
    for kind, is_deleted, item in history:
        key = (kind.name, item.metadata.name)
        if is_deleted:
            metrics.deleted(kind, item)
            left.pop(key, None)
        else:
            metrics.changed(kind, item)
            left[key] = (kind, item)
        if scrapes:
            metrics.text()
    fresh = object_metrics.ObjectMetrics()
    for kind in object_metrics.KINDS:
        fresh.replaced(kind, [item for of, item in left.values() if of is kind])
    assert lines(metrics) == lines(fresh)


def test_every_family_is_on_the_page_of_metrics() -> None:
    page = (ROOT / "docs" / "reference" / "metrics-of-devices.md").read_text(encoding="utf-8")
    families = (
        *object_series.FAMILIES,
        *gang_counts.FAMILIES,
        *waiting_pods.FAMILIES,
        *promise_series.FAMILIES,
        *fragmentation_series.FAMILIES,
        *object_metrics.OWN,
    )
    missing = [family.name for family in families if f"`{family.name}`" not in page]
    assert not missing
