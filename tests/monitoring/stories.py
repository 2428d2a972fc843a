"""For every alert: series that make it fire and let it end again, and series that come close and must not.

Times and values are in promtool's notation: `0x5 79x10` are six zeros, then eleven times 79, one value per step; `_` is
no value, `stale` the end of a series.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from dovetail.monitoring.rules import rules_file
from dovetail.monitoring.rules.rule import Alert, Group, Recording


class Story(NamedTuple):
    """One alert over time. It fires at `fires` with exactly these labels, and is quiet at the other times."""

    alert: str
    series: dict[str, str]
    quiet: tuple[str, ...]
    fires: tuple[str, ...] = ()
    labels: Mapping[str, str] = MappingProxyType({})
    step: str = "1m"  # between values, and between evaluations


STORIES: list[Story] = []


def fires(
    alert: str,
    series: dict[str, str],
    before: str,
    at: str,
    over: str,
    step: str = "1m",
    **labels: str,
) -> None:
    """The alert is quiet, fires, and is over."""
    STORIES.append(Story(alert, series, (before, over), (at,), labels, step))


def stays_quiet(alert: str, series: dict[str, str], *at: str, step: str = "1m") -> None:
    """Close to the alert's condition, and still nothing to report."""
    STORIES.append(Story(alert, series, at, step=step))


def selector(metric: str, **labels: str) -> str:
    inside = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{metric}{{{inside}}}"


GPU = {"UUID": "GPU-1", "gpu": "0", "modelName": "H100"}
ON_NODE = {"Hostname": "n1", **GPU}
HOLDER = {"namespace": "train", "pod": "llama-0"}
PASSED_ON = {**ON_NODE, "node": "n1"}
RECORDED = {**PASSED_ON, "vendor": "nvidia"}
COUNTED = {**GPU, "node": "n1", "vendor": "nvidia"}
UNSUPPORTED = "9223372036854775794"


def of_gpu(field: str, **labels: str) -> str:
    return selector(f"DCGM_FI_{field}", **{**ON_NODE, **labels})


# --- devices

XID = "DEV_XID_ERRORS"
fires(
    "GpuXidHardware",
    {of_gpu(XID, **HOLDER): "0x5 79x10 0x10"},
    *("4m", "6m", "20m"),
    **{**COUNTED, **HOLDER, "xid": "79"},
)
# As DCGM's exporter spells the host since 4.8, scraped by a Prometheus that renames labels of the holder.
fires(
    "GpuXidHardware",
    {
        selector(
            f"DCGM_FI_{XID}",
            hostname="n1",
            pod="dcgm-exporter-x",
            exported_pod="llama-0",
            namespace="monitoring",
            exported_namespace="train",
            **GPU,
        ): "0x5 48x10 0x10"
    },
    *("4m", "6m", "20m"),
    **{**COUNTED, **HOLDER, "xid": "48"},
)
for code in ("31", "63", UNSUPPORTED):
    stays_quiet("GpuXidHardware", {of_gpu(XID): f"{code}x20"}, "10m")
fires(
    "GpuXidUnknown",
    {of_gpu(XID): "0x5 999x10 0x10"},
    *("4m", "6m", "20m"),
    **{**COUNTED, "xid": "999"},
)
for code in ("31", "63", "79"):
    stays_quiet("GpuXidUnknown", {of_gpu(XID): f"{code}x20"}, "10m")
