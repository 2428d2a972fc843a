"""What needs attention in a cluster, the worst first: broken hardware, broken settings, work that waits for long.

Given what one user sees of it: the picture of the fleet, queues, work, what happened. Each note says how many, which
first, and where to look. Never repairs anything, never asks the engine itself.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlencode

import msgspec

from dovetail import timestamps
from dovetail.answer.why import cause_codes
from dovetail.answer.why.causes import reason_causes
from dovetail.model import reasons
from dovetail.model.queue import queue_resources
from dovetail.tables import text
from dovetail.tables.fleet import fleet_map, node_states
from dovetail.tables.items import claim_items, queue_items
from dovetail.tables.overview import type_numbers
from dovetail.tables.timeline import timeline_entries
from dovetail.tables.work import work_items

HIGH, MEDIUM, LOW = "high", "medium", "low"
RANK: Final = {HIGH: 0, MEDIUM: 1, LOW: 2}
NAMED: Final = 3  # examples in a note
NO_EXECUTE: Final = ":NoExecute"
SOON: Final = datetime.timedelta(minutes=10)  # what waits for less is no news
LONG: Final = datetime.timedelta(hours=1)
VERY_LONG: Final = datetime.timedelta(days=1)
_WAITING: Final = (work_items.PENDING, work_items.PARTIAL)


class Attention(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One note. `link` is a page of the dashboard."""

    severity: str
    code: str
    title: str
    detail: str
    count: int
    link: str


class MissingGpus(NamedTuple):
    """A node that shows fewer GPUs than its labels say it has."""

    node: str
    expected: int
    shown: int


class Sources(NamedTuple):
    """What the user sees."""

    now: datetime.datetime
    nodes: Sequence[fleet_map.FleetNode] = ()
    missing: Sequence[MissingGpus] = ()
    queues: Sequence[queue_items.QueueItem] = ()
    work: Sequence[work_items.WorkItem] = ()
    claims: Sequence[claim_items.ClaimItem] = ()
    entries: Sequence[timeline_entries.TimelineEntry] = ()  # newest first
    quarantined: int = 0  # devices
    ignored: Sequence[str] = ()  # namespace/pod whose annotations are ignored
    unreadable: Sequence[str] = ()


def notes(sources: Sources) -> tuple[Attention, ...]:
    """All notes, the worst first; of equals the larger first."""
    all_notes = [
        *_hardware(sources),
        *_settings(sources),
        *_work(sources),
        *_promises(sources),
    ]
    all_notes.sort(key=lambda note: (RANK[note.severity], -note.count, note.code))
    return tuple(all_notes)


def _hardware(sources: Sources) -> Iterator[Attention]:
    nodes = sources.nodes
    yield from _not_ready([node for node in nodes if node.state == node_states.NOT_READY])
    yield from _tainted_gpus(nodes)
    yield from _missing(sources.missing)
    if sources.quarantined:
        yield Attention(
            severity=MEDIUM,
            code="DevicesQuarantined",
            title=f"{text.counted(sources.quarantined, 'device')} kept out of use",
            detail="their pods were removed by force and may still run",
            count=sources.quarantined,
            link="/fleet?only=reserved",
        )
    cordoned = [node for node in nodes if node.state == node_states.CORDONED]
    idle = [node for node in cordoned if not _in_use(node)]
    if idle:
        gpus = sum(len(node.gpus) for node in idle)
        yield Attention(
            severity=LOW,
            code="CordonedIdle",
            title=f"{text.counted(gpus, 'GPU')} idle on {text.counted(len(idle), 'cordoned node')}",
            detail=_listed(node.name for node in idle),
            count=len(idle),
            link=_link_of_nodes(idle, "cordoned"),
        )
    tainted = [node for node in nodes if node.state == node_states.TAINTED]
    if tainted:
        yield Attention(
            severity=LOW,
            code="NodesTainted",
            title=f"{text.counted(len(tainted), 'node')} with GPUs tainted",
            detail=_listed(f"{node.name} ({node.reason})" for node in tainted),
            count=len(tainted),
            link=_link_of_nodes(tainted, "tainted"),
        )


