"""Rules and dashboards read metrics that something writes: ours are declared, the others are documented."""

from __future__ import annotations

import re
from pathlib import Path

from dovetail.monitoring import dcgm_counters
from dovetail.monitoring.dashboards import all_dashboards, grafana_json
from dovetail.monitoring.rules import rules_file
from dovetail.telemetry import history_metrics, lifecycle_metrics, metrics, node_metrics
from dovetail.upgrade import upgrade_series

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
METRIC = re.compile(
    r"\b(?:DCGM_FI|DCGM_EXP|accelerator|dovetail|kube|node:dovetail|scheduler)_[\w:]+"
)
LABELS = {"DCGM_FI_DRIVER_VERSION"}
OF_KUBE_STATE_METRICS = {"kube_node_labels"}
# What `dovetail exporter` and the node agent's readings are documented to write, beside their own declarations.
EXPORTED = {
    "dovetail_claim_unused",
    "dovetail_device_info",
    "dovetail_device_metrics_up",
    "dovetail_device_unhealthy",
    "dovetail_exporter_synced",
    "dovetail_gang_created_timestamp_seconds",
    "dovetail_gang_min_pods",
    "dovetail_gang_pods",
    "dovetail_promises_moved_total",
    "dovetail_waiting_pods",
    "dovetail_node_device_readings_total",
    "dovetail_node_gpus",
    "dovetail_queue_charged",
    "dovetail_queue_charged_non_preemptible",
    "dovetail_queue_fair_share",
    "dovetail_queue_info",
    "dovetail_queue_pending_pods",
    "dovetail_queue_quota",
    "dovetail_queue_ready",
    "dovetail_queue_requested",
    "dovetail_queue_running_pods",
    "kube_resourceclaim_allocation_device_info",
    "kube_resourceslice_devices_total",
    "kube_resourceslice_info",
}


def read_by_us() -> set[str]:
    texts = [alert.expr for alert in rules_file.alerts()]
    texts += [recording.expr for recording in rules_file.recordings()]
    for dashboard in all_dashboards.DASHBOARDS:
        panels = grafana_json.tree(dashboard)["panels"]
        texts += [target["expr"] for panel in panels for target in panel.get("targets", ())]
        texts += [choice.query for choice in dashboard.choices]
    return {name for text in texts for name in METRIC.findall(text)} - LABELS


def written_by_programs() -> set[str]:
    """Histograms are read by their buckets."""
    names = {family.name for family in upgrade_series.FAMILIES}
    declared = (metrics, node_metrics, history_metrics, lifecycle_metrics)
    for metric in (metric for module in declared for metric in module.DECLARED):
        names.add(f"{metric.name}_bucket" if metric.kind == "histogram" else metric.name)
    return names | dcgm_counters.fields() | OF_KUBE_STATE_METRICS | EXPORTED


def test_every_metric_that_is_read_is_written_by_something() -> None:
    recorded = {recording.record for recording in rules_file.recordings()}
    assert read_by_us() - recorded - written_by_programs() == set()


def test_no_name_is_expected_that_nothing_reads() -> None:
    assert EXPORTED - read_by_us() == set()


def test_every_recorded_series_is_read_or_documented() -> None:
    page = (REFERENCE.parent / "how-to" / "monitor-with-prometheus.md").read_text(encoding="utf-8")
    for recording in rules_file.recordings():
        assert f"`{recording.record}`" in page
