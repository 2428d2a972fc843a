"""Decides which queues a decision may use, and what is wrong with the others.

Given all queues by name; answers a problem per queue, and the queues that stand in a sound tree with numbers that
contradict nothing. Total: any queue that decodes gets an answer. Never decides who may use a queue (`queueuse` does).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

import msgspec

from dovetail.model import durations, meta, quantity, queueresources, queues

Queues = Mapping[str, queues.Queue]
SHOWN_NAME: Final = 80  # characters of a name nobody can read
MAX_LEVELS: Final = 64  # ours; trees in use have three or four, and each level costs a pass over what waits


class Severity(IntEnum):
    """What a problem does to its queue."""

    WARNING = 1  # said, nothing else
    CLOSED = 2  # takes no new work; the tree stands, and what runs is charged
    BROKEN = 3  # has no place in the tree: a decision does as if it were not there


class Reason(StrEnum):
    """What is wrong, in the word a condition uses."""

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
    """What keeps a queue from working as written: the gravest reason, and all there is to say."""

    reason: Reason
    message: str
    severity: Severity

    @property
    def is_fatal(self) -> bool:
        """Whether decisions do without the queue."""
        return self.severity is Severity.BROKEN

    @property
    def takes_work(self) -> bool:
        """Whether new work may still come in."""
        return self.severity is Severity.WARNING


def problems(known: Queues) -> dict[str, Problem]:
    """The problem of every queue that has one. Linear in queues and the resources they name."""
    found: dict[str, list[Problem]] = defaultdict(list)
    for name, one in _misplaced(known).items():
        found[name].append(one)
    broken = found.keys() | set()
    for name, queue in known.items():
        found[name] += _own_problems(queue.spec)
    for name, one in (*_overbooked(known, broken), *_shared_aliases(known)):
        found[name].append(one)
    return {name: _together(told) for name, told in found.items() if told}


def usable(known: Queues) -> dict[str, queues.Queue]:
    """The queues of the sound tree, by name. Numbers that contradict each other are read carefully, see `sound`."""
    broken = _misplaced(known)
    return {name: sound(queue) for name, queue in known.items() if name not in broken}


def sound(queue: queues.Queue) -> queues.Queue:
    """The queue as decisions read it: the same where nothing is wrong.

    Negative numbers are zero, a quota above the limit is the limit, resources nobody knows are not there, and of two
    spellings of one resource the first by name counts.
    """
    spec = queue.spec
    shares: dict[str, queues.Share] = {}
    seen: set[queueresources.Resource] = set()
    for name, share in sorted(spec.resources.items()):
        read = queueresources.read(name)
        if read is not None and read not in seen:
            seen.add(read)
            shares[name] = _sound_share(share)
    changes: dict[str, object] = {field: None for field in _RUNTIMES if (getattr(spec, field) or 0) < 0}
    if shares != spec.resources:
        changes["resources"] = shares
    return msgspec.structs.replace(queue, spec=msgspec.structs.replace(spec, **changes)) if changes else queue


def children(known: Queues) -> dict[str, tuple[str, ...]]:
    """The names of the queues below each queue that has any, sorted; under "" those at the top."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, queue in sorted(known.items()):
        found[queue.spec.parent].append(name)
    return {name: tuple(below) for name, below in found.items()}


def readiness(queue: queues.Queue, problem: Problem | None) -> meta.Condition:
    """The Ready condition a queue deserves, without a time."""
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