def _not_ready(nodes: Sequence[fleet_map.FleetNode]) -> Iterator[Attention]:
    if not nodes:
        return
    gpus = sum(len(node.gpus) for node in nodes)
    in_use = sum(map(_in_use, nodes))
    verb = "is" if len(nodes) == 1 else "are"
    yield Attention(
        severity=HIGH,
        code="NodesNotReady",
        title=f"{text.counted(len(nodes), 'node')} with {text.counted(gpus, 'GPU')} {verb} not ready",
        detail=f"{in_use} of the GPUs are held; "
        + _listed(f"{node.name} ({node.reason})" for node in nodes),
        count=len(nodes),
        link=_link_of_nodes(nodes, "notReady"),
    )


def _tainted_gpus(nodes: Sequence[fleet_map.FleetNode]) -> Iterator[Attention]:
    sick = [(node, gpu) for node in nodes for gpu in node.gpus if gpu.health != fleet_map.HEALTHY]
    if not sick:
        return
    is_urgent = any(gpu.holders or NO_EXECUTE in gpu.health for _, gpu in sick)
    verb = "is" if len(sick) == 1 else "are"
    yield Attention(
        severity=HIGH if is_urgent else MEDIUM,
        code="GpusTainted",
        title=f"{text.counted(len(sick), 'GPU')} {verb} tainted",
        detail=_listed(f"GPU {gpu.index} of {node.name} ({gpu.health})" for node, gpu in sick),
        count=len(sick),
        link="/devices?state=tainted",
    )


def _missing(missing: Sequence[MissingGpus]) -> Iterator[Attention]:
    if not missing:
        return
    gpus = sum(each.expected - each.shown for each in missing)
    verb = "is" if gpus == 1 else "are"
    yield Attention(
        severity=HIGH,
        code="GpusMissing",
        title=f"{text.counted(gpus, 'GPU')} {verb} missing",
        detail=_listed(
            f"{each.node} shows {each.shown} of {each.expected} GPUs" for each in missing
        ),
        count=gpus,
        link=f"/nodes/{missing[0].node}" if len(missing) == 1 else "/fleet",
    )


def _settings(sources: Sources) -> Iterator[Attention]:
    broken = [queue for queue in sources.queues if not queue.ready]
    if broken:
        has_work = any(queue.pending for queue in broken)
        verb = "takes" if len(broken) == 1 else "take"
        yield Attention(
            severity=HIGH if has_work else MEDIUM,
            code="QueuesUnusable",
            title=f"{text.counted(len(broken), 'queue')} {verb} no work",
            detail=_listed(f"{queue.name}: {queue.message}" for queue in broken),
            count=len(broken),
            link="/queues",
        )
    twice = [
        entry
        for entry in sources.entries
        if entry.kind == timeline_entries.FAILED
        and entry.subject.kind == "ResourceClaim"
        and sources.now - entry.time < VERY_LONG
    ]
    if twice:
        yield Attention(
            severity=HIGH,
            code="DevicesGivenTwice",
            title=f"devices of {text.counted(len(twice), 'claim')} are allocated twice",
            detail=twice[0].detail,
            count=len(twice),
            link="/timeline?kind=failed",
        )
    if sources.ignored:
        yield Attention(
            severity=LOW,
            code="AnnotationsIgnored",
            title=f"annotations of {text.counted(len(sources.ignored), 'pod')} are ignored",
            detail=_listed(sources.ignored),
            count=len(sources.ignored),
            link="/workloads",
        )
    if sources.unreadable:
        yield Attention(
            severity=LOW,
            code="ObjectsUnreadable",
            title=f"{text.counted(len(sources.unreadable), 'object')} could not be read",
            detail=_listed(sources.unreadable),
            count=len(sources.unreadable),
            link="/",
        )