fires(
    "GpuXidApplication",
    {of_gpu(XID, **HOLDER): "0x5 31x40"},
    *("4m", "10m", "30m"),  # the code stays, but it is no news any more
    **{**COUNTED, **HOLDER, "xid": "31"},
)
fires(
    "GpuXidApplication",
    {selector("DCGM_EXP_XID_ERRORS_COUNT", **ON_NODE, xid="13"): "0x5 2x5 0x10"},
    *("4m", "7m", "15m"),
    **{**COUNTED, "xid": "13"},
)
stays_quiet("GpuXidApplication", {of_gpu(XID): "31x40"}, "20m")
stays_quiet("GpuXidApplication", {of_gpu(XID): "0x5 79x10"}, "10m")
fires(
    "GpuRowRemapFailed",
    {of_gpu("DEV_ROW_REMAP_FAILURE"): "0x5 1x5 0x10"},
    *("4m", "7m", "15m"),
    **PASSED_ON,
)
stays_quiet("GpuRowRemapFailed", {of_gpu("DEV_ROW_REMAP_FAILURE"): f"{UNSUPPORTED}x20"}, "10m")
fires(
    "GpuRowsRemapped",
    {of_gpu("DEV_UNCORRECTABLE_REMAPPED_ROWS"): "3x5 5x60"},
    *("4h", "8h", "32h"),
    "1h",
    **PASSED_ON,
)
stays_quiet("GpuRowsRemapped", {of_gpu("DEV_UNCORRECTABLE_REMAPPED_ROWS"): "3x40"}, "8h", step="1h")
TAINT = {"driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-0", "key": "gpu.nvidia.com/xid"}
fires(
    "GpuUnhealthy",
    {selector("dovetail_device_unhealthy", **TAINT, effect="NoSchedule"): "_x5 1x15 stale"},
    *("8m", "15m", "25m"),
    **TAINT,
    effect="NoSchedule",
)
stays_quiet(
    "GpuUnhealthy", {selector("dovetail_device_unhealthy", **TAINT, effect="None"): "1x30"}, "20m"
)
TEMPERATURE = "DEV_GPU_TEMP"
fires("GpuHot", {of_gpu(TEMPERATURE): "60x5 92x15 60x10"}, *("8m", "15m", "30m"), **RECORDED)
stays_quiet("GpuHot", {of_gpu(TEMPERATURE): "89x30"}, "20m")
stays_quiet("GpuHot", {of_gpu(TEMPERATURE): f"{UNSUPPORTED}x30"}, "20m")
CLOCKS = "DEV_CLOCKS_EVENT_REASONS"
fires(
    "GpuSlowedDown",
    {of_gpu(CLOCKS): "1x10 65x30 1x60"},  # 0x40 heat, 0x1 idle
    *("9m", "35m", "80m"),
    **PASSED_ON,
)
fires(
    "GpuSlowedDown", {of_gpu(CLOCKS): "0x10 128x30 0x60"}, *("9m", "35m", "80m"), **PASSED_ON
)  # 0x80 power brake
stays_quiet("GpuSlowedDown", {of_gpu(CLOCKS): "4x60"}, "20m", "40m")  # 0x4: the power cap
stays_quiet("GpuSlowedDown", {of_gpu(CLOCKS): "0x20 64x2 0x30"}, "25m", "40m")
fires(
    "GpuNvlinkErrors",
    {of_gpu("DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL"): "0x10 0+1x30 30x60"},
    *("9m", "30m", "80m"),
    **PASSED_ON,
)
fires(
    "GpuNvlinkErrors",
    {of_gpu("DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL"): "0x10 0+50x30 1500x60"},
    *("9m", "30m", "80m"),
    **PASSED_ON,
)
stays_quiet(
    "GpuNvlinkErrors", {of_gpu("DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL"): "0+1x60"}, "30m", "50m"
)


def device_info(node: str, device: str) -> str:
    return selector(
        "dovetail_device_info",
        driver="gpu.nvidia.com",
        pool=node,
        device=device,
        node=node,
        uuid=f"GPU-{node}-{device}",
        product="H100",
    )


def temperature(node: str, **labels: str) -> str:
    return selector(f"DCGM_FI_{TEMPERATURE}", **{**GPU, "Hostname": node, **labels})


