"""Decides which queue a workload may use, by its labels and its namespace.

A label alone grants nothing: the queue's namespaceSelector must match the namespace, and only queues without children
accept work. In this order: the label dovetail.dev/queue; Kueue's label; KAI's label (both by alias, or by a queue's own
name); the label dovetail.dev/queue of the namespace; and without any of them, the only queue that accepts the
namespace.
Given queues, namespaces and labels; returns a queue, or the reason why there is none with the next step. Never counts
what a queue has left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from dovetail.kubetypes import label_selectors, meta
from dovetail.kubetypes.core import namespaces
from dovetail.kubetypes.custom import queues
from dovetail.model import gangs
from dovetail.model.queue import queue_tree

KUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"  # names a LocalQueue of the pod's namespace
KAI_LABEL: Final = "kai.scheduler/queue"
NAME_LABEL: Final = "kubernetes.io/metadata.name"  # on every namespace: core/v1 LabelMetadataName
SHOWN: Final = 4  # names listed in a message


class Verdict(StrEnum):
    """Whether a workload has a queue it may use, and why not."""

    GIVEN = "QueueGiven"
    NONE = "NoQueue"  # it names none, and none accepts its namespace
    SEVERAL = "SeveralQueues"  # it names none, and several accept its namespace
    UNKNOWN = "QueueUnknown"
    PARENT = "QueueHasChildren"
    CLOSED = "QueueNotUsable"  # the queue itself has a problem
    REFUSED = "QueueRefusesNamespace"


class Resolved(NamedTuple):
    """The queue a workload may use; without one, the reason and the next step."""

    queue: str | None
    reason: str = ""
    verdict: Verdict = Verdict.GIVEN
    requested_queue: str | None = (
        None  # the queue it means, allowed or not: running pods are charged to it
    )


class QueueAccess:
    """Which workloads may use which queue, for one set of queues and namespaces.

    Results are cached; after a change of queues or namespaces make a new one.
    """

    def __init__(
        self, all_queues: Mapping[str, queues.Queue], spaces: Mapping[str, namespaces.Namespace]
    ) -> None:
        self._known = all_queues
        self._spaces = spaces
        self._problems = queue_tree.problems(all_queues)
        self._parents = frozenset(queue.spec.parent for queue in all_queues.values()) - {""}
        self._tests = {
            name: label_selectors.tests_of(queue.spec.namespace_selector)
            for name, queue in all_queues.items()
        }
        self._aliases = _owners_of_aliases(all_queues)
        self._leaves: dict[str, tuple[str, ...]] = {}
        self._answers: dict[tuple[str, str, str, str], Resolved] = {}

    def resolve(
        self, pod_labels: Mapping[str, str], namespace: str, *, named: str = ""
    ) -> Resolved:
        """The queue of a workload with these labels. `named` is the queue its owner names, and replaces the label."""
        own = named or pod_labels.get(gangs.QUEUE_LABEL, "")
        key = (namespace, own, pod_labels.get(KUEUE_LABEL, ""), pod_labels.get(KAI_LABEL, ""))
        resolved = self._answers.get(key)
        if resolved is None:
            resolved = self._answers[key] = self._resolve(*key)
        return resolved

    def _resolve(self, namespace: str, own: str, kueue: str, kai: str) -> Resolved:
        if own:
            return self._by_name(own, namespace, f"label {gangs.QUEUE_LABEL}")
        if kueue:
            return self._by_alias((f"{namespace}/{kueue}", kueue), namespace, KUEUE_LABEL)
        if kai:
            return self._by_alias((kai,), namespace, KAI_LABEL)
        if default := self._labels_of(namespace).get(gangs.QUEUE_LABEL, ""):
            return self._by_name(default, namespace, f"label {gangs.QUEUE_LABEL} of the namespace")
        return self._by_namespace(namespace)

    def _by_alias(self, spellings: tuple[str, ...], namespace: str, label: str) -> Resolved:
        """By the first spelling that is an alias of a queue, else by the queue of that name."""
        for alias in spellings:
            owners = self._aliases.get(alias, ())
            if len(owners) == 1:
                return self._by_name(owners[0], namespace, f"label {label}")
            if owners:
                text = (
                    f"queues {_listed(owners)} all have the alias {alias}; leave it on one of them"
                )
                return Resolved(None, text, Verdict.CLOSED)
        if spellings[-1] in self._known:
            return self._by_name(spellings[-1], namespace, f"label {label}")
        text = f"no queue has the alias {spellings[0]} (label {label}); add it to spec.aliases of the queue meant"
        return Resolved(None, text, Verdict.UNKNOWN)

    def _by_name(self, name: str, namespace: str, source: str) -> Resolved:
        """Checks that the namespace may use the queue of this name."""
        if name not in self._known:
            text = f"queue {name} ({source}) does not exist; have it created or name another (dovetail get queues)"
            return Resolved(None, text, Verdict.UNKNOWN)
        problem = self._problems.get(name)
        if problem is not None and not problem.takes_work:
            return Resolved(
                None, f"queue {name} is not usable: {problem.message}", Verdict.CLOSED, name
            )
        if name in self._parents:
            below = sorted(
                child for child, queue in self._known.items() if queue.spec.parent == name
            )
            text = f"queue {name} has queues below it and takes no work itself; name one of them: {_listed(below)}"
            return Resolved(None, text, Verdict.PARENT, name)
        if not self._accepts(name, namespace):
            return Resolved(None, self._refusal(name, namespace), Verdict.REFUSED, name)
        return Resolved(name, requested_queue=name)

    def _by_namespace(self, namespace: str) -> Resolved:
        """The only queue that accepts the namespace.

        Queues with a problem count: otherwise repairing one would move work between queues.
        """
        leaves = self._leaves.get(namespace)
        if leaves is None:
            candidates = [name for name in sorted(self._known) if name not in self._parents]
            leaves = tuple(name for name in candidates if self._accepts(name, namespace))
            self._leaves[namespace] = leaves
        if len(leaves) == 1:
            return self._by_name(leaves[0], namespace, "by its namespace")
        if not leaves:
            text = f"no queue takes namespace {namespace}, and label {gangs.QUEUE_LABEL} names none"
            return Resolved(
                None, f"{text}; have a queue's namespaceSelector pick the namespace", Verdict.NONE
            )
        text = f"namespace {namespace} may use {len(leaves)} queues ({_listed(leaves)})"
        return Resolved(None, f"{text}; name one by label {gangs.QUEUE_LABEL}", Verdict.SEVERAL)

    def _accepts(self, name: str, namespace: str) -> bool:
        return label_selectors.passes(self._tests[name], self._labels_of(namespace))

    def _refusal(self, name: str, namespace: str) -> str:
        selector = self._known[name].spec.namespace_selector
        if selector is None:
            return f"queue {name} takes no namespace: it has no namespaceSelector; have one set that picks {namespace}"
        return (
            f"queue {name} does not take namespace {namespace}: its namespaceSelector asks {selector_text(selector)}; "
            f"have the namespace labelled so, or name another queue"
        )

    def _labels_of(self, namespace: str) -> Mapping[str, str]:
        space = self._spaces.get(namespace)
        labels = space.metadata.labels if space is not None else {}
        return labels if NAME_LABEL in labels else {**labels, NAME_LABEL: namespace}


def resolve(
    pod_labels: Mapping[str, str],
    namespace: str,
    *,
    spaces: Mapping[str, namespaces.Namespace],
    all_queues: Mapping[str, queues.Queue],
) -> Resolved:
    """The queue of one workload. Reads all queues on every call; for many workloads keep one `Doors`."""
    return QueueAccess(all_queues, spaces).resolve(pod_labels, namespace)


def selector_text(selector: meta.LabelSelector) -> str:
    """A selector as kubectl writes one."""
    parts = [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    for test in selector.match_expressions:
        match test.operator:
            case "Exists":
                parts.append(test.key)
            case "DoesNotExist":
                parts.append(f"!{test.key}")
            case _:
                parts.append(f"{test.key} {test.operator.lower()} ({', '.join(test.values)})")
    return ", ".join(parts)


def _owners_of_aliases(all_queues: Mapping[str, queues.Queue]) -> dict[str, tuple[str, ...]]:
    owners: dict[str, list[str]] = defaultdict(list)
    for name in sorted(all_queues):
        for alias in dict.fromkeys(all_queues[name].spec.aliases):
            owners[alias].append(name)
    return {alias: tuple(names) for alias, names in owners.items()}


def _listed(names: tuple[str, ...] | list[str]) -> str:
    shown = ", ".join(names[:SHOWN])
    hidden = len(names) - SHOWN
    return f"{shown} and {hidden} more" if hidden > 0 else shown
