"""What one node of an upgrade does next: fence, drain, apply, validate, unfence; or why it failed.

Given the node's status, the facts and the time. A node is unfenced after its validation, or where nothing was applied
to it, and in no other case. Never writes.
"""

from __future__ import annotations

import datetime
from typing import NamedTuple, assert_never

import msgspec

from dovetail import timestamps
from dovetail.kubetypes.custom import stack_upgrades
from dovetail.kubetypes.custom.stack_upgrades import NodePhase, NodeStatus, Rollback
from dovetail.upgrade.machine import gang_drain
from dovetail.upgrade.machine.cluster_facts import (
    Facts,
    Judgement,
    Judges,
    Manual,
    NodeView,
    Ongoing,
    Passed,
    Rejected,
    Versions,
)

UNTOUCHED = frozenset({NodePhase.FENCING, NodePhase.DRAINING})


class Setting(NamedTuple):
    """What the steps of all nodes share."""

    name: str  # of the upgrade
    spec: stack_upgrades.StackUpgradeSpec
    facts: Facts
    judges: Judges
    now: datetime.datetime
    is_reversible: bool
    is_held: bool  # paused: drains stand still, and do not fail


def target_of(node: NodeStatus, spec: stack_upgrades.StackUpgradeSpec) -> Versions:
    """The versions that a node is to have next."""
    return node.previous if node.is_going_back else spec.versions_of(node.name)


def changed(
    node: NodeStatus, phase: NodePhase, now: datetime.datetime, *, reason: str = ""
) -> NodeStatus:
    """The node in another phase."""
    at = timestamps.to_text(now)
    is_begin = phase is NodePhase.FENCING
    is_end = phase in (NodePhase.DONE, NodePhase.ROLLED_BACK, NodePhase.FAILED, NodePhase.SKIPPED)
    return msgspec.structs.replace(
        node,
        phase=phase,
        since=at,
        passed=_passed(node, now),
        reason=reason,
        by_hand=(),
        started_at=at if is_begin else node.started_at,
        finished_at=at if is_end else "",
    )


def _passed(node: NodeStatus, now: datetime.datetime) -> tuple[str, ...]:
    """The phases that are over now, for people who look at what happened."""
    is_before_its_turn = node.phase is NodePhase.WAITING and not node.passed
    if is_before_its_turn:
        return ()
    seconds = gang_drain.seconds_since(node.since, now)
    return (*node.passed, f"{node.phase}={seconds}")


def given_back(node: NodeStatus, phase: NodePhase, now: datetime.datetime, why: str) -> NodeStatus:
    """The node, to which nothing was applied, returns into service."""
    ended = changed(node, phase, now, reason=why)
    return msgspec.structs.replace(ended, is_given_back=True)


def advanced(node: NodeStatus, setting: Setting) -> NodeStatus:
    """The node one step further, or as it is with what it waits for."""
    view = setting.facts.nodes.get(node.name)
    step = _STEPS.get(node.phase)
    if step is None:
        return node
    if view is None:
        return changed(node, NodePhase.SKIPPED, setting.now, reason="the node is gone")
    return step(node, view, setting)


def is_fence_set(view: NodeView, setting: Setting) -> bool:
    """Whether our taint or cordon and, where they are served, our rules stand."""
    needs_rule = setting.facts.has_rules and bool(view.pools)
    return view.fence == setting.name and (not needs_rule or setting.name in view.covered)


def is_fence_gone(view: NodeView, name: str) -> bool:
    """Whether nothing of our fence is left."""
    return name not in view.marks and name not in view.rules


def _fencing(node: NodeStatus, view: NodeView, setting: Setting) -> NodeStatus:
    if is_fence_set(view, setting):
        return changed(node, NodePhase.DRAINING, setting.now)
    if view.fence and view.fence != setting.name:
        return _waits(node, f"fenced by upgrade {view.fence}")
    return node


def _draining(node: NodeStatus, view: NodeView, setting: Setting) -> NodeStatus:
    policy = setting.spec.drain
    if not gang_drain.remaining(node.name, setting.facts):
        return (
            changed(node, NodePhase.APPLYING, setting.now) if is_fence_set(view, setting) else node
        )
    reason = gang_drain.reason(node, setting.facts, policy)
    seconds = gang_drain.seconds_since(node.since, setting.now)
    if seconds >= gang_drain.deadline_seconds(policy) and not setting.is_held:
        why = f"not drained within {seconds} s: {reason}"
        return given_back(node, NodePhase.FAILED, setting.now, why)
    return _waits(node, reason)