fires(
    "GpuMetricsMissing",
    {
        device_info("n1", "gpu-0"): "1x70",
        temperature("n1"): "50x10 _x30 50x30",
        temperature("n2"): "50x70",
    },
    *("20m", "38m", "50m"),
    node="n1",
)
stays_quiet("GpuMetricsMissing", {device_info("n1", "gpu-0"): "1x70"}, "40m")  # no metrics at all
UNREAD = selector("dovetail_node_gpus", instance="n1:9101", state="unread")
fires(
    "GpuUnread",
    {UNREAD: "0x5 1x20 0x10"},
    *("10m", "20m", "35m"),
    instance="n1:9101",
    state="unread",
)
stays_quiet("GpuUnread", {UNREAD.replace("unread", "read"): "8x30"}, "20m")
fires(
    "GpuDriverSkew",
    {
        temperature("n1", DCGM_FI_DRIVER_VERSION="580.1"): "50x60",
        temperature("n2", DCGM_FI_DRIVER_VERSION="570.1"): "50x30 _x30",
    },
    *("20h", "28h", "40h"),
    "1h",
    modelName="H100",
)
stays_quiet(
    "GpuDriverSkew",
    {
        temperature("n1", DCGM_FI_DRIVER_VERSION="580.1"): "50x60",
        temperature("n2", DCGM_FI_DRIVER_VERSION="570.1", modelName="L4"): "50x60",
    },
    "40h",
    step="1h",
)
MIG = selector("kube_node_labels", node="n1", label_nvidia_com_mig_config_state="failed")
fires(
    "GpuMigConfigFailed",
    {MIG: "_x3 1x10 stale"},
    *("5m", "12m", "20m"),
    node="n1",
    label_nvidia_com_mig_config_state="failed",
)
stays_quiet("GpuMigConfigFailed", {MIG.replace("failed", "success"): "1x30"}, "20m")

# --- claims


def slice_info(node: str) -> str:
    return selector(
        "kube_resourceslice_info",
        resourceslice=f"{node}-a",
        driver="gpu.nvidia.com",
        pool_name=node,
        node_name=node,
    )


fires(
    "ResourceSliceMissing",
    {
        temperature("n1"): "50x60",
        temperature("n2"): "50x60",
        slice_info("n1"): "1x5 stale _x24 1x30",
        slice_info("n2"): "1x60",
    },
    *("10m", "25m", "40m"),
    node="n1",
)
stays_quiet(
    "ResourceSliceMissing", {temperature("n1"): "50x60"}, "30m"
)  # a device plugin's cluster
fires(
    "ResourcePoolShrank",
    {device_info("n1", "gpu-0"): "1x40", device_info("n1", "gpu-1"): "1x5 _x5 1x30"},
    *("5h", "8h", "14h"),
    "1h",
    node="n1",
)
stays_quiet(
    "ResourcePoolShrank",
    {device_info("n1", "gpu-0"): "1x20", device_info("n1", "gpu-1"): "_x5 1x15"},
    "8h",
    step="1h",
)
CLAIM = {"namespace": "train", "resourceclaim": "llama-gpu"}
fires(
    "ClaimUnused",
    {selector("dovetail_claim_unused", **CLAIM): "_x5 1x30 stale"},
    *("15m", "30m", "45m"),
    **CLAIM,
)
stays_quiet("ClaimUnused", {selector("dovetail_claim_unused", **CLAIM): "0x30"}, "25m")


def preparations(result: str) -> str:
    return selector(
        "dovetail_node_claims_total", instance="n1:9101", operation="prepare", result=result
    )


fires(
    "ClaimPreparationFails",
    {preparations("failed"): "0x5 0+1x20 20x40", preparations("ok"): "7x70"},
    *("6m", "20m", "50m"),
    instance="n1:9101",
    operation="prepare",
    result="failed",
)
stays_quiet(
    "ClaimPreparationFails",
    {preparations("failed"): "0+1x40", preparations("ok"): "0+1x40"},
    "20m",
    "35m",
)
ACTIVE = "PROF_GR_ENGINE_ACTIVE"
fires(
    "GpuAllocatedIdle",
    {of_gpu(ACTIVE, **HOLDER): "0.9x10 0x80 0.5x20"},
    *("65m", "80m", "100m"),
    **HOLDER,
    node="n1",
    UUID="GPU-1",
)
fires(  # a board without profiling counters
    "GpuAllocatedIdle",
    {of_gpu("DEV_GPU_UTIL", **HOLDER): "90x10 0x80 50x20"},
    *("65m", "80m", "100m"),
    **HOLDER,
    node="n1",
    UUID="GPU-1",
)
stays_quiet("GpuAllocatedIdle", {of_gpu(ACTIVE): "0x90"}, "80m")  # nobody holds it
stays_quiet("GpuAllocatedIdle", {of_gpu(ACTIVE, **HOLDER): "0x40 0.3 0x40"}, "75m")


