"""Answers what changes would do: the cluster as it is beside the cluster with the changes, and the difference.

Given a replica and the changes in their order; each applies to what the ones before it left, and all are undone at the
end. Both sides are carried forward by the same engine. Raises InputError, naming the change, where one is impossible.
Never writes to a cluster.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import assert_never

from dovetail import errors, timestamps
from dovetail.answer.replica.replica import Edit, Replica
from dovetail.answer.what_if import (
    changes,
    cluster_outcome,
    difference,
    node_changes,
    partition_changes,
    queue_changes,
    sharing_changes,
    work_changes,
)
from dovetail.answer.what_if import what_if_answer as answers
from dovetail.answer.what_if.effect import Effect
from dovetail.kubetypes import object_set, registry


def consequences(
    replica: Replica,
    stated: Sequence[changes.Stated],
    *,
    horizon_seconds: int,
    build: node_changes.BuildMachine,
    prices: Mapping[str, Fraction] | None = None,
) -> answers.Answer:
    """The answer. Raises InputError for a change that cannot be made."""
    prices = prices or {}
    # With the changes first, so that an impossible one is reported before anything is computed.
    with changed(replica, stated, build) as effects:
        after = cluster_outcome.outcome_of(replica, horizon_seconds=horizon_seconds)
        after_state = difference.state_of(after, replica.world.queues, prices)
    before = cluster_outcome.outcome_of(replica, horizon_seconds=horizon_seconds)
    before_state = difference.state_of(before, replica.world.queues, prices)
    return answers.Answer(
        now=timestamps.to_text(replica.now),
        horizon_seconds=horizon_seconds,
        changes=tuple(
            answers.StatedChange(change=each.text, assumption=effect.assumption)
            for each, effect in zip(stated, effects, strict=True)
        ),
        before=before_state,
        after=after_state,
        difference=difference.difference(
            before,
            after,
            (before_state, after_state),
            new_pods=_pods_of(stated, effects, changes.NewWork),
            ended_pods=_pods_of(stated, effects, changes.EndWork),
        ),
    )


@contextlib.contextmanager
def changed(
    replica: Replica, stated: Sequence[changes.Stated], build: node_changes.BuildMachine
) -> Iterator[list[Effect]]:
    """The replica with the changes, until the block ends. Raises InputError for one that cannot be made."""
    effects: list[Effect] = []
    with contextlib.ExitStack() as edits:
        for each in stated:
            try:
                effect = effect_of(replica, each.change, build)
            except errors.InputError as error:
                earlier = [before.change for before in stated[: len(effects)]]
                gone = _removed_before(each.change, effects) or _ended_before(each.change, earlier)
                reason = gone or str(error)
                raise errors.InputError(f"{each.text}: {reason}") from None
            edits.enter_context(replica.edited(effect.edits))
            effects.append(effect)
        yield effects


def effect_of(replica: Replica, change: changes.Change, build: node_changes.BuildMachine) -> Effect:
    """What one change amounts to on the replica as it is now. Raises InputError."""
    match change:
        case changes.AddNodes():
            return node_changes.added(replica, change, build)
        case changes.RemoveNodes():
            return node_changes.removed(replica, change)
        case changes.Cordon():
            return node_changes.cordoned(replica, change)
        case changes.Uncordon():
            return node_changes.uncordoned(replica, change)
        case changes.SetQueue():
            return queue_changes.changed(replica, change)
        case changes.SetPriority():
            return work_changes.prioritised(replica, change)
        case changes.SetPartitions():
            return partition_changes.partitioned(replica, change)
        case changes.SetSharing():
            return sharing_changes.shared(replica, change)
        case changes.EndWork():
            return work_changes.ended(replica, change)
        case changes.NewWork():
            return work_changes.submitted(replica, change)
        case _:
            assert_never(change)


def _removed_before(change: changes.Change, effects: Sequence[Effect]) -> str:
    """The reason for a missing node that an earlier change took away; nothing where that is not the reason."""
    nodes = getattr(change, "nodes", None)
    if nodes is None or nodes.kind != changes.NODE:
        return ""
    gone = object_set.Key(registry.NODE.unique_name, "", nodes.name)
    is_gone = any(edit == Edit(gone, None) for effect in effects for edit in effect.edits)
    return f"an earlier change removes node {nodes.name}" if is_gone else ""


def _ended_before(change: changes.Change, earlier: Sequence[changes.Change]) -> str:
    """The reason for missing work that an earlier change ended; nothing where that is not the reason."""
    work = getattr(change, "work", None)
    is_over = any(isinstance(each, changes.EndWork) and each.work == work for each in earlier)
    return f"an earlier change ends {work}" if is_over else ""


def _pods_of(
    stated: Sequence[changes.Stated], effects: Sequence[Effect], kind: type[changes.Change]
) -> set[cluster_outcome.PodName]:
    """The pods that changes of one kind create or end."""
    edits: list[Edit] = []
    for each, effect in zip(stated, effects, strict=True):
        if isinstance(each.change, kind):
            edits += effect.edits
    return {
        (edit.key.namespace, edit.key.name)
        for edit in edits
        if edit.key.kind == registry.POD.unique_name
    }
