"""Decides what the healer does next on each node: begin a remedy, move pods, ask for a reset, finish, or refuse.

A state machine: the cluster's facts and the time in, steps with reasons out; each step is one write, and the state
between two of them stands in the Node's record. Remedies that are under way go on; new ones begin within the limits of
the window and of the pool's breaker. Never cordons, never acts on a fault that keeps no work away.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from dovetail.model import node_annotations
from dovetail.node.health.policy_table import HealthPolicy
from dovetail.upgrade.heal import heal_limits, remedy_ladder
from dovetail.upgrade.heal.heal_facts import GpuFacts, HealFacts, NodeFacts
from dovetail.upgrade.heal.heal_limits import Rule, listed, names
from dovetail.upgrade.heal.heal_policy import HealPolicy
from dovetail.upgrade.heal.heal_record import (
    Attempt,
    MovedPod,
    Phase,
    Record,
    Result,
    Unreadable,
)
from dovetail.upgrade.heal.remedy_ladder import Diagnosis, Nothing, Person, Rung

NODE_WIDE: Final = frozenset({Rung.DRAIN_AND_RESET, Rung.REBOOT, Rung.REPLACE})


class Action(StrEnum):
    """What happens with a node now."""

    NOTHING = "nothing"
    ADVISE = "advise"  # a person's work
    REFUSE = "refuse"  # a remedy is due, and a rule forbids it now
    BEGIN = "begin"
    MOVE = "move"  # evict the pods of the record
    WAIT = "wait"
    STUCK = "stuck"  # the node refuses the remedy: a person's work
    REQUEST = "request"
    WITHDRAW = "withdraw"  # the request, because work came back
    FINISH = "finish"
    FORGET = "forget"  # attempts that no longer count


CHANGES: Final = frozenset(
    {Action.BEGIN, Action.MOVE, Action.REQUEST, Action.WITHDRAW, Action.FINISH}
)


class Step(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is done on one node, and why."""

    node: str
    action: Action
    reason: str
    rung: Rung | None = None
    gpus: tuple[str, ...] = ()
    pods: tuple[MovedPod, ...] = ()
    record: Record | None = None  # to be written
    rule: Rule | None = None  # that forbids the remedy
    pool: str = ""  # whose breaker is open


class _Due(msgspec.Struct, frozen=True, kw_only=True):
    """A remedy that a node needs."""

    node: NodeFacts
    rung: Rung
    gpus: tuple[str, ...]
    diagnosis: Diagnosis


def decide(
    facts: HealFacts, policy: HealPolicy, table: HealthPolicy, *, now: float
) -> tuple[Step, ...]:
    """One step for each node that has faults or a record, those under way first, then by the age of the fault."""
    steps: list[Step] = []
    due: list[_Due] = []
    for node in facts.nodes:
        if isinstance(node.record, Unreadable):
            steps.append(_unreadable(node, node.record))
        elif node.record.is_active:
            steps.append(_go_on(node, node.record, facts, policy, now=now))
        else:
            outcome = _due(node, node.record, policy, table, now=now)
            if isinstance(outcome, _Due) and _is_fresh(outcome, policy, now=now):
                steps.append(_too_early(outcome, policy))
            elif isinstance(outcome, _Due):
                due.append(outcome)
            elif outcome is not None:
                steps.append(outcome)

    breakers = heal_limits.Breakers(facts, policy, now=now)
    for each in sorted(due, key=lambda each: (each.diagnosis.fault.since, each.node.name)):
        steps.append(_begin(each, facts, policy, breakers, now=now))
    return tuple(steps)


def occupants(node: NodeFacts, rung: Rung, gpus: Sequence[str]) -> tuple[str, ...]:
    """The pods that have to be gone before a remedy: those of the GPUs, of all GPUs, or all."""
    match rung:
        case Rung.REBOOT | Rung.REPLACE:
            return node.all_pods
        case Rung.DRAIN_AND_RESET:
            return node.gpu_pods
        case Rung.RESET_GPU | Rung.RESTART_APP:
            held = {uid for gpu in node.gpus if gpu.name in gpus for uid in gpu.holders}
            # Where a device plugin gives out GPUs beside claims, its pods may be on this one.
            known = {uid for gpu in node.gpus for uid in gpu.holders}
            return tuple(sorted(held | (set(node.gpu_pods) - known)))