def holders(*busy: str) -> dict[str, str]:
    return {
        of_gpu(ACTIVE, **HOLDER, UUID=f"GPU-{index}"): values for index, values in enumerate(busy)
    }


fires(
    "FleetIdle",
    holders("0x60 0.8x20", "0.8x80"),
    *("5h", "8h", "13h"),
    "10m",
)
stays_quiet("FleetIdle", holders("0x80", "0.8x80", "0.8x80", "0.8x80"), "10h", step="10m")

# --- queues


def of_queue(figure: str, **labels: str) -> str:
    return selector(f"dovetail_queue_{figure}", queue="research", **labels)


def queue(charged: str, fair_share: str, requested: str, pending: str) -> dict[str, str]:
    return {
        of_queue("charged", resource="gpu"): charged,
        of_queue("fair_share", resource="gpu"): fair_share,
        of_queue("requested", resource="gpu"): requested,
        of_queue("pending_pods"): pending,
    }


fires(
    "QueueStarved",
    queue("8x5 2x40 8x20", "8x65", "12x65", "4x65"),
    *("30m", "40m", "55m"),
    queue="research",
    resource="gpu",
)
stays_quiet("QueueStarved", queue("2x60", "8x60", "2x60", "0x60"), "50m")  # it wants no more
stays_quiet("QueueStarved", queue("8x60", "8x60", "12x60", "4x60"), "50m")  # it has its share
fires(
    "QueueNotReady",
    {of_queue("ready"): "1x5 0x20 1x10"},
    *("10m", "20m", "35m"),
    queue="research",
)
stays_quiet("QueueNotReady", {of_queue("ready"): "0x5 1x30"}, "20m")


def gang(running: str, pending: str = "0x600") -> dict[str, str]:
    labels = {"namespace": "train", "gang": "llama"}
    return {
        selector("dovetail_gang_pods", **labels, state="running"): running,
        selector("dovetail_gang_pods", **labels, state="pending"): pending,
        selector("dovetail_gang_min_pods", **labels): "8x600",
        selector("dovetail_gang_created_timestamp_seconds", **labels): "0x600",
    }


fires(
    "GangPartial",
    gang("8x5 3x20 8x10"),
    *("10m", "20m", "35m"),
    namespace="train",
    gang="llama",
    state="running",
)
stays_quiet("GangPartial", gang("0x30"), "20m")  # it waits as a whole
stays_quiet("GangPartial", gang("8x30"), "20m")
fires(
    "GangWaitsLong",
    gang("0x30 8x20", "8x30 0x20"),
    *("230m", "270m", "330m"),
    "10m",
    namespace="train",
    gang="llama",
)
stays_quiet("GangWaitsLong", gang("8x50", "2x50"), "400m", step="10m")  # more members than must run


def parked(values: str) -> dict[str, str]:
    return {selector("scheduler_pending_pods", queue="unschedulable"): values}


def held(device: str) -> str:
    return selector(
        "kube_resourceclaim_allocation_device_info",
        namespace="train",
        resourceclaim=device,
        request="gpu",
        driver="gpu.nvidia.com",
        pool="n1",
        device=device,
    )


TWO_GPUS = {device_info("n1", "gpu-0"): "1x80", device_info("n1", "gpu-1"): "1x80"}
fires(
    "PodsWaitBesideFreeGpus",
    {**TWO_GPUS, **parked("0x5 3x75"), held("gpu-0"): "1x80", held("gpu-1"): "_x50 1x30"},
    *("30m", "45m", "60m"),
)
fires(  # not one is held
    "PodsWaitBesideFreeGpus", {**TWO_GPUS, **parked("0x5 3x40 0x20")}, *("30m", "40m", "60m")
)
stays_quiet(  # one slice of the second GPU is enough
    "PodsWaitBesideFreeGpus",
    {
        **TWO_GPUS,
        **parked("3x60"),
        held("gpu-0"): "1x60",
        held("gpu-1-mig-1g10gb-19-0"): "1x60",
    },
    "50m",
)
fires("PodsUnschedulable", parked("0x5 3x30 0x10"), *("200m", "340m", "400m"), "10m")
stays_quiet("PodsUnschedulable", parked("3x20 0x1 3x20"), "350m", step="10m")


