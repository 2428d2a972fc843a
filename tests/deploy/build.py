"""Values and objects the tests of the chart share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from dovetail.install import chart
from dovetail.model import configuration

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "image.repository=example.com/gpu/dovetail"
EVERYTHING = (
    "monitoring.serviceMonitors.enabled=true",
    "monitoring.rules.enabled=true",
    "monitoring.dashboards.enabled=true",
    "nodeAgent.metricsPort=9400",
    "nodeAgent.idleMetrics=true",
    "metrics.readers=[{namespace: monitoring, name: prometheus}]",
    "keepGeneralPodsOff.enabled=true",
    "nodeAgent.enabled=true",
    "nodeAgent.mode=device-plugin",
    "nodeAgent.heal.resetCommand=chroot /driver-root nvidia-smi --gpu-reset -i '{gpus}'",
    "nodeAgent.heal.rebootCommand=nsenter -t 1 -m -- systemctl reboot",
    "nodeAgent.healthPolicy={xid-13: {advice: drain the GPU and reset it, effect: NoSchedule}}",
    "exporter.enabled=true",
    "exporter.partitions=true",
    "history.prometheus=http://prometheus.monitoring:9090",
    "history.enabled=true",
    "history.pricesConfigMap=prices",
    "history.replicas=2",
    "history.store.secretName=history-database",
    "history.egress=[{ports: [{protocol: TCP, port: 5432}]}]",
    "lifecycle.enabled=true",
    "lifecycle.operator.enabled=true",
    "lifecycle.checks={checks: [gpu-count, {check: driver, required: false}], settleSeconds: 300}",
    "lifecycle.heal.enabled=true",
    "lifecycle.heal.policy={tries: 3}",
    "dashboard.enabled=true",
    "dashboard.replicas=2",
    "dashboard.auth=[token, proxy]",
    "dashboard.hosts=[gpus.example.com]",
    "dashboard.proxy={networks: [10.0.0.0/8], secretName: dashboard-proxy}",
    "dashboard.sessionSecretName=dashboard-session",
    "dashboard.tlsSecretName=dashboard-tls",
    "dashboard.allowWrites=true",
    "dashboard.from=[{namespaceSelector: {matchLabels: {name: ingress}}}]",
)
# A setting that must be refused, and words of the refusal.
WRONG = (
    ("replicas=two", r"values: replicas: expected a whole number"),
    ("replicas=-1", r"values: replicas: expected .* >= 0"),
    ("port=70000", r"values: port: expected .* <= 65535"),
    ("repicas=2", r'values: repicas: unknown field "repicas"; did you mean "replicas"'),
    (
        "image.pullPolicy=Sometimes",
        r"values: image\.pullPolicy: expected one of Always, IfNotPresent, Never",
    ),
    ("image.digest=sha256:12", r"values: image\.digest: expected sha256"),
    ("schedulerNames=[]", r"values: schedulerNames: is empty"),
    ("schedulerNames=[Big_Name]", r"values: schedulerNames\[0\]: must be a DNS subdomain"),
    (
        "configuration.serving.port=1",
        r"values: configuration\.serving: is set by the chart",
    ),
    (
        "configuration.leaderElection.name=x",
        r"values: configuration\.leaderElection\.name: is set",
    ),
    ("configuration.loging.level=info", r'values: configuration\.loging: unknown field "loging"'),
    (
        "configuration.logging.level=loud",
        r"values: configuration\.logging\.level: expected one of debug",
    ),
    (
        "configuration.leaderElection.renewDeadlineSeconds=15",
        r"renewDeadlineSeconds: is 15, must be less than",
    ),
    ("nodeAgent.mode=both", r"values: nodeAgent\.mode: expected one of dra, device-plugin"),
    ("nodeAgent.shares='0'", r"values: nodeAgent\.shares: expected off, memory or a positive"),
    ("dashboard.auth=[link]", r"values: dashboard\.auth\[0\]: expected one of token, proxy"),
    ("dashboard.auth=[]", r"values: dashboard\.auth: is empty"),
    ("dashboard.auth=[proxy]", r"values: dashboard\.proxy: needs networks or secretName"),
    ("dashboard.replicas=2", r"values: dashboard\.sessionSecretName: is required with 2"),
    ("history.replicas=2", r"values: history\.store\.secretName: is required with 2"),
    ("metrics.readers=[{name: a}]", r"values: .*namespace"),
    ("lifecycle.replicas=-1", r"values: lifecycle\.replicas: expected .* >= 0"),
)
# What only a cluster or the scheduler itself can find wrong with values; a JSON Schema cannot.
BEYOND_A_SCHEMA = (
    "schedulerNames=[Big_Name]",
    "configuration.leaderElection.renewDeadlineSeconds=15",
    "dashboard.auth=[proxy]",
    "dashboard.replicas=2",
    "history.replicas=2",
)


def objects(
    *settings: str, release: chart.Release = chart.USUAL, api_versions: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """What the chart renders to with an image and these settings."""
    return chart.objects(
        chart.values_of(settings=[IMAGE, *settings]), release, api_versions=api_versions
    )


def reference_row(field: configuration.Field) -> str:
    """A line of the table in the reference of values."""
    return f"| `{field.path}` | `{msgspec.json.encode(field.default).decode()}` | {field.meaning} |"


def of_kind(result: Sequence[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    """The objects of these kinds."""
    return [item for item in result if item["kind"] in kinds]
