"""The status of an upgrade keeps which phases each node went through, and how long each took."""

from __future__ import annotations

import pytest

from dovetail import timestamps
from dovetail.kubetypes.custom.stack_upgrades import NodePhase
from dovetail.tables.stack import upgrade_items
from tests.upgrade.simulated_upgrade import SimulatedUpgrade


@pytest.mark.parametrize("rollback", ["Never", "FailedNodes", "AllNodes"])
def test_the_status_says_which_phases_each_node_went_through(rollback: str) -> None:
    policy = {"maxUnavailable": "50%", "parallel": 2}
    stop = {"failures": 1}
    rig = SimulatedUpgrade(nodes=4, spec={"waves": policy, "rollback": rollback, "stop": stop})
    rig.run_gang("train", "gpu-1", "gpu-3")
    rig.bad = {"gpu-2"}
    rig.run()
    for node in rig.upgrade.status.nodes:
        spans = upgrade_items.spans_of(node)
        if not spans:
            assert node.phase is NodePhase.SKIPPED
            continue
        phases = [span.phase for span in spans if span.start != span.end]
        assert phases[0] == "Fencing"
        assert phases[-1] == str(node.phase)
        assert phases.count("Applying") == (2 if node.is_going_back else 1)
        starts = [timestamps.to_text(span.start) for span in spans]
        assert node.started_at in starts
        assert starts == sorted(starts)