def waiting(reason: str, values: str) -> dict[str, str]:
    synced = selector("dovetail_exporter_synced", kind="Pod")
    return {selector("dovetail_waiting_pods", reason=reason): values, synced: "1x60"}


fires(  # once, with the reason, although the scheduler counts them as well
    "PodsUnschedulable",
    {**waiting("QuotaExceeded", "_x5 3x30 stale"), **parked("0x5 3x30 0x10")},
    *("200m", "340m", "400m"),
    "10m",
    reason="QuotaExceeded",
)
stays_quiet("PodsUnschedulable", waiting("SchedulingGated", "3x50"), "400m", step="10m")
MOVED = selector("dovetail_promises_moved_total", namespace="train")
fires("PromisesMoved", {MOVED: "0x10 1x90"}, *("9m", "15m", "90m"), namespace="train")
stays_quiet("PromisesMoved", {MOVED: "4x90"}, "30m")

# --- history

UNTIL = selector("dovetail_history_watched_until_timestamp_seconds", job="history")
fires("DovetailHistoryStopped", {UNTIL: "0+60x20 1200x20 2400+60x20"}, *("25m", "36m", "50m"))
fires(  # its pod is gone
    "DovetailHistoryStopped", {UNTIL: "0+60x20 _x20 2400+60x20"}, *("25m", "36m", "50m")
)
stays_quiet("DovetailHistoryStopped", {UNTIL: "0+60x10 600x8 1140+60x20"}, "18m", "30m")
GAP = selector("dovetail_history_gap_seconds_total", source="metrics")
fires(
    "DovetailHistoryGaps",
    {GAP: "0x10 4000x200"},
    *("90m", "120m", "1900m"),
    "10m",
    source="metrics",
)
stays_quiet("DovetailHistoryGaps", {GAP: "0x10 3000x50"}, "120m", "300m", step="10m")


def budget(forecast: str) -> dict[str, str]:
    labels = {"queue": "research", "currency": "USD"}
    return {
        selector("dovetail_queue_budget", **labels): "100x60",
        selector("dovetail_queue_budget_forecast", **labels): forecast,
    }


fires(
    "QueueBudgetForecast",
    budget("90x5 110x15 90x10"),
    *("40m", "150m", "250m"),
    "10m",
    queue="research",
    currency="USD",
)
stays_quiet("QueueBudgetForecast", budget("100x60"), "300m", step="10m")


def deciding(under_one_second: str, under_two: str) -> dict[str, str]:
    name = "scheduler_scheduling_algorithm_duration_seconds_bucket"
    return {
        selector(name, le="1"): under_one_second,
        selector(name, le="2"): under_two,
        selector(name, le="+Inf"): under_two,
    }


fires(
    "SchedulingSlow",
    deciding("0+10x10 110x30 110+10x30", "0+10x10 110+10x30 410+10x30"),
    *("10m", "35m", "60m"),
)
stays_quiet("SchedulingSlow", deciding("0+1000x40", "0+1001x40"), "35m")

# --- the scheduler

REPLICA = {"namespace": "dovetail-system", "job": "dovetail-scheduler"}


def leading(first: str, second: str) -> dict[str, str]:
    return {
        selector("dovetail_leader", **REPLICA, instance="a"): first,
        selector("dovetail_leader", **REPLICA, instance="b"): second,
    }


fires("DovetailSchedulerAbsent", leading("1x5 _x30 1x10", "_"), *("10m", "30m", "40m"))
stays_quiet("DovetailSchedulerAbsent", leading("0x30", "0x30"), "20m")
fires("DovetailNotLeading", leading("1x5 0x20", "0x15 1x10"), *("5m", "12m", "20m"), **REPLICA)
stays_quiet("DovetailNotLeading", leading("1x20", "0x20"), "10m")
fires("DovetailTwoLeaders", leading("1x30", "0x5 1x5 0x20"), *("5m", "9m", "20m"), **REPLICA)
stays_quiet("DovetailTwoLeaders", leading("1x5 0x20", "0x5 1x20"), "6m", "10m")


