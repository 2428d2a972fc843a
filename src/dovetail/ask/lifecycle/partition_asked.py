"""Asks for MIG geometry from demand, and puts the proposals into files that a person applies.

Given a view of a cluster and texts of options. Raises InputError naming the option that is wrong. Writes files where it
is asked to, never to a cluster.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from dovetail import errors
from dovetail.answer.partitioning import mig_parted, partition_plan
from dovetail.answer.partitioning.partition_answer import PartitionPlan, Proposal
from dovetail.answer.stack import platform_objects
from dovetail.answer.why.evidence.gpu_platform.gpu_nodes import Component
from dovetail.ask import cluster_view, replicas
from dovetail.ask.lifecycle import rollout_asked
from dovetail.kubetypes import gpu_stack_kinds
from dovetail.model import policy
from dovetail.tables import yaml_dump

KINDS: Final = gpu_stack_kinds.ALL  # read besides
CONFIG_FILE: Final = "mig-config.yaml"
NODES_FILE: Final = "node-labels.yaml"

Tree = dict[str, Any]


def costs(restart: str, checkpoint: str | None, partition: str) -> partition_plan.Costs:
    """What a change costs, as options state it."""
    return partition_plan.Costs(
        restart_seconds=rollout_asked.seconds("--restart", restart) or 0,
        checkpoint_seconds=rollout_asked.seconds("--checkpoint", checkpoint),
        partition_seconds=rollout_asked.seconds("--partition-time", partition) or 0,
    )


def planned(
    seen: cluster_view.View, rules: policy.Policy, costs_: partition_plan.Costs
) -> PartitionPlan:
    """The plan."""
    platform = platform_objects.read(seen.objects)
    managed = [node for component, node in platform.on_nodes if component is Component.MIG_MANAGER]
    return partition_plan.planned(replicas.replica_of(seen, rules), costs=costs_, managed=managed)


def files(plan: PartitionPlan, *, config_map: str, namespace: str) -> dict[str, str]:
    """The manifests by the name of their file; none where nothing is proposed."""
    if not plan.proposals:
        return {}
    geometries = [_boards(proposal) for proposal in plan.proposals]
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


def _boards(proposal: Proposal) -> list[tuple[int, tuple[str, ...]]]:
    return [(board.index, board.after) for board in proposal.boards]


def _documents(trees: list[Tree]) -> str:
    return "".join(f"---\n{yaml_dump.text(tree)}" for tree in trees)
