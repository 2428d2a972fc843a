"""All rules, and the file that Prometheus reads.

The same tree is the `spec` of a PrometheusRule. Runbooks are links: a base of the installation's choice, then the
alert's name. Never evaluates anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import yaml

from dovetail.monitoring.rules import (
    claim_alerts,
    device_alerts,
    history_alerts,
    queue_alerts,
    recorded_series,
    scheduler_alerts,
    upgrade_alerts,
)
from dovetail.monitoring.rules.rule import Alert, Group, Recording

GROUPS: Final = (
    recorded_series.GROUP,
    device_alerts.GROUP,
    claim_alerts.GROUP,
    queue_alerts.GROUP,
    history_alerts.GROUP,
    upgrade_alerts.GROUP,
    scheduler_alerts.GROUP,
)
RUNBOOKS: Final = (
    "docs/runbooks/"  # in this repository; an installation names where it publishes them
)
PAGE_SUFFIX: Final = ".md"

Tree = dict[str, Any]


def alerts() -> Iterator[Alert]:
    """Every alert, in the order of the file."""
    for group in GROUPS:
        for rule in group.rules:
            if isinstance(rule, Alert):
                yield rule


def recordings() -> Iterator[Recording]:
    """Every recorded series, in the order of the file."""
    for group in GROUPS:
        for rule in group.rules:
            if isinstance(rule, Recording):
                yield rule


def tree(runbooks: str = RUNBOOKS) -> Tree:
    """The content of the file: `groups`, as Prometheus and a PrometheusRule have them."""
    return tree_of(GROUPS, runbooks)


def tree_of(chosen: Sequence[Group], runbooks: str = RUNBOOKS) -> Tree:
    """The same of some groups only."""
    groups = []
    for group in chosen:
        rules = [
            _alert_tree(rule, runbooks) if isinstance(rule, Alert) else _recording_tree(rule)
            for rule in group.rules
        ]
        groups.append({"name": group.name, "rules": rules})
    return {"groups": groups}


def text(runbooks: str = RUNBOOKS) -> str:
    """The file as YAML."""
    return yaml.safe_dump(tree(runbooks), sort_keys=False, width=10**6, allow_unicode=True)


def _alert_tree(alert: Alert, runbooks: str) -> Tree:
    hold = {"for": alert.hold} if alert.hold else {}
    return {
        "alert": alert.name,
        "expr": alert.expr,
        **hold,
        "labels": {"severity": alert.severity.value, "audience": alert.audience.value},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": f"{runbooks}{alert.name}{PAGE_SUFFIX}",
        },
    }


def _recording_tree(recording: Recording) -> Tree:
    labels = {"labels": recording.labels} if recording.labels else {}
    return {"record": recording.record, "expr": recording.expr, **labels}