def gauge(metric: str, values: str, **labels: str) -> dict[str, str]:
    return {selector(metric, **labels): values}


LOOP = "dovetail_loop_held_seconds"
fires(
    "DovetailLoopHeld",
    gauge(LOOP, "0x5 12+5x5 0x20", instance="a"),
    *("6m", "9m", "20m"),
    instance="a",
)
stays_quiet("DovetailLoopHeld", gauge(LOOP, "8x20", instance="a"), "15m")
STALLED = "dovetail_stalled_seconds"
fires(
    "DovetailStalled",
    gauge(STALLED, "0x5 0+60x20 0x10", instance="a"),
    *("11m", "16m", "35m"),
    instance="a",
)
stays_quiet("DovetailStalled", gauge(STALLED, "290x20", instance="a"), "15m")
RESTARTS = "dovetail_watch_restarts_total"
fires(
    "DovetailInformerUnstable",
    gauge(RESTARTS, "0x5 0+2x40 80x40", kind="Pod", reason="closed"),
    *("8m", "35m", "75m"),
    kind="Pod",
)
stays_quiet(
    "DovetailInformerUnstable",
    gauge(RESTARTS, "0x10 1x5 2x30", kind="Pod", reason="closed"),
    "20m",
    "40m",
)
fires(
    "DovetailObjectsUnreadable",
    gauge(RESTARTS, "0x5 1x60", kind="Pod", reason="unreadable"),
    *("4m", "8m", "40m"),
    kind="Pod",
)
stays_quiet(
    "DovetailObjectsUnreadable", gauge(RESTARTS, "0+1x30", kind="Pod", reason="closed"), "20m"
)


def writes(good: str, bad: str) -> dict[str, str]:
    return {
        selector("dovetail_writes_total", what="binding", result="ok"): good,
        selector("dovetail_writes_total", what="binding", result="conflict"): bad,
    }


fires(
    "DovetailWriteErrors",
    writes("0+6x80", "0x5 0+6x40 240x40"),
    *("8m", "35m", "70m"),
    what="binding",
)
stays_quiet("DovetailWriteErrors", writes("0+9x40", "0+1x40"), "30m")
GIVEN_UP = "dovetail_writes_given_up_total"
fires(
    "DovetailWritesGivenUp",
    gauge(GIVEN_UP, "0x5 1x100", what="release"),
    *("4m", "10m", "80m"),
    what="release",
)
stays_quiet("DovetailWritesGivenUp", gauge(GIVEN_UP, "4x100", what="release"), "60m")
for metric in (
    "dovetail_decision_errors_total",
    "dovetail_turn_errors_total",
    "dovetail_tenure_errors_total",
    "dovetail_plan_errors_total",
):
    fires("DovetailDefects", gauge(metric, "0x5 1x100"), *("4m", "10m", "80m"))
    stays_quiet("DovetailDefects", gauge(metric, "7x100"), "60m")
