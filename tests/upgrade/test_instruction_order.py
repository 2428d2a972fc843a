"""What an upgrade writes first: fences, then the rest of a gang that has begun to leave, and only then installers."""

from __future__ import annotations

import datetime

import msgspec

from dovetail.kubetypes import meta
from dovetail.kubetypes.custom import stack_upgrades
from dovetail.kubetypes.custom.stack_upgrades import DrainStatus, NodePhase, NodeStatus, Phase
from dovetail.upgrade.adapters import adapter
from dovetail.upgrade.machine import instructions, upgrade_machine
from dovetail.upgrade.machine.cluster_facts import (
    Facts,
    Judgement,
    Judges,
    NodeView,
    Ongoing,
    Passed,
    PodView,
    Readiness,
    Versions,
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


def test_no_node_goes_back_while_another_that_came_first_goes_forward() -> None:
    early, late = "2026-11-18T11:59:00Z", "2026-11-18T12:00:00Z"
    forward = NodeStatus(name="gpu-1", wave=1, phase=NodePhase.APPLYING, since=early)
    back = NodeStatus(
        name="gpu-2",
        wave=1,
        phase=NodePhase.APPLYING,
        since=late,
        failure="XID 79",
        is_going_back=True,
        previous={"driver": "1"},
    )
    assert installed(forward, back) == ["gpu-1"]
    swapped = (
        msgspec.structs.replace(back, since=early),
        msgspec.structs.replace(forward, since=late),
    )
    assert installed(*swapped) == ["gpu-2"]
    assert installed(back) == ["gpu-2"]


def installed(*nodes: NodeStatus) -> list[str]:
    """The nodes on which something is installed next."""
    facts = Facts(nodes={node.name: NodeView(node.name, fence="roll") for node in nodes})
    waves = (stack_upgrades.WaveStatus(number=1, state=stack_upgrades.WaveState.RUNNING),)
    reasons = [msgspec.structs.replace(node, reason="the label") for node in nodes]
    upgrade = stack_upgrades.StackUpgrade(
        metadata=meta.ObjectMeta(name="roll", finalizers=(stack_upgrades.FINALIZER,)),
        spec=stack_upgrades.StackUpgradeSpec(
            to={"driver": "2"}, rollback=stack_upgrades.Rollback.FAILED
        ),
        status=stack_upgrades.StackUpgradeStatus(
            phase=Phase.PROGRESSING, is_reversible=True, nodes=tuple(reasons), waves=waves
        ),
    )

    def installing(node: str, versions: Versions, seconds: int) -> Judgement:
        patch = adapter.NodePatch(node=node, labels={"a": "b"}, why="installs")
        return Ongoing("the label", (patch,))

    judges = Judges(
        readiness=lambda node, versions: Readiness("label"),
        installing=installing,
        validity=lambda node, versions: Passed(),
    )
    step = upgrade_machine.step(upgrade, facts, judges, upgrade_machine.Moment(NOW, NOW))
    return [order.node for order in step.instructions if isinstance(order, instructions.Install)]
