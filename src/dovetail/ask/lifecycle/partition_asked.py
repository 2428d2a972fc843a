"""Asks for MIG geometry from demand, and puts the proposals into files that a person applies.

Given a view of a cluster and texts of options. Raises InputError naming the option that is wrong. Writes files where it
is asked to, never to a cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from dovetail import errors
from dovetail.answer.partitioning import mig_parted, partition_plan
from dovetail.answer.partitioning.partition_answer import PartitionPlan, Proposal
from dovetail.answer.stack import platform_objects
from dovetail.answer.why.evidence.gpu_platform.gpu_nodes import Component
from dovetail.ask import cluster_view, replicas, right_size_asked
from dovetail.ask.lifecycle import rollout_asked
from dovetail.kubetypes import gpu_stack_kinds
from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.custom import stack_upgrades
from dovetail.model import node_pools, policy
from dovetail.tables import yaml_dump
from dovetail.upgrade import judging
from dovetail.upgrade.validation import validation_checks

KINDS: Final = gpu_stack_kinds.ALL  # read besides
CONFIG_FILE: Final = "mig-config.yaml"
NODES_FILE: Final = "node-labels.yaml"
DEFAULT_WINDOW: Final = "7d"
MIXED: Final = "mixed"
_ANY_CONFIG: Final = {stack_upgrades.MIG_CONFIG: "any"}
DEFAULT_STRATEGY: Final = "single"  # of the GPU Operator

Tree = dict[str, Any]


def costs(restart: str, checkpoint: str | None, partition: str) -> partition_plan.Costs:
    """What a change costs, as options state it."""
    return partition_plan.Costs(
        restart_seconds=rollout_asked.seconds("--restart", restart) or 0,
        checkpoint_seconds=rollout_asked.seconds("--checkpoint", checkpoint),
        partition_seconds=rollout_asked.seconds("--partition-time", partition) or 0,
    )


def planned(
    seen: cluster_view.View,
    rules: policy.Policy,
    costs_: partition_plan.Costs,
    *,
    recent: Sequence[str] = (),
    is_applied: bool = False,
) -> PartitionPlan:
    """The plan; one that is applied drains whole nodes, and only those that a MIG manager serves."""
    platform = platform_objects.read(seen.objects)
    managed = [node for component, node in platform.on_nodes if component is Component.MIG_MANAGER]
    replica = replicas.replica_of(seen, rules)
    excluded: dict[str, str] = {}
    if is_applied:
        judges = judging.judges_of(seen.objects, validation_checks.DEFAULTS)
        for name, node in replica.world.nodes.items():
            why = _unserved(node, platform, has_manager=name in managed)
            why = why or judges.readiness(name, _ANY_CONFIG).blocker
            if why:
                excluded[name] = why
    return partition_plan.planned(
        replica,
        costs=costs_,
        managed=managed,
        excluded=excluded,
        drains_nodes=is_applied,
        recent=recent,
    )


def _unserved(node: nodes.Node, platform: platform_objects.Platform, *, has_manager: bool) -> str:
    """Why the MIG manager would not bring a node what waiting pods ask for."""
    if not has_manager:
        return "no MIG manager runs there; --write gives the files to apply by hand"
    if not node_pools.plugin_gpus(node):
        return ""
    policy_ = platform.policy
    stated = policy_.spec.mig.strategy or DEFAULT_STRATEGY if policy_ is not None else ""
    strategy = node.metadata.labels.get(node_pools.MIG_STRATEGY, stated)
    if strategy in ("", MIXED):
        return ""
    return (
        f"its device plugin has MIG strategy {strategy} and would not count partitions by profile;"
        f" set mig.strategy of the ClusterPolicy to {MIXED}"
    )


def recent(location: str, window: str) -> tuple[str, ...]:
    """The profiles that recorded work waited for before it got them, the most wanted first.

    Work that never started has no profile in the records.
    """
    recorded = right_size_asked.recorded_work(location, window=window, namespace=None).records
    waited = frozenset(each.owner.pod_uid for each in recorded.waiting)
    counts = Counter(
        each.profile
        for each in recorded.allocations
        if each.profile and each.owner.pod_uid in waited
    )
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(profile for profile, _ in ordered)


def files(plan: PartitionPlan, *, config_map: str, namespace: str) -> dict[str, str]:
    """The manifests by the name of their file; none where nothing is proposed."""
    if not plan.proposals:
        return {}
    geometries = [boards_of(proposal) for proposal in plan.proposals]
    text = yaml_dump.text(mig_parted.configuration(geometries))
    configured = mig_parted.config_map(text, name=config_map, namespace=namespace)
    labelled = [
        mig_parted.labelled_node(proposal.node, boards)
        for proposal, boards in zip(plan.proposals, geometries, strict=True)
    ]
    return {CONFIG_FILE: _documents([configured]), NODES_FILE: _documents(labelled)}


def write(directory: str, texts: dict[str, str]) -> list[Path]:
    """The written files. Raises InputError where the directory cannot be written to."""
    folder = Path(directory)
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
            written.append(folder / name)
    except OSError as error:
        raise errors.InputError(f"--write {directory}: {error.strerror or error}") from None
    return written


def boards_of(proposal: Proposal) -> list[tuple[int, tuple[str, ...]]]:
    """The geometry of a whole node."""
    return [(board.index, board.after) for board in proposal.boards]


def _documents(trees: list[Tree]) -> str:
    return "".join(f"---\n{yaml_dump.text(tree)}" for tree in trees)