ASIDE = "dovetail_gangs_set_aside"
fires(
    "DovetailGangsSetAside",
    gauge(ASIDE, "0x5 1x20 0x10", state="waiting"),
    *("10m", "20m", "35m"),
    state="waiting",
)
stays_quiet("DovetailGangsSetAside", gauge(ASIDE, "0x30", state="waiting"), "20m")
GANGS = "dovetail_gangs_total"
fires("DovetailGangsBoundInPart", gauge(GANGS, "0x5 1x100", result="partly"), *("4m", "10m", "80m"))
stays_quiet("DovetailGangsBoundInPart", gauge(GANGS, "0+1x60", result="bound"), "40m")
OVERLAPS = "dovetail_overlaps"
fires("DovetailOverlap", gauge(OVERLAPS, "0x5 2x10 0x10", instance="a"), *("6m", "10m", "20m"))
stays_quiet("DovetailOverlap", gauge(OVERLAPS, "0x5 1x1 0x10", instance="a"), "8m")
QUARANTINE = "dovetail_quarantined_devices"
fires("DovetailQuarantine", gauge(QUARANTINE, "0x5 1x90 0x20"), *("50m", "80m", "105m"))
stays_quiet("DovetailQuarantine", gauge(QUARANTINE, "0x5 1x40 0x40"), "40m", "70m")
DROPPED = "dovetail_fields_dropped_total"
fires(
    "DovetailFieldsDropped",
    gauge(DROPPED, "0x5 1x100", field="status.devices"),
    *("4m", "10m", "80m"),
    field="status.devices",
)
stays_quiet("DovetailFieldsDropped", gauge(DROPPED, "1x100", field="status.devices"), "60m")
SYNCED = "dovetail_exporter_synced"
fires(
    "DovetailExporterAbsent",
    {**leading("1x80", "0x80"), **gauge(SYNCED, "1x5 _x40 1x20", kind="Pod")},
    *("20m", "40m", "55m"),
)
stays_quiet("DovetailExporterAbsent", {selector("up", job="a"): "1x40"}, "30m")  # no Dovetail there
fires(
    "DovetailExporterStale",
    gauge(SYNCED, "1x5 0x20 1x10", kind="Pod", instance="e"),
    *("8m", "20m", "30m"),
    kind="Pod",
    instance="e",
)
stays_quiet("DovetailExporterStale", gauge(SYNCED, "0x3 1x30", kind="Pod"), "20m")
DEVICE_METRICS = "dovetail_device_metrics_up"
fires("DovetailDeviceMetricsDown", gauge(DEVICE_METRICS, "1x5 0x30 1x10"), *("15m", "30m", "45m"))
stays_quiet(
    "DovetailDeviceMetricsDown",
    {
        selector(DEVICE_METRICS, instance="a"): "1x40",
        selector(DEVICE_METRICS, instance="b"): "0x40",  # a replica that stands by
    },
    "30m",
)
AGENT_WORK = "dovetail_node_restarts_total"
fires(
    "DovetailNodeAgentRestarts",
    gauge(AGENT_WORK, "0x5 0+1x10 10x100", instance="n1:9101", work="health"),
    *("4m", "20m", "100m"),
    instance="n1:9101",
    work="health",
)
stays_quiet(
    "DovetailNodeAgentRestarts",
    gauge(AGENT_WORK, "0x30 2x60", instance="n1:9101", work="health"),
    "60m",
)

# --- upgrades

