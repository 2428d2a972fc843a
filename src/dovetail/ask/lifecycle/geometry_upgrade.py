"""Turns a plan of MIG geometry into a StackUpgrade that carries it out, and says what stands against that.

Given the plan, a policy file and the cluster that was read. Raises InputError for a policy that cannot be meant. Never
writes to a cluster.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from dovetail import errors
from dovetail.answer.partitioning import mig_parted
from dovetail.answer.partitioning.partition_answer import PartitionPlan, Proposal
from dovetail.answer.why.evidence.gpu_platform import gpu_nodes
from dovetail.answer.why.evidence.gpu_platform.gpu_nodes import Component
from dovetail.ask import cluster_view
from dovetail.ask.lifecycle import mig_config_map, partition_asked, upgrade_asked
from dovetail.kubetypes import registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.custom import stack_upgrades
from dovetail.tables import text
from dovetail.upgrade import read_facts
from dovetail.upgrade.machine import upgrade_machine

KINDS: Final = (registry.STACK_UPGRADE,)  # read besides
MOST_NODES: Final = 500  # of one upgrade, as its schema bounds them
MOST_PODS: Final = 1000  # likewise
# A node whose partitions did not come about is of no use as it is.
_DEFAULTS: Final = {"rollback": stack_upgrades.Rollback.FAILED.value}


class Obstacle(msgspec.Struct, frozen=True, rename="camel"):
    """Why the geometry is not carried out, and what a person does about it."""

    why: str
    next_step: str


def name_of(name: str | None, seen: cluster_view.View) -> str:
    """The name asked for, else the time."""
    return upgrade_asked.name_of(name or f"mig-{seen.now:%Y%m%d-%H%M%S}", {})


def spec_of(plan: PartitionPlan, policy_file: str | None) -> stack_upgrades.StackUpgradeSpec:
    """The spec: a geometry for each node, and the pods for which it is made."""
    spec = upgrade_asked.spec_of({}, policy_file, "", defaults=_DEFAULTS)
    if spec.node_selector is not None:
        raise errors.InputError(
            f"{policy_file}: nodeSelector: the nodes are those of the plan; leave it out"
        )
    proposals = plan.proposals[:MOST_NODES]
    target = stack_upgrades.MigTarget(
        nodes=tuple(_geometry(each) for each in proposals),
        acceptance=stack_upgrades.Acceptance(
            before=plan.before.pods, after=plan.after.pods, pods=plan.after.names[:MOST_PODS]
        ),
    )
    return msgspec.structs.replace(spec, mig=target)


def configurations(plan: PartitionPlan) -> dict[str, list[mig_parted.Tree]]:
    """The configurations of the plan, by name."""
    geometries = [partition_asked.boards_of(each) for each in plan.proposals]
    return {mig_parted.config_name(boards): mig_parted.entries(boards) for boards in geometries}


def obstacle(
    seen: cluster_view.View, read_by_manager: mig_config_map.Pointer, *, name: str, namespace: str
) -> Obstacle | None:
    """What stands against a start, before anything is written."""
    begun = [
        each
        for each in read_facts.upgrades_of(seen.objects)
        if each.status.phase not in upgrade_machine.ENDED
    ]
    if begun:
        first = begun[0]
        return Obstacle(
            f"stackupgrade/{first.metadata.name} is under way: {first.status.phase}",
            f"dovetail stack upgrade status {first.metadata.name}",
        )
    elsewhere = sorted(_manager_namespaces(seen) - {namespace})
    if elsewhere:
        return Obstacle(
            f"the MIG manager runs in namespace {elsewhere[0]}, where a ConfigMap of {namespace} is not"
            " read",
            f"dovetail stack mig --apply --operator-namespace {elsewhere[0]}",
        )
    pointed = read_by_manager.name
    if pointed and pointed not in (name, mig_config_map.OPERATORS_OWN):
        return Obstacle(
            f"migManager.config.name of ClusterPolicy {read_by_manager.policy} is {pointed}: the MIG"
            f" manager would not see configurations in {name}",
            f"dovetail stack mig --apply --config-map {pointed}, which keeps those that are in it",
        )
    return None


def unmet(plan: PartitionPlan) -> Obstacle | None:
    """Whether pods wait for GPUs and no change of a node would start one more."""
    if plan.proposals or plan.after.pods == plan.after.of:
        return None
    alone = sum(len(passed.nodes) for passed in plan.passed)
    why = "no change starts more waiting pods"
    if alone:
        why += f"; {text.counted(alone, 'node')} were left alone, for the reasons above"
    return Obstacle(why, "dovetail stack mig -o json, which lists the nodes and their reasons")


def unread(
    read_by_manager: mig_config_map.Pointer, extended: mig_config_map.Extended
) -> Obstacle | None:
    """Whether the MIG manager does not read the ConfigMap yet."""
    name = extended.name
    if read_by_manager.name == name or (not read_by_manager.name and not extended.is_new):
        return None
    if not read_by_manager.name:
        return Obstacle(
            f"no ClusterPolicy says which ConfigMap the MIG manager reads, and {name} is new",
            "dovetail stack mig --apply --config-map NAME, the one that it reads",
        )
    patch = f'{{"spec":{{"migManager":{{"config":{{"name":"{name}"}}}}}}}}'
    return Obstacle(
        f"the MIG manager reads {read_by_manager.name}, which the GPU Operator writes itself",
        f"kubectl patch clusterpolicy {read_by_manager.policy} --type merge -p '{patch}', then"
        " dovetail stack mig --apply",
    )


def _geometry(proposal: Proposal) -> stack_upgrades.NodeGeometry:
    counts: Counter[str] = Counter()
    for board in proposal.boards:
        counts.update(board.after or (stack_upgrades.WHOLE,))
    return stack_upgrades.NodeGeometry(
        node=proposal.node, config=proposal.config, partitions=dict(sorted(counts.items()))
    )


def _manager_namespaces(seen: cluster_view.View) -> set[str]:
    stored = seen.objects.listed(registry.POD.unique_name)
    running = [each.struct for each in stored if isinstance(each.struct, pods.Pod)]
    return {
        pod.metadata.namespace
        for pod in running
        if gpu_nodes.component_of(pod.metadata.labels) is Component.MIG_MANAGER
    }
