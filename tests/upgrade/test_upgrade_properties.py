"""Whatever runs where, whatever fails and wherever the process dies: what must hold after every write holds."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.kubetypes.custom.stack_upgrades import Rollback
from tests.upgrade.simulated_upgrade import OLD, SimulatedUpgrade, ended

NODES = 4
NAMES = [f"gpu-{number}" for number in range(NODES)]


@settings(max_examples=25, deadline=None)
@given(
    gangs=st.lists(st.sets(st.sampled_from(NAMES), min_size=1), max_size=3),
    bad=st.sets(st.sampled_from(NAMES), max_size=2),
    most=st.sampled_from(["25%", "50%", "100%"]),
    rollback=st.sampled_from([str(each) for each in Rollback]),
    kill_at=st.integers(1, 60),
)
def test_every_upgrade_ends_and_keeps_its_limits(
    gangs: list[set[str]], bad: set[str], most: str, rollback: str, kill_at: int
) -> None:
    spec = {"waves": {"maxUnavailable": most}, "rollback": rollback}
    rig = SimulatedUpgrade(nodes=NODES, spec=spec)
    for number, nodes in enumerate(gangs):
        rig.run_gang(f"gang-{number}", *sorted(nodes))
    rig.bad = bad
    rig.kill_at = kill_at
    rig.taint("gpu-1", key="team", value="a", effect="NoSchedule")
    rig.run()
    assert ended(rig), rig.phases()
    assert any(taint.key == "team" for taint in _taints(rig, "gpu-1"))
    failed = {name for name, phase in rig.phases().items() if phase == "Failed"}
    assert rig.fences().keys() == failed
    if rollback == str(Rollback.ALL) and bad & set(NAMES[:1]):
        assert set(rig.drivers().values()) == {OLD}  # the canary failed


def _taints(rig: SimulatedUpgrade, node: str) -> tuple[object, ...]:
    from dovetail.kubetypes import registry

    taints: tuple[object, ...] = rig.api.find(registry.NODE, node).spec.taints
    return taints