def _applying(node: NodeStatus, view: NodeView, setting: Setting) -> NodeStatus:
    seconds = gang_drain.seconds_since(node.since, setting.now)
    versions = target_of(node, setting.spec)
    judgement = setting.judges.installing(node.name, versions, seconds)
    most = setting.spec.stop.apply_seconds
    return _judged(node, judgement, setting, next_phase=NodePhase.VALIDATING, most_seconds=most)


def _validating(node: NodeStatus, view: NodeView, setting: Setting) -> NodeStatus:
    code = critical_xid(node, view, setting)
    if code is not None:
        return failed(node, f"a GPU reported XID {code}", setting)
    judgement = setting.judges.validity(node.name, target_of(node, setting.spec))
    most = setting.spec.stop.validate_seconds
    return _judged(node, judgement, setting, next_phase=NodePhase.UNFENCING, most_seconds=most)


def _unfencing(node: NodeStatus, view: NodeView, setting: Setting) -> NodeStatus:
    if not is_fence_gone(view, setting.name):
        return node
    end = NodePhase.ROLLED_BACK if node.is_going_back else NodePhase.DONE
    return changed(node, end, setting.now, reason=node.reason)


def _done(node: NodeStatus, view: NodeView, setting: Setting) -> NodeStatus:
    """A node that reports critical errors after its upgrade has failed after all."""
    code = critical_xid(node, view, setting)
    if code is None:
        return node
    return failed(node, f"a GPU reported XID {code} after the upgrade", setting)


def critical_xid(node: NodeStatus, view: NodeView, setting: Setting) -> int | None:
    """The first critical error since the node's fence."""
    begin = timestamps.parse_or_none(node.started_at)
    since_fence = [xid for xid in view.xids if xid.at and begin and xid.at > begin]
    codes = [xid.code for xid in since_fence if xid.code in setting.spec.stop.xids]
    return min(codes, default=None)


def failed(node: NodeStatus, why: str, setting: Setting) -> NodeStatus:
    """The node has failed: it stays fenced, or goes back where the rules want it and there is a way."""
    wants_back = setting.spec.rollback is not Rollback.NEVER
    may_go_back = setting.is_reversible and bool(node.previous) and not node.is_going_back
    if not (wants_back and may_go_back):
        return changed(node, NodePhase.FAILED, setting.now, reason=why)
    is_empty = node.phase is not NodePhase.DONE  # else work has returned, and has to leave again
    phase = NodePhase.APPLYING if is_empty else NodePhase.FENCING
    back = changed(node, phase, setting.now, reason=f"goes back: {why}")
    started = node.started_at or back.started_at
    return msgspec.structs.replace(back, is_going_back=True, failure=why, started_at=started)


def _judged(
    node: NodeStatus,
    judgement: Judgement,
    setting: Setting,
    *,
    next_phase: NodePhase,
    most_seconds: int,
) -> NodeStatus:
    seconds = gang_drain.seconds_since(node.since, setting.now)
    match judgement:
        case Passed():
            return changed(node, next_phase, setting.now, reason=_kept(node))
        case Rejected(reason):
            return failed(node, reason, setting)
        case Manual(steps, reason):
            # A person's work has no limit: the steps stand in the status until they are done.
            return msgspec.structs.replace(node, reason=reason, by_hand=steps)
        case Ongoing(reason):
            if seconds >= most_seconds:
                return failed(node, f"{node.phase} for {seconds} s: {reason}", setting)
            return _waits(node, reason)
        case _:
            assert_never(judgement)


def _kept(node: NodeStatus) -> str:
    """Why a node goes back stays readable until it is back."""
    return node.reason if node.failure else ""


def _waits(node: NodeStatus, reason: str) -> NodeStatus:
    if node.failure:
        return node
    return msgspec.structs.replace(node, reason=reason)


_STEPS = {
    NodePhase.FENCING: _fencing,
    NodePhase.DRAINING: _draining,
    NodePhase.APPLYING: _applying,
    NodePhase.VALIDATING: _validating,
    NodePhase.UNFENCING: _unfencing,
    NodePhase.DONE: _done,
}
