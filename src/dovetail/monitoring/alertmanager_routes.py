"""An example of routes for Alertmanager: who hears of which alert, and which alerts make others redundant.

Alerts carry `severity` and `audience`. Receivers are webhooks on loopback, to be replaced by your own.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

HOOKS: Final = "http://127.0.0.1:9095/"  # what every receiver's address begins with

Tree = dict[str, Any]


def tree(hooks: str = HOOKS) -> Tree:
    """The configuration of Alertmanager."""
    names = ("pager", "platform", "owners")
    return {
        "route": {
            "receiver": "platform",
            "group_by": ["alertname", "node", "queue"],
            "group_wait": "30s",
            "group_interval": "5m",
            "repeat_interval": "12h",
            "routes": [
                {"receiver": "pager", "matchers": ['severity="critical"'], "repeat_interval": "2h"},
                # Owners hear of their own work; with a receiver per team, match on namespace below this.
                {
                    "receiver": "owners",
                    "matchers": ['audience="owner"'],
                    "group_by": ["namespace", "alertname"],
                    "repeat_interval": "1d",
                },
                {"receiver": "platform", "matchers": ['audience="platform"']},
            ],
        },
        "inhibit_rules": [
            # A node whose GPU is broken is hot, slow and idle as well: one alert is enough.
            {
                "source_matchers": ['alertname=~"GpuXidHardware|GpuRowRemapFailed"'],
                "target_matchers": [
                    'alertname=~"GpuHot|GpuSlowedDown|GpuNvlinkErrors|GpuAllocatedIdle"'
                ],
                "equal": ["node", "UUID"],
            },
            {
                "source_matchers": ['alertname="DovetailSchedulerAbsent"'],
                "target_matchers": [
                    'alertname=~"DovetailExporterAbsent|QueueStarved|GangWaitsLong"'
                ],
            },
        ],
        "receivers": [
            {"name": name, "webhook_configs": [{"url": hooks + name, "send_resolved": True}]}
            for name in names
        ],
    }


def text(hooks: str = HOOKS) -> str:
    """The same as YAML."""
    return yaml.safe_dump(tree(hooks), sort_keys=False, width=10**6)