UPGRADE_PHASE = "dovetail_lifecycle_upgrade_phase"
UPGRADE_NODES = "dovetail_lifecycle_nodes"
PHASE_SECONDS = "dovetail_lifecycle_node_phase_seconds"
PHASE_LIMIT = "dovetail_lifecycle_node_phase_limit_seconds"
CONDITION = "dovetail_lifecycle_upgrade_condition"
LIFECYCLE = "dovetail_lifecycle_leading"
REPLICA = {"instance": "a:9104"}
ROLL = {"upgrade": "roll"}
SLOW = {"upgrade": "roll", "node": "n1", "phase": "Draining"}
fires(
    "StackUpgradeStopped",
    {
        selector(UPGRADE_PHASE, **REPLICA, **ROLL, phase="Progressing"): "1x4 stale",
        selector(UPGRADE_PHASE, **REPLICA, **ROLL, phase="Stopped"): "_x5 1x10 stale",
    },
    *("4m", "8m", "20m"),
    **ROLL,
)
stays_quiet(
    "StackUpgradeStopped",
    gauge(UPGRADE_PHASE, "1x30", **REPLICA, **ROLL, phase="Completed"),
    "20m",
)
fires(
    "StackUpgradeNodesFailed",
    gauge(UPGRADE_NODES, "0x5 1x15 0x10", **REPLICA, **ROLL, phase="Failed"),
    *("8m", "15m", "25m"),
    **ROLL,
)
stays_quiet(
    "StackUpgradeNodesFailed",
    gauge(UPGRADE_NODES, "3x30", **REPLICA, **ROLL, phase="Draining"),
    "20m",
)
fires(
    "StackUpgradeStuck",
    {
        selector(PHASE_SECONDS, **REPLICA, **SLOW): "0+60x40 stale",
        selector(PHASE_LIMIT, **REPLICA, **SLOW): "600x40 stale",
    },
    *("18m", "25m", "45m"),
    **SLOW,
)
# Within its limit; and a person's work, which has none.
stays_quiet(
    "StackUpgradeStuck",
    {
        selector(PHASE_SECONDS, **REPLICA, **SLOW): "0+60x60",
        selector(PHASE_LIMIT, **REPLICA, **SLOW): "3600x60",
    },
    *("30m", "58m"),
)
stays_quiet("StackUpgradeStuck", gauge(PHASE_SECONDS, "0+60x90", **REPLICA, **SLOW), "80m")
HEAL_NODES = "dovetail_heal_nodes"
fires(
    "GpuHealingWaits",
    gauge(HEAL_NODES, "0x5 2x30 0x10", **REPLICA, state="stuck"),
    *("18m", "25m", "40m"),
    state="stuck",
)
# Remedies under way wait for no person.
stays_quiet("GpuHealingWaits", gauge(HEAL_NODES, "3x60", **REPLICA, state="draining"), "50m")
BREAKER = "dovetail_heal_breaker_open"
fires(
    "GpuHealingBreakerOpen",
    gauge(BREAKER, "0x5 1x20 0x10", **REPLICA, pool="h100"),
    *("12m", "20m", "30m"),
    pool="h100",
)
stays_quiet("GpuHealingBreakerOpen", gauge(BREAKER, "0x60", **REPLICA, pool="h100"), "50m")
UNDER_WAY = selector(CONDITION, **REPLICA, **ROLL, condition="Progressing")
fires(
    "DovetailLifecycleAbsent",
    {
        UNDER_WAY: "1x20 stale",
        selector(LIFECYCLE, instance="a:9104"): "1x20 stale",
        selector(LIFECYCLE, instance="b:9104"): "0x60 1x60",
    },
    *("25m", "40m", "70m"),
    **ROLL,
)
stays_quiet(
    "DovetailLifecycleAbsent",
    {UNDER_WAY: "1x10 0x10 stale", selector(LIFECYCLE, **REPLICA): "1x20 stale"},
    *("30m", "50m"),
)
# A replica takes over: what the one before it said last does not count.
stays_quiet(
    "DovetailLifecycleAbsent",
    {
        UNDER_WAY: "1x10 stale",
        selector(LIFECYCLE, instance="a:9104"): "1x10 stale",
        selector(LIFECYCLE, instance="b:9104"): "0x10 1x90",
    },
    *("30m", "90m"),
)


def of_alert(name: str) -> list[Story]:
    """Every story of one alert."""
    return [story for story in STORIES if story.alert == name]


def promtool_tests(alert: Alert, rules: str) -> list[dict[str, object]]:
    """The stories of an alert as files of promtool's unit tests: one for each step that they have."""
    labels = {"severity": alert.severity.value, "audience": alert.audience.value}
    told = of_alert(alert.name)
    return [
        {
            "rule_files": [rules],
            "evaluation_interval": step,
            # Recorded series first, or an alert would see those of an hour ago.
            "group_eval_order": [group.name for group in groups_of(alert)],
            "tests": [_test(story, labels) for story in told if story.step == step],
        }
        for step in sorted({story.step for story in told})
    ]


def groups_of(alert: Alert) -> tuple[Group, ...]:
    """The alert alone, after the recorded series that it reads: a tenth of the work for promtool."""
    recorded: list[Recording] = []
    text = alert.expr
    for recording in reversed(list(rules_file.recordings())):
        if recording.record in text:
            recorded.insert(0, recording)
            text += recording.expr
    alone = Group(name="alert", rules=(alert,))
    return (Group(name="recorded", rules=tuple(recorded)), alone) if recorded else (alone,)


def _test(story: Story, alert_labels: dict[str, str]) -> dict[str, object]:
    firing = selector("ALERTS", alertname=story.alert, alertstate="firing")
    labels = {"alertname": story.alert, "alertstate": "firing", **alert_labels, **story.labels}
    sample = {"labels": selector("ALERTS", **labels), "value": 1}
    series = [{"series": name, "values": values} for name, values in story.series.items()]
    return {
        "name": story.alert,
        "interval": story.step,
        "input_series": series,
        "promql_expr_test": [
            *({"expr": firing, "eval_time": at, "exp_samples": []} for at in story.quiet),
            *({"expr": firing, "eval_time": at, "exp_samples": [sample]} for at in story.fires),
        ],
    }
