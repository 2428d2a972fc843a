"""The waiting and running work of a cluster, waiting work in the order in which the scheduler would take it.

Given the objects of a cluster, the policy and the time. Asks the engine on a replica: whose turn it is, why work waits,
when it starts, what it costs in GPUs. Never writes, never prints.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from dovetail import timestamps
from dovetail.answer import when
from dovetail.kubetypes import object_set
from dovetail.kubetypes.core import pods
from dovetail.live.intents import stored_promises
from dovetail.model import plan, policy
from dovetail.schedule import decide
from dovetail.schedule.gang.jobs import Job
from dovetail.schedule.queue import amounts, fair_share
from dovetail.schedule.session import Scope, Session
from dovetail.world.owners import facts_of_objects
from dovetail.world.world import World

MOST_EXPECTATIONS: Final = 200  # waiting gangs whose starts are computed; of more, promises only
MOST_AHEAD: Final = 10  # that are named; the position counts all
RUNNING, PARTIAL, STARTING, PENDING = "Running", "Partial", "Starting", "Pending"
ENDING: Final = "Ending"  # all its pods are being deleted
PREEMPTING: Final = "Preempting"  # it waits for the pods that make room for it
UNDECIDED: Final = "Undecided"


class WorkItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One gang, job or pod: what it holds or asks for, and when it starts."""

    namespace: str
    name: str  # job/train, gang/llama, pod/notebook
    queue: str
    state: str
    gpus: float
    pods: int
    running: int = 0  # of its pods
    position: int | None = None  # among what waits; None: it runs, or nothing it could do starts it
    created: str = ""
    start: str = ""  # since when it runs, or when it is expected to
    latest: str = ""
    is_promised: bool = False
    reason: str = ""  # one word
    message: str = ""
    ahead: tuple[str, ...] = ()  # what comes right before it, nearest first
    nodes: tuple[str, ...] = ()
    priority: int = 0
    labels: dict[str, str] = {}
    owner: str = ""  # of its first pod: job/sweep

    @property
    def full_name(self) -> str:
        """With its namespace."""
        return f"{self.namespace}/{self.name}"


class _Answers(msgspec.Struct, frozen=True):
    """What the engine says about gangs that wait, by namespace/name."""

    starting: frozenset[str]
    nominated: frozenset[str]
    refusals: Mapping[str, plan.Refusal]
    promises: Mapping[str, plan.Promise]


def items_of(
    objects: object_set.ObjectSet, rules: policy.Policy, now: datetime.datetime
) -> tuple[WorkItem, ...]:
    """All work: what waits, by turn, then what waits for something else than its turn, then what runs."""
    stored = stored_promises.promises_of(objects)
    world = facts_of_objects.world_of(objects)
    world.set_promises(stored)
    items = decided_items(world, rules, now)
    if not needs_expectations(items):
        return items
    facts = facts_of_objects.facts_of(objects)
    return with_expectations(items, when.when(facts, rules, now, promises=stored))


def decided_items(
    world: World, rules: policy.Policy, now: datetime.datetime
) -> tuple[WorkItem, ...]:
    """All work as one decision sees it: of what waits, only promised starts are known."""
    decided = decide.decide(world, rules, now)
    answers = _answers(world, decided)
    with world.trial():
        session = Session(world, rules, now, policy.UNLIMITED, Scope())
        accounts = session.transaction.accounts
        usage, usage_weight = session.past_usage(), rules.batch.usage_weight
        fair_share.divide(accounts, usage=usage, usage_weight=usage_weight)
        line = [job.id for job in session.line()]
        positions = {job_id: number for number, job_id in enumerate(line, start=1)}
        jobs = session.transaction.jobs.values()
        items = [_item(session, job, positions, answers) for job in jobs]
    return _ordered(items, line)


def needs_expectations(items: Sequence[WorkItem]) -> bool:
    """Whether work waits, and not so much that its starts take too long to compute."""
    waiting = sum(item.running < item.pods for item in items)
    return 0 < waiting <= MOST_EXPECTATIONS


def with_expectations(
    items: Sequence[WorkItem], expectations: Sequence[when.Expectation]
) -> tuple[WorkItem, ...]:
    """The items with the starts that are expected; a promised start stays."""
    by_gang = {str(each.gang): each for each in expectations}
    return tuple(_with_expectation(item, by_gang.get(item.full_name)) for item in items)


