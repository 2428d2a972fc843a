"""Decides which queues a decision may use, and what is wrong with the others.

Given all queues by name; returns a problem per queue, and the queues that form a sound tree with consistent numbers.
Total: every queue that decodes gets a result. Never decides which workloads may use a queue (`queue_access` does).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

import msgspec

from dovetail.kubetypes import meta
from dovetail.kubetypes.custom import queues
from dovetail.model.queue import queue_resources
from dovetail.quantity import durations, quantity

Queues = Mapping[str, queues.Queue]
SHOWN_NAME: Final = 80  # characters of an unknown resource name quoted in a message
SHOWN_PROBLEMS: Final = 8  # of one queue, in its message
SHOWN_CIRCLE: Final = 8  # names of a circle of parents
# Our own bound: trees in use have three or four levels, and each level costs a pass over the pending gangs.
MAX_LEVELS: Final = 64


class Severity(IntEnum):
    """What a problem does to its queue."""

    WARNING = 1  # reported, without effect
    CLOSED = 2  # accepts no new work; it stays in the tree, and running pods are charged to it
    BROKEN = 3  # has no place in the tree: decisions ignore the queue


class Reason(StrEnum):
    """What is wrong, as the reason of a condition."""

    PARENT_MISSING = "ParentMissing"
    PARENT_BROKEN = "ParentBroken"
    CIRCLE = "ParentsFormACircle"
    TOO_DEEP = "TreeTooDeep"
    UNKNOWN_RESOURCE = "UnknownResource"
    RESOURCE_TWICE = "ResourceNamedTwice"
    NEGATIVE = "NegativeNumber"
    SELECTOR = "UnreadableSelector"
    LIMIT_BELOW_QUOTA = "LimitBelowQuota"
    OVERBOOKED = "QuotasExceedParent"
    ALIAS_TAKEN = "AliasUsedTwice"
    RUNTIMES = "ContradictoryRuntimes"


class Problem(NamedTuple):
    """What keeps a queue from working as written: the most severe reason, and a message about all of them."""

    reason: Reason
    message: str
    severity: Severity

    @property
    def is_fatal(self) -> bool:
        """Whether decisions ignore the queue."""
        return self.severity is Severity.BROKEN

    @property
    def takes_work(self) -> bool:
        """Whether the queue still accepts new work."""
        return self.severity is Severity.WARNING


def problems(all_queues: Queues) -> dict[str, Problem]:
    """The problem of every queue that has one. Linear in queues and the resources they name."""
    by_queue: dict[str, list[Problem]] = defaultdict(list)
    misplaced = _misplaced(all_queues)
    for name, problem in misplaced.items():
        by_queue[name].append(problem)
    for name, queue in all_queues.items():
        by_queue[name] += _own_problems(queue.spec)
    between_queues = (*_overbooked(all_queues, misplaced.keys()), *_shared_aliases(all_queues))
    for name, problem in between_queues:
        by_queue[name].append(problem)
    return {name: _combined(listed) for name, listed in by_queue.items() if listed}


def usable(all_queues: Queues) -> dict[str, queues.Queue]:
    """The queues of the sound tree, by name. Contradictory numbers are corrected, see `sound`."""
    broken = _misplaced(all_queues)
    return {name: sound(queue) for name, queue in all_queues.items() if name not in broken}


def sound(queue: queues.Queue) -> queues.Queue:
    """The queue as decisions read it: unchanged where nothing is wrong.

    Negative numbers count as zero, a quota above the limit is lowered to it, unknown resources are left out, and of two
    spellings of one resource the first by name counts.
    """
    spec = queue.spec
    shares: dict[str, queues.Share] = {}
    seen_resources: set[queue_resources.Resource] = set()
    for name, share in sorted(spec.resources.items()):
        resource = queue_resources.read(name)
        if resource is not None and resource not in seen_resources:
            seen_resources.add(resource)
            shares[name] = _sound_share(share)

    negative = [field for field in _RUNTIMES if (getattr(spec, field) or 0) < 0]
    changes: dict[str, object] = dict.fromkeys(negative)
    if shares != spec.resources:
        changes["resources"] = shares
    if not changes:
        return queue
    return msgspec.structs.replace(queue, spec=msgspec.structs.replace(spec, **changes))


def children(all_queues: Queues) -> dict[str, tuple[str, ...]]:
    """The names of the queues below each queue that has any, sorted; those at the top under ""."""
    by_parent: dict[str, list[str]] = defaultdict(list)
    for name, queue in sorted(all_queues.items()):
        by_parent[queue.spec.parent].append(name)
    return {parent: tuple(below) for parent, below in by_parent.items()}


def readiness(queue: queues.Queue, problem: Problem | None) -> meta.Condition:
    """The Ready condition of a queue, without a time."""
    is_ready = problem is None or problem.takes_work
    return meta.Condition(
        type="Ready",
        status="True" if is_ready else "False",
        observed_generation=queue.metadata.generation,
        reason=str(problem.reason) if problem else "Ready",
        message=problem.message if problem else "in use as written",
    )


_RUNTIMES = (
    "min_runtime_seconds",
    "preempt_min_runtime_seconds",
    "reclaim_min_runtime_seconds",
    "max_runtime_seconds",
)
_WITH_VALUES = frozenset({"In", "NotIn"})
_WITHOUT_VALUES = frozenset({"Exists", "DoesNotExist"})


def _misplaced(all_queues: Queues) -> dict[str, Problem]:
    """Queues without a path to the top, or below MAX_LEVELS: orphans, circles, and everything below either.

    Each queue is walked over once. The queues that remain are shallow enough for recursion.
    """
    misplaced: dict[str, Problem] = {}
    levels: dict[str, int] = {}  # of queues with a path to the top
    for start in sorted(all_queues):
        # Up from the start, until the top, a settled queue, a missing parent or a queue of this very path.
        path: list[str] = []
        position: dict[str, int] = {}
        name = start
        settled = (levels, misplaced, position)
        while name and name in all_queues and not any(name in table for table in settled):
            position[name] = len(path)
            path.append(name)
            name = all_queues[name].spec.parent

        if name in position:
            circle = path[position[name] :]
            misplaced |= {member: _circle(circle, member) for member in circle}
            path = path[: position[name]]
        elif name and name not in all_queues:
            misplaced[path[-1]] = _missing_parent(name)
            path = path[:-1]

        # Down again: each queue's verdict follows from its parent's, which is settled by now.
        for member in reversed(path):
            parent = all_queues[member].spec.parent
            level = levels.get(parent, 0) + 1
            if parent in misplaced:
                misplaced[member] = _broken_parent(parent, misplaced[parent])
            elif level > MAX_LEVELS:
                misplaced[member] = _too_deep()
            else:
                levels[member] = level
    return misplaced


def _missing_parent(parent: str) -> Problem:
    text = f"parent {parent} does not exist; create it or remove spec.parent"
    return Problem(Reason.PARENT_MISSING, text, Severity.BROKEN)


def _broken_parent(parent: str, problem: Problem) -> Problem:
    # The root cause alone: repeating each level's message would grow with the depth.
    cause = problem.message.partition("is not usable: ")[2] or problem.message
    text = f"parent {parent} is not usable: {cause}"
    return Problem(Reason.PARENT_BROKEN, text, Severity.BROKEN)


def _too_deep() -> Problem:
    text = f"is more than {MAX_LEVELS} levels below the top; choose a parent nearer to the top"
    return Problem(Reason.TOO_DEEP, text, Severity.BROKEN)


def _circle(circle: list[str], start: str) -> Problem:
    at = circle.index(start)
    path = [*circle[at:], *circle[:at], start]
    if len(path) > SHOWN_CIRCLE:
        path = [*path[:6], "...", start]
    text = (
        f"its parents form a circle: {' -> '.join(path)}; give one of them another parent or none"
    )
    return Problem(Reason.CIRCLE, text, Severity.BROKEN)


def _own_problems(spec: queues.QueueSpec) -> Iterator[Problem]:
    """What is wrong with a queue regardless of the others."""
    names: dict[queue_resources.Resource, str] = {}
    for name, share in sorted(spec.resources.items()):
        resource = queue_resources.read(name)
        if resource is None:
            yield Problem(Reason.UNKNOWN_RESOURCE, _unknown(name), Severity.CLOSED)
        elif resource in names:
            text = f"{names[resource]} and {name} are the same resource; keep one of them"
            yield Problem(Reason.RESOURCE_TWICE, text, Severity.CLOSED)
        else:
            names[resource] = name
        yield from _share_problems(name, share)
    yield from _selector_problems(spec.namespace_selector)
    yield from _runtime_problems(spec)


def _share_problems(name: str, share: queues.Share) -> Iterator[Problem]:
    path = f"resources.{name}"
    for field, value in (("quota", share.quota), ("limit", share.limit)):
        if value is not None and value.nanos < 0:
            text = f"{path}.{field} is {value}, below zero"
            yield Problem(Reason.NEGATIVE, text, Severity.CLOSED)
    if share.weight < 0:
        text = f"{path}.weight is {share.weight}, below zero"
        yield Problem(Reason.NEGATIVE, text, Severity.CLOSED)
    if share.quota is not None and share.limit is not None and share.limit < share.quota:
        text = f"{path}: limit {share.limit} is below quota {share.quota}; the limit holds"
        yield Problem(Reason.LIMIT_BELOW_QUOTA, text, Severity.WARNING)


def _selector_problems(selector: meta.LabelSelector | None) -> Iterator[Problem]:
    """An unreadable test holds nowhere, so the whole selector matches no namespace."""
    if selector is None:
        return
    for index, test in enumerate(selector.match_expressions):
        text = _test_problem(test)
        if text:
            path = f"namespaceSelector.matchExpressions[{index}]"
            yield Problem(Reason.SELECTOR, f"{path}: {text}", Severity.CLOSED)


def _test_problem(test: meta.LabelSelectorRequirement) -> str:
    if test.operator in _WITH_VALUES:
        return "" if test.values else f"{test.operator} needs values"
    if test.operator in _WITHOUT_VALUES:
        return f"{test.operator} takes no values" if test.values else ""
    return f'"{test.operator}" is no operator; known: In, NotIn, Exists, DoesNotExist'


def _runtime_problems(spec: queues.QueueSpec) -> Iterator[Problem]:
    longest = spec.max_runtime_seconds
    for field in _RUNTIMES:
        value: int | None = getattr(spec, field)
        if value is None:
            continue
        name = _camel(field)
        if value < 0:
            text = f"{name} is {value}, below zero: not applied"
            yield Problem(Reason.NEGATIVE, text, Severity.WARNING)
        elif value > durations.LONGEST_SECONDS:
            text = f"{name} {value} is longer than {durations.LONGEST_SECONDS}, a hundred years; that holds"
            yield Problem(Reason.RUNTIMES, text, Severity.WARNING)
        elif longest is not None and 0 <= longest < value:
            text = f"{name} {value} is longer than maxRuntimeSeconds {longest}"
            yield Problem(Reason.RUNTIMES, text, Severity.WARNING)


def _overbooked(all_queues: Queues, broken: Collection[str]) -> Iterator[tuple[str, Problem]]:
    """Parents whose children have more quota than they have: not all of it can be used at once."""
    placed = {name: queue for name, queue in all_queues.items() if name not in broken}
    for parent, below in children(placed).items():
        if not parent:
            continue
        totals = _quota_totals(all_queues, below)
        for name, share in sorted(all_queues[parent].spec.resources.items()):
            resource = queue_resources.read(name)
            total = 0 if resource is None else totals.get(resource, 0)
            own = share.quota or quantity.ZERO
            if total <= max(own.nanos, 0) or own >= queues.UNLIMITED:
                continue
            count = "1 child" if len(below) == 1 else f"{len(below)} children"
            text = (
                f"resources.{name}: the quotas of {count} add up to {quantity.Quantity(total, own.format)}, "
                f"its own quota is {own}"
            )
            yield parent, Problem(Reason.OVERBOOKED, text, Severity.WARNING)


def _quota_totals(all_queues: Queues, below: tuple[str, ...]) -> Counter[queue_resources.Resource]:
    totals: Counter[queue_resources.Resource] = Counter()
    for child in below:
        for name, share in sound(all_queues[child]).spec.resources.items():
            resource = queue_resources.read(name)
            if resource is not None and share.quota is not None:
                totals[resource] += share.quota.nanos
    return totals


def _shared_aliases(all_queues: Queues) -> Iterator[tuple[str, Problem]]:
    """An alias of two queues leads to neither. A queue's own name counts after all aliases."""
    owners: dict[str, set[str]] = defaultdict(set)
    for name, queue in all_queues.items():
        for alias in queue.spec.aliases:
            owners[alias].add(name)
    for alias, names in sorted(owners.items()):
        if len(names) == 1:
            continue
        for name in sorted(names):
            also = ", ".join(sorted(names - {name})[:3])
            text = f"alias {alias} is also used by {also}; until only one queue has it, it leads to none of them"
            yield name, Problem(Reason.ALIAS_TAKEN, text, Severity.WARNING)


