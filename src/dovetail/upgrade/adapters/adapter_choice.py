"""Which adapters bring a node to a target, in the order in which they are applied: driver, DRA driver, image, MIG.

Given facts and a target. Each part of a target has one adapter; a part that none can bring is named. Never applies.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dovetail.upgrade.adapters.adapter import Adapter, Target
from dovetail.upgrade.adapters.dra_driver_adapter import DraDriverAdapter
from dovetail.upgrade.adapters.mig_label_adapter import MigLabelAdapter
from dovetail.upgrade.adapters.node_agent_adapter import NodeAgentAdapter
from dovetail.upgrade.adapters.node_facts import NodeFacts
from dovetail.upgrade.adapters.node_image_adapter import NodeImageAdapter
from dovetail.upgrade.adapters.operator_adapter import OperatorAdapter

# A hook on the node is the owner's own word, so it comes before what labels suggest.
ADAPTERS: Final[tuple[Adapter, ...]] = (
    NodeAgentAdapter(),
    OperatorAdapter(),
    NodeImageAdapter(),
    DraDriverAdapter(),
    MigLabelAdapter(),
)


class Step(msgspec.Struct, frozen=True):
    """One part of the target and the adapter that brings it."""

    adapter: Adapter
    target: Target


class NoAdapter(msgspec.Struct, frozen=True):
    """Nothing that we know brings this part of the target to the node."""

    part: str
    reason: str


def steps_for(facts: NodeFacts, target: Target) -> tuple[Step, ...] | NoAdapter:
    """The steps of a node, or the first part without an adapter."""
    steps = []
    for part in Target.__struct_fields__:
        value = getattr(target, part)
        if not value:
            continue
        alone = Target(**{part: value})
        governing = next((each for each in ADAPTERS if each.governs(facts, alone)), None)
        if governing is None:
            return NoAdapter(part, _why(facts, part))
        steps.append(Step(governing, alone))
    return tuple(steps)


def _why(facts: NodeFacts, part: str) -> str:
    desired = facts.stack.driver_desired
    reasons = {
        "driver": f"no hook, operator or cloud image brings a driver to {facts.name}:"
        f" {desired.unknown or desired.source}",
        "dra_driver": "there is no GPUCluster, and no other way to change the DRA driver is known",
        "node_image": f"the labels of {facts.name} name no pool of AKS, GKE or EKS",
        "mig_config": f"no MIG manager looks after {facts.name}",
    }
    return reasons[part]