# A remedy under way


def _go_on(
    node: NodeFacts, record: Record, facts: HealFacts, policy: HealPolicy, *, now: float
) -> Step:
    if record.phase is Phase.DRAINING:
        return _drain(node, record, facts, now=now)
    inside = _inside(node, record, facts)
    if inside:
        again = msgspec.structs.replace(record, phase=Phase.DRAINING, requested=0.0)
        return _step(
            node,
            record,
            Action.WITHDRAW,
            f"{len(inside)} pods came back: {names(inside)}; they are moved first",
            record_=again,
        )
    if _is_over(node, record):
        return _finish(node, record, Result.HEALED, "the fault is gone", now=now)
    response = node.response
    if response is not None and response.id == record.id:
        why = f"the node answered {response.result}: {response.message or 'without a reason'}"
        if response.result == node_annotations.REFUSED:
            return _left_to_a_person(node, record, why)
        if response.result != node_annotations.DONE:
            return _finish(node, record, Result.FAILED, why, now=now)
    seconds = now - record.requested
    limit = policy.reboot_seconds if record.rung in NODE_WIDE else policy.reset_seconds
    if record.rung is not Rung.REPLACE and seconds >= limit:
        why = f"the fault is still there {seconds:.0f} s after the request; {limit} s are allowed"
        return _finish(node, record, Result.FAILED, why, now=now)
    return _step(
        node,
        record,
        Action.WAIT,
        f"{record.rung} of {listed(record.gpus)} was asked for {seconds:.0f} s ago; next: "
        f"{_by_hand(record)}",
    )


def _left_to_a_person(node: NodeFacts, record: Record, why: str) -> Step:
    """A remedy that was not tried has not failed: a greater one would only move more pods, and be refused as well."""
    return _step(
        node,
        record,
        Action.STUCK,
        f"{record.rung} of {listed(record.gpus)}: {why}; next: {_by_hand(record)}; to ask again: "
        f"kubectl annotate node {node.name} {node_annotations.HEAL_RESPONSE}-",
    )


def _drain(node: NodeFacts, record: Record, facts: HealFacts, *, now: float) -> Step:
    staying = [
        pod for pod in record.moved if pod.uid in facts.pods and not facts.pods[pod.uid].is_ending
    ]
    if record.rung is not Rung.RESTART_APP and not staying and _is_over(node, record):
        return _finish(node, record, Result.NOT_NEEDED, "the fault is gone", now=now)
    if staying:
        units = sorted({pod.unit for pod in staying})
        return _step(
            node,
            record,
            Action.MOVE,
            f"{len(staying)} pods of {listed(units)} leave {listed(record.gpus)} before "
            f"{record.rung}",
            pods=_sorted(staying),
        )
    if record.rung is Rung.RESTART_APP:
        return _finish(node, record, Result.HEALED, "its pods were ended", now=now)
    inside = _inside(node, record, facts)
    unplanned = facts.moved(
        pod.uid for pod in inside if pod.uid not in {each.uid for each in record.moved}
    )
    if unplanned:
        wider = msgspec.structs.replace(record, moved=_sorted({*record.moved, *unplanned}))
        reason = f"{len(unplanned)} more pods are there: {names(unplanned)}"
        return _step(node, record, Action.WITHDRAW, reason, record_=wider)
    if inside:
        return _step(node, record, Action.WAIT, f"{len(inside)} pods are ending: {names(inside)}")
    if node.upgrade:
        why = f"{node.upgrade}: {record.rung} of {listed(record.gpus)} is asked for after it"
        return _step(node, record, Action.WAIT, why)
    asked = msgspec.structs.replace(record, phase=Phase.REQUESTED, requested=now, moved=())
    return _step(
        node,
        record,
        Action.REQUEST,
        f"no pod is left on {listed(record.gpus)}; {record.rung} is asked for, because of "
        f"{record.fault}",
        record_=asked,
    )


