"""What an upgrade writes first: fences, then the rest of a gang that has begun to leave, and only then installers."""

from __future__ import annotations

import datetime

from dovetail.kubetypes import meta
from dovetail.kubetypes.custom import stack_upgrades
from dovetail.kubetypes.custom.stack_upgrades import DrainStatus, NodePhase, NodeStatus, Phase
from dovetail.upgrade.adapters import adapter
from dovetail.upgrade.machine import instructions, upgrade_machine
from dovetail.upgrade.machine.cluster_facts import (
    Facts,
    Judges,
    NodeView,
    Ongoing,
    Passed,
    PodView,
    Readiness,
)

NOW = datetime.datetime(2026, 11, 18, 12, tzinfo=datetime.UTC)
TEXT = "2026-11-18T12:00:00Z"


def test_a_gang_that_has_begun_to_leave_goes_before_anything_is_installed() -> None:
    gang = frozenset({"a", "b"})
    left = PodView("b", "default", "b", "gpu-2", "default/train", together=gang)
    facts = Facts(
        nodes={
            "gpu-1": NodeView("gpu-1", fence="roll"),
            "gpu-2": NodeView("gpu-2"),
            "gpu-3": NodeView("gpu-3"),
        },
        pods={"b": left},
    )
    nodes = (
        NodeStatus(name="gpu-1", wave=1, phase=NodePhase.APPLYING, since=TEXT, reason="the label"),
        NodeStatus(name="gpu-2", wave=2, since=TEXT),
        NodeStatus(name="gpu-3", wave=1, phase=NodePhase.FENCING, since=TEXT),
    )
    waves = (stack_upgrades.WaveStatus(number=1, state=stack_upgrades.WaveState.RUNNING),)
    drain = DrainStatus(gang="default/train", pods=("a", "b"), since=TEXT, is_evicting=True)
    upgrade = stack_upgrades.StackUpgrade(
        metadata=meta.ObjectMeta(name="roll", finalizers=(stack_upgrades.FINALIZER,)),
        spec=stack_upgrades.StackUpgradeSpec(to={"driver": "2"}),
        status=stack_upgrades.StackUpgradeStatus(
            phase=Phase.PROGRESSING, nodes=nodes, waves=waves, drain=drain
        ),
    )
    install = adapter.NodePatch(node="gpu-1", labels={"a": "b"}, why="installs")
    judges = Judges(
        readiness=lambda node, versions: Readiness("label"),
        installing=lambda node, versions, seconds: Ongoing("the label", (install,)),
        validity=lambda node, versions: Passed(),
    )
    at = upgrade_machine.Moment(NOW, NOW)
    step = upgrade_machine.step(upgrade, facts, judges, at)
    assert step.status == upgrade.status, "the story begins where nothing is left to be decided"
    assert [type(order) for order in step.instructions] == [
        instructions.Fence,
        instructions.Evict,
        instructions.Install,
    ]
