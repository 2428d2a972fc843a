"""Objects into a cluster in memory, for tests: given as trees, at one moment, none refused."""

from __future__ import annotations

import datetime
from typing import Any

from dovetail.boot import local
from dovetail.sim import cluster as clusters
from dovetail.sim import control

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def applied(cluster: clusters.Cluster, *trees: dict[str, Any]) -> clusters.Cluster:
    """The cluster with these objects in it."""
    outcome = clusters.apply(
        cluster,
        [clusters.Given(tree) for tree in trees],
        now=control.timestamp(NOW),
        check_selector=local.check_selector,
    )
    assert isinstance(outcome, clusters.Applied), outcome
    return outcome.cluster