def _sound_share(share: queues.Share) -> queues.Share:
    limit = _not_negative(share.limit)
    quota = _not_negative(share.quota)
    if quota is not None and limit is not None:
        quota = min(quota, limit)
    is_unchanged = quota is share.quota and limit is share.limit and share.weight >= 0
    if is_unchanged:
        return share
    return queues.Share(quota=quota, limit=limit, weight=max(share.weight, 0))


def _not_negative(value: quantity.Quantity | None) -> quantity.Quantity | None:
    return quantity.ZERO if value is not None and value.nanos < 0 else value


def _camel(field: str) -> str:
    head, *tail = field.split("_")
    return head + "".join(map(str.capitalize, tail))


def _unknown(name: str) -> str:
    name = name if len(name) <= SHOWN_NAME else f"{name[:SHOWN_NAME]}..."
    if not name.startswith(f"{queue_resources.GPU}/"):
        return f"resources.{name} is not the name of a resource"
    subjects = {part: "profile" if part == "mig" else part for part in queue_resources.PARTS}
    parts = ", ".join(f"gpu/{part}.<{subject}>" for part, subject in subjects.items())
    return f"resources.{name} is not known; of GPUs there are gpu, {parts}"


def _combined(listed: list[Problem]) -> Problem:
    """One problem with all messages, most severe first."""
    ordered = sorted(listed, key=lambda problem: -problem.severity)
    message = "; ".join(problem.message for problem in ordered[:SHOWN_PROBLEMS])
    hidden = len(ordered) - SHOWN_PROBLEMS
    if hidden > 0:
        message += f"; and {hidden} more"
    return Problem(ordered[0].reason, message, ordered[0].severity)
