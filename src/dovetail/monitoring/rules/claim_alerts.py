"""Alerts about what the cluster publishes and allocates: slices, claims, and GPUs that are held without use."""

from __future__ import annotations

from typing import Final

from dovetail.monitoring.rules import device_alerts
from dovetail.monitoring.rules.rule import Alert, Audience, Group, Severity

GROUP: Final = Group(
    name="dovetail-claims",
    rules=(
        Alert(
            name="ResourceSliceMissing",
            expr=(
                "group by (node) (accelerator_temperature_celsius) unless on (node)"
                ' label_replace(kube_resourceslice_info, "node", "$1", "node_name", "(.+)")'
                " and on () count(kube_resourceslice_info) > 0"
            ),
            hold="10m",
            severity=Severity.CRITICAL,
            summary="Node {{ $labels.node }} has GPUs and publishes none.",
            description=(
                "There are metrics of GPUs of node {{ $labels.node }}, but no ResourceSlice: no pod can get them"
                " by a claim."
            ),
        ),
        Alert(
            name="ResourcePoolShrank",
            expr="node:dovetail_gpus:count < max_over_time(node:dovetail_gpus:count[1d])",
            hold="30m",
            severity=Severity.WARNING,
            summary="Node {{ $labels.node }} publishes fewer GPUs than before.",
            description=(
                "Node {{ $labels.node }} publishes {{ $value }} GPUs, fewer than earlier today: its pool is"
                " incomplete, or a GPU is lost."
            ),
        ),
        Alert(
            name="ClaimUnused",
            expr="dovetail_claim_unused > 0",
            hold="15m",
            severity=Severity.WARNING,
            audience=Audience.OWNER,
            summary="A claim holds devices for no pod.",
            description=(
                "Claim {{ $labels.namespace }}/{{ $labels.resourceclaim }} has been allocated for 15 minutes and"
                " no pod has reserved it."
            ),
        ),
        Alert(
            name="ClaimPreparationFails",
            expr=(
                'increase(dovetail_node_claims_total{operation="prepare",result="failed"}[10m]) > 2'
                " unless ignoring (result)"
                ' increase(dovetail_node_claims_total{operation="prepare",result="ok"}[10m]) > 0'
            ),
            hold="5m",
            severity=Severity.CRITICAL,
            summary="A node cannot prepare claims: pods on it do not start.",
            description=(
                "The node agent at {{ $labels.instance }} failed {{ $value | humanize }} times in 10 minutes and"
                " never succeeded. Pods stay in ContainerCreating with their GPUs allocated."
            ),
        ),
        Alert(
            name="GpuAllocatedIdle",
            expr=(
                'max by (namespace, pod, node, UUID) (accelerator_active_ratio{pod!=""})'
                f" < {device_alerts.IDLE_RATIO}"
            ),
            hold="1h",
            severity=Severity.INFO,
            audience=Audience.OWNER,
            summary="Pod {{ $labels.namespace }}/{{ $labels.pod }} has held an idle GPU for an hour.",
            description=(
                "GPU {{ $labels.UUID }} of node {{ $labels.node }} was busy less than 1 % at every reading of the"
                " last hour, while pod {{ $labels.namespace }}/{{ $labels.pod }} held it."
            ),
        ),
        Alert(
            name="FleetIdle",
            expr=(
                'count(max by (UUID) (accelerator_active_ratio{pod!=""})'
                f" < {device_alerts.IDLE_RATIO})"
                ' / count(max by (UUID) (accelerator_active_ratio{pod!=""})) > 0.3'
            ),
            hold="6h",
            severity=Severity.INFO,
            summary="{{ $value | humanizePercentage }} of the GPUs that work holds are idle.",
            description="More than 30 % of the allocated GPUs have been idle for six hours.",
        ),
    ),
)