def _with_expectation(item: WorkItem, expected: when.Expectation | None) -> WorkItem:
    if expected is None or item.is_promised:
        return item
    start, latest = expected.start, expected.latest
    return msgspec.structs.replace(
        item,
        start="" if start is None else timestamps.to_text(start),
        latest="" if latest is None else timestamps.to_text(latest),
    )


def _answers(world: World, decided: plan.Plan) -> _Answers:
    def gang_of(pod_id: str) -> str:
        member = world.gangs.of(pod_id)
        return "" if member is None else "/".join(member.gang)

    refusals: dict[str, plan.Refusal] = {}
    for refusal in decided.refusals:
        refusals.setdefault(gang_of(refusal.pod.uid), refusal)
    return _Answers(
        starting=frozenset(gang_of(each.pod.uid) for each in decided.placements),
        nominated=frozenset(str(each.gang) for each in decided.nominations),
        refusals=refusals,
        promises={str(each.gang): each for each in decided.promises},
    )


def _item(session: Session, job: Job, positions: Mapping[str, int], answers: _Answers) -> WorkItem:
    active = [pod_id for pod_id in job.pods if job.pods[pod_id].spec.node_name]
    waiting = [pod_id for pod_id in job.pods if pod_id not in set(active)]
    cost = session.transaction.cost_of(job, active).get(amounts.GPU, 0)
    for pod_id in waiting:
        cost += session.transaction.price_of_pending(pod_id)[1].get(amounts.GPU, 0)
    metadata = job.gang.metadata
    labels: dict[str, str] = {}
    for pod in job.pods.values():
        labels |= pod.metadata.labels
    item = WorkItem(
        namespace=metadata.namespace,
        name=metadata.name,
        queue=job.queue,
        state=RUNNING,
        gpus=cost / amounts.scale(amounts.GPU),
        pods=len(job.pods),
        running=len(active),
        created=timestamps.to_text(job.created),
        nodes=tuple(sorted({job.pods[pod_id].spec.node_name or "" for pod_id in active})),
        priority=job.priority,
        labels=labels | metadata.labels,
        owner=_owner(next(iter(job.pods.values()))),
    )
    if not waiting:
        if all(job.pods[pod_id].metadata.deletion_timestamp for pod_id in active):
            item = msgspec.structs.replace(item, state=ENDING)
        starts = [job.pods[pod_id].status.start_time for pod_id in active]
        return msgspec.structs.replace(item, start=min(filter(None, starts), default=""))
    return _waiting_item(item, job.id, positions, answers)


def _owner(pod: pods.Pod) -> str:
    owners = [each for each in pod.metadata.owner_references if each.controller]
    return f"{owners[0].kind.lower()}/{owners[0].name}" if owners else ""


def _waiting_item(
    item: WorkItem, job_id: str, positions: Mapping[str, int], answers: _Answers
) -> WorkItem:
    refusal = answers.refusals.get(job_id)
    state = PARTIAL if item.running else PENDING
    reason = message = ""
    if job_id in answers.nominated:
        state, reason = STARTING, PREEMPTING
    elif job_id in answers.starting and refusal is None:
        state = STARTING
    elif refusal is not None:
        reason, message = _word(refusal), refusal.summary
    start = latest = None
    promise = answers.promises.get(job_id)
    is_promised = promise is not None and promise.start is not None
    if promise is not None and promise.start is not None:
        start, latest = promise.start, promise.latest
    return msgspec.structs.replace(
        item,
        state=state,
        position=positions.get(job_id),
        reason=reason,
        message=message,
        start="" if start is None else timestamps.to_text(start),
        latest="" if latest is None else timestamps.to_text(latest),
        is_promised=is_promised,
    )


def _word(refusal: plan.Refusal) -> str:
    """The nearest obstacle in one word."""
    if refusal.obstacles:
        return str(refusal.obstacles[0].reason.code)
    return UNDECIDED if refusal.is_undecided else ""


def _ordered(items: list[WorkItem], line: list[str]) -> tuple[WorkItem, ...]:
    """By turn; then what has none, the older first; then what runs."""

    def rank(item: WorkItem) -> tuple[bool, bool, int, str, str]:
        has_no_turn = item.position is None
        runs = item.state in (RUNNING, ENDING)
        return runs, has_no_turn, item.position or 0, item.created, item.full_name

    ordered = []
    for item in sorted(items, key=rank):
        last = item.position - 1 if item.position is not None else 0
        nearest = line[max(0, last - MOST_AHEAD) : last]
        ordered.append(msgspec.structs.replace(item, ahead=tuple(reversed(nearest))))
    return tuple(ordered)