def _misplaced(known: Queues) -> dict[str, Problem]:
    """Queues that do not hang from the top, or too far below: orphans, circles, the ends of long chains, and all below
    them. Each queue is walked over once. What is left can be walked by recursion.
    """
    found: dict[str, Problem] = {}
    sure: dict[str, int] = {}  # queues that hang from the top, and at which level
    for start in sorted(known):
        path: list[str] = []
        place: dict[str, int] = {}
        name = start
        while name and name in known and name not in sure and name not in found and name not in place:
            place[name] = len(path)
            path.append(name)
            name = known[name].spec.parent
        if name in place:
            circle = path[place[name] :]
            found |= {one: _circle(circle, one) for one in circle}
            path = path[: place[name]]
        elif name and name not in known:
            found[path[-1]] = Problem(
                Reason.PARENT_MISSING,
                f"parent {name} does not exist; create it or take spec.parent away",
                Severity.BROKEN,
            )
            path = path[:-1]
        for one in reversed(path):
            parent = known[one].spec.parent
            if parent in found:
                found[one] = Problem(
                    Reason.PARENT_BROKEN,
                    f"parent {parent} is not usable: {_root_cause(found, parent)}",
                    Severity.BROKEN,
                )
            elif (level := sure.get(parent, 0) + 1) > MAX_LEVELS:
                found[one] = Problem(
                    Reason.TOO_DEEP,
                    f"is more than {MAX_LEVELS} levels below the top; give it a parent nearer to it",
                    Severity.BROKEN,
                )
            else:
                sure[one] = level
    return found


def _circle(circle: list[str], one: str) -> Problem:
    at = circle.index(one)
    shown = [*circle[at:], *circle[:at], one]
    text = " -> ".join(shown if len(shown) <= 8 else [*shown[:6], "...", one])
    return Problem(
        Reason.CIRCLE, f"its parents form a circle: {text}; give one of them another parent or none", Severity.BROKEN
    )


def _root_cause(found: Mapping[str, Problem], parent: str) -> str:
    """Not grown by each level: a deep tree would repeat itself."""
    message = found[parent].message
    return message.partition("is not usable: ")[2] or message


def _own_problems(spec: queues.QueueSpec) -> Iterator[Problem]:
    """What is wrong with a queue looked at alone."""
    seen: dict[queueresources.Resource, str] = {}
    for name, share in sorted(spec.resources.items()):
        read = queueresources.read(name)
        if read is None:
            yield Problem(Reason.UNKNOWN_RESOURCE, _unknown(name), Severity.CLOSED)
        elif read in seen:
            text = f"{seen[read]} and {name} are the same resource; keep one of them"
            yield Problem(Reason.RESOURCE_TWICE, text, Severity.CLOSED)
        else:
            seen[read] = name
        yield from _share_problems(name, share)
    yield from _selector_problems(spec.namespace_selector)
    yield from _runtime_problems(spec)


def _share_problems(name: str, share: queues.Share) -> Iterator[Problem]:
    for field, value in (("quota", share.quota), ("limit", share.limit)):
        if value is not None and value.nanos < 0:
            yield Problem(Reason.NEGATIVE, f"resources.{name}.{field} is {value}, below zero", Severity.CLOSED)
    if share.weight < 0:
        yield Problem(Reason.NEGATIVE, f"resources.{name}.weight is {share.weight}, below zero", Severity.CLOSED)
    if share.quota is not None and share.limit is not None and share.limit < share.quota:
        text = f"resources.{name}: limit {share.limit} is below quota {share.quota}; the limit holds"
        yield Problem(Reason.LIMIT_BELOW_QUOTA, text, Severity.WARNING)


def _selector_problems(selector: meta.LabelSelector | None) -> Iterator[Problem]:
    """A test nobody can read holds nowhere, so the whole selector picks no namespace."""
    for index, one in enumerate(selector.match_expressions if selector is not None else ()):
        path = f"namespaceSelector.matchExpressions[{index}]"
        text = ""
        if one.operator in _WITH_VALUES and not one.values:
            text = f"{path}: {one.operator} needs values"
        elif one.operator in _WITHOUT_VALUES and one.values:
            text = f"{path}: {one.operator} takes no values"
        elif one.operator not in _WITH_VALUES | _WITHOUT_VALUES:
            text = f'{path}: "{one.operator}" is no operator; known: In, NotIn, Exists, DoesNotExist'
        if text:
            yield Problem(Reason.SELECTOR, text, Severity.CLOSED)


