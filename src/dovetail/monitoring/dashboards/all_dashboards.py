"""Every dashboard that is shipped, and its file."""

from __future__ import annotations

from typing import Final

from dovetail.monitoring.dashboards import (
    cost_dashboard,
    fleet_dashboard,
    grafana_json,
    node_dashboard,
    queues_dashboard,
    workload_dashboard,
)

DASHBOARDS: Final = (
    fleet_dashboard.DASHBOARD,
    queues_dashboard.DASHBOARD,
    workload_dashboard.DASHBOARD,
    node_dashboard.DASHBOARD,
    cost_dashboard.DASHBOARD,
)


def files() -> dict[str, str]:
    """The JSON of every dashboard by the name of its file."""
    return {f"{dashboard.name}.json": grafana_json.text(dashboard) for dashboard in DASHBOARDS}
