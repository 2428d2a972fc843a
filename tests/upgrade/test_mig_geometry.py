"""MIG geometries carried out from beginning to end on a server in memory, and killed between any two writes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dovetail.kubetypes import registry
from dovetail.kubetypes.custom.stack_upgrades import Phase
from tests.upgrade.mig_manager_player import STATE
from tests.upgrade.simulated_mig import OFFERED, SLICED, WHOLE, SimulatedMig

UNKNOWN = "dovetail-no-such-config"


def test_nodes_are_emptied_partitioned_and_opened_one_after_the_other() -> None:
    rig = SimulatedMig(nodes=2)
    rig.run_gang("train", "gpu-0", "gpu-1")
    rig.run_without_gpus("cpu", "gpu-0")
    rig.run()
    assert rig.upgrade.status.phase is Phase.COMPLETED, rig.upgrade.status.reason
    assert rig.partitions() == dict.fromkeys(("gpu-0", "gpu-1"), OFFERED[SLICED])
    assert rig.fences() == {}
    left = {pod.metadata.name for pod in rig.api.all(registry.POD)}
    assert left == {"cpu-0", "nvidia-mig-manager-gpu-0", "nvidia-mig-manager-gpu-1"}


def test_a_manager_that_hangs_is_freed_and_the_node_gets_its_partitions() -> None:
    rig = SimulatedMig(nodes=1)
    rig.managers["gpu-0"].client_ends = False
    rig.run(300, until=lambda rig: rig.drivers()["gpu-0"] == UNKNOWN)
    assert rig.configs() == {"gpu-0": UNKNOWN}
    rig.managers["gpu-0"].client_ends = True
    rig.run(300)
    assert rig.upgrade.status.phase is Phase.COMPLETED, rig.upgrade.status.reason
    assert rig.partitions() == {"gpu-0": OFFERED[SLICED]}


def test_a_configuration_that_fails_twice_is_taken_back_and_the_canary_stops_the_rest() -> None:
    rig = _failing()
    rig.run(300)
    assert rig.upgrade.status.phase is Phase.STOPPED
    assert "could not apply dovetail-slices" in rig.upgrade.status.reason
    assert rig.phases() == {"gpu-0": "RolledBack", "gpu-1": "Skipped"}
    assert rig.configs() == {"gpu-0": WHOLE, "gpu-1": WHOLE}
    assert rig.fences() == {}


def test_partitions_that_the_plugin_does_not_count_are_not_taken_for_success() -> None:
    rig = SimulatedMig(nodes=1, spec={"stop": {"validateSeconds": 60}})
    rig.offered[SLICED] = {"nvidia.com/mig-1g.10gb": "13"}
    rig.run(300)
    (node,) = rig.upgrade.status.nodes
    assert node.phase == "RolledBack"
    assert "needs 14 x 1g.10gb; has 13 x 1g.10gb" in node.failure
    assert rig.partitions() == {"gpu-0": OFFERED[WHOLE]}


def test_a_pod_that_cannot_leave_keeps_its_node_as_it_was() -> None:
    rig = SimulatedMig(nodes=1, spec={"drain": {"timeoutSeconds": 60}})
    rig.run_pod("serve", "gpu-0")
    rig.api.put(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "keep", "namespace": "default", "generation": 1},
            "spec": {
                "minAvailable": 1,
                "selector": {"matchLabels": {"dovetail.dev/gang": "serve"}},
            },
            "status": {"observedGeneration": 1, "disruptionsAllowed": 0},
        }
    )
    rig.run(300)
    (node,) = rig.upgrade.status.nodes
    assert node.phase == "Failed"
    assert "default/serve-0 stays" in node.reason
    assert rig.managers["gpu-0"].changes == []
    assert rig.configs() == {"gpu-0": WHOLE}
    assert rig.fences() == {}


def test_a_node_without_a_manager_is_refused_before_anything_is_touched() -> None:
    rig = SimulatedMig(nodes=1)
    rig.api.shelf.delete(
        registry.POD, ("gpu-operator", "nvidia-mig-manager-gpu-0"), grace_seconds=0
    )
    rig.run()
    assert rig.upgrade.status.phase is Phase.REFUSED
    assert "no MIG manager looks after gpu-0" in rig.upgrade.status.reason
    assert rig.fences() == {}


def _plain() -> SimulatedMig:
    rig = SimulatedMig(nodes=2)
    rig.run_gang("train", "gpu-0", "gpu-1")
    rig.run_pod("serve", "gpu-1")
    return rig


def _failing() -> SimulatedMig:
    rig = SimulatedMig(nodes=2)
    rig.managers["gpu-0"].known = (WHOLE,)
    return rig


def _hanging() -> SimulatedMig:
    """The client ends only when the manager is woken up."""
    rig = SimulatedMig(nodes=1)
    rig.managers["gpu-0"].ends_after = UNKNOWN
    rig.managers["gpu-0"].client_ends = False
    return rig


@pytest.mark.slow
@pytest.mark.parametrize("build", [_plain, _failing, _hanging])
def test_killed_between_any_two_writes_the_end_is_the_same(
    build: Callable[[], SimulatedMig],
) -> None:
    whole = build()
    whole.run(600)
    expected = _end(whole)
    assert whole.writes > 10
    for number in range(1, whole.writes + 1):
        rig = build()
        rig.kill_at = number
        rig.run(600)
        assert _end(rig) == expected, f"killed before write {number}"


def _end(rig: SimulatedMig) -> tuple[object, ...]:
    states = {
        node.metadata.name: node.metadata.labels[STATE] for node in rig.api.all(registry.NODE)
    }
    status = rig.upgrade.status
    return status.phase, rig.phases(), rig.fences(), rig.configs(), rig.partitions(), states