def _work(sources: Sources) -> Iterator[Attention]:
    yield from _below_quota(sources.queues)
    by_class: dict[cause_codes.CauseClass, list[work_items.WorkItem]] = {}
    for item in sources.work:
        if item.state in _WAITING and item.reason:
            by_class.setdefault(class_of(item.reason), []).append(item)
    for cause_class, items in by_class.items():
        yield from _waiting(cause_class, items, sources.now)
    unused = [item for item in sources.claims if item.devices and not item.pods]
    if unused:
        verb = "holds" if len(unused) == 1 else "hold"
        yield Attention(
            severity=LOW,
            code="ClaimsUnused",
            title=f"{text.counted(len(unused), 'claim')} {verb} devices that no pod uses",
            detail=_listed(f"{item.namespace}/{item.name}" for item in unused),
            count=len(unused),
            link="/claims?state=allocated",
        )


def _below_quota(queues: Sequence[queue_items.QueueItem]) -> Iterator[Attention]:
    short = []
    for queue in queues:
        gpus = next((each for each in queue.resources if each.name == queue_resources.GPU), None)
        if not queue.is_leaf or gpus is None or not gpus.quota or not gpus.waiting:
            continue
        used = gpus.used or 0.0
        if used < gpus.quota:
            short.append(
                f"{queue.name} has {used:g} of its {gpus.quota:g} GPUs while {gpus.waiting:g} wait"
            )
    if short:
        verb = "waits" if len(short) == 1 else "wait"
        yield Attention(
            severity=MEDIUM,
            code="QueuesBelowQuota",
            title=f"{text.counted(len(short), 'queue')} below quota {verb}",
            detail=_listed(short),
            count=len(short),
            link="/queues",
        )


def class_of(reason: str) -> cause_codes.CauseClass:
    """Whose move it is, by the one-word reason of waiting work."""
    try:
        cause = reason_causes.CODES.get(reasons.ReasonCode(reason))
    except ValueError:
        cause = None
    if cause is not None:
        return cause.cause_class
    known = {str(code): code.cause_class for code in cause_codes.CauseCode}
    return known.get(reason, cause_codes.CauseClass.CAPACITY)


def _waiting(
    cause_class: cause_codes.CauseClass,
    items: Sequence[work_items.WorkItem],
    now: datetime.datetime,
) -> Iterator[Attention]:
    """One note for the work that waits for the same class of cause, if some of it has waited for a while."""
    oldest = min(items, key=lambda item: (item.created, item.full_name))
    created = timestamps.parse_or_none(oldest.created)
    waited = now - created if created is not None else datetime.timedelta()
    is_mistake = cause_class is cause_codes.CauseClass.CONFIG
    if waited < SOON and not is_mistake:
        return
    severity = HIGH if waited >= VERY_LONG else MEDIUM if waited >= LONG or is_mistake else LOW
    verb = "waits" if len(items) == 1 else "wait"
    longest = f"the longest, {oldest.full_name}, for {text.age(oldest.created, now)}"
    yield Attention(
        severity=severity,
        code=f"WaitsFor{cause_class.value.capitalize()}",
        title=f"{text.counted(len(items), 'workload')} {verb}: {cause_class.value}",
        detail=f"{longest}: {oldest.message or oldest.reason}",
        count=len(items),
        link="/workloads?" + urlencode({"state": work_items.PENDING}),
    )


def _promises(sources: Sources) -> Iterator[Attention]:
    moved = [entry for entry in sources.entries if entry.kind == timeline_entries.PROMISE_MOVED]
    if moved:
        names = (f"{each.subject.namespace}/{each.work} {each.detail}" for each in moved)
        yield Attention(
            severity=MEDIUM,
            code="PromisesMoved",
            title=f"{text.counted(len(moved), 'promised start')} moved",
            detail=_listed(names),
            count=len(moved),
            link="/timeline?kind=promiseMoved",
        )


def _in_use(node: fleet_map.FleetNode) -> int:
    return sum(gpu.state in type_numbers.ALLOCATED for gpu in node.gpus)


def _link_of_nodes(nodes: Sequence[fleet_map.FleetNode], state: str) -> str:
    return f"/nodes/{nodes[0].name}" if len(nodes) == 1 else f"/fleet?text={state}"


def _listed(names: Iterable[str]) -> str:
    """The first few, and how many more."""
    every = list(names)
    more = len(every) - NAMED
    shown = "; ".join(every[:NAMED])
    return f"{shown}; and {more} more" if more > 0 else shown