def _inside(node: NodeFacts, record: Record, facts: HealFacts) -> tuple[MovedPod, ...]:
    """The pods that the remedy would hit."""
    uids = set(occupants(node, record.rung, record.gpus))
    return tuple(
        MovedPod(pod.unit, pod.namespace, pod.name, uid)
        for uid, pod in sorted(facts.pods.items())
        if uid in uids
    )


def _is_over(node: NodeFacts, record: Record) -> bool:
    """Whether every GPU of the remedy is seen, on a node that is ready, and none keeps work away."""
    seen = {gpu.name: gpu for gpu in node.gpus}
    return node.is_ready and all(name in seen and not seen[name].is_blocked for name in record.gpus)


def _finish(node: NodeFacts, record: Record, result: Result, why: str, *, now: float) -> Step:
    attempt = Attempt(
        rung=record.rung, gpus=record.gpus, began=record.began, ended=now, result=result
    )
    return _step(
        node,
        record,
        Action.FINISH,
        f"{record.rung} of {listed(record.gpus)}: {result}: {why}",
        record_=Record(attempts=(*record.attempts, attempt)),
    )


# A remedy that may be due


def _due(
    node: NodeFacts, record: Record, policy: HealPolicy, table: HealthPolicy, *, now: float
) -> _Due | Step | None:
    judged = [(gpu, remedy_ladder.diagnosis(gpu.faults, table)) for gpu in node.gpus]
    found = [(gpu, each) for gpu, each in judged if each is not None]
    acting = [
        (gpu, each, _rung(gpu, each.rung, record, policy, now=now))
        for gpu, each in found
        if each.rung is not None and _may_act(gpu, each, policy)
    ]
    if not acting:
        return _quiet(node, record, found, policy, now=now)
    _, worst, rung = max(acting, key=lambda entry: remedy_ladder.height(entry[2]))
    own = tuple(gpu.name for gpu, _, each in acting if each is rung or rung is not Rung.RESTART_APP)
    every = tuple(gpu.name for gpu in node.gpus)
    gpus = every if rung is Rung.DRAIN_AND_RESET else own
    return _Due(node=node, rung=rung, gpus=gpus, diagnosis=worst)


def _is_fresh(due: _Due, policy: HealPolicy, *, now: float) -> bool:
    """Whether the fault may still pass by itself, as while a driver is loaded again."""
    return now - due.diagnosis.fault.since < policy.fault_seconds


def _too_early(due: _Due, policy: HealPolicy) -> Step:
    why = (
        f"{due.rung} begins when {due.diagnosis.fault.name} has stood for {policy.fault_seconds} s"
    )
    return Step(node=due.node.name, action=Action.NOTHING, reason=why, rung=due.rung, gpus=due.gpus)


def _may_act(gpu: GpuFacts, each: Diagnosis, policy: HealPolicy) -> bool:
    if each.rung is Rung.RESTART_APP:
        return policy.restart_applications and bool(gpu.holders)
    return each.fault.is_blocking


def _rung(
    gpu: GpuFacts, base: Rung | None, record: Record, policy: HealPolicy, *, now: float
) -> Rung:
    assert base is not None, "a diagnosis without a rung"
    earlier = [
        attempt.rung
        for attempt in record.attempts
        if gpu.name in attempt.gpus
        and attempt.result is not Result.NOT_NEEDED
        and now - attempt.ended < policy.window_seconds
    ]
    return remedy_ladder.escalated(base, earlier, tries=policy.tries)