def _runtime_problems(spec: queues.QueueSpec) -> Iterator[Problem]:
    longest = spec.max_runtime_seconds
    for field in _RUNTIMES:
        value: int | None = getattr(spec, field)
        name = _camel(field)
        if value is not None and value < 0:
            yield Problem(Reason.NEGATIVE, f"{name} is {value}, below zero: not applied", Severity.WARNING)
        elif value is not None and value > durations.LONGEST_SECONDS:
            text = f"{name} {value} is longer than {durations.LONGEST_SECONDS}, a hundred years; that holds"
            yield Problem(Reason.RUNTIMES, text, Severity.WARNING)
        elif value is not None and longest is not None and 0 <= longest < value:
            text = f"{name} {value} is longer than maxRuntimeSeconds {longest}"
            yield Problem(Reason.RUNTIMES, text, Severity.WARNING)


def _overbooked(known: Queues, broken: set[str]) -> Iterator[tuple[str, Problem]]:
    """Parents whose children are promised more than they themselves are: not all of it can be had at once."""
    for parent, below in children({name: one for name, one in known.items() if name not in broken}).items():
        if not parent:
            continue
        promised = _promised(known, below)
        for name, share in sorted(known[parent].spec.resources.items()):
            read = queueresources.read(name)
            total = promised.get(read, 0) if read is not None else 0
            own = share.quota or quantity.ZERO
            if max(own.nanos, 0) < total and own < queues.UNLIMITED:
                text = (
                    f"resources.{name}: the quotas of {len(below)} {'child' if len(below) == 1 else 'children'} add up "
                    f"to {quantity.Quantity(total, own.format)}, its own quota is {own}"
                )
                yield parent, Problem(Reason.OVERBOOKED, text, Severity.WARNING)


def _promised(known: Queues, below: tuple[str, ...]) -> Counter[queueresources.Resource]:
    found: Counter[queueresources.Resource] = Counter()
    for child in below:
        for name, share in sound(known[child]).spec.resources.items():
            read = queueresources.read(name)
            if read is not None and share.quota is not None:
                found[read] += share.quota.nanos
    return found


def _shared_aliases(known: Queues) -> Iterator[tuple[str, Problem]]:
    """An alias two queues have opens neither. A queue's own name counts after all aliases."""
    owners: dict[str, set[str]] = defaultdict(set)
    for name, queue in known.items():
        for alias in queue.spec.aliases:
            owners[alias].add(name)
    for alias, names in sorted(owners.items()):
        if len(names) == 1:
            continue
        for name in sorted(names):
            others = ", ".join(sorted(names - {name})[:3])
            text = f"alias {alias} is also used by {others}; as long as it is, it opens none of them"
            yield name, Problem(Reason.ALIAS_TAKEN, text, Severity.WARNING)


def _sound_share(share: queues.Share) -> queues.Share:
    limit = _not_negative(share.limit)
    quota = _not_negative(share.quota)
    if quota is not None and limit is not None and limit < quota:
        quota = limit
    if quota is share.quota and limit is share.limit and share.weight >= 0:
        return share
    return queues.Share(quota=quota, limit=limit, weight=max(share.weight, 0))


def _not_negative(value: quantity.Quantity | None) -> quantity.Quantity | None:
    return quantity.ZERO if value is not None and value.nanos < 0 else value


def _camel(field: str) -> str:
    head, *rest = field.split("_")
    return head + "".join(map(str.capitalize, rest))


def _unknown(name: str) -> str:
    name = name if len(name) <= SHOWN_NAME else f"{name[:SHOWN_NAME]}..."
    if name.startswith(f"{queueresources.GPU}/"):
        known = ", ".join(f"gpu/{part}.<{'profile' if part == 'mig' else part}>" for part in queueresources.PARTS)
        return f"resources.{name} is not known; of GPUs there are gpu, {known}"
    return f"resources.{name} is not the name of a resource"


def _together(told: list[Problem]) -> Problem:
    """One problem that says everything, gravest first."""
    ordered = sorted(told, key=lambda one: -one.severity)
    message = "; ".join(one.message for one in ordered[:8])
    more = f"; and {len(ordered) - 8} more" if len(ordered) > 8 else ""
    return Problem(ordered[0].reason, message + more, ordered[0].severity)
