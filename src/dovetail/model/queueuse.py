"""Decides which queue a workload may use, by what it says of itself and where it lives.

A label alone opens nothing: the queue's namespaceSelector must pick the namespace, and only queues without children
take work. Asked in this order: the label dovetail.dev/queue; Kueue's label; KAI's label (both by alias, or by a queue's
own name); the label dovetail.dev/queue of the namespace; and where none of them is there, the only queue that takes the
namespace.
Given queues, namespaces and labels; answers a queue or a reason with what to do. Never counts what a queue has left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from dovetail.model import gangs, labels, meta, namespaces, queues, queuetree

KUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"  # names a LocalQueue of the pod's namespace
KAI_LABEL: Final = "kai.scheduler/queue"
NAME_LABEL: Final = "kubernetes.io/metadata.name"  # every namespace has it: core/v1 LabelMetadataName
SHOWN: Final = 4  # names listed in a message


class Verdict(StrEnum):
    """Why a workload has no queue it may use, or that it has."""

    GIVEN = "QueueGiven"
    NONE = "NoQueue"  # it names none, and none takes its namespace
    SEVERAL = "SeveralQueues"  # it names none, and several take its namespace
    UNKNOWN = "QueueUnknown"
    PARENT = "QueueHasChildren"
    CLOSED = "QueueNotUsable"  # the queue itself is not in order
    REFUSED = "QueueRefusesNamespace"


class Resolved(NamedTuple):
    """The queue a workload may use; without one, why and what to do."""

    queue: str | None
    reason: str = ""
    verdict: Verdict = Verdict.GIVEN
    named: str | None = None  # the queue it means, allowed or not: what runs already is charged there


class Doors:
    """Who may use what, for one set of queues and namespaces. Answers are remembered; a change needs a new one."""

    def __init__(self, known: Mapping[str, queues.Queue], spaces: Mapping[str, namespaces.Namespace]) -> None:
        self._known = known
        self._spaces = spaces
        self._problems = queuetree.problems(known)
        self._parents = frozenset(queue.spec.parent for queue in known.values()) - {""}
        self._tests = {name: labels.tests_of(queue.spec.namespace_selector) for name, queue in known.items()}
        self._aliases = _owners_of_aliases(known)
        self._leaves: dict[str, tuple[str, ...]] = {}
        self._answers: dict[tuple[str, str, str, str], Resolved] = {}

    def resolve(self, pod_labels: Mapping[str, str], namespace: str, *, named: str = "") -> Resolved:
        """The queue of a workload with these labels. `named` is what its owner says, as if the label said it."""
        own = named or pod_labels.get(gangs.QUEUE_LABEL, "")
        key = (namespace, own, pod_labels.get(KUEUE_LABEL, ""), pod_labels.get(KAI_LABEL, ""))
        found = self._answers.get(key)
        if found is None:
            found = self._answers[key] = self._judged(*key)
        return found

    def _judged(self, namespace: str, own: str, kueue: str, kai: str) -> Resolved:
        if own:
            return self._entered(own, namespace, f"label {gangs.QUEUE_LABEL}")
        if kueue:
            return self._by_alias((f"{namespace}/{kueue}", kueue), namespace, KUEUE_LABEL)
        if kai:
            return self._by_alias((kai,), namespace, KAI_LABEL)
        if default := self._labels_of(namespace).get(gangs.QUEUE_LABEL, ""):
            return self._entered(default, namespace, f"label {gangs.QUEUE_LABEL} of the namespace")
        return self._by_namespace(namespace)

    def _by_alias(self, spellings: tuple[str, ...], namespace: str, label: str) -> Resolved:
        """By the first spelling anybody has as an alias, else by a queue of that very name."""
        for alias in spellings:
            owners = self._aliases.get(alias, ())
            if len(owners) == 1:
                return self._entered(owners[0], namespace, f"label {label}")
            if owners:
                text = f"queues {_listed(owners)} all have the alias {alias}; leave it on one of them"
                return Resolved(None, text, Verdict.CLOSED)
        if spellings[-1] in self._known:
            return self._entered(spellings[-1], namespace, f"label {label}")
        text = f"no queue has the alias {spellings[0]} (label {label}); add it to spec.aliases of the queue meant"
        return Resolved(None, text, Verdict.UNKNOWN)

    def _entered(self, name: str, namespace: str, source: str) -> Resolved:
        """Whether the namespace may use the queue it names."""
        if name not in self._known:
            text = f"queue {name} ({source}) does not exist; have it created or name another (dovetail get queues)"
            return Resolved(None, text, Verdict.UNKNOWN)
        problem = self._problems.get(name)
        if problem is not None and not problem.takes_work:
            return Resolved(None, f"queue {name} is not usable: {problem.message}", Verdict.CLOSED, name)
        if name in self._parents:
            below = sorted(one for one, queue in self._known.items() if queue.spec.parent == name)
            text = f"queue {name} has queues below it and takes no work itself; name one of them: {_listed(below)}"
            return Resolved(None, text, Verdict.PARENT, name)
        if not self._takes(name, namespace):
            return Resolved(None, self._refusal(name, namespace), Verdict.REFUSED, name)
        return Resolved(name, named=name)

    def _by_namespace(self, namespace: str) -> Resolved:
        """The only queue that takes the namespace; those that are not in order count, or a repair would move work."""
        leaves = self._leaves.get(namespace)
        if leaves is None:
            leaves = self._leaves[namespace] = tuple(
                name for name in sorted(self._known) if name not in self._parents and self._takes(name, namespace)
            )
        if len(leaves) == 1:
            return self._entered(leaves[0], namespace, "by its namespace")
        if not leaves:
            text = f"no queue takes namespace {namespace}, and label {gangs.QUEUE_LABEL} names none"
            return Resolved(None, f"{text}; have a queue's namespaceSelector pick the namespace", Verdict.NONE)
        text = f"namespace {namespace} may use {len(leaves)} queues ({_listed(leaves)})"
        return Resolved(None, f"{text}; name one by label {gangs.QUEUE_LABEL}", Verdict.SEVERAL)

    def _takes(self, name: str, namespace: str) -> bool:
        return labels.passes(self._tests[name], self._labels_of(namespace))

    def _refusal(self, name: str, namespace: str) -> str:
        selector = self._known[name].spec.namespace_selector
        if selector is None:
            return f"queue {name} takes no namespace: it has no namespaceSelector; have one set that picks {namespace}"
        return (
            f"queue {name} does not take namespace {namespace}: its namespaceSelector asks {written(selector)}; "
            f"have the namespace labelled so, or name another queue"
        )

    def _labels_of(self, namespace: str) -> Mapping[str, str]:
        known = self._spaces.get(namespace)
        own = known.metadata.labels if known is not None else {}
        return own if NAME_LABEL in own else {**own, NAME_LABEL: namespace}


def resolve(
    pod_labels: Mapping[str, str],
    namespace: str,
    *,
    spaces: Mapping[str, namespaces.Namespace],
    known: Mapping[str, queues.Queue],
) -> Resolved:
    """The queue of one workload. For many, keep `Doors`: this reads all queues anew."""
    return Doors(known, spaces).resolve(pod_labels, namespace)


def written(selector: meta.LabelSelector) -> str:
    """A selector as kubectl writes one."""
    parts = [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    for one in selector.match_expressions:
        match one.operator:
            case "Exists":
                parts.append(one.key)
            case "DoesNotExist":
                parts.append(f"!{one.key}")
            case _:
                parts.append(f"{one.key} {one.operator.lower()} ({', '.join(one.values)})")
    return ", ".join(parts)


def _owners_of_aliases(known: Mapping[str, queues.Queue]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = defaultdict(list)
    for name in sorted(known):
        for alias in dict.fromkeys(known[name].spec.aliases):
            found[alias].append(name)
    return {alias: tuple(names) for alias, names in found.items()}


def _listed(names: tuple[str, ...] | list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