def _quiet(
    node: NodeFacts,
    record: Record,
    found: Sequence[tuple[GpuFacts, Diagnosis]],
    policy: HealPolicy,
    *,
    now: float,
) -> Step | None:
    """What is said of a node on which nothing is begun."""
    kept = tuple(each for each in record.attempts if now - each.ended < policy.window_seconds)
    if kept != record.attempts:
        return Step(
            node=node.name,
            action=Action.FORGET,
            reason=f"{len(record.attempts) - len(kept)} attempts are older than the window",
            record=Record(attempts=kept),
        )
    if node.unlocated:
        return Step(
            node=node.name,
            action=Action.ADVISE,
            reason=f"no device shows which GPU it is: {node.unlocated}; next: drain the node by hand",
        )
    if not found:
        return None
    sentences = [f"{gpu.name}: {_sentence(each)}" for gpu, each in found]
    is_all_well = all(isinstance(each.remedy, Nothing) for _, each in found)
    return Step(
        node=node.name,
        action=Action.NOTHING if is_all_well else Action.ADVISE,
        reason="; ".join(sentences),
        gpus=tuple(gpu.name for gpu, _ in found),
    )


def _sentence(each: Diagnosis) -> str:
    match each.remedy:
        case Nothing():
            return f"{each.fault.name} needs no remedy"
        case Person():
            return f"{each.fault.name}: a person has to {each.remedy.advice}"
        case Rung.RESTART_APP:
            return f"{each.fault.name}: its owner should restart the application"
        case Rung():
            return f"{each.fault.name}: the GPU works; {each.remedy} when it is next empty"


def _begin(
    due: _Due, facts: HealFacts, policy: HealPolicy, breakers: heal_limits.Breakers, *, now: float
) -> Step:
    node = due.node
    inside = occupants(node, due.rung, due.gpus)
    moved = facts.moved(inside)
    refusal = heal_limits.refusal(node, due.rung, moved, facts, policy) or breakers.refusal(node)
    if refusal is not None:
        is_breaker = refusal.rule is Rule.BREAKER
        return Step(
            node=node.name,
            action=Action.REFUSE,
            reason=refusal.reason,
            rung=due.rung,
            gpus=due.gpus,
            pods=moved,
            rule=refusal.rule,
            pool=node.pool if is_breaker else "",
        )
    breakers.begun(node)
    assert isinstance(node.record, Record), "an unreadable record is refused before"
    record = Record(
        phase=Phase.DRAINING,
        id=f"{due.rung}-{now:.0f}",
        rung=due.rung,
        gpus=due.gpus,
        fault=due.diagnosis.fault.name,
        began=now,
        moved=moved,
        attempts=node.record.attempts,
    )
    said = "the driver asks for it" if due.diagnosis.fault.is_of_driver else "by the table"
    units = {pod.unit for pod in moved}
    return Step(
        node=node.name,
        action=Action.BEGIN,
        reason=f"{due.rung} of {listed(due.gpus)} because of {due.diagnosis.fault.name}, {said}; "
        f"{len(moved)} pods of {len(units)} gangs or single pods leave first",
        rung=due.rung,
        gpus=due.gpus,
        pods=moved,
        record=record,
    )


def _unreadable(node: NodeFacts, record: Unreadable) -> Step:
    return Step(
        node=node.name,
        action=Action.REFUSE,
        rule=Rule.RECORD,
        reason=f"annotation dovetail.dev/heal cannot be read ({record.why}); next: "
        f"kubectl annotate node {node.name} dovetail.dev/heal-",
    )


def _step(
    node: NodeFacts,
    record: Record,
    action: Action,
    reason: str,
    *,
    record_: Record | None = None,
    pods: tuple[MovedPod, ...] = (),
) -> Step:
    return Step(
        node=node.name,
        action=action,
        reason=reason,
        rung=record.rung,
        gpus=record.gpus,
        pods=pods,
        record=record_,
    )


def _by_hand(record: Record) -> str:
    match record.rung:
        case Rung.RESET_GPU | Rung.DRAIN_AND_RESET:
            return f"on the node: nvidia-smi --gpu-reset -i {','.join(_numbers(record.gpus))}"
        case Rung.REBOOT:
            return "reboot the node"
        case Rung.REPLACE:
            return "replace the GPU or the node"
        case Rung.RESTART_APP:
            return "nothing"


def _numbers(gpus: Sequence[str]) -> list[str]:
    return [name.removeprefix("gpu-") for name in gpus]


def _sorted(moved: Sequence[MovedPod] | set[MovedPod]) -> tuple[MovedPod, ...]:
    return tuple(sorted(moved))
