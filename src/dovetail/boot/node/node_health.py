"""Puts together what watches a node's GPUs: readings from the driver, the policy, the record, the Node's condition.

Given options, GPUs and an API. Starts nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from dovetail import errors
from dovetail.boot import clocks
from dovetail.boot.node import node_agent, node_gpus
from dovetail.kube import client
from dovetail.node.claims import checkpoint_file
from dovetail.node.health import (
    driver_source,
    health_monitor,
    health_record,
    node_report,
    policy_table,
)
from dovetail.node.health.policy_table import HealthPolicy

HEALTH_FILE: Final = "health.json"


class NodeHealth(NamedTuple):
    """What watches the GPUs of a node, and what reports to the cluster."""

    source: driver_source.DriverSource
    monitor: health_monitor.HealthMonitor
    report: node_report.NodeReport
    policy: HealthPolicy


def health_of(
    options: node_agent.Options,
    gpus: node_gpus.NodeGpus,
    clock: clocks.SystemClock,
    *,
    api: client.KubeApi,
    record: Path,
) -> NodeHealth:
    """The health of a node's GPUs, kept in a file over restarts of the agent."""
    policy = policy_of(options.health_policy)
    source = driver_source.DriverSource(
        gpus.control.health,
        gpus.wait_for_events,
        gpus.event_waiter.register_again,
        read_all=gpus.control.healths,
    )
    gpus.on_change(source.update)
    boot_id = checkpoint_file.boot_id_of(options.boot_id_file)
    monitor = health_monitor.HealthMonitor(
        source,
        policy=policy,
        record=health_record.HealthRecord(record, boot_id=boot_id),
        clock=clock,
    )
    report = node_report.NodeReport(api, node_name=options.node_name, clock=clock, policy=policy)
    return NodeHealth(source, monitor, report, policy)


def policy_of(file: Path | None) -> HealthPolicy:
    """Our rules, under those of the file. Raises InputError with the place."""
    if file is None:
        return HealthPolicy()
    try:
        return policy_table.read(file.read_bytes())
    except OSError as error:
        raise errors.InputError(f"{file}: {error.strerror or error}") from error
    except policy_table.PolicyInvalid as error:
        raise errors.InputError(f"{file}: {error}") from error
