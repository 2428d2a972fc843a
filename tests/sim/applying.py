"""Objects into a cluster in memory, for tests: given as trees, at one moment, none refused."""

from __future__ import annotations

import datetime
from typing import Any

from dovetail import timestamps
from dovetail.sim.local import local_cluster, state_dir

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def applied(cluster: local_cluster.Cluster, *trees: dict[str, Any]) -> local_cluster.Cluster:
    """The cluster with these objects in it."""
    outcome = local_cluster.apply(
        cluster,
        [local_cluster.Given(tree) for tree in trees],
        now=timestamps.to_text(NOW),
        check_selector=state_dir.check_selector,
    )
    assert isinstance(outcome, local_cluster.Applied), outcome
    return outcome.cluster
